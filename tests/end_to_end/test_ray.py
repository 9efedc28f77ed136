"""A server whose workers are on real nodes of a real Ray cluster; its nodes are processes of this machine."""

import asyncio
import random
import re
import signal
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gearshift.gear import GearPlan
from gearshift.hardware import identical_devices
from tests.end_to_end.test_server import Server, body, infer, speak
from tests.end_to_end.test_swap import swap
from tests.little_task import little_plan, write_little_task
from tests.programs import faults, faults_on_ray
from tests.programs.ray_nodes import ON_LOOPBACK, RayNodes

NOTHING = {"actors": 0, "groups": 0}
LONGEST_S = 30.0

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def nodes() -> Iterator[RayNodes]:
    if find_spec("ray") is None:  # and not imported here, where it would keep the machine's address for good
        pytest.skip("ray is not installed; `make test-long` does that")
    with RayNodes(faults_on_ray.NODES) as nodes:
        yield nodes


@pytest.fixture(autouse=True)
def on_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ON_LOOPBACK.items():
        monkeypatch.setenv(name, value)


def serve(nodes: RayNodes, plan: Path, **settings: Any) -> Server:
    return Server(plan, "ray", {"address": nodes.address, **settings})


def until_nothing_is_left(nodes: RayNodes) -> None:
    end = time.monotonic() + LONGEST_S
    while nodes.actors() != NOTHING or any(nodes.workers()):
        assert time.monotonic() < end, (nodes.actors(), nodes.workers())
        time.sleep(0.1)


def test_no_fault_of_nodes_and_workers_costs_or_doubles_an_answer(
    nodes: RayNodes, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    together = list(faults_on_ray.kinds(nodes).values())
    options = faults_on_ray.options(nodes)
    tally = asyncio.run(faults.with_load(tmp_path, random.Random(1), together, *options))
    assert tally.sound, tally
    assert tally.failed == 0, tally
    assert capfd.readouterr().out == ""  # of the server, too
    until_nothing_is_left(nodes)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_however_the_server_ends_nothing_of_it_is_left_on_the_cluster(
    nodes: RayNodes, tmp_path: Path, number: signal.Signals
) -> None:
    server = serve(nodes, write_little_task(tmp_path)).ready()
    assert infer(server, body((0, 1)))[1]["outputs"][0]["data"] == [1.0]
    assert nodes.actors() == {"actors": 1, "groups": 1}
    assert server.end(number) == (0 if number != signal.SIGKILL else -signal.SIGKILL)
    until_nothing_is_left(nodes)
    assert not re.search("SIGTERM received|Traceback", "".join(server.said))


def test_a_plan_is_swapped_with_both_on_the_cluster_and_the_old_one_s_devices_are_given_back(
    nodes: RayNodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = write_little_task(tmp_path)
    monkeypatch.setenv("RAY_ADDRESS", nodes.address)
    server = serve(nodes, plan, plans=str(tmp_path), address="auto").ready()
    status, swapped = speak(lambda client: swap(client, server, plan.name))
    assert status == 200, swapped
    assert infer(server, body((0, 1)))[0] == 200
    assert nodes.actors() == {"actors": 1, "groups": 1}
    assert server.end() == 0
    until_nothing_is_left(nodes)


def test_a_plan_for_more_nodes_than_there_are_is_told_with_what_is_missing(nodes: RayNodes, tmp_path: Path) -> None:
    server = serve(nodes, write_little_task(tmp_path, plan_of_two_cores), longest_start_s=5.0)
    server.until_it_says(
        r"error: Ray has no nodes free with \[\{'CPU': 2.0\}\], one for each; .*add nodes, or plan for"
    )
    assert server.wait() == 1
    until_nothing_is_left(nodes)


def plan_of_two_cores(sha256: str) -> GearPlan:
    return msgspec.structs.replace(little_plan(sha256), hardware=identical_devices(1, cores=2))
