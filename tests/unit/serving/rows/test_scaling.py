import asyncio
import contextlib
import math
import os
import re
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import msgspec
import numpy as np
import pytest

from gearshift.clock import NS_PER_S, WallClock
from gearshift.errors import DeadlinePassed, InvalidInput
from gearshift.hardware import identical_devices
from gearshift.observability.journal import Journal
from gearshift.observability.metrics import Metrics
from gearshift.placement import Placement
from gearshift.plans.plan_file import read_plan, write_plan
from gearshift.profiles.store import write_profile
from gearshift.request import Answer
from gearshift.runtime.actuators.base import Actuator, ActuatorChain, EmulatedActuator, Now
from gearshift.runtime.actuators.cgroup import CgroupActuator, cores_of_group
from gearshift.runtime.actuators.kubernetes import BesideRouter, Container, KubernetesActuator
from gearshift.runtime.backends.local import LocalBackend
from gearshift.runtime.router.by_deadline import DeadlineRules
from gearshift.runtime.service.service import Service
from gearshift.runtime.wire.messages import Load, Loaded
from gearshift.serving.door.settings import ServerSettings
from gearshift.serving.rows.assembly import make_backend, make_service
from gearshift.serving.rows.scaling import make_scaling
from gearshift.serving.rows.task import read_task
from tests.scaled_task import (
    scaled_plan,
    scaled_profile,
    write_geared_task,
    write_scaled_cascade,
    write_scaled_task,
)
from tests.unit.runtime.actuators.stand_ins import ApiServer, api_server, group_v2

LONGEST_S = 20
SAMPLE = {"sample": np.array([0])}
SETTINGS: dict[str, Any] = {"scaler": "exact", "scaler_period_s": 0.05}


def served(folder: Path, journal: Journal | None = None, metrics: Metrics | None = None, **more: Any) -> Service:
    task = read_task(folder / "plan.json", "emulated")
    return make_service(task, ServerSettings(**{**SETTINGS, **more}), metrics, journal or Journal())


def cores_in(metrics: Metrics) -> float:
    (sample,) = metrics.cores.cores.collect()[0].samples
    return sample.value


class Told(Journal):
    """The changes of cores, as they are written."""

    def __init__(self) -> None:
        self.changes: asyncio.Queue[tuple[str, float, float]] = asyncio.Queue()
        self.took_s = math.nan

    def write(self, event: str, **facts: Any) -> None:
        if event == "cores":
            self.took_s = facts["took_s"]
            self.changes.put_nowait((facts["replica"], facts["before"], facts["cores"]))


def requests(service: Service, count: int, left_s: float) -> Any:
    deadline_ns = service.now_ns() + round(left_s * NS_PER_S)
    return asyncio.gather(*(service.pipeline.infer(SAMPLE, deadline_ns=deadline_ns) for _ in range(count)))


async def pressing(service: Service, count: int, left_s: float) -> list[Answer]:
    """The answers in time to requests that leave little time: how many there are is the machine's affair, too."""
    deadline_ns = service.now_ns() + round(left_s * NS_PER_S)
    some = (service.pipeline.infer(SAMPLE, deadline_ns=deadline_ns) for _ in range(count))
    ended = await asyncio.gather(*some, return_exceptions=True)
    assert all(isinstance(one, Answer | DeadlinePassed) for one in ended), ended
    return [one for one in ended if isinstance(one, Answer)]


@contextlib.asynccontextmanager
async def pressed(service: Service, count: int, left_s: float) -> AsyncIterator[None]:
    """One burst after another, for one may be late before a scaler has looked at it."""

    async def press() -> None:
        while True:
            await pressing(service, count, left_s)

    pressing_on = asyncio.create_task(press())
    try:
        yield
    finally:
        pressing_on.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await pressing_on


