"""A process attends to a model that only behaves like one with learned caches, so that no PyTorch is needed."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uvloop

from gearshift.observability.cache_metrics import CacheMetrics
from gearshift.observability.families import Families
from gearshift.observability.journal import Journal
from gearshift.plans.plan_tables import plan_tables
from gearshift.request import Request, Sample
from gearshift.runtime.backends.base import Batch
from gearshift.runtime.backends.local import LocalBackend
from gearshift.runtime.backends.workers_backend import OperatorSource
from gearshift.runtime.watch import cache_adaptation
from gearshift.runtime.watch.cache_adaptation import CacheAdaptation
from tests.conformance.test_backend_contract import Events
from tests.little_task import INPUTS, TASK, little_plan, write_little_task

CACHED = (
    TASK
    + """
from types import SimpleNamespace

class Counts(__import__("msgspec").Struct):
    learnt: int = 0
    outcomes: dict = {}

class Adapter:
    def __init__(self, model, settings, now_s, seed, tell, changed):
        assert os.getpriority(os.PRIO_PROCESS, 0) == 19
        assert model.set_up_for == "inline"
        self.model, self.tell, self.changed, self.counts = model, tell, changed, Counts()
        tell("opened", settings=settings, seed=seed)

    def learn(self, row, exit_segment, now_s, probabilities=None):
        self.counts.learnt += 1
        self.tell("learnt", row=row.tolist(), left=exit_segment, known=probabilities is not None)
        if row[0] == 2:
            self.model.version = 7
            self.changed()
        if row[0] == 3:
            self.tell("cache_retraining")
            os.kill(os.getpid(), signal.SIGKILL)

    def audit(self, row, exit_segment, label):
        self.tell("audited", row=row.tolist(), left=exit_segment, label=label)
        if row[0] == 5:
            self.model.layers_off = (0, 1)
            self.tell("cache_off", block="first", audited=9, disagreed=3)
            self.changed()

    def step(self, now_s):
        return False

    def refresh(self):
        pass

    def content(self):
        return str(self.model.version).encode(), b"weights"

    def audited(self):
        return {0: (4, 1, 0.1, 0.6)}

    def save(self):
        pass

class Cached:
    version, layers_off, segments, not_finite = 0, (1,), 2, 0
    through, lookups, off = None, "beside", ()

    def setup(self):
        self.set_up_for = self.lookups

    def predict(self, x):
        return {"scores": np.stack([x[:, 0], x[:, 1]], axis=1), "certainty": np.full(len(x), float(self.version)),
                "exit_segment": np.where((x[:, 1] > 0) | (0 in self.off), 1, 0)}

    def exits(self, x):
        self.not_finite += int((x == 4).sum())
        yield np.arange(len(x)), self.predict(x)

    def adopt(self, manifest, weights, off):
        if manifest == b"7" and weights != b"weights":
            raise ValueError("these are no weights")
        self.version, self.off = int(manifest), tuple(off)
        return self.version

    def adapter(self, settings, **told):
        return Adapter(self, settings, **told)

def small():
    return Cached()
"""
)


class Told(Journal):
    """Keeps events, and lets a test wait for one."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self._news = asyncio.Event()

    def write(self, event: str, **facts: object) -> None:
        self.events.append({"event": event, **facts})
        self._news.set()

    async def first(self, event: str, **facts: object) -> dict[str, Any]:
        async with asyncio.timeout(30):
            while True:
                for one in self.events:
                    if one["event"] == event and facts.items() <= one.items():
                        return one
                self._news.clear()
                await self._news.wait()


class World:
    """A backend with an attended model, its journal, and its metrics."""

    def __init__(self, folder: Path, task: str, **settings: float) -> None:
        write_little_task(folder)
        (folder / "task.py").write_text(task)
        plan = little_plan("")
        tables = plan_tables(plan)
        families = Families()
        self.told, self.registry, self.events, self.ids = Told(), families.registry, Events(), iter(range(1, 1000))
        self.caches = CacheAdaptation(
            {"small": folder / "gearshift.toml"},
            adapting={"small"},
            settings={"learn_share": 0.0, "audit_share": 0.0, **settings},
            seed=5,
            metrics=CacheMetrics(families),
            journal=self.told,
        )
        self.backend = LocalBackend(
            tables, plan, operators=[OperatorSource(project=folder / "gearshift.toml", inputs=INPUTS)]
        )
        self.caches.attend({"small": folder / "gearshift.toml"}, self.backend, tables)
        self.small = tables.replica_model.tolist().index(tables.models.index("small"))

    async def ask(self, *x: float) -> Sample:
        """The answer of the attended model."""
        number = next(self.ids)
        request = Request(id=number, operator="sums", arrived_ns=0)
        sample = Sample(request, 0, number, {"x": np.array([x])})
        self.backend.run(Batch(number, self.small, [sample]))
        await self.events.until(lambda seen: ("batch", number) in seen)
        return sample

    def metric(self, name: str) -> float:
        return sum(s.value for family in self.registry.collect() for s in family.samples if s.name == name)


def run(folder: Path, body: Callable[[World], Awaitable[None]], *, task: str = CACHED, **settings: float) -> None:
    async def main() -> None:
        world = World(folder, task, **settings)
        await world.backend.start(world.events)
        try:
            await body(world)
        finally:
            await world.caches.stop()
            await world.backend.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


