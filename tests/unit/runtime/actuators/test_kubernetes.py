import ssl
from pathlib import Path

import pytest

from gearshift.errors import InvalidInput
from gearshift.runtime.actuators.base import EmulatedActuator
from gearshift.runtime.actuators.cgroup import cores_of_group
from gearshift.runtime.actuators.kubernetes import BesideRouter, KubernetesActuator, container_here
from tests.certificates import write_certificate
from tests.unit.runtime.actuators.stand_ins import api_server, group_v2

HERE = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443", "HOSTNAME": "gears"}


def write_account(folder: Path, certificate: str = "") -> Path:
    folder.mkdir()
    for name, text in (("token", "secret\n"), ("namespace", "models\n"), ("ca.crt", certificate)):
        (folder / name).write_text(text)
    return folder


def test_a_container_is_found_by_the_environment_and_the_service_account(tmp_path: Path) -> None:
    account = write_account(tmp_path / "account")
    here = container_here("server", environ=HERE, account=account)
    assert (here.server, here.namespace, here.pod, here.container) == (
        "https://10.0.0.1:443",
        "models",
        "gears",
        "server",
    )
    assert here.token_file == account / "token"
    assert container_here("a", environ=HERE | {"KUBERNETES_SERVICE_HOST": "fd00::1"}, account=account).server == (
        "https://[fd00::1]:443"
    )


def test_outside_a_pod_that_is_said_with_a_remedy(tmp_path: Path) -> None:
    account = write_account(tmp_path / "account")
    for environ, folder in (({}, account), (HERE, tmp_path)):
        with pytest.raises(InvalidInput, match=r"in no pod with a service account.*--actuator processors"):
            container_here("server", environ=environ, account=folder)
    with pytest.raises(InvalidInput, match="pod '' is no name that Kubernetes allows"):
        container_here("server", environ=HERE | {"HOSTNAME": ""}, account=account)


def test_the_api_server_of_the_cluster_is_spoken_to_with_its_certificate_and_the_token(tmp_path: Path) -> None:
    settings = write_certificate(tmp_path)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(settings["tls_certificate"], settings["tls_key"])
    account = write_account(tmp_path / "account", Path(settings["tls_certificate"]).read_text())
    group = group_v2(tmp_path / "own")
    with api_server(group, tls=tls) as server:
        where = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": server.url.rsplit(":", 1)[1]}
        container = container_here("gearshift", environ=HERE | where, account=account)
        assert container.server == server.url
        effect = BesideRouter(KubernetesActuator(container, group, longest_s=5.0)).apply(3)
    assert (effect.cores, effect.problem, cores_of_group(group, 2)) == (3, "", 4)
    assert server.tokens == ["Bearer secret"]


def test_what_a_pod_began_with_does_not_count_before_it_was_asked() -> None:
    actuator = BesideRouter(EmulatedActuator(cores=4))
    assert actuator.in_force() == 0
    assert (actuator.apply(1).cores, actuator.in_force()) == (1, 1)
