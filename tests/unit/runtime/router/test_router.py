"""Small scenarios worked out by hand; times are milliseconds, logs are exact."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pytest

from gearshift.clock import NEVER_NS
from gearshift.decisions import Decision
from gearshift.gear import Gear, GearPlan
from gearshift.plans.plan_tables import plan_tables
from gearshift.policies.batching import FULL, LONGEST_WAIT
from gearshift.request import LEAST_URGENT, NO_DEADLINE_NS
from gearshift.runtime.faults.retries import Retries
from gearshift.workload import Workload
from tests.conformance.plans import MS
from tests.conformance.small import small_gear, small_plan, small_plan_of, small_workload
from tests.conformance.virtual import run_virtually
from tests.unit.runtime.driven import Driven

Row = tuple[Any, ...]


class Log:
    """Decisions by name: `(ms, "start", replica, size, reason)`, `(ms, "route", sample, replica, stage)` and so on."""

    def __init__(self, plan: GearPlan, rows: Sequence[tuple[int, int, int, int, int]]) -> None:
        tables = plan_tables(plan)
        ids, models = tables.replica_ids, tables.models
        self.rows: list[Row] = []
        for now_ns, kind, a, b, c in rows:
            at = now_ns / MS
            match Decision(kind):
                case Decision.ROUTE:
                    self.rows.append((at, "route", a, ids[b], c))
                case Decision.START:
                    self.rows.append((at, "start", ids[a], b, c))
                case Decision.TAKE:
                    self.rows.append((at, "take", ids[a], b))
                case Decision.ANSWER:
                    self.rows.append((at, "answer", a, models[b], c))
                case Decision.SHIFT:
                    self.rows.append((at, "shift", a, b))

    def of(self, *kinds: str) -> list[Row]:
        return [row for row in self.rows if row[1] in kinds]

    def at(self, ms: float) -> list[Row]:
        return [row[1:] for row in self.rows if row[0] == ms]


def run(
    plan: GearPlan, run_ms: Mapping[str, float], workload: Workload, certainty: Mapping[str, Sequence[float]] = {}
) -> Log:
    """`run_ms` is how long a model's batches take, whatever their size; certainties are 1 unless given."""
    tables = plan_tables(plan)
    run_ns = [np.full(50, int(run_ms[replica[0]] * MS)) for replica in tables.replica_ids]
    sure = np.ones((len(tables.models), len(workload)))
    for model, values in certainty.items():
        sure[tables.models.index(model)] = values
    return Log(plan, run_virtually(tables, run_ns, sure, workload).log)


# Batches --------------------------------------------------------------------------------------------------------------


def test_a_lone_request_runs_after_the_longest_wait() -> None:
    placed = {"a0": "d0"}
    plan = small_plan(placed, small_gear(placed, "a", minimum=2, wait_ms=5))
    assert run(plan, {"a": 2}, small_workload([3])).rows == [
        (3, "route", 0, "a0", 0),
        (8, "start", "a0", 1, LONGEST_WAIT),
        (8, "take", "a0", 0),
        (10, "answer", 0, "a", 0),
    ]


def test_the_minimum_queue_length_starts_before_the_longest_wait() -> None:
    placed = {"a0": "d0"}
    plan = small_plan(placed, small_gear(placed, "a", minimum=2, wait_ms=5))
    assert run(plan, {"a": 2}, small_workload([3, 4])).of("start") == [(4, "start", "a0", 2, FULL)]


def test_a_batch_takes_no_more_than_the_largest_and_the_rest_follows() -> None:
    placed = {"a0": "d0"}
    plan = small_plan(placed, small_gear(placed, "a", largest=2))
    log = run(plan, {"a": 10}, small_workload([0, 1, 2, 3]))
    assert log.of("start") == [
        (0, "start", "a0", 1, FULL),
        (10, "start", "a0", 2, FULL),
        (20, "start", "a0", 1, FULL),
    ]
    assert [row[3] for row in log.of("take")] == [0, 1, 2, 3]


def test_the_longest_wait_counts_from_entering_this_queue_and_not_from_arrival() -> None:
    placed = {"a0": "d0", "b0": "d1"}
    gear = small_gear(placed, "a b", (0.5,), minimum={"b0": 2}, wait_ms={"b0": 5})
    log = run(small_plan(placed, gear), {"a": 10, "b": 1}, small_workload([0]), {"a": [0]})
    assert log.of("start") == [(0, "start", "a0", 1, FULL), (15, "start", "b0", 1, LONGEST_WAIT)]


def test_the_rows_of_a_request_start_together() -> None:
    placed = {"a0": "d0"}
    plan = small_plan(placed, small_gear(placed, "a"))
    log = run(plan, {"a": 2}, small_workload([1, 1, 1], continues=[False, True, True]))
    assert log.of("start") == [(1, "start", "a0", 3, FULL)]


