"""What every backend does, on each of them."""

import asyncio
import dataclasses
import os
import signal
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

import msgspec
import numpy as np
import pytest

from gearshift.gear import GearPlan
from gearshift.plans.plan_file import read_plan
from gearshift.plans.plan_tables import PlanTables, plan_tables
from gearshift.profiles.profile import Profile
from gearshift.profiles.store import read_profile
from gearshift.request import Request, Sample
from gearshift.runtime.backends.base import Backend, Batch
from gearshift.runtime.backends.emulated import EmulatedBackend
from gearshift.runtime.backends.local import LocalBackend
from gearshift.runtime.backends.ray import RayBackend
from gearshift.runtime.backends.workers_backend import OperatorSource
from gearshift.runtime.workers.ray_cluster import Cluster, RayCluster
from tests.little_task import INPUTS, little_plan, little_profile, spanning_plan, write_little_task
from tests.programs.ray_nodes import ON_LOOPBACK, RayNodes
from tests.stand_in_cluster import StandInCluster
from tests.two_tasks import write_two_tasks
from tests.workers import send_signal

LONGEST_S = 60.0


class World(Protocol):
    """A backend, samples that go well and badly on it, and a way to break a replica."""

    tables: PlanTables
    backend: Backend

    def good(self) -> dict[str, np.ndarray]: ...
    def bad(self) -> dict[str, np.ndarray]: ...
    def slow(self) -> dict[str, np.ndarray]: ...
    def break_replica(self, replica: int) -> None: ...
    def stop_early(self) -> dict[str, np.ndarray]: ...


STOPPING = """
class Stopping:
    segments = 2

    def exits(self, x):
        early = x[:, 0] >= 100
        for exit, rows in enumerate((np.flatnonzero(early), np.flatnonzero(~early))):
            exits = [exit] * len(rows)
            yield rows, {"sum": x[rows].sum(axis=1), "certainty": np.ones(len(rows)), "exit_segment": exits}

    def predict(self, x):
        raise AssertionError

    through = predict

def small():
    return Stopping()
"""


class Local:
    def __init__(self, folder: Path) -> None:
        self._write(folder)
        self.backend = LocalBackend(
            self.tables, self.plan, operators=[OperatorSource(project=self.project, inputs=INPUTS)]
        )

    def _write(self, folder: Path) -> None:
        write_little_task(folder)
        self.plan, self.project = little_plan(""), folder / "gearshift.toml"
        self.tables = plan_tables(self.plan)

    def good(self):
        return {"x": np.array([[1.0, 2.0]])}

    def bad(self):
        return {"x": np.array([[666.0, 2.0]])}

    def slow(self):
        return {"x": np.array([[5.0, 20.0]])}

    def break_replica(self, replica: int) -> None:
        send_signal(self.backend, replica, signal.SIGKILL)

    def stop_early(self):
        """Have `small` stop early, before the backend is started; a sample that does."""
        with (self.project.parent / "task.py").open("a") as file:
            file.write(STOPPING)
        return {"x": np.array([[100.0, 2.0]])}


class LocalAcrossDevices(Local):
    """The local backend with a replica that spans two devices, and so has a worker of its own."""

    def _write(self, folder: Path) -> None:
        super()._write(folder)
        self.plan = spanning_plan("")
        self.tables = plan_tables(self.plan)


class OnStandIn(Local):
    """The Ray backend on a stand-in for Ray, which starts within a second."""

    def __init__(self, folder: Path) -> None:
        self._write(folder)
        self.backend = self.on(StandInCluster())

    def on(self, cluster: Cluster) -> RayBackend:
        return RayBackend(
            self.tables, self.plan, operators=[OperatorSource(project=self.project, inputs=INPUTS)], cluster=cluster
        )


class OnRay(OnStandIn):
    """The Ray backend on a real cluster."""

    def __init__(self, folder: Path, address: str) -> None:
        self._write(folder)
        self.backend = self.on(RayCluster(address))


class Emulated:
    def __init__(self, folder: Path) -> None:
        plan = little_plan("")
        self.tables = plan_tables(plan)
        self.backend = EmulatedBackend(self.tables, plan, little_profile())

    def good(self):
        return {"sample": np.array([2])}

    def bad(self):
        return {"sample": np.array([99])}

    slow = good

    def break_replica(self, replica: int) -> None:
        self.backend.lose(replica)

    def stop_early(self):
        profile = little_profile()
        second = msgspec.structs.replace(profile.curves[0], segment=1)
        exits = np.ones((2, 10), dtype=np.int64)
        exits[0, 4] = exits[1] = 0
        records = dataclasses.replace(profile.predictions, exit_segment=exits)
        profile = dataclasses.replace(profile, curves=(*profile.curves, second), predictions=records)
        self.backend = EmulatedBackend(self.tables, little_plan(""), profile)
        return {"sample": np.array([4])}


