"""The Ray backend on a stand-in for Ray (`tests/stand_in_cluster.py`); the real one is in `end_to_end/test_ray.py`."""

import asyncio
import os
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import uvloop

import gearshift
from gearshift.errors import GearshiftError, InvalidInput, NotReady
from gearshift.gear import GearPlan, ReplicaSettings
from gearshift.hardware import Device, Hardware
from gearshift.placement import Placement, Replica
from gearshift.plans.plan_tables import plan_tables
from gearshift.request import Request, Sample
from gearshift.runtime.backends.base import Batch
from gearshift.runtime.backends.ray import RayBackend, places_of
from gearshift.runtime.backends.workers_backend import DeviceSet, OperatorSource
from gearshift.runtime.service.service import Service
from gearshift.runtime.workers.ray_cluster import RayCluster, knock, pin
from tests.conformance.test_backend_contract import Events
from tests.little_task import INPUTS, TASK, little_plan, write_little_task
from tests.stand_in_cluster import StandInCluster
from tests.unit.cli.little import run
from tests.workers import send_signal

SMALL = 1

# Devices as Ray's resources ------------------------------------------------------------------------------------------


def sets_of(*sets: Sequence[Device]) -> list[DeviceSet]:
    return [DeviceSet(number, tuple(devices), (number,)) for number, devices in enumerate(sets)]


def device(name: str, node: str = "n", kind: str = "cpu", cores: int = 1) -> Device:
    return Device(id=name, node=node, kind=kind, cores=cores)


def test_each_node_of_the_plan_is_a_bundle_with_what_its_devices_take():
    a, b, c = device("a", "n", cores=2), device("b", "m"), device("c", "n", "cuda", cores=3)
    bundles, places = places_of(sets_of([a], [b], [c]))
    assert bundles == [{"CPU": 5, "GPU": 1}, {"CPU": 1}]
    assert [(place.bundle, place.cores, place.gpus) for place in places] == [
        (0, (0, 1), 0),
        (1, (0,), 0),
        (0, (2, 3, 4), 1),
    ]
    assert [place.environment["OMP_NUM_THREADS"] for place in places] == ["2", "1", "3"]


def test_devices_that_workers_share_are_reserved_once():
    a, b = device("a"), device("b")
    bundles, places = places_of(sets_of([a], [a, b]))
    assert bundles == [{"CPU": 2}]
    assert [place.cores for place in places] == [(0,), (0, 1)]


def test_a_kind_of_its_own_asks_for_nodes_that_offer_it():
    devices = [device("a", kind="cuda-a100"), device("b", kind="cpu-fast"), device("c", kind="cuda-a100")]
    bundles, _ = places_of(sets_of(*([one] for one in devices)))
    assert bundles == [{"CPU": 3, "GPU": 2, "cuda-a100": 2, "cpu-fast": 1}]


def test_a_remote_device_takes_next_to_nothing():
    bundles, places = places_of(sets_of([device("a", kind="remote", cores=8)]))
    assert bundles[0].keys() == {"CPU"}
    assert 0 < bundles[0]["CPU"] < 0.01
    assert (places[0].cores, places[0].gpus) == ((), 0)


def test_what_ray_cannot_place_is_refused():
    a, b, other = device("a", kind="cuda"), device("b", kind="cuda"), device("c", "m")
    with pytest.raises(InvalidInput, match="CUDA device 'a' belongs to replicas on different sets"):
        places_of(sets_of([a], [a, b]))
    with pytest.raises(InvalidInput, match=r"spans devices of the nodes \['m', 'n'\]"):
        places_of(sets_of([a, other]))


def test_a_worker_keeps_to_its_cores_where_there_are_so_many():
    seen: list[set[int]] = []

    def on_its_own_thread() -> None:
        pin((0,))
        seen.append(os.sched_getaffinity(0))
        pin((10_000,))
        seen.append(os.sched_getaffinity(0))

    thread = threading.Thread(target=on_its_own_thread)
    thread.start()
    thread.join()
    assert seen == [{max(os.sched_getaffinity(0))}] * 2


# Workers that come and go --------------------------------------------------------------------------------------------


def backend_of(folder: Path, cluster: StandInCluster, task: str = TASK, **options: Any) -> RayBackend:
    write_little_task(folder)
    (folder / "task.py").write_text(task)
    plan = little_plan("")
    return RayBackend(
        plan_tables(plan),
        plan,
        operators=[OperatorSource(project=folder / "gearshift.toml", inputs=INPUTS)],
        cluster=cluster,
        **{"longest_start_s": 20.0, **options},
    )