def test_requests_that_arrive_at_one_instant_do_not_wait_for_one_another() -> None:
    placed = {"a0": "d0"}
    plan = small_plan(placed, small_gear(placed, "a"))
    assert run(plan, {"a": 2}, small_workload([1, 1, 1])).of("start") == [
        (1, "start", "a0", 1, FULL),
        (3, "start", "a0", 2, FULL),
    ]


def test_a_device_runs_one_batch_at_a_time() -> None:
    placed = {"a0": "d0", "b0": "d0"}
    log = run(
        small_plan(placed, small_gear(placed, "a b", (0.5,))), {"a": 4, "b": 3}, small_workload([0, 1]), {"a": [0, 0]}
    )
    # At 4 both wait on d0: sample 0 for b since 4, sample 1 for a since 1.
    assert [row[:3] for row in log.of("start")] == [(0, "start", "a0"), (4, "start", "a0"), (8, "start", "b0")]


def test_between_ready_replicas_the_longest_time_in_this_queue_decides_and_not_the_arrival() -> None:
    placed = {"a0": "d0", "b0": "d0"}
    log = run(
        small_plan(placed, small_gear(placed, "a b", (0.5,), largest=1)),
        {"a": 4, "b": 10},
        small_workload([0, 1, 2]),
        {"a": [0, 0, 0]},
    )
    assert [(row[0], row[2]) for row in log.of("start")] == [
        (0, "a0"),
        (4, "a0"),  # sample 1 waits here since 1, sample 0 for b only since 4
        (8, "a0"),  # sample 2 waits here since 2
        (12, "b0"),
        (22, "b0"),
        (32, "b0"),
    ]


# One instant ----------------------------------------------------------------------------------------------------------


def test_at_one_instant_batches_finish_then_the_meter_ticks_then_samples_arrive() -> None:
    placed = {"a0": "d0", "b0": "d1", "c0": "d2"}
    plan = small_plan(
        placed,
        small_gear(placed, "a b", (0.5,), load=(0, 15), minimum={"b0": 5}, wait_ms={"b0": 10}),
        small_gear(placed, "c b", (0.5,), load=(15, None)),
        alpha=0.0,
    )
    # Sample 0: on a at 80, forwarded to b at 90, where its longest wait ends at 100.  Sample 1: on a 90 to 100.
    # Two arrivals in [0, 100) are 20 per second; sample 2, at 100, does not count.
    log = run(plan, {"a": 10, "b": 7, "c": 5}, small_workload([80, 90, 100]), {"a": [0, 0, 0]})
    assert log.at(100) == [
        ("route", 1, "b0", 1),
        ("start", "b0", 2, LONGEST_WAIT),
        ("take", "b0", 0),
        ("take", "b0", 1),
        ("shift", 0, 1),
        ("route", 2, "c0", 0),
        ("start", "c0", 1, FULL),
        ("take", "c0", 2),
    ]


def test_at_one_instant_samples_arrive_before_longest_waits_end() -> None:
    placed = {"a0": "d0"}
    plan = small_plan(placed, small_gear(placed, "a", minimum=9, wait_ms=10))
    assert run(plan, {"a": 1}, small_workload([5, 15])).of("start") == [(15, "start", "a0", 2, LONGEST_WAIT)]


def test_at_one_instant_the_meter_ticks_before_longest_waits_end() -> None:
    placed = {"a0": "d0"}
    plan = small_plan(
        placed,
        small_gear(placed, "a", load=(0, 5), minimum=9, wait_ms=10),
        small_gear(placed, "a", load=(5, None), minimum=9, wait_ms=30),
        alpha=0.0,
    )
    log = run(plan, {"a": 1}, small_workload([90]))
    assert log.rows[1:3] == [(100, "shift", 0, 1), (120, "start", "a0", 1, LONGEST_WAIT)]


def test_a_finished_batch_queues_all_its_forwarded_samples_before_any_device_starts() -> None:
    placed = {"a0": "d0", "b0": "d1"}
    plan = small_plan(placed, small_gear(placed, "a b", (0.5,), minimum={"a0": 3}, wait_ms=50))
    log = run(plan, {"a": 5, "b": 5}, small_workload([0, 0, 0]), {"a": [0, 1, 0]})
    assert log.at(5) == [
        ("route", 0, "b0", 1),
        ("answer", 1, "a", 0),
        ("route", 2, "b0", 1),
        ("start", "b0", 2, FULL),
        ("take", "b0", 0),
        ("take", "b0", 2),
    ]