@dataclass
class Events:
    """Keeps what a backend reports, in order, and lets a test wait for it."""

    seen: list[tuple[Any, ...]] = field(default_factory=list)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def samples_finished(self, batch: Batch, samples: Sequence[Sample]) -> None:
        self._add("samples", batch.id, len(samples))

    def batch_finished(self, batch: Batch) -> None:
        self._add("batch", batch.id)

    def replicas_lost(self, replicas: Sequence[int], how: str) -> None:
        assert how
        for replica in replicas:
            self._add("lost", replica)

    def replica_ready(self, replica: int) -> None:
        self._add("ready", replica)

    def _add(self, *what: Any) -> None:
        self.seen.append(what)
        self.news.set()

    async def until(self, holds: Callable[[list[tuple[Any, ...]]], bool]) -> None:
        async with asyncio.timeout(LONGEST_S):
            while not holds(self.seen):
                self.news.clear()
                await self.news.wait()


TWO_CORES = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="the plan has two devices")
WORLDS = (
    *(Local, Emulated, OnStandIn),
    pytest.param(LocalAcrossDevices, marks=[TWO_CORES, pytest.mark.long]),
    pytest.param(OnRay, marks=pytest.mark.long),
)


@pytest.fixture(params=WORLDS)
def make_world(request, tmp_path) -> Callable[[], World]:
    if request.param is OnRay:
        address = request.getfixturevalue("ray_address")
        return lambda: OnRay(tmp_path, address)
    return lambda: request.param(tmp_path)


@pytest.fixture(scope="module")
def ray_address() -> Iterator[str]:
    os.environ.update(ON_LOOPBACK)
    ray = pytest.importorskip("ray", reason="ray is not installed; `make test-long` does that")
    with RayNodes(1) as nodes:
        yield nodes.address
        assert nodes.actors() == {"actors": 0, "groups": 0}
        ray.shutdown()


def batch_of(number: int, replica: int, payloads: Sequence[dict[str, np.ndarray]]) -> Batch:
    request = Request(id=number, operator="sums", arrived_ns=0, rows=len(payloads))
    return Batch(number, replica, [Sample(request, row, row, payload) for row, payload in enumerate(payloads)])


def run(main: Coroutine[Any, Any, None]) -> None:
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main)


async def started(world: World) -> Events:
    events = Events()
    await world.backend.start(events)
    assert sorted(events.seen) == [("ready", 0), ("ready", 1)]
    events.seen.clear()
    return events


def test_a_batch_is_reported_sample_by_sample_and_then_as_a_whole(make_world):
    async def main() -> None:
        world = make_world()
        events = await started(world)
        batch = batch_of(1, 0, [world.good(), world.good()])
        world.backend.run(batch)
        await events.until(lambda seen: ("batch", 1) in seen)
        await world.backend.stop()
        assert events.seen == [("samples", 1, 2), ("batch", 1)]
        for sample in batch.samples:
            assert sample.error == ""
            assert sample.certainty == 1.0
            assert all(array.shape == (1,) for array in sample.result.values())

    run(main())


def test_samples_that_leave_early_are_reported_before_the_others(make_world):
    async def main() -> None:
        world = make_world()
        early = world.stop_early()
        events = await started(world)
        small = world.tables.replica_ids.index("small-0")
        batch = batch_of(1, small, [world.good(), early, world.good()])
        world.backend.run(batch)
        await events.until(lambda seen: ("batch", 1) in seen)
        await world.backend.stop()
        assert events.seen == [("samples", 1, 1), ("samples", 1, 2), ("batch", 1)]
        assert [sample.exit_segment for sample in batch.samples] == [1, 0, 1]
        assert [(sample.error, sample.certainty) for sample in batch.samples] == [("", 1.0)] * 3

    run(main())


def test_only_the_sample_that_fails_has_an_error(make_world):
    async def main() -> None:
        world = make_world()
        events = await started(world)
        batch = batch_of(1, 1, [world.good(), world.bad(), world.good()])
        world.backend.run(batch)
        await events.until(lambda seen: ("batch", 1) in seen)
        await world.backend.stop()
        assert [bool(sample.error) for sample in batch.samples] == [False, True, False]
        assert "secret" not in batch.samples[1].error
        assert batch.samples[0].result is not None

    run(main())


def test_rows_that_run_again_are_as_they_came_whatever_the_model_did_to_its_arrays(make_world):
    async def main() -> None:
        world = make_world()
        events = await started(world)
        alone = batch_of(1, 1, [world.good()])
        beside = batch_of(2, 1, [world.good(), world.bad(), world.good(), world.good()])
        for batch in (alone, beside):
            world.backend.run(batch)
            await events.until(lambda seen, number=batch.id: ("batch", number) in seen)
        await world.backend.stop()
        for row in (0, 2, 3):
            assert beside.samples[row].result == alone.samples[0].result
            assert all((beside.samples[row].payload[name] == array).all() for name, array in world.good().items())

    run(main())