def test_a_live_service_shrinks_and_grows_with_what_is_needed_and_drops_nothing(tmp_path: Path) -> None:
    write_scaled_task(tmp_path)
    journal, metrics = Told(), Metrics()

    async def main() -> None:
        service = served(tmp_path, journal, metrics, most_waiting_requests=1000)
        await service.start()
        try:
            async with asyncio.timeout(LONGEST_S):
                answers = await requests(service, 1, 5.0)
                assert await journal.changes.get() == ("net-0", 4, 1)
                (slow,) = await requests(service, 1, 5.0)
                burst = requests(service, 400, 10.0)
                _, before, cores = await journal.changes.get()
                assert (before, cores > 1) == (1, True)
                answers += await burst
            assert {answer.outcome for answer in answers} == {"answered"}
            assert slow.run_s > 0.02
        finally:
            await service.stop()

    asyncio.run(main())
    text = metrics.text().decode()
    assert re.search(r'gearshift_core_changes_total.replica="net-0",result="whole". [2-9]', text)
    assert re.search(r'gearshift_model_error_count.cores="1",replica="net-0". [1-9]', text)


@pytest.mark.usefixtures("lost_for_good")
def test_a_worker_that_is_started_again_gets_the_cores_of_the_one_before(tmp_path: Path) -> None:
    write_scaled_task(tmp_path)
    journal = Told()

    async def main() -> None:
        service = served(tmp_path, journal)
        await service.start()
        try:
            async with asyncio.timeout(LONGEST_S):
                await requests(service, 1, 5.0)
                assert await journal.changes.get() == ("net-0", 4, 1)
                service.driver.backend.lose(0)  # type: ignore[attr-defined]
                await service.driver.vertical._give([4])  # type: ignore[attr-defined]
                assert journal.changes.empty()
                service.driver.backend._recover(0)  # type: ignore[attr-defined]
                assert await journal.changes.get() == ("net-0", 4, 1)
        finally:
            await service.stop()

    asyncio.run(main())


def test_cores_that_cannot_be_had_are_complained_of_once_and_served_without(tmp_path: Path) -> None:
    write_scaled_task(tmp_path)
    journal, metrics, said = Told(), Metrics(), list[str]()

    async def main() -> None:
        service = served(tmp_path, journal, metrics)
        stuck = ActuatorChain([EmulatedActuator(cores=1, most=1)], cores=1, say=said.append)
        service.driver.vertical._actuate = lambda replica: stuck  # type: ignore[attr-defined]
        await service.start()
        try:
            async with asyncio.timeout(LONGEST_S):
                answers = [answer for _ in range(6) for answer in await pressing(service, 4, 0.3)]
                assert {answer.outcome for answer in answers} == {"answered"}
            assert cores_in(metrics) == 1
        finally:
            await service.stop()

    asyncio.run(main())
    assert len(said) == 1
    assert "4 cores were asked for, there are 1; serving goes on with the cores there are" in said[0]


@contextlib.contextmanager
def group_that_vanishes(folder: Path) -> Iterator[tuple[Actuator, Callable[[], object]]]:
    group = group_v2(folder / "group", cores=4)
    yield CgroupActuator(group), lambda: group.rename(folder / "gone")


@contextlib.contextmanager
def group_that_becomes_read_only(folder: Path) -> Iterator[tuple[Actuator, Callable[[], object]]]:
    group = group_v2(folder / "group", cores=4)
    (folder / "a folder").mkdir()

    def lock() -> None:
        (group / "cpu.max").unlink()
        (folder / "a folder").rename(group / "cpu.max")  # which not even root may write

    yield CgroupActuator(group), lock


@contextlib.contextmanager
def api_server_that(mode: str, folder: Path) -> Iterator[tuple[Actuator, Callable[[], object]]]:
    group = group_v2(folder / "group", cores=5)
    with api_server(group) as server:
        pod = Container(server=server.url, namespace="models", pod="gears", container="gearshift", token_file=None)
        actuator = BesideRouter(KubernetesActuator(pod, group, longest_s=1.0 if mode == "hangs" else LONGEST_S))
        yield actuator, lambda: setattr(server, "mode", mode)