def test_of_batches_that_end_at_one_instant_the_one_on_the_first_device_ends_first() -> None:
    placed = {"a0": "d1", "b0": "d0"}
    plan = small_plan(placed, small_gear(placed, "a b", (0.5,)))
    # Sample 0 is on b from 4 to 10, sample 1 on a from 6 to 10.
    log = run(plan, {"a": 4, "b": 6}, small_workload([0, 6]), {"a": [0, 1]})
    assert log.at(10) == [("answer", 0, "b", 0), ("answer", 1, "a", 0)]


# Replicas that span devices -------------------------------------------------------------------------------------------

SPANNING = {"a0": "d0", "a1": "d1", "b0": "d0 d1"}
SPANNING_ARRIVALS = [0, 1, 5, 6, 10, 11, 15]
ONLY_FIRST_FORWARDED = {"a": [0, 1, 1, 1, 1, 1, 1]}


def test_a_replica_that_spans_two_devices_waits_for_both_and_is_passed_over_meanwhile() -> None:
    plan = small_plan(SPANNING, small_gear(SPANNING, "a b", (0.5,)))
    log = run(plan, {"a": 5, "b": 5}, small_workload(SPANNING_ARRIVALS), ONLY_FIRST_FORWARDED)
    assert [(row[0], row[2]) for row in log.of("start")] == [
        (0, "a0"),
        (1, "a1"),
        (5, "a0"),
        (6, "a1"),
        (10, "a0"),
        (11, "a1"),
        (15, "a0"),  # b has waited since 5, and d1 is never idle when d0 is
        (20, "b0"),
    ]


def test_a_starving_replica_that_spans_two_devices_is_held_the_first_until_the_second_is_idle() -> None:
    plan = small_plan(SPANNING, small_gear(SPANNING, "a b", (0.5,)), starvation_s=0.010)
    log = run(plan, {"a": 5, "b": 5}, small_workload(SPANNING_ARRIVALS), ONLY_FIRST_FORWARDED)
    assert [(row[0], row[2]) for row in log.of("start")][-3:] == [
        (11, "a1"),
        (16, "b0"),  # since 5; from 15 on d0 stands idle for it
        (21, "a0"),
    ]


def test_a_replica_that_spans_two_devices_occupies_both() -> None:
    placed = {"a0": "d0 d1", "b0": "d1"}
    plan = small_plan(placed, small_gear(placed, "a b", (0.5,), largest={"a0": 1}))
    log = run(plan, {"a": 4, "b": 1}, small_workload([0, 1]), {"a": [0, 1]})
    assert [(row[0], row[2]) for row in log.of("start")] == [(0, "a0"), (4, "a0"), (8, "b0")]


def test_when_a_held_devices_starving_replica_is_lost_the_device_goes_on_with_others() -> None:
    bench = Driven(small_plan(SPANNING, small_gear(SPANNING, "a b", (0.5,)), starvation_s=0.010))
    bench.arrive(0, ms=0)
    bench.arrive(1, ms=1)
    bench.finish("a0", 5, certainty=0.0)  # sample 0 waits for b0
    bench.arrive(2, ms=5)  # a0 runs 5 to 15
    bench.finish("a1", 6)
    bench.arrive(3, ms=6)  # a1 runs 6 to 20
    bench.finish("a0", 15)  # b0 starves: d0 is held
    bench.arrive(4, ms=16)
    assert bench.started[-1] == ("a1", [3])
    bench.lose("b0", ms=17)
    assert bench.started[-1] == ("a0", [4])


# Gears ----------------------------------------------------------------------------------------------------------------


def two_gears(low: Any, high: Any, placed: Mapping[str, str], alpha: float = 0.0, **operator: Any) -> GearPlan:
    """`low` up to 15 requests per second, `high` from there."""
    return small_plan(
        placed,
        small_gear(placed, load=(0, 15), **low),
        small_gear(placed, load=(15, None), **high),
        alpha=alpha,
        **operator,
    )


def test_a_gear_shift_tests_idle_devices_again() -> None:
    placed = {"a0": "d0"}
    plan = two_gears({"cascade": "a", "minimum": 9, "wait_ms": 1000}, {"cascade": "a"}, placed)
    assert run(plan, {"a": 3}, small_workload([50, 60])).of("shift", "start") == [
        (100, "shift", 0, 1),
        (100, "start", "a0", 2, FULL),
    ]