def test_run_returns_at_once_and_reports_later(make_world):
    async def main() -> None:
        world = make_world()
        events = await started(world)
        world.backend.run(batch_of(1, 0, [world.good()]))
        assert events.seen == []
        await events.until(lambda seen: ("batch", 1) in seen)
        await world.backend.stop()

    run(main())


def test_a_lost_replica_is_reported_once_comes_back_and_serves(make_world):
    async def main() -> None:
        world = make_world()
        events = await started(world)
        small = world.tables.models.index("small")
        lost = int(world.tables.model_begin[small])
        world.backend.run(batch_of(1, lost, [world.slow()]))
        world.break_replica(lost)
        await events.until(lambda seen: ("ready", lost) in seen)
        assert events.seen.count(("lost", lost)) == 1
        assert ("batch", 1) not in events.seen
        again = batch_of(2, lost, [world.good()])
        world.backend.run(again)
        await events.until(lambda seen: ("batch", 2) in seen)
        assert again.samples[0].error == ""
        await world.backend.stop()
        assert ("batch", 1) not in events.seen

    run(main())


def test_a_stopped_backend_reports_nothing_more_and_may_be_stopped_twice(make_world):
    async def main() -> None:
        world = make_world()
        events = await started(world)
        world.backend.run(batch_of(1, 0, [world.slow()]))
        await world.backend.stop()
        await world.backend.stop()
        assert events.seen == []

    run(main())


def test_a_backend_may_be_stopped_before_it_was_started(make_world):
    async def main() -> None:
        await make_world().backend.stop()

    run(main())


# Models of two operators ---------------------------------------------------------------------------------------------


class TwoTasks:
    """Models of two operators, each with its own project and tensors, on one device of this machine."""

    def __init__(self, folder: Path) -> None:
        plan = read_plan(write_two_tasks(folder))
        self.tables = plan_tables(plan)
        profiles = {name: read_profile(folder / name / "profile") for name in plan.profiles}
        operators = [
            OperatorSource(
                project=folder / name / "gearshift.toml",
                inputs=profile.inputs,
                outputs=profile.outputs,
                models=profile.models,
            )
            for name, profile in profiles.items()
        ]
        self.backend = self.make(plan, profiles, operators)

    def make(self, plan: GearPlan, profiles: dict[str, Profile], operators: list[OperatorSource]) -> Backend:
        return LocalBackend(self.tables, plan, operators=operators)

    asked: ClassVar[dict[str, dict[str, np.ndarray]]] = {
        "large": {"x": np.array([[1.0, 2.0]])},
        "net": {"x": np.array([[7.0]])},
    }
    answered: ClassVar[dict[str, dict[str, list[Any]]]] = {
        "large": {"sum": [3.0], "by": ["large"]},
        "net": {"label": ["a"]},
    }


class TwoTasksOnStandIn(TwoTasks):
    def make(self, plan: GearPlan, profiles: dict[str, Profile], operators: list[OperatorSource]) -> Backend:
        return RayBackend(self.tables, plan, operators=operators, cluster=StandInCluster())


class TwoTasksEmulated(TwoTasks):
    def make(self, plan: GearPlan, profiles: dict[str, Profile], operators: list[OperatorSource]) -> Backend:
        return EmulatedBackend(self.tables, plan, profiles)

    asked: ClassVar[dict[str, dict[str, np.ndarray]]] = {
        "large": {"sample": np.array([9])},
        "net": {"sample": np.array([19])},
    }
    answered: ClassVar[dict[str, dict[str, list[Any]]]] = {
        "large": {"quality": [1.0], "label": ["large-9"]},
        "net": {"quality": [1.0], "label": ["a"]},
    }


@pytest.mark.parametrize("world_of", [TwoTasks, TwoTasksOnStandIn, TwoTasksEmulated])
def test_models_of_two_operators_on_one_device_each_answer_their_own_outputs(tmp_path, world_of):
    async def main() -> None:
        world, events = world_of(tmp_path), Events()
        await world.backend.start(events)
        assert sorted(events.seen) == [("ready", replica) for replica in range(3)]
        for number, (model, payload) in enumerate(world.asked.items()):
            batch = batch_of(number, world.tables.replica_ids.index(f"{model}-0"), [payload, payload])
            world.backend.run(batch)
            await events.until(lambda seen, number=number: ("batch", number) in seen)
            for sample in batch.samples:
                said = {name: [_text(one) for one in array.tolist()] for name, array in sample.result.items()}
                assert said == world.answered[model]
        await world.backend.stop()

    run(main())


def _text(one: Any) -> Any:
    return one.decode() if isinstance(one, bytes) else one