@pytest.mark.parametrize(
    ("breaking", "says"),
    [
        (group_that_vanishes, "cgroup: the quota in .* cannot be changed"),
        (group_that_becomes_read_only, "cgroup: the quota in .* cannot be changed"),
        (partial(api_server_that, "Infeasible"), "kubernetes: the node answers Infeasible"),
        (partial(api_server_that, "forbids"), "kubernetes: .*status 403"),
        (partial(api_server_that, "hangs"), "kubernetes: .*no answer in time"),
    ],
)
def test_means_that_break_while_serving_are_complained_of_once_and_served_without(
    tmp_path: Path, breaking: Any, says: str
) -> None:
    write_scaled_task(tmp_path)
    said, metrics = list[str](), Metrics()

    async def main() -> None:
        service = served(tmp_path, metrics=metrics)
        with breaking(tmp_path) as (actuator, break_it):
            actuator.apply(4)
            chain = ActuatorChain([actuator], cores=4, say=said.append)
            service.driver.vertical._actuate = lambda replica: chain  # type: ignore[attr-defined]
            await service.start()
            break_it()
            try:
                async with asyncio.timeout(LONGEST_S):
                    while changes_in(metrics) < 3 or cores_in(metrics) != 4:  # fewer while one is asked for
                        (answer,) = await requests(service, 1, 5.0)
                        assert answer.outcome == "answered"
                        await asyncio.sleep(SETTINGS["scaler_period_s"] / 5)  # without a pause they may want all cores
            finally:
                await service.stop()

    asyncio.run(main())
    (complaint,) = said
    assert re.match(f"{says}.*; serving goes on with the cores there are", complaint)


def changes_in(metrics: Metrics) -> float:
    return sum(metrics.cores.changes.by_last().values())


def test_replicas_never_hold_more_cores_than_they_share(tmp_path: Path) -> None:
    write_scaled_task(tmp_path, cores=1, replicas=2)
    share_under_a_burst(tmp_path, ("net-0", "net-1"), cores=5, left_s=0.5)


def share_under_a_burst(folder: Path, replicas: tuple[str, ...], *, cores: int, left_s: float) -> None:
    """A burst has all `cores` given to workers that begin with one each, and never more."""
    journal, held = Told(), dict.fromkeys(replicas, 1.0)

    async def main() -> None:
        service = served(folder, journal, scaler_cores=cores)
        await service.start()
        try:
            async with asyncio.timeout(LONGEST_S), pressed(service, 100, left_s):
                while sum(held.values()) < cores:
                    replica, before, given = await journal.changes.get()
                    assert before == held[replica]
                    held[replica] = given
                    assert sum(held.values()) <= cores
        finally:
            await service.stop()

    asyncio.run(main())


def test_static_leaves_cores_as_planned(tmp_path: Path) -> None:
    write_scaled_task(tmp_path)
    metrics = Metrics()
    served(tmp_path, None, metrics, scaler="static")
    assert not metrics.cores.cores.collect()[0].samples


def test_what_cannot_be_scaled_is_refused_with_a_remedy(tmp_path: Path) -> None:
    write_scaled_task(tmp_path, cores=1, replicas=2)
    with pytest.raises(InvalidInput, match="begins with 2 cores, and replicas share 1; give more --scaler-cores"):
        served(tmp_path, scaler_cores=1)
    profile = write_profile(scaled_profile((2, 3, 4)), tmp_path / "profile")
    write_plan(scaled_plan(profile.sha256, cores=2), tmp_path / "plan.json")
    with pytest.raises(InvalidInput, match="profiled on 2 cores and more; profile it on 1 core too"):
        served(tmp_path)
    profile = write_profile(scaled_profile((1,)), tmp_path / "profile")
    write_plan(scaled_plan(profile.sha256, cores=1), tmp_path / "plan.json")
    with pytest.raises(InvalidInput, match=r"cannot tell how model 'net' runs on other cores.*--cores 1,2,4"):
        served(tmp_path)


def test_replicas_that_take_turns_on_a_worker_have_its_cores_together(tmp_path: Path) -> None:
    write_scaled_cascade(tmp_path, devices=1, cores=4)
    journal, metrics = Told(), Metrics()

    async def main() -> None:
        service = served(tmp_path, journal, metrics)
        await service.start()
        try:
            async with asyncio.timeout(LONGEST_S):
                answers = await requests(service, 1, 5.0)
                replica, before, few = await journal.changes.get()
                assert (replica, before, few < 4) == ("big-0+net-0", 4, True)
                async with pressed(service, 60, 4.0):
                    while (await journal.changes.get())[2] <= few:
                        pass
                answers += await requests(service, 4, 20.0)
            assert {(answer.outcome, answer.rows[0].model) for answer in answers} == {("answered", "big")}
        finally:
            await service.stop()

    asyncio.run(main())
    text = metrics.text().decode()
    assert re.search(r'gearshift_cores.replica="big-0.net-0". \d', text)
    for replica in ("net-0", "big-0"):
        assert re.search(rf'gearshift_model_error_count.cores=".",replica="{replica}". [1-9]', text)