def test_a_request_in_flight_is_answered_by_the_thresholds_of_the_gear_in_force() -> None:
    placed = {"a0": "d0", "b0": "d1"}
    plan = two_gears({"cascade": "a b", "thresholds": (0.9,)}, {"cascade": "a b", "thresholds": (0.1,)}, placed)
    log = run(plan, {"a": 20, "b": 5}, small_workload([50, 95]), {"a": [0.5, 0.5]})
    assert log.of("route", "answer", "shift") == [
        (50, "route", 0, "a0", 0),
        (70, "route", 0, "b0", 1),
        (75, "answer", 0, "b", 0),
        (95, "route", 1, "a0", 0),
        (100, "shift", 0, 1),
        (115, "answer", 1, "a", 1),
    ]


def test_a_request_whose_model_is_not_in_the_gear_in_force_answers_with_what_it_has() -> None:
    placed = {"a0": "d0", "b0": "d1"}
    plan = two_gears({"cascade": "a b", "thresholds": (0.9,)}, {"cascade": "b"}, placed)
    log = run(plan, {"a": 20, "b": 5}, small_workload([50, 95]), {"a": [0.5, 0.0]})
    assert log.of("answer")[-1] == (115, "answer", 1, "a", 1)


def test_a_request_never_returns_to_a_model_it_has_visited() -> None:
    placed = {"a0": "d0", "b0": "d1"}
    plan = two_gears({"cascade": "a b", "thresholds": (0.9,)}, {"cascade": "b a", "thresholds": (0.9,)}, placed)
    # Sample 1: a until 98, then b until 108, where gear 1 would send the uncertain back to a.
    log = run(plan, {"a": 8, "b": 10}, small_workload([50, 90]), {"a": [1, 0], "b": [1, 0]})
    assert log.of("answer")[-1] == (108, "answer", 1, "b", 1)


def test_queued_requests_stay_where_they_are_and_run_at_minimum_queue_length_one() -> None:
    placed = {"a0": "d0", "b0": "d1"}
    plan = two_gears(
        {"cascade": "a", "minimum": 9, "wait_ms": 1000}, {"cascade": "b", "minimum": 9, "wait_ms": 1000}, placed
    )
    log = run(plan, {"a": 3, "b": 3}, small_workload([50, 60]))
    assert log.of("start", "answer") == [
        (100, "start", "a0", 2, FULL),
        (103, "answer", 0, "a", 1),
        (103, "answer", 1, "a", 1),
    ]


def test_an_arrival_at_the_instant_of_a_tick_belongs_to_the_next_window() -> None:
    placed = {"a0": "d0"}
    plan = two_gears({"cascade": "a"}, {"cascade": "a"}, placed)
    assert run(plan, {"a": 250}, small_workload([10, 100])).of("shift") == []
    assert run(plan, {"a": 250}, small_workload([10, 99])).of("shift") == [(100, "shift", 0, 1), (200, "shift", 1, 0)]


def test_the_meter_reaches_back_to_the_last_thirty_arrivals() -> None:
    placed = {"a0": "d0"}
    plan = small_plan(
        placed, small_gear(placed, "a", load=(0, 100)), small_gear(placed, "a", load=(100, None)), alpha=0.0
    )
    bench = Driven(plan)
    for arrival in range(30):
        bench.arrive(arrival, ms=10 + arrival * 10)
    bench.router.tick(300 * MS)
    bench.router.tick(400 * MS)
    assert bench.router.pipeline.rate_qps == pytest.approx(30 / 0.390)
    bench.arrive(30, ms=410)
    bench.router.tick(500 * MS)
    assert bench.router.pipeline.rate_qps == pytest.approx(30 / 0.480)


def test_before_thirty_arrivals_the_meter_reaches_back_to_the_beginning() -> None:
    placed = {"a0": "d0"}
    bench = Driven(small_plan(placed, small_gear(placed, "a")))
    bench.arrive(0, ms=250)
    bench.router.tick(300 * MS)
    assert bench.router.pipeline.rate_qps == pytest.approx(1 / 0.3)


def test_a_tick_that_comes_late_meters_the_last_100_ms_alone() -> None:
    placed = {"a0": "d0"}
    bench = Driven(small_plan(placed, small_gear(placed, "a")))
    bench.router.tick(100 * MS)
    for arrival in range(75):  # 500 per second
        bench.arrive(arrival, ms=100 + 2 * arrival)
    bench.router.tick(250 * MS)
    assert bench.router.pipeline.rate_qps == pytest.approx(500.0)


def test_each_row_of_a_request_is_metered() -> None:
    placed = {"a0": "d0"}
    bench = Driven(small_plan(placed, small_gear(placed, "a")))
    bench.arrive(0, 1, 2, ms=50)
    bench.router.tick(100 * MS)
    assert bench.router.pipeline.rate_qps == 30.0


