"""What `deploy/` says of the server is true of the server: options, files, paths, times and metrics."""

import configparser
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gearshift.cli.main import main_group
from gearshift.observability.language_metrics import LanguageMetrics
from gearshift.observability.metrics import Metrics
from gearshift.runtime.backends.workers_backend import LONGEST_STOP_S
from gearshift.runtime.workers.worker_process import KILL_WAIT_S, TERMINATE_WAIT_S
from gearshift.serving.server import LONGEST_END_S
from tests.end_to_end.test_server import body, get, infer, serving
from tests.unit.serving.http.test_application import serve

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
OF_PROMETHEUS = {"up"}
AFTER_DRAINING_S = LONGEST_STOP_S + TERMINATE_WAIT_S + KILL_WAIT_S + LONGEST_END_S


def served_with(arguments: list[str]) -> dict[str, Any]:
    """The options of `gearshift serve` that a command line gives; fails where it would be refused."""
    command = main_group.get_command(None, "serve")
    with command.make_context("serve", list(arguments)) as context:
        return context.params


def instructions() -> list[tuple[str, str]]:
    text = (DEPLOY / "Containerfile").read_text().replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1].strip()) for line in lines]


def only(name: str) -> str:
    (value,) = [value for instruction, value in instructions() if instruction == name]
    return value


def build_arguments() -> dict[str, str]:
    """What the container is built with, unless others are given."""
    return dict(value.split("=") for name, value in instructions() if name == "ARG")


def unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=False, interpolation=None, comment_prefixes=("#",), delimiters=("=",))
    parser.optionxform = str
    parser.read(DEPLOY / "gearshift.service")
    return parser


def documents(name: str) -> list[Any]:
    return list(yaml.safe_load_all((DEPLOY / name).read_text()))


# The container -------------------------------------------------------------------------------------------------------


def test_the_container_is_built_with_the_simulator_compiled_where_its_user_finds_it():
    (warming,) = [value for name, value in instructions() if name == "RUN" and "doctor" in value]
    command, owned = warming.split(" && ")
    words = command.split()
    assert words[:2] == ["gearshift", "doctor"]
    doctor = main_group.get_command(None, "doctor")
    with doctor.make_context("doctor", words[2:]) as context:
        assert context.params["warm"]
    cache = next(word for name, value in instructions() if name == "ENV" for word in value.split() if "XDG" in word)
    assert owned.split()[-2:] == [only_user(), cache.removeprefix("XDG_CACHE_HOME=")]


def only_user() -> str:
    return [value for name, value in instructions() if name == "USER"][-1]


def test_the_container_runs_a_command_line_that_serve_takes():
    entry, arguments = json.loads(only("ENTRYPOINT")), json.loads(only("CMD"))
    assert entry == ["gearshift", "serve"]
    assert str(served_with(arguments)["port"]) == only("EXPOSE")
    assert only("STOPSIGNAL") == "SIGTERM"


def test_the_container_does_not_run_as_root():
    names = [name for name, _ in instructions()]
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", only("USER"))
    assert names.index("USER") > max(i for i, name in enumerate(names) if name in ("RUN", "COPY"))


