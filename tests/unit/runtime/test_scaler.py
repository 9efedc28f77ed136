import json
from pathlib import Path

import numpy as np
import pytest

from gearshift.clock import NS_PER_S, ManualClock
from gearshift.errors import InvalidInput
from gearshift.observability.journal import Journal, NoJournal
from gearshift.policies.demand import MOST_REMEMBERED, Scaling, Waiting, share
from gearshift.runtime.actuators.base import EmulatedActuator
from gearshift.runtime.scaler import Scaler, give_all
from gearshift.simulator.scalers import ExactScaler
from gearshift.simulator.vertical import Seen, Setting, simulate_vertical
from gearshift.workload import Workload

S = NS_PER_S
MOST, LARGEST = 8, 4
TABLE = np.array([[0] + [S] * LARGEST] + [[0] + [S // 20 * (b + 1) // c for b in range(1, 5)] for c in range(1, 9)])


def scaler(
    clock: ManualClock,
    *,
    cores: int = MOST,
    journal: Journal | NoJournal | None = None,
    most: float = MOST,
    **how: object,
) -> Scaler:
    scaling = Scaling(**how)  # type: ignore[arg-type]
    actuator = EmulatedActuator(cores=cores, most=most, now=clock.now_ns)
    return Scaler("m-0", TABLE, actuator, cores=cores, clock=clock, journal=journal or NoJournal(), scaling=scaling)


def wanted(one: Scaler, clock: ManualClock, waiting: list[Waiting], free_ns: int) -> int:
    """What it needs; as many cores as there are where it cannot say."""
    return one.demand.wanted(clock.now_ns(), waiting, free_ns, int(one.cores))


class Kept(NoJournal):
    """The changes of cores, from and to."""

    def __init__(self) -> None:
        self.changes: list[tuple[object, object]] = []

    def write(self, event: str, **facts: object) -> None:
        self.changes.append((facts["before"], facts["cores"]))


class Wrapped:
    """The runtime's scaler where the simulator asks one."""

    start_up_ns = 0

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.inner = scaler(self.clock)
        self._told = 0

    def setting(self, seen: Seen) -> Setting:
        for arrived_ns, deadline_ns in zip(
            seen.arrivals_ns[self._told :], seen.deadlines_ns[self._told :], strict=True
        ):
            self.clock.move_to(int(arrived_ns))
            self.inner.arrived(int(deadline_ns))
        self._told = len(seen.arrivals_ns)
        self.clock.move_to(seen.now_ns)
        cores = wanted(self.inner, self.clock, [(0, deadline_ns) for deadline_ns in seen.waiting_ns], seen.free_ns)
        self.inner.give(cores)
        return Setting(cores, LARGEST)


def test_the_scaler_chooses_what_the_simulator_predicts() -> None:
    generator = np.random.default_rng(1)
    arrivals = np.sort(generator.integers(0, 20 * S, 900))
    left = np.where(arrivals // (4 * S) % 2 == 0, 9 * S // 10, S // 4) + generator.integers(0, S // 20, 900)
    workload = Workload(
        arrivals_ns=arrivals, record=np.zeros(900, dtype=np.int32), duration_s=20.0, deadline_ns=arrivals + left
    )
    runs = [
        simulate_vertical(workload, TABLE.tolist(), one, first=Setting(MOST, LARGEST), effect_s=0.01)
        for one in (ExactScaler(TABLE, effect_s=0.01), Wrapped())
    ]
    assert len(runs[0].cores) > 3
    assert runs[0].cores.tolist() == runs[1].cores.tolist()


@pytest.mark.parametrize("begun_s", [0, 100])
def test_the_rate_counts_from_when_requests_are_let_in_however_long_models_took_to_load(begun_s: int) -> None:
    clock = ManualClock()
    one = scaler(clock)
    clock.move_to(begun_s * S)
    one.let_in()
    for i in range(100):  # 7 cores bear 100/s, 1 bears a tenth of it
        clock.move_to(begun_s * S + (i + 1) * S // 100)
        one.arrived(clock.now_ns() + 60 * S)
    assert wanted(one, clock, [], clock.now_ns()) == 7


def test_what_was_asked_of_a_shadow_says_nothing_of_the_rate_once_it_takes_over() -> None:
    clock = ManualClock()
    one = scaler(clock)
    for tenths in range(1, 90):
        clock.move_to(tenths * S // 10)
        one.arrived(clock.now_ns() + 60 * S)
    clock.move_to(9 * S)
    one.let_in()
    for i in range(100):
        clock.move_to(9 * S + (i + 1) * S // 100)
        one.arrived(clock.now_ns() + 60 * S)
    assert wanted(one, clock, [], clock.now_ns()) == 7


def test_a_request_just_before_the_first_period_ends_is_no_rate() -> None:
    clock = ManualClock()
    clock.move_to(100 * S - S // 1000)
    one = scaler(clock)
    one.let_in()
    one.arrived(clock.now_ns() + 60 * S)
    clock.move_to(100 * S)
    assert wanted(one, clock, [], clock.now_ns()) == 1


def test_changes_are_made_once_and_stand_in_the_journal(tmp_path: Path) -> None:
    clock, journal = ManualClock(), Journal(tmp_path / "journal.jsonl")
    one = scaler(clock, journal=journal, most=4, cores=1)
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
    clock = ManualClock()
    actuator = EmulatedActuator(cores=4, now=clock.now_ns)
    one = Scaler("m-0", TABLE, actuator, cores=4, clock=clock, journal=NoJournal(), scaling=Scaling())
    assert one.give(4) is None
    actuator.cores = 2
    assert one.give(4) is not None
    assert actuator.cores == one.cores == 4


def test_cores_that_a_worker_took_as_soon_as_it_was_told_are_a_change_all_the_same() -> None:
    clock, journal = ManualClock(), Kept()
    actuator = EmulatedActuator(cores=4, now=clock.now_ns)
    one = Scaler("m-0", TABLE, actuator, cores=4, clock=clock, journal=journal, scaling=Scaling())
    actuator.cores = 2
    assert one.give(2) is not None
    assert one.give(2) is None
    assert journal.changes == [(4, 2)]


def test_a_worker_that_is_started_again_on_the_cores_that_it_is_to_have_is_no_change() -> None:
    clock, journal = ManualClock(), Kept()
    one = Scaler("m-0", TABLE, EmulatedActuator(cores=2), cores=2, clock=clock, journal=journal, scaling=Scaling())
    one.act_through(EmulatedActuator(cores=2))
    assert one.give(2) is None
    one.act_through(EmulatedActuator(cores=4))
    assert one.give(2) is not None
    assert journal.changes == [(4, 2)]


def test_before_anything_came_and_when_static_cores_stay() -> None:
    clock = ManualClock()
    assert wanted(scaler(clock, cores=3), clock, [(0, 1)], 0) == 3
    static = scaler(clock, cores=3, scaler="static")
    static.arrived(1)
    assert wanted(static, clock, [(0, 1)], 0) == 3


def test_the_printed_algorithm_looks_at_who_waits_alone() -> None:
    clock = ManualClock()
    printed = scaler(clock, scaler="paper", slo_s=1.0, margin=0.0)
    printed.arrived(S)
    assert wanted(printed, clock, [], 0) == 1
    assert wanted(printed, clock, [(0, S // 5)] * 4, 0) == 2
    with pytest.raises(InvalidInput, match="needs one SLO"):
        Scaling(scaler="paper")


def test_what_came_long_ago_is_forgotten_and_high_rates_are_bounded() -> None:
    clock = ManualClock()
    one = scaler(clock, cores=5)
    one.arrived(S // 20)
    clock.move_to(11 * S)
    assert wanted(one, clock, [], 11 * S) == 5
    for i in range(MOST_REMEMBERED + 10):
        clock.move_to(11 * S + i * 10_000)
        one.arrived(20 * S)
    assert wanted(one, clock, [], clock.now_ns()) == MOST


def queue(count: int, left_ns: int) -> tuple[list[Waiting], int]:
    return [(0, left_ns)] * count, 0


def two(clock: ManualClock) -> list[Scaler]:
    scalers = [scaler(clock, cores=4) for _ in range(2)]
    for one in scalers:
        one.arrived(5 * S)
    clock.move_to(S)
    return scalers


def test_replicas_get_what_they_want_where_it_is_there() -> None:
    both = [one.demand for one in two(ManualClock())]
    assert share(both, [queue(1, 3 * S), queue(1, 3 * S)], S, 8, asked=[4, 4]) == [1, 1]


def test_short_of_cores_they_go_to_where_the_fewest_miss() -> None:
    clock = ManualClock()
    scalers = two(clock)
    busy, idle = queue(8, S + S // 8), queue(0, 0)
    assert wanted(scalers[0], clock, *busy) > 3
    both = [one.demand for one in scalers]
    assert share(both, [busy, idle], S, 4, asked=[4, 4]) == [3, 1]
    with pytest.raises(InvalidInput, match="2 replicas cannot share 1 cores"):
        share(both, [busy, idle], S, 1, asked=[4, 4])


def test_who_shrinks_goes_first() -> None:
    clock = ManualClock()
    order: list[str] = []

    class Noting(EmulatedActuator):
        def apply(self, cores: float):  # type: ignore[no-untyped-def]
            order.append(f"{cores:g}")
            return super().apply(cores)

    scalers = [
        Scaler(name, TABLE, Noting(cores=cores), cores=cores, clock=clock, journal=NoJournal(), scaling=Scaling())
        for name, cores in (("grows", 1), ("shrinks", 7))
    ]
    give_all(scalers, [6, 2])
    assert order == ["2", "6"]
    assert [one.cores for one in scalers] == [6, 2]