def test_the_backlog_meter_counts_what_waits_at_every_stage() -> None:
    placed = {"a0": "d0", "b0": "d1"}
    plan = two_gears({"cascade": "a b", "thresholds": (0.5,)}, {"cascade": "a"}, placed, alpha=8.0)
    # One sample runs on b from 2; the next waits for b at the tick: 8 per second.  With two it is 16.
    waits_one = run(plan, {"a": 1, "b": 200}, small_workload([1, 90]), {"a": [0, 0]})
    assert waits_one.of("shift") == [(100, "shift", 0, 1), (200, "shift", 1, 0)]
    waits_two = run(plan, {"a": 1, "b": 500}, small_workload([1, 20, 30]), {"a": [0, 0, 0]})
    assert waits_two.of("shift")[0] == (100, "shift", 0, 1)
    assert not any(row[0] in (200, 300, 400, 500) for row in waits_two.of("shift"))


def test_the_alpha_meter_keeps_the_cheaper_gear_while_the_first_stage_queues() -> None:
    placed = {"a0": "d0"}
    gears = ({"cascade": "a", "largest": 1}, {"cascade": "a", "largest": 1}, placed)
    shifts = {
        alpha: run(two_gears(*gears, alpha=alpha, meter="alpha"), {"a": 150}, small_workload(range(10, 22))).of("shift")
        for alpha in (0.0, 8.0)
    }
    # 12 arrivals are less than 15 per second from 900 ms on; the last of them starts at 1660 ms.
    assert shifts == {
        0.0: [(100, "shift", 0, 1), (900, "shift", 1, 0)],
        8.0: [(100, "shift", 0, 1), (1700, "shift", 1, 0)],
    }


def test_load_shares_are_kept_to_across_a_shift() -> None:
    placed = {"a0": "d0", "a1": "d1"}
    shares = {"a0": 0.5, "a1": 0.5}
    gear = {"cascade": "a", "shares": shares}
    plan = two_gears(gear, gear, placed)
    log = run(plan, {"a": 1}, small_workload([10, 20, 30, 110, 120, 130]))
    assert [row[3] for row in log.of("route")] == ["a0", "a1", "a0", "a1", "a0", "a1"]


# Deadlines and classes ------------------------------------------------------------------------------------------------


def test_a_queue_takes_the_most_urgent_class_and_then_the_earliest_deadline() -> None:
    placed = {"a0": "d0"}
    workload = small_workload(
        [0, 1, 2, 3],
        priority=[LEAST_URGENT, LEAST_URGENT, LEAST_URGENT, 1],
        deadline_ns=[NO_DEADLINE_NS, 90 * MS, 50 * MS, NO_DEADLINE_NS],
    )
    log = run(small_plan(placed, small_gear(placed, "a", largest=1)), {"a": 10}, workload)
    assert [row[3] for row in log.of("take")] == [0, 3, 2, 1]


def test_a_sample_that_starves_goes_before_more_urgent_ones() -> None:
    placed = {"a0": "d0"}
    workload = small_workload([0, 1, 2, 12], priority=[5, 5, 1, 1])
    log = run(small_plan(placed, small_gear(placed, "a", largest=1), starvation_s=0.019), {"a": 10}, workload)
    assert [row[3] for row in log.of("take")] == [0, 2, 1, 3]


# Faults ---------------------------------------------------------------------------------------------------------------

PAIR = {"a0": "d0", "a1": "d1"}


def test_the_others_of_its_model_take_a_lost_replicas_share() -> None:
    bench = Driven(small_plan(PAIR, small_gear(PAIR, "a", largest=1)))
    bench.lose("a0", ms=0)
    for sequence in range(4):
        bench.arrive(sequence, ms=1)
    assert bench.router.queue_lengths() == [0, 3]
    assert bench.started == [("a1", [0])]


def test_others_without_a_planned_share_take_a_lost_replicas_share_evenly() -> None:
    placed = {"a0": "d0", "a1": "d1", "a2": "d2"}
    bench = Driven(small_plan(placed, small_gear(placed, "a", largest=1, shares={"a0": 1.0, "a1": 0.0, "a2": 0.0})))
    bench.lose("a0", ms=0)
    for sequence in range(6):
        bench.arrive(sequence, ms=1)
    assert bench.router.queue_lengths() == [0, 2, 2]


def test_a_replica_that_is_ready_again_takes_its_planned_share() -> None:
    bench = Driven(small_plan(PAIR, small_gear(PAIR, "a", largest=1)))
    bench.lose("a0", ms=0)
    bench.ready("a0", 1)
    for sequence in range(6):
        bench.arrive(sequence, ms=2)
    assert bench.router.queue_lengths() == [2, 2]


