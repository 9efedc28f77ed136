"""Refinement worked out by hand; times are milliseconds."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from gearshift.decisions import Decision
from gearshift.gear import GearPlan
from gearshift.plans.plan_tables import plan_tables
from gearshift.policies.batching import REFINES
from gearshift.request import BY_TIME, Sample
from gearshift.runtime.faults.retries import Retries
from gearshift.runtime.router.by_deadline import DeadlineRules
from gearshift.runtime.service.answers import answer_of
from gearshift.workload import Workload
from tests.conformance.plans import MS
from tests.conformance.small import refining, small_gear, small_plan, small_workload
from tests.conformance.virtual import run_virtually
from tests.unit.runtime.driven import Driven

FALLING = {0.0: 0.4, 0.5: 0.2, 0.9: 0.0}


def decided(
    plan: GearPlan, run_ms: Mapping[str, float], workload: Workload, certainty: Sequence[float]
) -> list[tuple[Any, ...]]:
    """Batches that start, `(ms, "start", replica, samples)`, and answers, `(ms, "answer", sample, model)` and so on."""
    tables = plan_tables(plan)
    run_ns = [np.full(50, int(run_ms[replica[0]] * MS)) for replica in tables.replica_ids]
    sure = np.ones((len(tables.models), len(workload)))
    sure[0] = certainty
    rows: list[tuple[Any, ...]] = []
    for now_ns, kind, a, b, _ in run_virtually(tables, run_ns, sure, workload).log:
        match Decision(kind):
            case Decision.START:
                rows.append((now_ns / MS, "start", tables.replica_ids[a], []))
            case Decision.TAKE:
                rows[-1][3].append(b)
            case Decision.ANSWER | Decision.RELEASE | Decision.DEGRADE:
                rows.append((now_ns / MS, Decision(kind).name.lower(), a, tables.models[b]))
    return rows


def one_device(latency_ms: float = 100, *, threshold: float = 0.9, largest: int = 1, **gear: Any) -> GearPlan:
    placed = {"a0": "d0", "b0": "d0"}
    plan = small_plan(placed, small_gear(placed, "a b", (threshold,), largest=largest))
    return refining(plan, FALLING, latency_ms=latency_ms, **gear)


def test_the_row_that_gains_most_is_refined_first_and_one_that_gains_too_little_never() -> None:
    rows = decided(one_device(), {"a": 1, "b": 10}, small_workload([0, 0, 0]), [0.5, 0.0, 0.95])
    assert [row for row in rows if row[1] == "start"] == [
        (0, "start", "a0", [0]),
        (1, "start", "a0", [1]),
        (2, "start", "a0", [2]),
        (3, "start", "b0", [1]),
        (13, "start", "b0", [0]),
    ]
    assert (3, "answer", 2, "a") in rows


def test_a_row_that_could_not_finish_any_more_is_answered_with_what_it_has() -> None:
    plan = one_device(latency_ms=20, answer_by_margin_s=0.002)
    rows = decided(plan, {"a": 1, "b": 10}, small_workload([0, 0]), [0.0, 0.5])
    assert [row[1:] for row in rows if row[1] in ("answer", "release")] == [("release", 1, "a"), ("answer", 0, "b")]
    (released_ms,) = [row[0] for row in rows if row[1] == "release"]
    assert released_ms == pytest.approx(20 - 2 - 10, abs=1e-5)


def test_a_row_without_time_for_a_second_run_is_answered_when_its_first_ends() -> None:
    rows = decided(one_device(latency_ms=10), {"a": 1, "b": 10}, small_workload([0]), [0.0])
    assert rows[-1] == (1, "release", 0, "a")


def test_alike_replicas_share_one_queue() -> None:
    placed = {"a0": "d0", "b1": "d1", "b2": "d2"}
    plan = refining(small_plan(placed, small_gear(placed, "a b", (0.9,), largest=1)), FALLING)
    rows = decided(plan, {"a": 1, "b": 10}, small_workload([0, 1, 2]), [0.0, 0.0, 0.0])
    assert [(row[0], row[2]) for row in rows if row[1] == "start" and row[2] != "a0"] == [
        (1, "b1"),
        (2, "b2"),
        (11, "b1"),
    ]


def test_the_earlier_of_the_clients_deadline_and_the_objective_decides() -> None:
    plan, ms = one_device(latency_ms=20), {"a": 1, "b": 10}
    deadline_ns = np.array([15 * MS, 1 << 62], dtype=np.int64)
    rows = decided(plan, ms, small_workload([0, 0], deadline_ns=deadline_ns), [0.5, 0.0])
    assert (pytest.approx(5, abs=1e-5), "degrade", 0, "a") in rows


def driven_by(plan: GearPlan, run_ms: Mapping[str, float]) -> Driven:
    tables = plan_tables(plan)
    times = [[int(run_ms[replica[0]] * MS)] * 50 for replica in tables.replica_ids]
    return Driven(plan, Retries(tables.models, run_ns=times), DeadlineRules(tables, times))


def arrived(driven: Driven, *sequences: int) -> list[Sample]:
    return driven.arrive(*sequences, answer_by_ns=100 * MS)


def two_devices() -> Driven:
    """Two replicas of b, and one of a, which has answered rows 1 and 2 by 2 ms; b1 and b2 refine them."""
    placed = {"a0": "d0", "b1": "d1", "b2": "d2"}
    plan = refining(small_plan(placed, small_gear(placed, "a b", (0.9,), largest=1)), FALLING)
    driven = driven_by(plan, {"a": 1, "b": 10})
    for sequence in (1, 2, 3):
        arrived(driven, sequence)
    for ms in (1, 2, 3):
        driven.finish("a0", ms, certainty=0.0)
    assert {name: [one.sequence for one in batch] for name, batch in driven.running.items()} == {"b1": [1], "b2": [2]}
    return driven


def test_rows_that_wait_to_be_refined_are_no_backlog() -> None:
    driven = two_devices()
    assert (driven.router.waiting, driven.router.queue_lengths()) == (0, [0, 1, 0])


def test_an_answer_by_time_says_so() -> None:
    driven = driven_by(one_device(latency_ms=10), {"a": 1, "b": 10})
    (sample,) = driven.arrive(1, answer_by_ns=10 * MS)
    sample.result = {"label": np.zeros((1, 1))}
    driven.finish("a0", 1, certainty=0.0)
    answer = answer_of([sample], driven.tables.models, 0)
    assert (answer.outcome, answer.reason, answer.rows[0].by_time) == ("answered", BY_TIME, True)


def test_a_lost_replicas_queue_is_served_by_those_alike() -> None:
    driven = two_devices()
    driven.lose("b1", ms=4)
    driven.finish("b2", 12)
    driven.finish("b2", 22)
    driven.finish("b2", 32)
    assert sorted(driven.answered) == [1, 2, 3]


def test_a_row_whose_refinement_was_lost_is_answered_within_the_objective() -> None:
    driven = two_devices()
    driven.lose("b1", ms=4)
    assert driven.router.next_timer_ns() <= 100 * MS
    driven.router.timer(101 * MS)
    assert 1 in driven.answered


def test_without_any_replica_left_rows_are_answered_with_what_they_have() -> None:
    driven = two_devices()
    driven.lose("b1", "b2", ms=4)
    assert sorted(driven.answered) == [1, 2, 3]
    assert driven.router.queue_lengths() == [0, 0, 0]


def test_a_replica_that_is_back_takes_what_waits() -> None:
    driven = two_devices()
    driven.lose("b1", ms=4)
    driven.ready("b1", ms=5)
    driven.finish("b1", 15)
    driven.finish("b1", 25)
    driven.finish("b2", 26)
    assert sorted(driven.answered) == [1, 2, 3]


def test_no_more_rows_wait_than_can_be_refined_and_the_one_that_gains_least_goes() -> None:
    """Of 100 ms a batch takes 10."""
    placed = {"a0": "d0", "b1": "d1"}
    plan = refining(small_plan(placed, small_gear(placed, "a b", (0.9,), largest=1)), FALLING)
    driven = driven_by(plan, {"a": 0, "b": 10})
    for sequence in range(20):
        arrived(driven, sequence)
        driven.finish("a0", sequence / 1000, certainty=0.0 if sequence < 12 else 0.6)
    assert driven.router.queue_lengths() == [0, 10]
    by_time = [row[2] for row in driven.log if row[1] == Decision.RELEASE]
    assert by_time == [11, *range(12, 20)]
    assert driven.answered == by_time


def overrunning() -> Driven:
    """Rows 0 and 1, of one request, are refined in a batch that was to end at 12 ms of 20."""
    placed = {"a0": "d0", "b1": "d1"}
    plan = refining(small_plan(placed, small_gear(placed, "a b", (0.9,), largest=2)), FALLING)
    driven = driven_by(plan, {"a": 2, "b": 10})
    driven.arrive(0, 1, answer_by_ns=20 * MS)
    driven.finish("a0", 2, certainty=0.3)
    assert [one.sequence for one in driven.running["b1"]] == [0, 1]
    return driven


def test_rows_of_a_batch_that_overruns_are_answered_with_what_they_have_when_their_time_ends() -> None:
    driven = overrunning()
    assert driven.router.next_timer_ns() == 20 * MS
    driven.router.timer(20 * MS)
    assert driven.answered == [0, 1]
    assert [row[1] for row in driven.log][-2:] == [Decision.RELEASE] * 2
    driven.finish("b1", 50, certainty=1.0)
    assert driven.answered == [0, 1]


def test_rows_that_were_answered_while_they_ran_are_not_run_again_where_their_worker_is_lost() -> None:
    driven = overrunning()
    driven.router.timer(20 * MS)
    driven.lose("b1", ms=30)
    driven.ready("b1", ms=31)
    assert (driven.answered, driven.running) == ([0, 1], {})


def test_a_batch_that_ends_in_time_answers_its_rows_itself() -> None:
    driven = overrunning()
    driven.finish("b1", 12)
    assert driven.answered == [0, 1]
    assert not [row for row in driven.log if row[1] == Decision.RELEASE]
    assert driven.router.next_timer_ns() > 1000 * MS


def test_a_withdrawn_row_is_not_refined() -> None:
    driven = two_devices()
    third = arrived(driven, 4)
    driven.finish("a0", 4, certainty=0.0)
    driven.router.cancel(third, 5 * MS)
    driven.finish("b1", 11)
    driven.finish("b2", 12)
    assert sorted(driven.answered) == [1, 2]
    assert {name: [one.sequence for one in batch] for name, batch in driven.running.items()} == {"b1": [3]}


def test_a_refining_batch_says_so_in_the_log() -> None:
    plan = one_device()
    rows = run_virtually(plan_tables(plan), [np.full(5, MS)] * 2, np.zeros((2, 1)), small_workload([0])).log
    assert [row[4] for row in rows if row[1] == Decision.START][-1] == REFINES