def with_backend(backend: RayBackend, use: Callable[[Events], Awaitable[None]]) -> None:
    async def main() -> None:
        events = Events()
        try:
            await backend.start(events)
            await use(events)
        finally:
            await backend.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


async def nothing(events: Events) -> None:
    """Start and stop."""


async def comes_back(backend: RayBackend, events: Events, times: int = 2) -> None:
    await events.until(lambda seen: seen.count(("ready", SMALL)) == times)
    assert events.seen.count(("lost", SMALL)) == times - 1
    sample = Sample(Request(id=1, operator="sums", arrived_ns=0), 0, 0, {"x": np.array([[1.0, 2.0]])})
    backend.run(Batch(times, SMALL, [sample]))
    await events.until(lambda seen: ("batch", times) in seen)
    assert sample.result["sum"] == [3.0]


def test_a_worker_whose_actor_is_started_twice_is_served_by_the_later_one(tmp_path):
    cluster, told = StandInCluster(), []
    backend = backend_of(tmp_path, cluster, say=told.append)

    async def use(events: Events) -> None:
        cluster.start_twice(0)
        await events.until(lambda seen: ("lost", SMALL) in seen)
        await events.until(lambda seen: seen[-2:] == [("ready", 0), ("ready", SMALL)])

    with_backend(backend, use)
    assert "was started anew by Ray; starting it again" in told[0]


def test_an_actor_that_ray_has_given_up_is_replaced_by_a_new_one(tmp_path):
    cluster = StandInCluster()
    backend = backend_of(tmp_path, cluster)

    async def use(events: Events) -> None:
        cluster.give_up(0)
        await comes_back(backend, events)

    with_backend(backend, use)


def test_a_server_that_has_lost_its_place_in_the_cluster_ends_as_by_two_signals(tmp_path):
    cluster = StandInCluster()
    backend = backend_of(tmp_path, cluster)

    async def use(events: Events) -> None:
        signals: asyncio.Queue[None] = asyncio.Queue()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: signals.put_nowait(None))
        cluster.lost_us = True
        cluster.give_up(0)
        async with asyncio.timeout(10):
            for _ in range(2):
                await signals.get()
        asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)

    with_backend(backend, use)


def test_a_stuck_worker_is_killed_and_started_again(tmp_path):
    cluster, told = StandInCluster(), []
    backend = backend_of(tmp_path, cluster, probe_s=0.1, say=told.append)

    async def use(events: Events) -> None:
        send_signal(backend, SMALL, signal.SIGSTOP)
        await comes_back(backend, events)

    with_backend(backend, use)
    assert "was killed (it had not answered for 0.1 s while it had nothing to do)" in told[0]


def test_a_worker_waits_for_as_long_as_no_node_has_room_for_it(tmp_path):
    cluster = StandInCluster(nodes=1)
    backend = backend_of(tmp_path, cluster, longest_start_s=5.0)

    async def use(events: Events) -> None:
        lost = cluster.lose(0)
        await events.until(lambda seen: ("lost", SMALL) in seen)
        cluster.add()
        await comes_back(backend, events)
        assert cluster.node(0) != lost

    with_backend(backend, use)


@pytest.mark.parametrize(
    ("task", "reason"),
    [
        (TASK + "\ndef large():\n    raise ValueError('no weights')\n", "'large' cannot be loaded.*no weights"),
        (TASK + "\ndef large():\n    os._exit(3)\n", "a worker lost its connection.* while it loaded"),
    ],
)
def test_a_model_that_cannot_be_loaded_is_named(tmp_path, task, reason):
    with pytest.raises(GearshiftError, match=reason):
        with_backend(backend_of(tmp_path, StandInCluster(), task), nothing)


def test_a_cluster_without_room_is_told_with_what_is_missing(tmp_path):
    with pytest.raises(NotReady, match=r"no nodes free with \[\{'CPU': 1\}\]; waited 0.1 s: add nodes, or plan for"):
        with_backend(backend_of(tmp_path, StandInCluster(nodes=0), longest_start_s=0.1), nothing)


class Unreached(StandInCluster):
    """Its workers never find the router."""

    def start(self, *arguments: Any) -> "Future[int]":
        return Future()