def test_the_device_of_a_lost_replica_goes_on_with_the_others_on_it() -> None:
    placed = {"a0": "d0", "b0": "d0"}
    bench = Driven(small_plan(placed, small_gear(placed, "a b", (0.5,), largest=1)))
    bench.arrive(0)
    bench.finish("a0", 1, certainty=0.0)  # b0 runs sample 0
    bench.arrive(1, ms=2)
    bench.lose("b0", ms=3)
    assert bench.started[-1] == ("a0", [1])


def test_a_sample_that_failed_is_answered_and_not_forwarded() -> None:
    placed = {"a0": "d0", "b0": "d1"}
    bench = Driven(small_plan(placed, small_gear(placed, "a b", (0.5,))))
    (sample,) = bench.arrive(0)
    sample.error = "the model raised"
    bench.finish("a0", 1, certainty=0.0)
    assert (bench.answered, bench.router.waiting) == ([0], 0)


def test_a_cancelled_sample_leaves_its_queue_and_never_runs() -> None:
    placed = {"a0": "d0"}
    bench = Driven(small_plan(placed, small_gear(placed, "a", largest=1)))
    bench.arrive(0)
    cancelled = bench.arrive(1, ms=1)
    bench.arrive(2, ms=2)
    bench.router.cancel(cancelled, 20 * MS)
    assert bench.router.waiting == 1
    bench.finish("a0", 5)
    assert bench.started == [("a0", [0]), ("a0", [2])]


def test_a_cancelled_request_is_found_in_the_queues_to_which_its_samples_have_moved() -> None:
    placed = {"a0": "d0", "a1": "d1", "a2": "d2"}
    bench = Driven(small_plan(placed, small_gear(placed, "a", largest=1)))
    bench.arrive(*range(3))
    cancelled = bench.arrive(*range(3, 12))
    assert {bench.tables.replica_ids[sample.replica] for sample in cancelled} == set(placed)
    bench.lose("a2", ms=1)
    bench.router.cancel(cancelled, 2 * MS)
    assert sum(bench.router.queue_lengths()) == 0
    assert bench.router.waiting == 1  # what ran on a2


def test_cancelling_a_sample_that_runs_does_not_stop_it() -> None:
    placed = {"a0": "d0"}
    bench = Driven(small_plan(placed, small_gear(placed, "a")))
    running = bench.arrive(0)
    bench.router.cancel(running, 20 * MS)
    assert bench.router.waiting == 0
    bench.finish("a0", 5)
    assert bench.answered == [0]


def test_the_longest_wait_of_a_cancelled_request_is_forgotten() -> None:
    placed = {"a0": "d0"}
    bench = Driven(small_plan(placed, small_gear(placed, "a", minimum=2, wait_ms=5)))
    cancelled = bench.arrive(0, ms=1)
    assert bench.router.next_timer_ns() == 6 * MS
    bench.router.cancel(cancelled, 2 * MS)
    assert (bench.started, bench.router.next_timer_ns()) == ([], NEVER_NS)


def hold_of_a_cancelled_request() -> Driven:
    """d0 stands idle for b0, which starves until its only sample is cancelled; sample 4 waits for a0 on d0."""
    bench = Driven(small_plan(SPANNING, small_gear(SPANNING, "a b", (0.5,)), starvation_s=0.010))
    first = bench.arrive(0, ms=0)
    bench.arrive(1, ms=1)
    bench.finish("a0", 5, certainty=0.0)
    bench.arrive(2, ms=5)
    bench.finish("a1", 6)
    bench.arrive(3, ms=6)
    bench.finish("a0", 15)
    bench.arrive(4, ms=16)
    bench.router.cancel(first, 20 * MS)
    return bench


def test_a_device_held_for_a_cancelled_request_goes_on_before_long() -> None:
    bench = hold_of_a_cancelled_request()
    bench.finish("a1", 20)
    bench.router.tick(100 * MS)
    assert bench.started[-1] == ("a0", [4])


def test_a_sample_that_left_its_batch_early_does_not_run_again_when_the_replica_is_lost() -> None:
    placed = {"a0": "d0"}
    bench = Driven(small_plan(placed, small_gear(placed, "a")))
    early, _ = bench.arrive(0, 1)
    early.certainty = 1.0
    bench.router.stage_ended(0, [early], 1 * MS)
    bench.lose("a0", ms=2)
    bench.ready("a0", 3)
    assert bench.started == [("a0", [0, 1]), ("a0", [1])]
    assert (bench.answered, early.error) == ([0], "")


# Times ----------------------------------------------------------------------------------------------------------------


def test_queue_and_run_times_add_up_over_the_stages() -> None:
    placed = {"a0": "d0", "b0": "d1"}
    bench = Driven(small_plan(placed, small_gear(placed, "a b", (0.5,), largest=1)))
    bench.arrive(0, ms=0)
    (sample,) = bench.arrive(1, ms=1)
    bench.finish("a0", 4)
    bench.finish("a0", 10, certainty=0.0)
    bench.finish("b0", 17)
    assert (sample.queue_ns, sample.run_ns, sample.stage) == (3 * MS, 13 * MS, 1)


