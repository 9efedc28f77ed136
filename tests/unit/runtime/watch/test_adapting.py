"""A service on a manual clock, its world moved by hand: what it says of load, run times and early answers."""

import asyncio
import dataclasses
import heapq
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
import uvloop

from gearshift.cascade import Cascade, TimedQuality
from gearshift.gear import GearPlan
from gearshift.observability.journal import Journal
from gearshift.observability.metrics import Metrics
from gearshift.plans.plan_tables import plan_tables
from gearshift.policies.watch.audit import LARGEST_TIME_SHARE
from gearshift.profiles.run_times import run_times_ns
from gearshift.request import Answer
from gearshift.runtime.backends.base import Batch, BatchEvents
from gearshift.runtime.backends.emulated import RecordedAnswers
from gearshift.runtime.router.by_deadline import DeadlineRules
from gearshift.runtime.router.status import ServedPlan
from gearshift.runtime.service.served_pipeline import PipelineOptions
from gearshift.runtime.service.service import Service
from gearshift.runtime.watch.adapting import Adapting
from gearshift.runtime.watch.audit import Audit, make_audit, planned_disagreement
from gearshift.workload import PlannedLoad
from tests.little_task import little_plan, little_profile, refining_plan, two_gear_plan
from tests.manual_clock import ManualClock

MS = 1_000_000
SMALL, LARGE = 1, 0


