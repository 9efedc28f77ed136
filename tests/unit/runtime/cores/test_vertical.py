import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from gearshift.clock import NS_PER_S, Clock, WallClock
from gearshift.errors import InvalidInput
from gearshift.observability.journal import Journal, JournalFile
from gearshift.policies.cores.demand import Scaling, SharedCores
from gearshift.profiles.performance_model import planned_ns
from gearshift.request import Request, Sample
from gearshift.runtime.actuators.base import Actuator, Effect, EmulatedActuator
from gearshift.runtime.cores.vertical import (
    Actuate,
    ScaledReplica,
    ScaledWorker,
    Scaler,
    TellWorker,
    VerticalScaling,
    effect_s,
    give_all,
)
from tests.manual_clock import ManualClock

MOST, LARGEST = 4, 2
TABLE = np.array(
    [[0, NS_PER_S, NS_PER_S]] + [[0, NS_PER_S // cores, NS_PER_S // cores] for cores in range(1, MOST + 1)]
)
LONGEST_S = 20


class Slow(EmulatedActuator):
    """Makes each change when it is told to."""

    def __init__(self, cores: int) -> None:
        super().__init__(cores=cores)
        self.asked, self.go_on = threading.Semaphore(0), threading.Semaphore(0)

    def apply(self, cores: float) -> Effect:
        self.asked.release()
        assert self.go_on.acquire(timeout=LONGEST_S)
        return super().apply(cores)


class Late(EmulatedActuator):
    """Takes five seconds for each change."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(cores=4, now=clock.now_ns)
        self.clock = clock

    def apply(self, cores: float) -> Effect:
        self.clock.move_to(self.clock.now_ns() + 5 * NS_PER_S)
        return super().apply(cores)


class Gone:
    """Has an actuator for the first worker, and for a later one when `there`."""

    def __init__(self) -> None:
        self.there, self.made = True, list[EmulatedActuator]()

    def actuate(self, replica: int) -> Actuator:
        if not self.there:
            raise InvalidInput("the group is gone")
        self.made.append(EmulatedActuator())
        return self.made[-1]


class Kept(Journal):
    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, object]]] = []

    def write(self, event: str, **facts: object) -> None:
        self.events.append((event, facts))

    def problems(self) -> list[object]:
        return [facts["problem"] for event, facts in self.events if event == "cores" and facts["problem"]]


class Queues:
    """The cores that the router reckons with, one change after another."""

    def __init__(self) -> None:
        self.cores: list[int] = []
        self.looked = 0
        self.told: Callable[[int, Sample], None]

    def waiting(self, replica: int, now_ns: int) -> tuple[list[tuple[int, int]], int]:
        self.looked += 1
        return [], 0

    async def some_periods(self) -> None:
        enough = self.looked + 4
        while self.looked < enough:
            await asyncio.sleep(0.001)

    def take_run_times(self, replica: int, run_ns: Sequence[int], now_ns: int) -> None:
        self.cores.append(NS_PER_S // run_ns[1])


def scaled(actuator: EmulatedActuator, in_gear: Sequence[Sequence[int]]) -> VerticalScaling:
    return begins_with(int(actuator.cores), lambda number: actuator, in_gear)


def begins_with(
    cores: int,
    actuate: Actuate,
    in_gear: Sequence[Sequence[int]],
    *,
    period_s: float = 1000.0,
    journal: Journal | None = None,
    clock: Clock | None = None,
    scaler: Literal["exact", "static"] = "static",
    tell_worker: TellWorker = lambda replica, cores: None,
) -> VerticalScaling:
    replica = ScaledReplica(0, "net-0", TABLE.tolist())
    how = Scaling(scaler=scaler, period_s=period_s, effect_s=0.0)
    return VerticalScaling(
        [ScaledWorker((replica,), cores)],
        actuate,
        shared=SharedCores(how, MOST, [planned_ns(TABLE, how.margin)], [MOST], LARGEST),
        clock=clock or WallClock(),
        journal=journal or Journal(),
        in_gear=in_gear,
        tell_worker=tell_worker,
    )


def run(scaling: VerticalScaling, queues: Queues, body: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(LONGEST_S):
            await scaling.start(queues, lambda: None)  # type: ignore[arg-type]
            try:
                await body()
            finally:
                await scaling.stop()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("batches", "took_ns"),
    [
        ([], 100),
        ([(-50, -10), (0, 40)], 60),  # what ran when it was asked for
        ([(-50, 40), (45, 90)], 60),  # but not what began then
        ([(-50, 110), (115, 120)], 0),  # its end may be known later than what the worker did after it
    ],
)
def test_a_change_takes_as_long_as_it_did_but_for_the_batch_that_ran(
    batches: list[tuple[int, int]], took_ns: int
) -> None:
    effect = Effect(cores=2, asked_ns=0, effective_ns=100)
    assert round(NS_PER_S * effect_s(effect, batches)) == took_ns


def test_cores_that_come_late_are_not_reckoned_with_when_they_are_to_go_again() -> None:
    actuator, queues = Slow(cores=1), Queues()
    scaling = scaled(actuator, [[1], [4]])

    async def body() -> None:
        for gear in (1, 0):  # back while the actuator is still at the cores of gear 1
            scaling.shifted(gear)
            await asyncio.sleep(0)
        for under_way in (2, 1):  # beside the loop of the periods
            await asyncio.to_thread(actuator.asked.acquire, timeout=LONGEST_S)
            actuator.go_on.release()
            while len(scaling._tasks) > under_way:
                await asyncio.sleep(0.001)
            assert set(queues.cores) == {1}
        assert actuator.cores == 1

    run(scaling, queues, body)


def test_rates_count_from_when_requests_are_let_in_however_long_the_first_cores_took() -> None:
    clock, queues = ManualClock(), Queues()
    scaling = begins_with(1, lambda number: Late(clock), (), period_s=1.0, clock=clock, scaler="exact")

    async def body() -> None:
        assert clock.now_ns() == 5 * NS_PER_S
        for i in range(3):  # in a second; 1 core bears 2, 2 bear 4
            clock.move_to(5 * NS_PER_S + (i + 1) * NS_PER_S // 3)
            queues.told(0, Sample(Request(id=i, operator="", arrived_ns=0, deadline_ns=60 * NS_PER_S), 0, i))
        assert scaling._wanted() == [2]

    run(scaling, queues, body)


def test_a_worker_to_which_nothing_comes_is_to_keep_what_was_asked_for_also_where_that_fell_short() -> None:
    actuator = EmulatedActuator(cores=1, most=2)
    scaling = begins_with(3, lambda number: actuator, (), scaler="exact")

    async def body() -> None:
        assert actuator.cores == 2
        assert scaling._wanted() == [3]

    run(scaling, Queues(), body)


def test_cores_that_came_are_reckoned_with_and_fewer_at_once() -> None:
    actuator, queues = EmulatedActuator(cores=1), Queues()
    scaling = scaled(actuator, [[1], [4]])

    async def body() -> None:
        scaling.shifted(1)
        while queues.cores[-1] != 4:
            await asyncio.sleep(0.001)
        scaling.shifted(0)
        assert queues.cores[-1] == 1

    run(scaling, queues, body)


def test_a_worker_is_told_of_its_cores_in_the_event_that_decides() -> None:
    told: list[tuple[int, int]] = []
    actuator = Slow(cores=1)
    actuator.go_on.release(100)
    scaling = begins_with(
        1, lambda number: actuator, [[1], [4]], tell_worker=lambda replica, cores: told.append((replica, cores))
    )

    async def body() -> None:
        told.clear()
        scaling.shifted(1)
        assert told == [(0, 4)]
        scaling.replicas_lost([0])
        scaling.shifted(0)
        assert told == [(0, 4)]

    run(scaling, Queues(), body)


def test_a_worker_that_is_back_is_tried_every_period_until_it_can_be_given_cores_and_why_not_is_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    means, journal, queues = Gone(), Kept(), Queues()
    scaling = begins_with(3, means.actuate, [[3]], period_s=0.01, journal=journal)

    async def body() -> None:
        means.there = False
        scaling.replicas_lost([0])
        scaling.replica_ready(0)
        await queues.some_periods()
        assert journal.problems() == ["the group is gone"]
        assert caplog.text.count("the group is gone") == 1
        means.there = True
        while len(means.made) < 2 or means.made[1].cores != 3:
            await asyncio.sleep(0.001)
        await queues.some_periods()
        assert len(means.made) == 2

    run(scaling, queues, body)


def test_a_worker_that_is_lost_again_is_not_tried() -> None:
    means, queues = Gone(), Queues()
    scaling = begins_with(3, means.actuate, [[3]], period_s=0.01)

    async def body() -> None:
        means.there = False
        scaling.replicas_lost([0])
        scaling.replica_ready(0)
        scaling.replicas_lost([0])
        means.there = True
        await queues.some_periods()
        assert len(means.made) == 1

    run(scaling, queues, body)


class KeptChanges(Journal):
    """The changes of cores, from and to."""

    def __init__(self) -> None:
        self.changes: list[tuple[object, object]] = []

    def write(self, event: str, **facts: object) -> None:
        self.changes.append((facts["before"], facts["cores"]))


def test_changes_are_made_once_and_stand_in_the_journal(tmp_path: Path) -> None:
    journal = JournalFile(tmp_path / "journal.jsonl")
    one = Scaler("m-0", EmulatedActuator(cores=1, most=4), cores=1, journal=journal)
    assert one.give(1) is None
    effect = one.give(6)
    assert effect is not None
    assert one.give(6) is not None
    assert one.cores == 4
    journal.close()
    (line,) = (tmp_path / "journal.jsonl").read_text().splitlines()
    event = json.loads(line)
    assert {name: event[name] for name in ("event", "replica", "before", "asked", "cores")} == {
        "event": "cores", "replica": "m-0", "before": 1, "asked": 6, "cores": 4,
    }  # fmt: skip
    assert "there are 4" in event["problem"]


def test_cores_that_somebody_else_takes_away_are_asked_for_again() -> None:
    actuator = EmulatedActuator(cores=4)
    one = Scaler("m-0", actuator, cores=4, journal=Journal())
    assert one.give(4) is None
    actuator.cores = 2
    assert one.give(4) is not None
    assert actuator.cores == one.cores == 4


def test_cores_that_a_worker_took_as_soon_as_it_was_told_are_a_change_all_the_same() -> None:
    actuator, journal = EmulatedActuator(cores=4), KeptChanges()
    one = Scaler("m-0", actuator, cores=4, journal=journal)
    actuator.cores = 2
    assert one.give(2) is not None
    assert one.give(2) is None
    assert journal.changes == [(4, 2)]


def test_a_worker_that_is_started_again_on_the_cores_that_it_is_to_have_is_no_change() -> None:
    journal = KeptChanges()
    one = Scaler("m-0", EmulatedActuator(cores=2), cores=2, journal=journal)
    one.act_through(EmulatedActuator(cores=2))
    assert one.give(2) is None
    one.act_through(EmulatedActuator(cores=4))
    assert one.give(2) is not None
    assert journal.changes == [(4, 2)]


def test_who_shrinks_goes_first() -> None:
    order: list[str] = []

    class Noting(EmulatedActuator):
        def apply(self, cores: float):  # type: ignore[no-untyped-def]
            order.append(f"{cores:g}")
            return super().apply(cores)

    scalers = [
        Scaler(name, Noting(cores=cores), cores=cores, journal=Journal())
        for name, cores in (("grows", 1), ("shrinks", 7))
    ]
    give_all(scalers, [6, 2])
    assert order == ["2", "6"]
    assert [one.cores for one in scalers] == [6, 2]