# Pinned gears ---------------------------------------------------------------------------------------------------------

PINNED = {"a0": "d0", "b0": "d0"}


def a_then_b() -> GearPlan:
    """`a b` up to 20 requests per second, `b` from there."""
    gears = small_gear(PINNED, "a b", (0.5,), load=(0.0, 20.0)), small_gear(PINNED, "b", load=(20.0, None))
    return small_plan(PINNED, *gears, upshift_margin=0.1)


def test_a_pinned_gear_stays_whatever_the_load() -> None:
    bench = Driven(a_then_b())
    bench.router.pin(1, 0)
    bench.router.tick(100 * MS)
    assert bench.router.gear == 1
    bench.router.pin(0, 150 * MS)
    for i in range(40):
        bench.arrive(i, ms=160)
    bench.router.tick(200 * MS)
    assert (bench.router.gear, bench.router.pipeline.load > 20) == (0, True)


def test_a_gear_that_is_freed_gives_way_at_the_next_tick() -> None:
    bench = Driven(a_then_b())
    bench.router.pin(1, 0)
    bench.router.pipeline.pinned = False
    assert bench.router.gear == 1
    bench.router.tick(100 * MS)
    assert bench.router.gear == 0


def test_arrivals_begin_at_the_first_model_of_the_pinned_gear() -> None:
    bench = Driven(a_then_b())
    bench.router.pin(1, 0)
    bench.arrive(0, ms=1)
    assert bench.started == [("b0", [0])]


def test_a_pin_to_another_gear_starts_what_may_start_there() -> None:
    gears = (
        small_gear(PINNED, "a", minimum=2, wait_ms=500, load=(0.0, 20.0)),
        small_gear(PINNED, "a", load=(20.0, None)),
    )
    bench = Driven(small_plan(PINNED, *gears))
    bench.arrive(0, ms=1)
    assert bench.started == []
    bench.router.pin(1, 2 * MS)
    assert bench.started == [("a0", [0])]


def test_the_router_tells_how_many_samples_run() -> None:
    bench = Driven(a_then_b())
    bench.arrive(0, 1, 2)
    assert bench.router.running_lengths() == [3, 0]
    bench.finish("a0", 5)
    assert bench.router.running_lengths() == [0, 0]


def test_a_router_that_takes_a_meter_over_begins_in_the_gear_of_its_arrivals() -> None:
    before, after = Driven(a_then_b()), Driven(a_then_b())
    for i in range(40):
        before.arrive(i, ms=60 + i)
    before.router.tick(100 * MS)
    assert before.router.gear == 1
    after.router.take_meter(before.router, 150 * MS)
    assert (after.router.gear, after.router.pipeline.rate_qps) == (1, before.router.pipeline.rate_qps)
    after.router.tick(200 * MS)
    before.router.tick(200 * MS)
    assert after.router.pipeline.rate_qps == before.router.pipeline.rate_qps > 0


def test_what_waits_at_the_router_before_does_not_choose_the_gear_of_the_next() -> None:
    before, after = Driven(a_then_b()), Driven(a_then_b())
    before.arrive(*range(10), ms=10)
    before.router.tick(10_000 * MS)
    assert before.router.gear == 1
    after.router.take_meter(before.router, 10_000 * MS)
    assert after.router.gear == 0


# Several pipelines ----------------------------------------------------------------------------------------------------


def two_pipelines(placed: Mapping[str, str], p: Mapping[str, Any], q: Mapping[str, Any]) -> GearPlan:
    """Pipelines `p` and `q` that share model a, with these settings; `then` has others from 20 requests per second."""

    def gears(name: str, settings: dict[str, Any]) -> list[Gear]:
        then = {**settings, **settings.pop("then", {})}
        then.pop("then", None)
        return [
            small_gear(placed, "a", load=(0, 20), node=name, **settings),
            small_gear(placed, "a", load=(20, None), node=name, **then),
        ]

    return small_plan_of(placed, {"p": gears("p", dict(p)), "q": gears("q", dict(q))})