class Kept(Journal):
    """Keeps what is written."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def write(self, event: str, **facts: object) -> None:
        self.lines.append({"event": event, **facts})

    def of(self, event: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["event"] == event]


class ByHand:
    """A backend whose batches take `slow` times the profiled time of a manual clock."""

    def __init__(self, clock: ManualClock, plan: GearPlan) -> None:
        tables, profile = plan_tables(plan), little_profile()
        self._clock, self._model_of = clock, tables.replica_model.tolist()
        self.run_ns = run_times_ns(plan, tables, profile).tolist()
        self._answers = RecordedAnswers(tables.models, profile)
        self.ends: list[tuple[int, int, Batch]] = []
        self.ran: list[tuple[int, int]] = []
        self.slow = 1.0

    async def start(self, events: BatchEvents) -> None:
        self.events = events
        for replica in range(len(self._model_of)):
            events.replica_ready(replica)

    def run(self, batch: Batch) -> None:
        took_ns = round(self.slow * self.run_ns[batch.replica][len(batch.samples)])
        self.ran.append((batch.replica, len(batch.samples)))
        heapq.heappush(self.ends, (self._clock.now_ns() + took_ns, batch.id, batch))

    async def stop(self) -> None:
        self.ends.clear()

    def end_next(self) -> None:
        end_ns, _, batch = heapq.heappop(self.ends)
        self._clock.move_to(end_ns)
        answers = self._answers.of(batch.samples, self._model_of[batch.replica])
        for sample, answer in zip(batch.samples, answers, strict=True):
            answer.give(sample)
        self.events.samples_finished(batch, batch.samples)
        self.events.batch_finished(batch)


async def told() -> None:
    """Answers are told on the next turn of the loop, and then handed through `infer`."""
    for _ in range(3):
        await asyncio.sleep(0)


class World:
    """A service whose time stands still until it is told otherwise."""

    def __init__(self, plan: GearPlan, share: float, window_s: float, scale: Callable[[Audit], None]) -> None:
        self.clock, self.journal, self.metrics = ManualClock(), Kept(), Metrics()
        self.backend = ByHand(self.clock, plan)
        tables = plan_tables(plan)
        audit = make_audit(tables, plan, little_profile(), share=share, seed=0, run_ns=self.backend.run_ns)
        scale(audit)
        self.audit, self.drifts = audit, 0
        self.adapting = Adapting(
            tables, window_s=window_s, run_ns=self.backend.run_ns, audit=audit, journal=self.journal, drifts=self._drift
        )
        self.service = Service(
            tables,
            self.backend,
            clock=self.clock,
            metrics=self.metrics,
            journal=self.journal,
            pipelines={
                "sums": PipelineOptions(adapting=self.adapting, answer_within_s=plan.pipeline.objective.latency_s)
            },
            deadlines=DeadlineRules(tables, self.backend.run_ns, late="answer"),
        )

    def _drift(self) -> None:
        self.drifts += 1

    async def ask(self, *numbers: int) -> Answer:
        request = asyncio.ensure_future(self.service.pipeline.infer({"sample": np.array(numbers)}))
        await asyncio.sleep(0)
        while not request.done():
            self.backend.end_next()
            await told()
        return await request

    def idle(self, ms: float) -> None:
        """Time passes, with what it brings: batches end, and the meter ticks every 100 ms."""
        until_ns = self.clock.now_ns() + int(ms * MS)
        while True:
            tick_ns = (self.clock.now_ns() // (100 * MS) + 1) * 100 * MS
            next_ns = min(tick_ns, self.backend.ends[0][0] if self.backend.ends else tick_ns)
            if next_ns > until_ns:
                self.clock.move_to(until_ns)
                return
            if next_ns == tick_ns and not (self.backend.ends and self.backend.ends[0][0] == tick_ns):
                self.clock.move_to(tick_ns)
                self.service.router.tick(tick_ns)
                self.adapting.ticked(self.service.router, tick_ns)
            else:
                self.backend.end_next()

    def value(self, name: str) -> float | None:
        lines = [line for line in self.metrics.text().decode().splitlines() if line.startswith(name + " ")]
        return float(lines[0].split()[-1]) if lines else None


def in_world(
    use: Callable[[World], Awaitable[Any]],
    *,
    plan: GearPlan | None = None,
    share: float = 0.0,
    window_s: float = 6.0,
    scale: Callable[[Audit], None] = lambda _: None,
) -> World:
    async def main() -> World:
        world = World(plan or little_plan(""), share, window_s, scale)
        await world.backend.start(world.service.driver)
        world.service._shared.accepting.now = True
        await use(world)
        return world

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main())


# The audit -----------------------------------------------------------------------------------------------------------


def test_early_answers_are_audited_when_it_is_quiet_and_nothing_of_it_is_seen_by_clients() -> None:
    async def use(world: World) -> None:
        for number in range(20):
            answer = await world.ask(number % 10)
            assert answer.outputs["label"].tolist() == [f"{'small' if number % 2 == 0 else 'large'}-{number % 10}"]  # type: ignore[index]
            world.idle(500)

    world = in_world(use, share=1.0)
    cell = world.audit.cells[0, 0]
    assert (cell.audited, cell.disagreed) == (10, 10)  # every second answer is the small model's; their labels differ
    assert world.value("gearshift_requests_total" + '{operator="sums",outcome="answered"}') == 20
    assert world.value('gearshift_request_latency_seconds_count{operator="sums",outcome="answered"}') == 20
    assert world.value('gearshift_rows_total{operator="sums"}') == 20
    assert world.value('gearshift_audits_total{outcome="disagreed"}') == 10
    assert world.value('gearshift_batches_total{model="large",reason="audit"}') == 10
    assert world.backend.ran.count((LARGE, 1)) == 10 + 10


def test_rows_that_were_answered_by_time_are_not_audited() -> None:
    """The time to refine ends before `large` could have run."""

    async def use(world: World) -> None:
        for number in (1, 0):
            answer = await world.ask(number)
            assert answer.rows[0].by_time == (number == 1)
            world.idle(500)

    world = in_world(use, plan=refining_plan("", margin_s=9.997), share=1.0)
    assert world.audit.cells[0, 0].audited == 1  # the row that `small` was certain of
    assert world.value('gearshift_batches_total{model="large",reason="audit"}') == 1


def test_an_audit_is_not_metered_and_does_not_wait_in_a_queue() -> None:
    async def use(world: World) -> None:
        await world.ask(0)
        before = world.service.router.pipeline.meter.counted
        assert world.backend.ran[-1] == (LARGE, 1)  # the audit, at once
        assert world.service.router.waiting == 0
        assert world.service.router.pipeline.meter.counted == before
        world.idle(50)
        assert world.audit.cells[0, 0].audited == 1
        assert world.adapting.trace.arrived == 1

    in_world(use, share=1.0)


def test_no_audit_runs_while_anything_waits_and_one_that_waits_too_long_is_dropped() -> None:
    async def use(world: World) -> None:
        service = world.service
        requests = [asyncio.ensure_future(service.pipeline.infer({"sample": np.array([0])})) for _ in range(40)]
        await asyncio.sleep(0)
        while not all(request.done() for request in requests):
            assert (LARGE, 1) not in world.backend.ran
            world.backend.end_next()
            await told()
        assert world.backend.ran[-1] == (LARGE, 1)
        assert world.audit.dropped > 20  # one at a time
        world.idle(10)
        await world.ask(0)
        dropped = world.audit.dropped  # one waits
        world.service.router.replicas_lost([LARGE], world.clock.now_ns())
        world.idle(1200)
        assert world.audit.dropped == dropped + 1

    in_world(use, share=1.0)


def test_audits_take_a_fiftieth_of_the_time_at_most() -> None:
    async def use(world: World) -> None:
        for _ in range(2000):
            await world.ask(0)
            world.idle(1)

    world = in_world(use, share=1.0)
    after_the_first_ns = (world.audit.cells[0, 0].audited - 1) * world.backend.run_ns[LARGE][1]
    assert 0.5 * LARGEST_TIME_SHARE < after_the_first_ns / world.clock.now_ns() <= LARGEST_TIME_SHARE


def test_a_request_that_comes_during_an_audit_waits_for_that_one_run_at_most() -> None:
    async def use(world: World) -> None:
        await world.ask(0)
        assert world.backend.ran[-1] == (LARGE, 1)
        answer = await world.ask(0)
        assert answer.queue_s <= world.backend.run_ns[LARGE][1] / 1e9

    in_world(use, share=1.0)


def test_an_audit_whose_worker_ends_is_dropped_and_not_tried_again() -> None:
    async def use(world: World) -> None:
        await world.ask(0)
        now_ns = world.clock.now_ns()
        world.backend.ends.clear()
        world.service.router.replicas_lost([LARGE], now_ns)
        world.service.router.replica_ready(LARGE, now_ns)
        world.idle(3000)
        assert world.backend.ran == [(SMALL, 1), (LARGE, 1)]
        assert (world.audit.dropped, world.audit.cells) == (1, {})
        assert world.service.router.waiting == 0

    in_world(use, share=1.0)


def test_without_a_share_nothing_is_audited() -> None:
    async def use(world: World) -> None:
        for _ in range(50):
            await world.ask(0)
            world.idle(300)

    assert in_world(use, share=0.0).backend.ran == [(SMALL, 1)] * 50


def planned_is(low: float, high: float) -> Callable[[Audit], None]:
    def change(audit: Audit) -> None:
        audit.planned = {(0, 0): (low, high)}

    return change


@pytest.mark.parametrize(
    ("planned", "side"), [((0.0, 0.1), "above"), ((0.0, 1.0), ""), ((0.9, 1.0), "")], ids=["worse", "any", "as planned"]
)
def test_disagreement_that_leaves_the_planned_interval_is_told_once(planned: tuple[float, float], side: str) -> None:
    async def use(world: World) -> None:
        for _ in range(30):
            await world.ask(0)
            world.idle(300)
        status = world.service.status(ServedPlan(path="", sha256="")).adapting
        assert status is not None
        (one,) = status.disagreement
        assert (one.gear, one.stage, one.model, one.audited, one.disagreed, one.alarm) == (0, 0, "small", 30, 30, side)
        assert (one.planned_low, one.planned_high) == planned
        assert one.low <= 1 <= one.high

    world = in_world(use, share=1.0, scale=planned_is(*planned))
    told = world.journal.of("disagreement")
    assert [(line["alarm"], line["gear"], line["stage"]) for line in told] == [(side, 0, 0)] * bool(side)
    assert world.value('gearshift_disagreement_alarm{gear="0",stage="0"}') == bool(side)


def test_the_planned_disagreement_is_that_of_the_records_each_stage_answers() -> None:
    profile = little_profile()
    same = np.array([["x"] * 10, ["x"] * 10])
    same[0, [0, 1]] = "y"  # of these the small model is certain of sample 0 alone
    changed = dataclasses.replace(profile.predictions, prediction=same)
    tables = plan_tables(two_gear_plan(""))
    with_labels = dataclasses.replace(profile, predictions=changed)
    planned = planned_disagreement(tables, tables.pipeline, with_labels, tables.models.index("large"))
    assert sorted(planned) == [(0, 0), (1, 0)]
    assert planned[0, 0][0] < 1 / 5 < planned[0, 0][1]
    assert planned[1, 0][0] < 2 / 10 < planned[1, 0][1]
    assert planned[1, 0] != planned[0, 0]


# Run times -----------------------------------------------------------------------------------------------------------


async def ask_for(world: World, seconds: float, *, slow: float) -> None:
    world.backend.slow = slow
    until_ns = world.clock.now_ns() + int(seconds * 1e9)
    while world.clock.now_ns() < until_ns:
        await world.ask(1)
        world.idle(500)


def test_run_times_that_are_wrong_for_a_minute_are_told_once_and_so_is_their_end() -> None:
    async def use(world: World) -> None:
        await ask_for(world, 120, slow=1.1)
        await ask_for(world, 50, slow=1.5)
        await ask_for(world, 30, slow=1.0)
        assert not world.journal.of("profile_drift")
        await ask_for(world, 300, slow=1.5)
        assert world.service.status(ServedPlan(path="", sha256="")).adapting.slow_or_fast_models == ["large", "small"]  # type: ignore[union-attr]
        assert world.value('gearshift_profile_drift{model="large"}') == 1
        assert world.value('gearshift_run_time_ratio{batch_size="1",model="large"}') == pytest.approx(1.5)
        await ask_for(world, 120, slow=1.0)

    world = in_world(use)
    told = [(line["model"], line["drifting"], "advice" in line) for line in world.journal.of("profile_drift")]
    assert told == [("large", True, True), ("small", True, True), ("large", False, False), ("small", False, False)]


# Load ----------------------------------------------------------------------------------------------------------------


def planned_for(shares: Sequence[float]) -> GearPlan:
    plan = two_gear_plan("", edge_qps=50.0)
    operator = plan.pipelines["sums"]
    planned = PlannedLoad(shares=tuple(shares), over_s=60.0)
    return msgspec.structs.replace(plan, pipelines={"sums": msgspec.structs.replace(operator, planned_load=planned)})


@pytest.mark.parametrize(("shares", "drifts"), [((1.0, 0.0), False), ((0.0, 1.0), True)])
def test_load_in_other_ranges_than_planned_is_told_once_and_asked_to_be_planned_for(
    shares: tuple[float, float], drifts: bool
) -> None:
    async def use(world: World) -> None:
        for _ in range(1500):
            await world.ask(0)
            world.idle(49)

    world = in_world(use, plan=planned_for(shares), window_s=60.0)
    assert [line["drifting"] for line in world.journal.of("load_drift")] == [True] * drifts
    assert world.value("gearshift_load_drift") == drifts
    assert (world.value("gearshift_load_distance") or 0) == pytest.approx(float(drifts), abs=0.1)
    assert (world.drifts > 3) == drifts
    assert sum(world.adapting.trace.latest(60.0)) == pytest.approx(1200, abs=60)


def test_a_plan_that_takes_over_goes_on_with_the_arrivals_and_forgets_what_was_judged() -> None:
    async def use(world: World) -> None:
        for _ in range(1500):
            await world.ask(0)
            world.idle(49)
        assert world.value("gearshift_load_drift") == 1
        after = World(planned_for((1.0, 0.0)), 0.0, 60.0, lambda _: None)
        after.adapting.take_over_from(world.adapting)
        assert world.value("gearshift_load_drift") == 0
        assert sum(after.adapting.trace.latest(60.0)) > 1000
        told, events = world.drifts, len(world.journal.lines)
        world.idle(60_000)  # the service before is still there
        assert (world.drifts, len(world.journal.lines)) == (told, events)
        assert world.value("gearshift_load_drift") == 0
        after.adapting._drifts()
        assert world.drifts == told + 1

    in_world(use, plan=planned_for((0.0, 1.0)), window_s=60.0)


def test_answers_of_gears_that_choose_among_cascades_are_not_audited():
    plan = little_plan("")
    pipeline = plan.pipelines["sums"]
    tables = (TimedQuality(remaining_ms=(10,), quality=(0.5,)), TimedQuality(remaining_ms=(20,), quality=(0.9,)))
    gears = [
        msgspec.structs.replace(
            gear,
            cascades={"sums": (Cascade(models=("small",)), gear.cascade)},
            timed={"sums": tables},
            margin_s=0.001,
        )
        for gear in pipeline.gears
    ]
    choosing = msgspec.structs.replace(plan, pipelines={"sums": msgspec.structs.replace(pipeline, gears=tuple(gears))})
    run_ns = np.ones((2, 2), dtype=np.int64)
    made = [
        make_audit(plan_tables(one), one, little_profile(), share=1.0, seed=0, run_ns=run_ns)
        for one in (plan, choosing)
    ]
    assert made[0] is not None
    assert made[1] is None