def test_the_container_is_built_of_files_and_extras_that_exist():
    sources = [value.split()[:-1] for name, value in instructions() if name == "COPY" and "--from" not in value]
    assert all((ROOT / source).exists() for group in sources for source in group)
    copied = {source for group in sources for source in group}
    assert {"pyproject.toml", "README.md", "LICENSE", "constraints.txt", "src"} <= copied
    offered = re.findall(r"^(\w+) = \[", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert set(build_arguments()["EXTRAS"].split(",")) <= set(offered)
    assert build_arguments()["COMPILE"] == "false"
    assert "HATCH_BUILD_HOOK_ENABLE_MYPYC=${COMPILE}" in next(value for name, value in instructions() if name == "RUN")


def test_the_containers_health_check_tells_a_server_that_lives_from_none(tmp_path):
    options, _, command = only("HEALTHCHECK").partition(" CMD ")
    words, tries = json.loads(command), int(re.search(r"--retries=(\d+)", options)[1])
    port = re.search(r":(\d+)/livez", words[2])[1]
    assert port == only("EXPOSE")

    def check(url: str) -> int:
        code = words[2].replace(f"http://127.0.0.1:{port}", url)
        return subprocess.run([sys.executable, "-c", code], stderr=subprocess.DEVNULL, check=False).returncode

    with serving(tmp_path, "emulated") as server:
        assert 0 in (check(server.url) for _ in range(tries))
    assert check(server.url) != 0


# systemd -------------------------------------------------------------------------------------------------------------


def test_the_unit_runs_a_command_line_that_serve_takes():
    program, verb, *arguments = shlex.split(unit()["Service"]["ExecStart"])
    assert (Path(program).name, verb) == ("gearshift", "serve")
    assert served_with(arguments)["journal"].is_relative_to(f"/var/lib/{unit()['Service']['StateDirectory']}")


def test_the_unit_lets_the_server_drain_before_it_kills():
    service = unit()["Service"]
    drain_s = served_with(shlex.split(service["ExecStart"])[2:])["drain_s"]
    assert int(service["TimeoutStopSec"]) >= drain_s + 5 + LONGEST_END_S
    assert service["KillMode"] == "mixed"  # workers that got the signal too would lose what they run
    assert service["KillSignal"] == "SIGTERM"


def test_the_unit_gives_keys_of_users_and_of_administration_as_credentials():
    text = (DEPLOY / "gearshift.service").read_text()
    credentials = set(re.findall(r"^LoadCredential=([\w-]+):/etc/gearshift/[\w-]+$", text, re.MULTILINE))
    options = served_with(shlex.split(unit()["Service"]["ExecStart"])[2:])
    given = {options["api_keys"], options["admin_keys"]}
    assert given == {f"${{CREDENTIALS_DIRECTORY}}/{name}" for name in credentials}
    assert len(given) == 2


def test_the_unit_does_not_start_again_what_cannot_be_served():
    service = unit()["Service"]
    assert (service["Restart"], service["RestartPreventExitStatus"]) == ("on-failure", "2")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not here")
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path):
    text = (DEPLOY / "gearshift.service").read_text().replace("/opt/gearshift/bin/gearshift", "/bin/true")
    (tmp_path / "gearshift.service").write_text(text)
    command = ["systemd-analyze", "verify", "--man=no", str(tmp_path / "gearshift.service")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, [line for line in done.stderr.splitlines() if "gearshift.service" in line]) == (0, [])


# Kubernetes ----------------------------------------------------------------------------------------------------------


def container() -> tuple[dict[str, Any], dict[str, Any]]:
    pod = documents("kubernetes.yaml")[0]["spec"]["template"]["spec"]
    return pod, pod["containers"][0]


def test_the_deployment_runs_a_command_line_that_serve_takes():
    _, one = container()
    options = served_with(one["args"])
    assert options["port"] == one["ports"][0]["containerPort"]
    mounts = [Path(mount["mountPath"]) for mount in one["volumeMounts"]]
    for keys in {options["api_keys"], options["admin_keys"]}:
        assert any(Path(keys).is_relative_to(mount) for mount in mounts)
    assert options["api_keys"] != options["admin_keys"]
    assert mounts[0] == Path([value for name, value in instructions() if name == "WORKDIR"][-1])


@pytest.mark.parametrize("name", ["kubernetes.yaml", "kubernetes-ray.yaml"])
def test_keys_in_a_pod_are_read_by_its_group_alone(name):
    found = list(secrets_of(documents(name)[0]))
    assert [(volume["secret"]["defaultMode"], group) for volume, group in found] == [(0o440, 10001)]


def secrets_of(content: Any) -> Iterator[tuple[Any, int]]:
    """The volumes of secrets in pods, each with the group that the pod's files belong to."""
    if isinstance(content, dict):
        for volume in content.get("volumes", ()):
            if "secret" in volume:
                yield volume, content["securityContext"]["fsGroup"]
    for part in content.values() if isinstance(content, dict) else content if isinstance(content, list) else ():
        yield from secrets_of(part)