def test_workers_that_cannot_reach_the_router_are_told_with_its_address(tmp_path, monkeypatch):
    monkeypatch.setattr("gearshift.runtime.backends.ray.LONGEST_STOP_S", 0.01)
    with pytest.raises(GearshiftError, match=r"connected to 127.0.0.1:\d+ within 0.1 s; .*\(--advertise-host\)"):
        with_backend(backend_of(tmp_path, Unreached(), longest_start_s=0.1), nothing)


def test_a_node_with_another_version_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(gearshift, "__version__", "0.0.0")
    with pytest.raises(InvalidInput, match=r"127.0.0.1 has gearshift \d\S+, this machine 0.0.0; install the same"):
        with_backend(backend_of(tmp_path, StandInCluster()), nothing)


# The cluster's address -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["ray://head:10001", "head", "", ":6379", "head:port"])
def test_an_address_of_no_known_form_is_refused(address):
    with pytest.raises(InvalidInput, match=r"the cluster's address is .*; give --address auto, or HOST:PORT"):
        knock(address)


def test_an_address_at_which_nobody_listens_is_told_at_once():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # and does not listen
        with pytest.raises(InvalidInput, match="no Ray cluster answers at"):
            knock(f"127.0.0.1:{held.getsockname()[1]}")


def test_where_ray_is_missing_it_is_said_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InvalidInput, match=r"--backend ray: needs ray, .*pip install 'gearshift\[ray\]'"):
        RayCluster("auto").open([])


def test_on_the_command_line_it_is_an_error_that_names_the_backend(tmp_path):
    plan = write_little_task(tmp_path)
    done = run("serve", plan, "--backend", "ray", "--address", "ray://head:10001")
    assert done.exit_code == 2
    assert done.output.startswith("error: --backend ray: ")


# Node loss under load, in short --------------------------------------------------------------------------------------


def two_node_plan() -> GearPlan:
    """`small` on both nodes, `large` on the second."""
    plan = little_plan("")
    placed = (("large-0", "large", "b"), ("small-0", "small", "a"), ("small-1", "small", "b"))
    operator = plan.pipelines["sums"]
    gear = msgspec.structs.replace(
        operator.gears[0],
        replicas=tuple(
            ReplicaSettings(replica=name, load_share=1.0 if model == "large" else 0.5, largest_batch_size=8)
            for name, model, _ in placed
        ),
    )
    return msgspec.structs.replace(
        plan,
        hardware=Hardware(devices=(device("a", "first"), device("b", "second"))),
        placement=Placement(
            replicas=tuple(Replica(id=name, model=model, device_ids=(at,)) for name, model, at in placed)
        ),
        pipelines={"sums": msgspec.structs.replace(operator, gears=(gear,))},
    )


@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.long)])
def test_each_request_is_answered_once_while_a_node_is_lost_or_silent(tmp_path, number):
    """A stand-in takes Ray's place here; the same with real nodes of Ray is a long test of `end_to_end`."""
    write_little_task(tmp_path)
    plan, cluster = two_node_plan(), StandInCluster(nodes=3)
    tables = plan_tables(plan)
    run_ns = [[0] + [1_000_000] * 8] * 3
    backend = RayBackend(
        tables,
        plan,
        operators=[OperatorSource(project=tmp_path / "gearshift.toml", inputs=INPUTS)],
        cluster=cluster,
        run_ns=run_ns,
        shortest_hang_s=2.0,
        probe_s=1.0,
    )
    service = Service(tables, backend)
    answered: list[int] = []

    async def client(begin: int, done: asyncio.Event) -> None:
        for i in range(begin, begin + 1_000_000, 2):
            if done.is_set():
                return
            answer = await service.pipeline.infer({"x": np.array([[float(i % 2), float(i)]])})
            assert answer.outcome in ("answered", "degraded"), answer
            assert answer.outputs["sum"].tolist() == [float(i % 2 + i)]
            answered.append(i)

    async def until(holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not holds():
                await asyncio.sleep(0.01)

    async def main() -> None:
        await service.start()
        try:
            await lose_a_node()
        finally:
            await service.stop()

    async def lose_a_node() -> None:
        done = asyncio.Event()
        clients = [asyncio.create_task(client(begin * 1_000_000, done)) for begin in range(8)]
        await until(lambda: len(answered) > 100)
        lost = cluster.lose(0, number)  # with the only worker of `large`
        await until(lambda: bool(service.degraded))
        await until(lambda: not service.degraded)
        assert cluster.node(0) not in (-1, lost)
        more = len(answered) + 100
        await until(lambda: len(answered) > more)
        done.set()
        await asyncio.gather(*clients)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
    assert len(answered) == len(set(answered)) > 200