def test_pipelines_meter_and_shift_apart_and_their_samples_mix_in_one_batch() -> None:
    bench = Driven(two_pipelines({"a0": "d0"}, {}, {}))
    for i in range(40):
        bench.arrive(i, ms=60 + i, pipeline=1)
    bench.arrive(40, ms=99, pipeline=0)
    p, q = bench.router.pipelines
    assert (p.waiting, q.waiting, bench.router.waiting) == (1, 39, 40)
    bench.router.tick(100 * MS)
    assert (p.gear, q.gear, p.rate_qps, q.rate_qps) == (0, 1, 10.0, 400.0)
    for i in range(10):
        bench.finish("a0", 101 + i)
    assert bench.started[-1] == ("a0", [37, 38, 39, 40])
    bench.finish("a0", 120)
    answers = {(a, c) for _, kind, a, _, c in bench.log if kind == Decision.ANSWER}
    assert answers == {(i, 1) for i in range(40)} | {(40, 0)}, "each in the gear of its own pipeline"
    assert (p.waiting, q.waiting) == (0, 0)


def test_of_gears_that_share_a_replica_the_largest_batch_and_the_shortest_queue_are_in_force() -> None:
    p = {"largest": 2, "minimum": 3, "wait_ms": 50, "then": {"minimum": 9}}
    q = {"largest": 4, "minimum": 4, "wait_ms": 70, "then": {"largest": 3, "minimum": 2, "wait_ms": 90}}
    bench = Driven(two_pipelines({"a0": "d0"}, p, q))
    bench.arrive(0, 1, pipeline=1)
    assert bench.started == []
    bench.router.pin(1, 1 * MS, pipeline=1)
    assert bench.started == [("a0", [0, 1])]
    bench.arrive(*range(2, 7), ms=2, pipeline=0)
    bench.finish("a0", 3)
    assert bench.started[-1] == ("a0", [2, 3, 4])


def test_each_pipeline_takes_its_own_turns_among_shared_replicas() -> None:
    placed = {"a0": "d0", "a1": "d1"}
    bench = Driven(
        two_pipelines(
            placed, {"minimum": 9, "wait_ms": 500}, {"minimum": 9, "wait_ms": 500, "shares": {"a0": 0.0, "a1": 1.0}}
        )
    )
    for i in range(4):
        bench.arrive(i, pipeline=0)
    bench.arrive(*range(4, 7), pipeline=1)
    assert bench.router.queue_lengths() == [2, 5]
    bench.lose("a1", ms=1)
    assert bench.router.queue_lengths() == [7, 0]
    bench.ready("a1", ms=2)
    bench.arrive(7, ms=3, pipeline=1)
    assert bench.router.queue_lengths() == [7, 1]


def test_samples_of_a_lost_worker_stay_in_the_backlog_of_their_pipeline() -> None:
    bench = Driven(two_pipelines({"a0": "d0"}, {}, {}), Retries("a", longest_retry_ns=100 * MS))
    bench.arrive(0, 1, pipeline=0)
    bench.arrive(2, ms=1, pipeline=1)
    bench.lose("a0", ms=2)
    p, q = bench.router.pipelines
    assert (p.waiting, q.waiting) == (2, 1)
    assert [bench.router.lacking(pipeline) for pipeline in bench.router.pipelines] == ["a", "a"]
    bench.router.timer(200 * MS)
    assert (sorted(bench.answered), p.waiting, q.waiting) == ([0, 1, 2], 0, 0)


def test_a_router_takes_over_the_meters_of_pipelines_that_have_the_same_names() -> None:
    before = Driven(two_pipelines({"a0": "d0"}, {}, {}))
    for i in range(40):
        before.arrive(i, ms=60 + i, pipeline=1)
    before.router.tick(100 * MS)
    gears = [small_gear({"a0": "d0"}, "a", load=load, node="q") for load in ((0, 9), (9, 30), (30, None))]
    after = Driven(small_plan_of({"a0": "d0"}, {"q": gears, "r": [small_gear({"a0": "d0"}, "a", node="r")]}))
    after.router.take_meter(before.router, 150 * MS)
    assert [(pipeline.name, pipeline.gear) for pipeline in after.router.pipelines] == [("q", 2), ("r", 0)]
    assert [row for row in after.log if row[1] == Decision.SHIFT] == [(150 * MS, Decision.SHIFT, 0, 2, 0)]


def test_a_sample_at_a_shared_replica_starves_by_the_shortest_time_of_its_pipelines() -> None:
    plan = two_pipelines({"a0": "d0"}, {"largest": 1}, {"largest": 1})
    hasty = {
        name: msgspec.structs.replace(each, starvation_s=0.01) for name, each in plan.pipelines.items() if name == "q"
    }
    bench = Driven(msgspec.structs.replace(plan, pipelines={**plan.pipelines, **hasty}))
    bench.arrive(0, priority=1)
    bench.arrive(1, ms=1, priority=9, pipeline=0)
    bench.arrive(2, ms=8, priority=1, pipeline=1)
    bench.finish("a0", 11)
    assert bench.started[-1] == ("a0", [1]), "it has waited 10 ms, by the setting of the other pipeline"