@pytest.mark.long
def test_answers_that_are_learnt_from_arrive_with_their_inputs_and_what_misses_answered(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        opened = await world.told.first("opened")
        assert (opened["model"], opened["seed"], opened["settings"]["adapt"]) == ("small", 5, True)
        await world.told.first("cache_attended")
        await world.ask(1.0, 0.0)
        assert await world.told.first("learnt", row=[1.0, 0.0], left=0, known=False)
        await world.ask(1.0, 4.0)
        assert await world.told.first("learnt", row=[1.0, 4.0], left=1, known=True)
        assert world.metric("gearshift_cache_not_finite_total") == 1

    run(tmp_path, body, learn_share=1.0)


def test_audited_answers_arrive_with_the_class_that_was_answered_and_are_not_learnt_from(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        await world.told.first("cache_version")
        await world.ask(1.0, 4.0)
        assert await world.told.first("audited", row=[1.0, 4.0], left=1, label=1)
        assert not any(event["event"] == "learnt" for event in world.told.events)

    run(tmp_path, body, learn_share=1.0, audit_share=1.0)


@pytest.mark.long
def test_what_another_version_answered_is_not_audited(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        await world.told.first("cache_version")
        replicas = world.caches._attended["small"].replicas
        replicas.update(dict.fromkeys(replicas, 5))
        await world.ask(1.0, 8.0)
        replicas.update(dict.fromkeys(replicas, 0))
        await world.ask(1.0, 4.0)
        await world.told.first("audited", row=[1.0, 4.0])
        assert sum(event["event"] == "audited" for event in world.told.events) == 1

    run(tmp_path, body, audit_share=1.0)


@pytest.mark.long
def test_another_version_is_looked_up_by_every_replica_and_told(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        assert (await world.told.first("cache_version"))["off"] == (1,)
        assert (await world.ask(1.0, 0.0)).certainty == 0
        assert world.metric("gearshift_cache_off") == 1
        await world.ask(2.0, 0.0)
        await world.told.first("cache_version", version=7, replicas=1)
        assert (await world.ask(1.0, 0.0)).certainty == 7
        assert world.metric("gearshift_cache_version") == 7

    run(tmp_path, body, learn_share=1.0)


def test_a_cache_that_audits_switch_off_is_told_and_no_replica_looks_it_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def body(world: World) -> None:
        await world.told.first("cache_version")
        assert world.metric("gearshift_cache_attended") == 1
        assert (await world.ask(5.0, 0.0)).exit_segment == 0
        assert (await world.told.first("cache_off"))["block"] == "first"
        await world.told.first("cache_version", off=(0, 1))
        assert (await world.ask(1.0, 0.0)).exit_segment == 1
        assert world.metric("gearshift_cache_off") == 2

    run(tmp_path, body, audit_share=1.0)
    switched = "cache of model 'small' after first is switched off: of 9 hits audited, the model disagrees with 3"
    assert any(switched in told for told in caplog.messages)


@pytest.mark.long
def test_a_version_that_a_replica_refuses_changes_nothing_and_is_told(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        await world.told.first("cache_version")
        await world.ask(2.0, 0.0)
        refused = await world.told.first("cache_version_refused")
        assert refused["why"] == "ValueError: these are no weights"
        assert (await world.ask(1.0, 0.0)).certainty == 0

    run(tmp_path, body, learn_share=1.0, task=CACHED.replace('b"weights"\n\n', 'b"half"\n\n'))


def test_a_process_that_is_killed_while_it_retrains_is_told_of_and_started_again_while_serving_goes_on(
    tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(cache_adaptation, "SHORTEST_RESTART_WAIT_S", 0.01)

    async def body(world: World) -> None:
        await world.told.first("cache_attended")
        await world.ask(3.0, 0.0)
        lost = await world.told.first("cache_attendant_lost")
        assert world.registry.get_sample_value("gearshift_cache_attended", {"model": "small"}) == 0
        assert lost["retraining"]
        assert "signal 9" in lost["how"]
        world.told.events.clear()  # before another is there, of which it could be told as soon as something is awaited
        assert (await world.ask(1.0, 0.0)).error == ""
        await world.told.first("cache_attended")
        await world.ask(1.0, 8.0)
        await world.told.first("learnt", row=[1.0, 8.0])
        assert world.metric("gearshift_cache_attendant_restarts_total") == 1

    run(tmp_path, body, learn_share=1.0)


@pytest.mark.parametrize(
    ("long_been_well_s", "waits"), [(0.0, [0.01, 0.01]), pytest.param(300.0, [0.01, 0.02], marks=pytest.mark.long)]
)
def test_who_had_long_been_well_is_started_again_as_soon_as_the_first_time(
    tmp_path: Path, monkeypatch: Any, long_been_well_s: float, waits: list[float]
) -> None:
    monkeypatch.setattr(cache_adaptation, "SHORTEST_RESTART_WAIT_S", 0.01)
    monkeypatch.setattr(cache_adaptation, "LONG_WELL_S", long_been_well_s)

    async def body(world: World) -> None:
        told = []
        for _ in waits:
            await world.told.first("cache_attended")
            await world.ask(3.0, 0.0)
            told.append((await world.told.first("cache_attendant_lost"))["again_in_s"])
            world.told.events.clear()
        assert told == waits

    run(tmp_path, body, learn_share=1.0)


def test_a_model_without_learned_caches_is_served_unattended_and_said_to_be(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        unattended = await world.told.first("cache_unattended")
        assert "model 'small': it has no learned caches" in unattended["why"]
        assert world.registry.get_sample_value("gearshift_cache_attended", {"model": "small"}) == 0
        assert (await world.ask(1.0, 0.0)).error == ""

    run(tmp_path, body, task=TASK, learn_share=1.0)
