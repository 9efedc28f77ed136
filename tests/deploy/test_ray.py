"""What `deploy/kubernetes-ray.yaml` says of Ray and of the server is true of both."""

import re
import shlex
from pathlib import Path
from typing import Any

from gearshift.cli.main import main_group
from tests.deploy.test_deploy import AFTER_DRAINING_S, ROOT, build_arguments, documents, served_with

NAME = "kubernetes-ray.yaml"


def cluster() -> dict[str, Any]:
    return documents(NAME)[0]


def head() -> tuple[dict[str, Any], dict[str, Any]]:
    pod = cluster()["spec"]["headGroupSpec"]["template"]["spec"]
    return pod, pod["containers"][0]


def workers() -> tuple[dict[str, Any], dict[str, Any]]:
    (group,) = cluster()["spec"]["workerGroupSpecs"]
    pod = group["template"]["spec"]
    return pod, pod["containers"][0]


def commands() -> list[list[str]]:
    """The shell's commands of the head, in order."""
    words = shlex.split(head()[1]["args"][0].replace(";", " ; "))
    text = " ".join(shlex.quote(word) if word not in (";", "&&") else word for word in words)
    return [shlex.split(one) for one in re.split(r" (?:;|&&) ", text)]


def options() -> dict[str, Any]:
    """Of `gearshift serve` on the head."""
    exec_, program, verb, *arguments = commands()[-1]
    assert (exec_, program, verb) == ("exec", "gearshift", "serve")
    return served_with(arguments)


def test_it_is_a_ray_cluster_whose_commands_are_its_own():
    kinds = [(one["apiVersion"], one["kind"]) for one in documents(NAME)]
    assert kinds == [("ray.io/v1", "RayCluster"), ("v1", "Service"), ("networking.k8s.io/v1", "NetworkPolicy")]
    assert cluster()["metadata"]["annotations"]["ray.io/overwrite-container-cmd"] == "true"
    assert "KUBERAY_GEN_RAY_START_CMD" in workers()[1]["args"][0]


def test_the_head_starts_ray_without_cores_for_workers_and_then_the_server_on_it():
    ray = commands()[-2]
    assert ray[:3] == ["ray", "start", "--head"]
    assert "--num-cpus=0" in ray
    assert (options()["backend"], options()["address"]) == ("ray", "auto")
    ports = {port["name"]: port["containerPort"] for port in head()[1]["ports"]}
    assert ports == {"gcs-server": 6379, "http": options()["port"]}
    assert f"--port={ports['gcs-server']}" in ray


def test_ray_s_version_is_the_one_that_is_tested_and_the_image_brings_it():
    assert f"ray=={cluster()['spec']['rayVersion']}\n" in (ROOT / "constraints.txt").read_text()
    extras = re.search(r"EXTRAS=(\S+?)\.\s", (ROOT / "deploy" / NAME).read_text())[1].split(",")
    assert "ray" in extras
    assert set(build_arguments()["EXTRAS"].split(",")) < set(extras)


def test_all_pods_ask_for_the_token_that_the_file_says_how_to_make():
    text = (ROOT / "deploy" / NAME).read_text()
    secret, key = re.search(r"create secret generic (\S+) --from-literal=(\w+)=", text).groups()
    for _, one in (head(), workers()):
        environment = {variable["name"]: variable for variable in one["env"]}
        assert environment["RAY_AUTH_MODE"]["value"] == "token"
        assert environment["RAY_AUTH_TOKEN"]["valueFrom"] == {"secretKeyRef": {"name": secret, "key": key}}
    major, minor, _ = cluster()["spec"]["rayVersion"].split(".")
    assert (int(major), int(minor)) >= (2, 52)


def test_all_pods_mount_the_task_at_the_same_path():
    paths = {
        mount["mountPath"]
        for pod, one in (head(), workers())
        for mount in one["volumeMounts"]
        if mount["name"] == "task" and {"name": "task", **claim(pod)} in pod["volumes"]
    }
    assert len(paths) == 1
    for keys in (options()["api_keys"], options()["admin_keys"]):
        assert any(Path(keys).is_relative_to(mount["mountPath"]) for mount in head()[1]["volumeMounts"])


def claim(pod: dict[str, Any]) -> dict[str, Any]:
    (volume,) = [volume for volume in pod["volumes"] if volume["name"] == "task"]
    return {"persistentVolumeClaim": volume["persistentVolumeClaim"]}


def test_the_head_may_load_its_models_and_drain():
    pod, one = head()
    before_s = int(one["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod["terminationGracePeriodSeconds"] >= before_s + options()["drain_s"] + AFTER_DRAINING_S
    probe = one["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] >= options()["longest_start_s"]


def test_the_service_and_the_policy_mean_these_pods():
    _, service, policy = documents(NAME)
    labels = cluster()["spec"]["headGroupSpec"]["template"]["metadata"]["labels"]
    of_workers = cluster()["spec"]["workerGroupSpecs"][0]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    assert not service["spec"]["selector"].items() <= of_workers.items()
    assert service["spec"]["ports"][0]["targetPort"] in [port["name"] for port in head()[1]["ports"]]
    for some in (labels, of_workers):
        assert policy["spec"]["podSelector"]["matchLabels"].items() <= some.items()
    assert policy["spec"]["ingress"][1]["ports"][0]["port"] == options()["port"]


def test_every_option_is_one_of_serve():
    flags = {flag for parameter in main_group.get_command(None, "serve").params for flag in parameter.opts}
    assert {word.partition("=")[0] for word in commands()[-1] if word.startswith("--")} <= flags