def test_a_worker_has_no_more_cores_than_all_of_its_replicas_were_measured_on(tmp_path: Path) -> None:
    write_scaled_cascade(tmp_path, devices=1, cores=2, most_net=2)
    journal = Told()

    async def main() -> None:
        service = served(tmp_path, journal, scaler_cores=4)
        await service.start()
        try:
            async with asyncio.timeout(LONGEST_S):
                await requests(service, 1, 5.0)
                await pressing(service, 30, 0.5)
                await requests(service, 1, 5.0)
                changes = [await journal.changes.get()]
            while not journal.changes.empty():
                changes.append(journal.changes.get_nowait())
            assert changes
            assert max(cores for *_, cores in changes) <= 2
        finally:
            await service.stop()

    asyncio.run(main())


def test_the_stages_of_a_cascade_are_solved_apart_and_share_the_machines_cores(tmp_path: Path) -> None:
    write_scaled_cascade(tmp_path, devices=2, cores=1)  # each request goes on to the model that is three times slower
    share_under_a_burst(tmp_path, ("net-0", "big-0"), cores=4, left_s=0.7)


def test_replicas_that_share_some_devices_or_are_to_be_scaled_as_printed_are_refused(tmp_path: Path) -> None:
    write_scaled_cascade(tmp_path, devices=1, cores=4)
    with pytest.raises(InvalidInput, match=r"'net-0' share a worker.*knows one model; serve with --scaler exact"):
        served(tmp_path, scaler="paper")
    plan = read_plan(tmp_path / "plan.json")
    pooled = msgspec.structs.replace(plan.hardware, pool_cores=8)
    write_plan(msgspec.structs.replace(plan, hardware=pooled), tmp_path / "plan.json")
    with pytest.raises(InvalidInput, match="share a worker, and gears of cores need one for each"):
        served(tmp_path)
    net, big = plan.placement.replicas
    wide = msgspec.structs.replace(big, device_ids=("cpu-0", "cpu-1"))
    write_plan(
        msgspec.structs.replace(
            plan, hardware=identical_devices(2, cores=4), placement=Placement(replicas=(net, wide))
        ),
        tmp_path / "plan.json",
    )
    with pytest.raises(InvalidInput, match=r"'big-0' and 'net-0' share device 'cpu-0', but not all of their devices"):
        served(tmp_path)


def test_an_objective_is_needed_for_the_printed_algorithm(tmp_path: Path) -> None:
    plan = scaled_plan(write_profile(scaled_profile(), tmp_path / "profile").sha256)
    operator = plan.pipelines["numbers"]
    without = msgspec.structs.replace(
        operator, objective=msgspec.structs.replace(operator.objective, latency_s=None, accuracy=0.5)
    )
    write_plan(msgspec.structs.replace(plan, pipelines={"numbers": without}), tmp_path / "plan.json")
    with pytest.raises(InvalidInput, match="needs one SLO"):
        served(tmp_path, scaler="paper")


def test_without_a_scaler_cores_are_those_of_the_gear_in_force(tmp_path: Path) -> None:
    write_geared_task(tmp_path, (1, 3), (2, 2), pool=4)
    journal, metrics = Told(), Metrics()

    async def main() -> None:
        service = served(tmp_path, journal, metrics, scaler="static")
        await service.start()
        try:
            async with asyncio.timeout(LONGEST_S):
                assert await journal.changes.get() == ("net-1", 1, 3)
                (fast,) = await asyncio.gather(service.pipeline.infer(SAMPLE))
                service.router.pin(1, service.now_ns())
                assert await journal.changes.get() == ("net-1", 3, 2)  # who shrinks first: they are four in all
                assert await journal.changes.get() == ("net-0", 1, 2)
                await service.pipeline.infer(SAMPLE)
            assert fast.outcome == "answered"
        finally:
            await service.stop()
        assert journal.changes.empty()

    asyncio.run(main())
    assert {s.labels["replica"]: s.value for s in metrics.cores.cores.collect()[0].samples} == {"net-0": 2, "net-1": 2}