def test_the_deployment_probes_paths_that_ask_for_no_key(tmp_path):
    (tmp_path / "keys").write_text("a-key-of-the-deployment\n")
    with serving(tmp_path, "emulated", api_keys=str(tmp_path / "keys")) as server:
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert get(server, container()[1][probe]["httpGet"]["path"])[0] == 200


def test_the_deployment_lets_the_server_drain_before_it_kills():
    pod, one = container()
    before_s = int(one["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod["terminationGracePeriodSeconds"] >= before_s + served_with(one["args"])["drain_s"] + AFTER_DRAINING_S


def test_the_service_leads_to_the_deployments_pods():
    deployment, service = documents("kubernetes.yaml")
    assert service["spec"]["selector"].items() <= deployment["spec"]["template"]["metadata"]["labels"].items()
    assert service["spec"]["ports"][0]["targetPort"] == container()[1]["ports"][0]["name"]
    assert container()[0]["securityContext"]["runAsUser"] == int(only("USER").partition(":")[0])


# Prometheus ----------------------------------------------------------------------------------------------------------


def rules() -> list[dict[str, Any]]:
    (content,) = documents("prometheus/alerts.yml")
    return [rule for group in content["groups"] for rule in group["rules"]]


@pytest.fixture(scope="module")
def exported(tmp_path_factory) -> str:
    """What a real server answers at /metrics after a request that was answered and one that failed.

    And what a server of language models does of engines.
    """
    language = LanguageMetrics("chat", ("small",), ("small-0",))
    language.failures.labels("small", "small-0", "stalled").inc()
    with serving(tmp_path_factory.mktemp("task")) as server:
        assert infer(server, body((0, 1)))[0] == 200
        assert infer(server, body((666, 1)))[0] == 500
        return get(server, "/metrics")[1] + language.text().decode()


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_an_alert_is_about_metrics_and_labels_that_the_server_exports(exported, rule):
    names = set(re.findall(r"\b(gearshift_\w+|up)\b", rule["expr"]))
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", exported, re.MULTILINE))
    assert names
    assert names - OF_PROMETHEUS <= set(types)
    counters = {name for name in names if types.get(name) == "counter"}
    assert counters == {name for name in names if re.search(rf"(rate|increase)\({name}\b", rule["expr"])}
    selected = set(re.findall(r'(\w+)=~?"', rule["expr"])) | {
        label for group in re.findall(r"by \(([^)]*)\)", rule["expr"]) for label in re.split(r",\s*", group)
    }
    labels = set(re.findall(r'[{,](\w+)="', exported)) | {"instance", "job"}
    assert selected <= labels
    assert {"summary", "action"} <= set(rule["annotations"])


def test_outcomes_in_alerts_are_those_that_there_are():
    outcomes = {
        one for rule in rules() for text in re.findall(r'outcome=~?"([^"]*)"', rule["expr"]) for one in text.split("|")
    }
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    (row,) = [line for line in page.splitlines() if line.startswith("| `gearshift_requests_total`")]
    assert outcomes <= set(re.findall(r"`(\w+)`", row))


def test_every_exported_metric_stands_in_the_reference(exported):
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    names = [name for name, _ in re.findall(r"^# TYPE (\S+) (\S+)$", exported, re.MULTILINE)]
    assert [name for name in names if not name.endswith("_created") and f"`{name}`" not in page] == []


def test_the_scrape_example_loads_the_alerts_and_asks_a_path_that_exists():
    (content,) = documents("prometheus/scrape.yml")
    (job,) = content["scrape_configs"]
    assert [(DEPLOY / "prometheus" / name).is_file() for name in content["rule_files"]] == [True]
    assert job["metrics_path"] in serve(paths)
    assert f'up{{job="{job["job_name"]}"}}' in {rule["alert"]: rule["expr"] for rule in rules()}["GearshiftDown"]


async def paths(server: Any) -> Any:
    return server.handler.paths


def test_a_server_that_loads_is_not_ready_in_its_metrics():
    assert b"gearshift_ready 0.0" in Metrics().text()
