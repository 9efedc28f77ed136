import tracemalloc
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gearshift.cascade import Cascade
from gearshift.decisions import Decision, Ending
from gearshift.errors import InvalidInput
from gearshift.gear import Gear, GearPlan, LoadRange, PipelinePlan, ReplicaSettings, SourceFile, alone
from gearshift.hardware import Device, Hardware
from gearshift.objective import Objective
from gearshift.pipeline import Node
from gearshift.placement import Placement, Replica
from gearshift.plans.plan_tables import plan_tables
from gearshift.profiles.run_times import run_times_ns
from gearshift.request import Late
from gearshift.result import percentile
from gearshift.simulator.simulate import UNBOUNDED, Simulation, simulate, simulate_tables
from gearshift.workload import Workload
from tests.conformance.plans import MS, Case, cases
from tests.conformance.scenario import long_case
from tests.conformance.small import small_gear, small_plan, small_workload
from tests.often import often
from tests.worlds import synthetic_profile

PLACED = {"a0": "d0", "b0": "d1"}
RANDOM = settings(max_examples=often(80), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def run(
    plan: GearPlan,
    run_ms: Mapping[str, float],
    workload: Workload,
    certainty: Mapping[str, Sequence[float]] = {},
    *,
    most_waiting: int = UNBOUNDED,
) -> Simulation:
    """`run_ms` is how long a model's batch of one takes; each further sample adds a millisecond."""
    tables = plan_tables(plan)
    sizes = np.arange(8)
    run_ns = np.array([(run_ms[r[0]] + sizes - 1) * MS for r in tables.replica_ids]).astype(np.int64)
    sure = np.ones((len(tables.models), len(workload)))
    for model, values in certainty.items():
        sure[tables.models.index(model)] = values
    return simulate_tables(tables, run_ns, sure, workload, most_waiting=most_waiting, log_rows=1000)


def run_case(case: Case, *, log_rows: int = 0, most_waiting: int = UNBOUNDED) -> Simulation:
    return simulate_tables(
        plan_tables(case.plan),
        np.stack(case.run_ns),
        case.certainty,
        case.workload,
        log_rows=log_rows,
        most_waiting=most_waiting,
    )


def outcome(run: Simulation) -> dict[str, object]:
    arrays = ("finished_ns", "model", "gear", "busy_s", "batches", "arrived_in_gear", "shifts")
    return {name: getattr(run, name).tolist() for name in arrays} | {"log": run.log}


# Worked out by hand ---------------------------------------------------------------------------------------------------


def worked_example() -> Simulation:
    """a on d0 takes 10 ms for one sample and 11 for two, b on d1 takes 20; sample 1 is forwarded.

    Sample 0: a from 0 to 10.  Samples 1 and 2, at 4 and 5: a from 10 to 21; then 1 is on b from 21 to 41.
    """
    plan = small_plan(PLACED, small_gear(PLACED, "a b", (0.5,)))
    return run(plan, {"a": 10, "b": 20}, small_workload([0, 4, 5]), {"a": [1, 0, 0.5]})


def test_latencies_are_from_arrival_to_the_last_stages_end() -> None:
    assert worked_example().latency_s.tolist() == [0.010, 0.037, 0.016]


def test_each_sample_is_answered_by_the_first_model_that_is_certain_enough() -> None:
    assert worked_example().model.tolist() == [0, 1, 0]


def test_devices_are_busy_for_as_long_as_their_batches_run() -> None:
    assert worked_example().busy_s.tolist() == [0.021, 0.020]


def test_batches_are_counted_by_replica_and_size() -> None:
    batches = worked_example().batches
    assert [(int(r), int(size), int(batches[r, size])) for r, size in np.argwhere(batches)] == [
        (0, 1, 1),
        (0, 2, 1),
        (1, 1, 1),
    ]


def test_a_run_lasts_until_the_last_answer() -> None:
    assert worked_example().duration_s == 0.041


def test_the_latency_of_a_request_of_several_rows_is_that_of_its_last_row() -> None:
    plan = small_plan(PLACED, small_gear(PLACED, "a b", (0.5,)))
    workload = small_workload([0, 0, 1, 1], continues=[False, True, False, True])
    got = run(plan, {"a": 10, "b": 20}, workload, {"a": [1, 0, 1, 1]})
    # Rows 0 and 1: a until 11; row 1: b until 31.  Rows 2 and 3: a from 11 to 22.
    assert got.latency_s.tolist() == pytest.approx([0.031, 0.021], abs=1e-12)


def test_arrivals_are_counted_in_the_gear_in_force() -> None:
    plan = small_plan(
        PLACED,
        small_gear(PLACED, "a b", (0.5,), load=(0, 15)),
        small_gear(PLACED, "a", load=(15, None)),
        alpha=0.0,
    )
    got = run(plan, {"a": 1, "b": 1}, small_workload([10, 20, 100, 110, 130]))
    assert got.arrived_in_gear.tolist() == [2, 3]
    assert got.shifts.tolist() == [[100 * MS, 1]]
    assert got.gear.tolist() == [0, 0, 1, 1, 1]


# Admission ------------------------------------------------------------------------------------------------------------


def test_samples_beyond_the_bound_of_those_that_wait_are_refused() -> None:
    plan = small_plan(PLACED, small_gear(PLACED, "a b", (0.5,), largest=1))
    got = run(plan, {"a": 10, "b": 1}, small_workload([0, 1, 2, 3, 11]), most_waiting=2)
    # 0 runs until 10, 1 and 2 wait, 3 is refused; at 10 sample 1 starts, so that 11 finds room.
    assert got.finished_ns.tolist() == [10 * MS, 20 * MS, 30 * MS, -1, 40 * MS]
    assert [row[:3] for row in got.log if row[1] == Decision.REFUSE] == [(3 * MS, Decision.REFUSE, 3)]


def test_the_most_that_wait_at_once_are_the_least_bound_that_refuses_nobody() -> None:
    plan = small_plan(PLACED, small_gear(PLACED, "a b", (0.5,), largest=1))
    workload = small_workload([0, 1, 2, 2, 3, 11], continues=[False, False, False, True, False, False])
    most = run(plan, {"a": 10, "b": 1}, workload).most_waiting
    assert most == 4
    assert (run(plan, {"a": 10, "b": 1}, workload, most_waiting=most).finished_ns >= 0).all()
    assert (run(plan, {"a": 10, "b": 1}, workload, most_waiting=most - 1).finished_ns < 0).any()


def test_a_request_is_refused_whole() -> None:
    plan = small_plan(PLACED, small_gear(PLACED, "a b", (0.5,), largest=1))
    workload = small_workload([0, 1, 2, 2, 3], continues=[False, False, False, True, False])
    got = run(plan, {"a": 10, "b": 1}, workload, most_waiting=2)
    assert (got.finished_ns < 0).tolist() == [False, False, True, True, False]
    assert np.isnan(got.latency_s).tolist() == [False, False, True, False]


def test_an_idle_system_admits_no_request_larger_than_the_bound() -> None:
    plan = small_plan(PLACED, small_gear(PLACED, "a b", (0.5,)))
    got = run(plan, {"a": 10, "b": 1}, small_workload([0, 0, 0], continues=[False, True, True]), most_waiting=2)
    assert (got.finished_ns < 0).all()


def test_refused_requests_do_not_count_in_the_meter() -> None:
    plan = small_plan(
        PLACED, small_gear(PLACED, "a", load=(0, 25), largest=1), small_gear(PLACED, "a", load=(25, None)), alpha=0.0
    )
    workload = small_workload([50, 60, 70, 80])
    assert len(run(plan, {"a": 90, "b": 1}, workload, most_waiting=1).shifts) == 0
    assert len(run(plan, {"a": 90, "b": 1}, workload).shifts) == 2


def test_refused_requests_are_late_and_have_no_latency() -> None:
    profile = synthetic_profile(models=2, samples=20, fastest_s=0.010)
    result = simulate(named_plan(largest=1), profile, small_workload([0, 1, 2, 3]), most_waiting=1).result(
        profile, latency_objective_s=10.0
    )
    assert (result.requests, result.share_late, result.share_refused) == (4, 0.5, 0.5)


@RANDOM
@given(cases(), st.integers(0, 5))
def test_what_waits_never_exceeds_the_bound(case: Case, most: int) -> None:
    got = run_case(case, log_rows=3000, most_waiting=most)
    waiting, highest = set[int](), 0
    for _, kind, a, b, c in got.log:
        if kind in (Decision.DROP, Decision.DEGRADE):
            waiting.discard(a)
        if kind == Decision.TAKE:
            waiting.remove(b)
        if kind == Decision.ROUTE:
            waiting.add(a)
            highest = max(highest, len(waiting) if c == 0 else 0)  # only arrivals are refused
    assert highest <= most


# Every run ------------------------------------------------------------------------------------------------------------


@RANDOM
@given(cases())
def test_every_sample_ends_exactly_once_and_is_answered_after_it_arrived(case: Case) -> None:
    got = run_case(case, log_rows=5000)
    ends = (Decision.ANSWER, Decision.DEGRADE, Decision.DROP, Decision.REFUSE)
    assert sorted(row[2] for row in got.log if row[1] in ends) == list(range(len(case.workload)))
    answered = got.ended <= Ending.DEGRADED
    assert (got.finished_ns[answered] > case.workload.arrivals_ns[answered]).all()
    assert (got.finished_ns[~answered] == -1).all()
    assert answered.all() or case.workload.deadline_ns is not None


@RANDOM
@given(cases())
def test_what_runs_to_its_end_keeps_its_deadline(case: Case) -> None:
    got, deadline_ns = run_case(case), case.workload.deadline_ns
    if deadline_ns is not None:
        ran = got.ended == Ending.ANSWERED
        assert (got.finished_ns[ran] <= deadline_ns[ran]).all()


@RANDOM
@given(cases())
def test_batches_never_exceed_the_largest_of_the_gear_in_force(case: Case) -> None:
    got = run_case(case, log_rows=5000)
    gear = 0
    replicas = len(got.tables.replica_ids)
    for _, kind, a, b, _ in got.log:
        if kind == Decision.SHIFT:
            gear = b
        if kind == Decision.START:
            assert 1 <= b <= got.tables.largest_batch_size[gear * replicas + a]


@RANDOM
@given(cases())
def test_devices_never_run_two_batches_at_once(case: Case) -> None:
    got = run_case(case, log_rows=5000)
    tables = got.tables
    free_ns = np.zeros(len(tables.device_ids), dtype=np.int64)
    for now_ns, kind, replica, size, _ in got.log:
        if kind == Decision.START:
            devices = tables.spans[tables.spans_begin[replica] : tables.spans_begin[replica + 1]]
            assert (free_ns[devices] <= now_ns).all()
            free_ns[devices] = now_ns + case.run_ns[replica][size]


@RANDOM
@given(cases())
def test_no_sample_visits_a_model_twice(case: Case) -> None:
    got = run_case(case, log_rows=5000)
    visits = [(row[3], int(got.tables.replica_model[row[2]])) for row in got.log if row[1] == Decision.TAKE]
    assert len(set(visits)) == len(visits)


@RANDOM
@given(cases())
def test_busy_time_is_that_of_the_batches_counted(case: Case) -> None:
    got = run_case(case)
    expected = np.zeros(len(got.tables.device_ids))
    for replica, counts in enumerate(got.batches):
        begin, end = got.tables.spans_begin[replica : replica + 2]
        expected[got.tables.spans[begin:end]] += (counts * case.run_ns[replica]).sum() / 1e9
    assert got.busy_s == pytest.approx(expected)


@settings(max_examples=often(40), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(cases(), cases())
def test_a_run_keeps_no_state_from_an_earlier_one(case: Case, other: Case) -> None:
    first = outcome(run_case(case, log_rows=5000))
    run_case(other, log_rows=5000)
    assert outcome(run_case(case, log_rows=5000)) == first


@RANDOM
@given(cases())
def test_keeping_a_log_does_not_change_the_run(case: Case) -> None:
    with_log, without = outcome(run_case(case, log_rows=5000)), outcome(run_case(case))
    assert with_log | {"log": []} == without


def test_a_log_keeps_the_first_decisions_asked_for() -> None:
    case = long_case(samples=500, seed=3)
    assert run_case(case, log_rows=7).log == run_case(case, log_rows=5000).log[:7]


def test_a_simulated_sample_takes_at_most_64_bytes() -> None:
    case = long_case(samples=100_000, seed=2)
    run_case(case)
    tracemalloc.start()
    try:
        run_case(case)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert 30 * 100_000 < peak_bytes < 64 * 100_000


# Plans and profiles ---------------------------------------------------------------------------------------------------


def test_a_batch_takes_the_profiled_median_and_its_overhead() -> None:
    profile = synthetic_profile(models=2, samples=20, fastest_s=0.001)
    plan = named_plan(largest=2)
    assert run_times_ns(plan, plan_tables(plan), profile).tolist() == [
        [0, 1_100_000, 1_600_000],
        [0, 3_100_000, 4_600_000],
    ]


def test_a_gear_with_larger_batches_than_were_profiled_is_refused_with_the_remedy() -> None:
    profile = synthetic_profile(models=2, samples=20)
    with pytest.raises(InvalidInput, match=r"run batches of 33, but model 'm0' was profiled to 32; profile larger"):
        simulate(named_plan(largest=33), profile, small_workload([0]))


def test_a_model_without_run_times_is_refused() -> None:
    profile = synthetic_profile(models=1, samples=20)
    with pytest.raises(InvalidInput, match="no predictions of models"):
        simulate(named_plan(largest=2), profile, small_workload([0]))


def test_a_workload_of_samples_that_were_not_recorded_is_refused() -> None:
    workload = Workload(arrivals_ns=np.array([0]), record=np.array([20], dtype=np.int32), duration_s=1.0)
    with pytest.raises(InvalidInput):
        simulate(named_plan(largest=2), synthetic_profile(models=2, samples=20), workload)


def test_figures_of_a_run_are_those_of_its_requests() -> None:
    profile = synthetic_profile(models=2, samples=200, fastest_s=0.001)
    workload = small_workload(np.arange(100) * 2.0)
    got = simulate(named_plan(largest=4), profile, workload)
    result = got.result(profile, latency_objective_s=0.004)
    assert result.requests == 100
    assert result.latency_s.p95 == percentile(got.latency_s, 0.95)
    assert result.share_late == pytest.approx(float(np.mean(got.latency_s > 0.004)))
    quality = [profile.predictions.quality[got.model[i], i] for i in range(100)]
    assert result.accuracy == pytest.approx(np.mean(quality))
    assert result.utilisation["d1"] == pytest.approx(got.busy_s[1] / got.duration_s)


def named_plan(*, largest: int) -> GearPlan:
    """Models m0 and m1 of the synthetic profile, each on a device of its own."""
    gear = Gear(
        load_range=LoadRange(from_=0.0),
        cascades=alone("task", Cascade(models=("m0", "m1"), thresholds=(0.2,))),
        replicas=tuple(ReplicaSettings(replica=r, load_share=1.0, largest_batch_size=largest) for r in ("r0", "r1")),
    )
    source = SourceFile(path="", sha256="")
    return GearPlan(
        planner="test",
        hardware=Hardware(devices=(Device(id="d0"), Device(id="d1"))),
        placement=Placement(
            replicas=(
                Replica(id="r0", model="m0", device_ids=("d0",)),
                Replica(id="r1", model="m1", device_ids=("d1",)),
            )
        ),
        pipelines={
            "task": PipelinePlan(
                nodes={"task": Node(operator="task")}, output="task", objective=Objective(), gears=(gear,)
            )
        },
        profiles={"task": source},
        traces={"task": source},
    )


# Deadlines ------------------------------------------------------------------------------------------------------------


def with_deadlines(deadlines_ms: Sequence[float], *, late: Late = "refuse", by_arrival: bool = False) -> Simulation:
    """Samples arrive together for a on d0, one at a time; a takes 10 ms, and b on d1 20 for those of odd number."""
    n = len(deadlines_ms)
    plan = small_plan(PLACED, small_gear(PLACED, "a b", (0.5,), largest=1))
    workload = small_workload([0.0] * n, deadline_ns=(np.array(deadlines_ms) * MS).astype(np.int64))
    sure = np.stack([np.arange(n) % 2 == 0, np.ones(n)]).astype(np.float64)
    run_ns = np.array([[0, 10], [0, 20]]) * MS
    return simulate_tables(plan_tables(plan), run_ns, sure, workload, late=late, by_arrival=by_arrival, log_rows=1000)


def test_what_would_miss_its_deadline_is_refused_or_degraded_and_counts_so() -> None:
    run = with_deadlines([10, 30, 25, 60])
    # by deadline a runs 0 until 10, 2 until 20, 1 until 30 with no time left for b, 3 until 40, and b 3 until 60
    assert run.ended.tolist() == [Ending.ANSWERED, Ending.DEGRADED, Ending.ANSWERED, Ending.ANSWERED]
    assert run.finished_ns.tolist() == [10 * MS, 30 * MS, 20 * MS, 60 * MS]


def test_a_refused_sample_is_late_whatever_the_objective() -> None:
    run = with_deadlines([10, 15, 20, 61])  # no time for 1
    assert run.ended.tolist() == [Ending.ANSWERED, Ending.INFEASIBLE, Ending.ANSWERED, Ending.ANSWERED]
    assert run.limit_s(None) == pytest.approx([0.010, 0.015, 0.020, 0.061])


def test_lateness_goes_by_deadlines_and_degraded_answers_are_counted() -> None:
    profile = synthetic_profile(models=2, samples=20, fastest_s=0.010)  # a batch of one takes 10.1 ms, m1 30.1
    workload = small_workload([0, 0, 500], deadline_ns=[12 * MS, 12 * MS, 530 * MS])
    run = simulate(named_plan(largest=1), profile, workload)
    figures = run.result(profile, latency_objective_s=0.001)
    assert sorted(run.ended.tolist()) == [Ending.ANSWERED, Ending.DEGRADED, Ending.INFEASIBLE]
    assert figures.share_refused == figures.share_degraded == pytest.approx(1 / 3)
    assert figures.share_late == pytest.approx(1 / 3)


def test_late_answers_are_given_where_they_are_wanted() -> None:
    run = with_deadlines([10, 15, 20, 61], late="answer")
    assert (run.finished_ns >= 0).all()
    assert run.finished_ns[1] == 20 * MS


def test_queues_may_be_in_order_of_arrival_while_deadlines_decide() -> None:
    run = with_deadlines([60, 60, 20, 60], by_arrival=True)
    assert run.ended[2] == Ending.INFEASIBLE
    assert with_deadlines([60, 60, 20, 60]).ended[2] == Ending.ANSWERED


def test_a_run_counted_from_a_later_instant_has_the_same_latencies_and_earlier_shifts() -> None:
    case = long_case(samples=2000, seed=1)
    began = run_case(case, log_rows=1000)
    assert len(began.shifts) > 1
    later_ns = int(case.workload.arrivals_ns[0])
    moved = began.counted_from(later_ns)
    assert moved.workload.arrivals_ns[0] == 0
    np.testing.assert_array_equal(moved.latency_s, began.latency_s)
    np.testing.assert_array_equal(moved.shifts[:, 1], began.shifts[:, 1])
    np.testing.assert_array_equal(moved.shifts[:, 0], np.maximum(began.shifts[:, 0] - later_ns, 0))
    assert [row[0] for row in moved.log] == [row[0] - later_ns for row in began.log]
    assert moved.counted_from(-later_ns).finished_ns.tolist() == began.finished_ns.tolist()