def test_a_scaler_gives_what_is_needed_and_never_fewer_than_the_gear(tmp_path: Path) -> None:
    write_geared_task(tmp_path, (1, 2), (3, 1), pool=6)
    journal = Told()

    async def main() -> None:
        service = served(tmp_path, journal)
        await service.start()
        held = {"net-0": 1.0, "net-1": 1.0}

        async def until(*wanted: float) -> None:
            while (held["net-0"], held["net-1"]) != wanted:
                replica, before, cores = await journal.changes.get()
                assert before == held[replica]
                held[replica] = cores
                assert sum(held.values()) <= 6

        try:
            async with asyncio.timeout(LONGEST_S):
                await until(1, 2)
                async with pressed(service, 100, 0.5):
                    while sum(held.values()) < 6:
                        replica, _, held[replica] = await journal.changes.get()
                await requests(service, 1, 5.0)
                await until(1, 2)
                service.router.pin(1, service.now_ns())
                await until(3, 1)
        finally:
            await service.stop()

    asyncio.run(main())


def test_gears_of_more_cores_than_there_are_are_refused(tmp_path: Path) -> None:
    write_geared_task(tmp_path, (1, 2), (3, 1), pool=6)
    task = read_task(tmp_path / "plan.json", "local", available=range(4))
    with pytest.raises(InvalidInput, match="has gears of 4 cores, and replicas share 3; give more --scaler-cores"):
        make_service(task, ServerSettings(), None, Journal())
    with pytest.raises(InvalidInput, match="has gears of 4 cores, and replicas share 2"):
        served(tmp_path, scaler="static", scaler_cores=2)


def test_gears_of_more_cores_than_were_measured_are_refused_as_by_simulation(tmp_path: Path) -> None:
    write_geared_task(tmp_path, (1,), (6,), pool=6)
    with pytest.raises(InvalidInput, match="'net-0' is to have 6 cores, and it was measured on up to 4"):
        served(tmp_path, scaler="static")


def local(folder: Path, **more: Any) -> Service:
    """A service on processors 0 to 3, not started."""
    share = more.get("core_share", 1.0)
    task = read_task(folder / "plan.json", "local", available=range(4), scaled=True, core_share=share)
    assert task.router_cores == {0}
    assert task.pool == (1, 2, 3)
    return make_service(task, ServerSettings(**{**SETTINGS, **more}), None, Journal())


def test_a_pod_is_resized_for_one_worker_on_whole_cores_of_this_machine(tmp_path: Path) -> None:
    write_scaled_task(tmp_path, cores=1, replicas=1)
    with pytest.raises(InvalidInput, match="how many cores the worker may have at most; give --scaler-cores"):
        local(tmp_path, actuator="kubernetes")
    with pytest.raises(InvalidInput, match=r"in no pod with a service account.*--actuator processors"):
        local(tmp_path, actuator="kubernetes", scaler_cores=2)
    for wrong in (
        lambda: local(tmp_path, actuator="kubernetes", core_share=0.5),
        lambda: served(tmp_path, actuator="kubernetes"),
    ):
        with pytest.raises(InvalidInput, match="by whole cores; serve with --backend local and --core-share 1"):
            wrong()
    write_scaled_task(tmp_path, cores=1, replicas=2)
    with pytest.raises(InvalidInput, match="would hold 2 workers; serve a plan of one device"):
        local(tmp_path, actuator="kubernetes", scaler_cores=2)


def test_changes_of_a_pod_are_timed_by_the_servers_clock(tmp_path: Path) -> None:
    write_scaled_task(tmp_path, cores=1, replicas=1)
    task = read_task(tmp_path / "plan.json", "local", available=range(4), scaled=True)
    settings = ServerSettings(**SETTINGS, actuator="kubernetes", scaler_cores=2)
    clock, made = WallClock(), list[EmulatedActuator]()

    def pod(name: str, now: Now) -> Actuator:
        made.append(EmulatedActuator(now=now))
        return made[0]

    make_scaling(task, settings, make_backend(task, settings, task.run_ns), clock, Journal(), pod)
    assert 0 <= made[0].apply(2).asked_ns <= clock.now_ns()


def test_on_processors_the_router_keeps_its_own_and_shares_are_for_one_worker(tmp_path: Path) -> None:
    write_scaled_task(tmp_path, cores=1, replicas=2)
    local(tmp_path, scaler_cores=3)
    with pytest.raises(InvalidInput, match="--scaler-cores is 4, and 3 are left beside the router; give up to 3"):
        local(tmp_path, scaler_cores=4)
    with pytest.raises(InvalidInput, match="2 workers would share processors; serve one worker so"):
        local(tmp_path, core_share=0.5)


def test_a_share_of_a_core_without_anything_that_changes_cores_is_refused(tmp_path: Path) -> None:
    write_scaled_task(tmp_path, cores=4, replicas=1)
    with pytest.raises(InvalidInput, match=r"0\.25 of a processor, and nothing changes cores; serve with --scaler"):
        read_task(tmp_path / "plan.json", "local", available=range(2), core_share=0.25)


def test_a_worker_is_started_again_on_what_it_holds_of_the_pool(tmp_path: Path) -> None:
    write_scaled_task(tmp_path, cores=1, replicas=2)
    task = read_task(tmp_path / "plan.json", "local", available=range(4), scaled=True)
    settings = ServerSettings(**SETTINGS)
    backend = make_backend(task, settings, task.run_ns)
    assert isinstance(backend, LocalBackend)
    make_scaling(task, settings, backend, WallClock(), Journal())
    assert [backend.held_by(replica) for replica in range(3)] == [(3,), (2,), ()]


@pytest.mark.parametrize(("scaler", "awake_s"), [("static", 0.25), ("exact", 0.0)])
def test_workers_stay_awake_as_asked_unless_their_cores_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scaler: str, awake_s: float
) -> None:
    write_scaled_task(tmp_path, cores=1, replicas=1)
    task = read_task(tmp_path / "plan.json", "local", available=range(4), scaled=True)
    loads: list[Load] = []

    class Worker:
        link = SimpleNamespace(not_loaded=())

        async def start(self, load: Load, *, longest_s: float) -> list[Loaded]:
            loads.append(load)
            return []

    monkeypatch.setattr(LocalBackend, "_make_worker", lambda *_: Worker())
    backend = make_backend(task, ServerSettings(scaler=scaler, awake_s=0.25), task.run_ns)
    asyncio.run(backend.start(Mock()))
    assert [load.awake_s for load in loads] == [awake_s]


@pytest.mark.long
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="the worker and the router need a processor each")
def test_the_pod_of_a_real_worker_is_resized_to_it_and_the_router(tmp_path: Path) -> None:
    write_scaled_task(tmp_path, cores=1, replicas=1)
    group = group_v2(tmp_path / "own", cores=4)
    settings = ServerSettings(**SETTINGS, actuator="kubernetes", scaler_cores=1)
    clock, journal = WallClock(), Told()

    async def main(server: ApiServer) -> None:
        pod = Container(server=server.url, namespace="models", pod="gears", container="gearshift", token_file=None)
        task = read_task(tmp_path / "plan.json", "local", core_share=1.0)
        backend = make_backend(task, settings, task.run_ns)
        vertical = make_scaling(
            task,
            settings,
            backend,
            clock,
            journal,
            lambda name, now: BesideRouter(KubernetesActuator(pod, group, now=now)),
        )
        deadlines = DeadlineRules(task.tables, task.run_ns)
        service = Service(task.tables, backend, deadlines=deadlines, vertical=vertical, clock=clock)
        await service.start()
        try:
            async with asyncio.timeout(LONGEST_S):
                answer = await service.pipeline.infer({"x": np.array([[1.0]])})
            assert answer.outcome == "answered"
        finally:
            await service.stop()

    with api_server(group) as server:
        asyncio.run(main(server))
    assert [p["spec"]["containers"][0]["resources"]["limits"] for p in server.patches] == [{"cpu": "2000m"}]
    assert cores_of_group(group, 2) == 2
    assert journal.changes.get_nowait() == ("net-0", 0.0, 1.0)
    assert 0 < journal.took_s < LONGEST_S


def test_a_margin_that_no_scaler_reads_is_refused() -> None:
    with pytest.raises(InvalidInput, match="scaler_margin is given, and no scaler reads it; leave it out"):
        ServerSettings(scaler_margin=0.0)
    assert ServerSettings(scaler="exact", scaler_margin=0.0).scaler_margin == 0.0
