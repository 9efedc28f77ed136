"""Decision conformance: the compiled simulator and the real router write the same log, event for event."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gearshift.decisions import Decision, Ending
from gearshift.gear import Gear
from gearshift.objective import Objective
from gearshift.planner.joint.candidates import candidates_of
from gearshift.planner.joint.replanning.search import plan_pipeline
from gearshift.plans.plan_tables import plan_tables
from gearshift.policies.batching import DEADLINE, FULL, REFINES
from gearshift.profiles.profile import PART_B
from gearshift.profiles.run_times import NO_FRONT_END, Exits, FrontEnd
from gearshift.request import Late
from gearshift.result import percentile
from gearshift.simulator.simulate import prepare, simulate_tables
from gearshift.workload import PlannedLoad, Workload, draw_workload, merge_workloads
from tests.conformance.bulk import with_bulk
from tests.conformance.choices import with_choices
from tests.conformance.graphs import graph_cases
from tests.conformance.plans import (
    MS,
    Case,
    cases,
    cases_of_several,
    cases_with_cores,
    cases_with_exits,
    cases_with_scaler,
    cases_with_shared_workers,
)
from tests.conformance.recorded_passing import RecordedPassing
from tests.conformance.refinements import with_refinement
from tests.conformance.scenario import long_case, three_pipelines
from tests.conformance.small import refining, small_gear, small_plan, small_plan_of, small_workload
from tests.conformance.virtual import run_virtually
from tests.often import first_short, often
from tests.unit.planner.joint.strips import EDGES, strips

RUN_FACTORS = st.lists(st.sampled_from([0.5, 1.0, 1.2, 1.5, 3.0, 40.0]), min_size=1, max_size=4)
BUSY = st.builds(FrontEnd, arrival_ns=st.integers(0, 3 * MS), answer_ns=st.integers(0, 3 * MS))


def with_cores(gear: Gear, cores: Mapping[str, int]) -> Gear:
    return msgspec.structs.replace(
        gear, replicas=tuple(msgspec.structs.replace(each, cores=cores[each.replica]) for each in gear.replicas)
    )


def assert_same_decisions(
    case: Case, late: Late = "refuse", front_end: FrontEnd = NO_FRONT_END, learns: bool | None = None
) -> list[tuple[int, int, int, int, int]]:
    tables = plan_tables(case.plan)
    run_ns = np.stack(case.run_ns)
    cores: Any = {"core_run_ns": case.core_run_ns, "effect_s": case.effect_ms / 1e3, "shared": case.shared}
    if case.shared is None:
        cores["front_end"] = front_end
    passing = None
    if case.holds is not None:
        passing = RecordedPassing(case.plan, tables, case.joint, case.holds, case.workload)
    cores["learns_slowdown"], cores["expected_ns"] = learns, case.expected_ns
    live = run_virtually(tables, case.run_ns, case.certainty, case.workload, late, case.exits, passing=passing, **cores)
    simulated = simulate_tables(
        tables,
        run_ns,
        case.certainty,
        case.workload,
        recorded=case.recorded,
        exits=case.exits,
        late=late,
        log_rows=len(live.log) + 10,
        **cores,
    )
    for row, (expected, got) in enumerate(zip(live.log, simulated.log, strict=False)):
        assert got == expected, f"decision {row}: the router {expected}, the simulator {got}"
    assert len(simulated.log) == len(live.log)
    assert simulated.ended.tolist() == live.ended.tolist()
    assert simulated.finished_ns.tolist() == live.finished_ns.tolist()
    assert simulated.written_ns.tolist() == live.written_ns.tolist()
    assert simulated.model.tolist() == live.model.tolist()
    return live.log


@given(cases().filter(lambda case: case.workload.deadline_ns is not None))
@settings(max_examples=often(40), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_router_and_simulator_decide_alike_where_late_answers_are_wanted(case: Case) -> None:
    log = assert_same_decisions(case, "answer")
    assert not {row[1] for row in log} & {Decision.REFUSE, Decision.DROP}


@given(cases_of_several().flatmap(with_refinement), BUSY)
@settings(max_examples=often(150), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_router_and_simulator_refine_alike_where_pipelines_share_devices(case: Case, front_end: FrontEnd) -> None:
    assert_same_decisions(case, front_end=front_end)


@given(cases().filter(lambda case: case.workload.deadline_ns is not None).flatmap(with_refinement))
@settings(max_examples=often(40), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_router_and_simulator_refine_alike_where_late_answers_are_wanted(case: Case) -> None:
    assert_same_decisions(case, "answer")


def test_router_and_simulator_refine_alike_in_every_way_in_which_time_ends() -> None:
    kinds = set[tuple[int, int]]()

    @given(cases().flatmap(with_refinement), BUSY)
    @settings(max_examples=often(250), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    def note(case: Case, front_end: FrontEnd) -> None:
        for _, kind, _, _, c in assert_same_decisions(case, front_end=front_end):
            kinds.add((kind, c if kind == Decision.START else 0))

    note()
    assert kinds >= {(Decision.START, REFINES), (Decision.RELEASE, 0), (Decision.DEGRADE, 0), (Decision.START, FULL)}


@given(
    st.one_of(
        cases(),
        cases().flatmap(with_refinement),
        cases_with_exits(),
        cases_with_exits().flatmap(with_refinement),
        cases_of_several(),
    ),
    RUN_FACTORS,
    BUSY,
)
@settings(max_examples=often(150), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_router_and_simulator_decide_alike_on_a_host_that_is_slower_than_profiled(
    case: Case, factors: list[float], front_end: FrontEnd
) -> None:
    slower = replace(case, workload=replace(case.workload, run_factors=np.array(factors)))
    assert_same_decisions(slower, front_end=front_end, learns=True)


@given(cases_with_exits().flatmap(with_refinement))
@settings(max_examples=often(60), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_router_and_simulator_refine_alike_where_samples_leave_early(case: Case) -> None:
    assert_same_decisions(case)


def by_gain_on_two_devices(workload: Workload) -> list[tuple[float, int, int]]:
    """Milliseconds, kind and row of what a router decides that screens for 1 ms, and refines for 10 of 100."""
    placed = {"a0": "d0", "b0": "d1"}
    plan = refining(small_plan(placed, small_gear(placed, "a b", (0.9,), largest=1)), {0.0: 0.4, 0.5: 0.2})
    certainty = np.array([np.tile([0.0, 0.6], 20), np.ones(40)])
    log = assert_same_decisions(
        Case(plan=plan, run_ns=[np.full(5, MS), np.full(5, 10 * MS)], certainty=certainty, workload=workload)
    )
    return [(at_ns / MS, kind, a) for at_ns, kind, a, _, _ in log]


def test_no_more_rows_wait_than_can_be_refined_and_those_that_gain_least_are_answered_first() -> None:
    log = by_gain_on_two_devices(small_workload([0] * 40))
    early = [row for at_ms, kind, row in log if kind == Decision.RELEASE and at_ms < 50]
    assert early[:5] == [11, 13, 9, 15, 7]  # 1 to 10 wait when the twelfth comes; odd ones gain less


def test_a_row_of_a_batch_that_overruns_is_answered_when_its_time_ends() -> None:
    log = by_gain_on_two_devices(replace(small_workload([0]), run_factors=np.array([1.0, 20.0])))
    assert log[-1] == (100, Decision.RELEASE, 0)


def test_a_slow_host_shifts_down_at_the_load_that_it_can_bear() -> None:
    placed = {"a0": "d0", "b0": "d1"}
    gears = [
        small_gear(placed, "a b", (2.0,), load=(0.0, 250.0)),
        small_gear(placed, "a", load=(250.0, None)),
    ]
    arrivals_ms = np.arange(200) * 5.0
    case = Case(
        plan=small_plan(placed, *gears),
        run_ns=[np.full(5, MS), np.full(5, MS)],
        certainty=np.ones((2, 200)),
        workload=small_workload(arrivals_ms, run_factors=[1.5]),
    )
    kept = [row for row in assert_same_decisions(case, learns=False) if row[1] == Decision.SHIFT]
    shifted = [row for row in assert_same_decisions(case, learns=True) if row[1] == Decision.SHIFT]
    assert kept == []
    assert [(a, b) for _, _, a, b, _ in shifted] == [(0, 1)], "200 a second are 300 of what it was planned for"


def test_router_and_simulator_choose_alike_in_a_planned_pipeline() -> None:
    request = strips(latency_s=0.03, qps=100.0, replanning=True)
    plan = plan_pipeline(request, candidates_of(request))
    prepared = prepare(plan, request.profiles, {"strips": request.records})
    workload = draw_workload(request.trace, request.records.indices(PART_B), seed=1)
    log = assert_same_decisions(
        Case(
            plan=plan,
            run_ns=list(prepared.run_ns),
            certainty=prepared.certainty,
            workload=workload,
            joint={"strips": request.records},
            holds=np.ones((len(EDGES), *prepared.certainty.shape), dtype=np.bool_),
            recorded=prepared.recorded,
        )
    )
    assert len({c for _, kind, _, _, c in log if kind == Decision.CHOOSE}) > 2


def test_router_and_simulator_choose_alike_every_place_of_a_choice_and_none_by_the_time_that_is_left() -> None:
    places = set[int]()

    @given(st.one_of(cases(), cases_of_several(), graph_cases()).flatmap(with_choices))
    @settings(max_examples=often(200), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    def note(case: Case) -> None:
        places.update(c for _, kind, _, _, c in assert_same_decisions(case) if kind == Decision.CHOOSE)

    note()
    assert places >= {-1, 0, 1, 2}


def test_router_and_simulator_decide_alike_on_random_plans_in_every_way_in_which_a_deadline_decides() -> None:
    kinds = set[tuple[int, int]]()

    @given(cases())
    @settings(max_examples=often(250), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    def note(case: Case) -> None:
        for _, kind, _, b, c in assert_same_decisions(case):
            kinds.add((kind, {Decision.REFUSE: b, Decision.DROP: c, Decision.START: c}.get(Decision(kind), 0)))

    note()
    assert kinds >= {
        (Decision.REFUSE, Ending.INFEASIBLE),
        (Decision.DROP, Ending.INFEASIBLE),
        (Decision.DROP, Ending.EXPIRED_IN_QUEUE),
        (Decision.DEGRADE, 0),
        (Decision.START, DEADLINE),
    }


def test_router_and_simulator_let_samples_without_an_answer_go_first() -> None:
    placed = {"a0": "d0", "b0": "d0"}
    generator = np.random.default_rng(3)
    arrivals_ms = np.cumsum(generator.integers(0, 4, 2000))
    due_ns = (arrivals_ms + generator.integers(10, 30, 2000)) * MS
    case = Case(
        plan=small_plan(placed, small_gear(placed, "a b", (0.5,), minimum={"a0": 2}, wait_ms=100)),
        run_ns=[(1 + np.arange(5)) * MS, (5 + np.arange(5)) * MS],
        certainty=generator.random((2, 2000)),
        workload=small_workload(arrivals_ms, deadline_ns=due_ns),
    )
    log = assert_same_decisions(case)
    first, then = map(plan_tables(case.plan).replica_ids.index, ("a0", "b0"))
    waits: dict[int, set[int]] = {first: set(), then: set()}
    passed_over = 0
    for _, kind, a, b, _ in log:
        if kind == Decision.ROUTE:
            waits[b].add(a)
        elif kind == Decision.TAKE:
            waits[a].remove(b)
        elif kind in (Decision.DROP, Decision.DEGRADE):
            waits[first].discard(a)
            waits[then].discard(a)
        elif kind == Decision.START and a == first and waits[then]:
            passed_over += min(due_ns[[*waits[then]]]) < min(due_ns[[*waits[first]]])
    assert passed_over > 20


@given(st.one_of(cases(), cases_with_exits(), cases_with_cores()), BUSY)
@settings(max_examples=often(200), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_router_and_simulator_decide_alike_where_what_falls_due_waits_for_a_busy_router(
    case: Case, front_end: FrontEnd
) -> None:
    assert_same_decisions(case, front_end=front_end)


def test_a_tick_that_is_taken_up_late_meters_all_the_time_since_the_last() -> None:
    placed = {"a0": "d0"}
    loads = (0.0, 20.0), (20.0, 390.0), (390.0, None)
    gears = [small_gear(placed, "a", largest=1, load=load) for load in loads]
    arrivals_ms = np.arange(40) // 4
    case = Case(
        plan=small_plan(placed, *gears),
        run_ns=[np.full(5, MS)],
        certainty=np.ones((1, 40)),
        workload=small_workload(arrivals_ms),
    )
    log = assert_same_decisions(case, front_end=FrontEnd(answer_ns=3 * MS))
    at_ns, gear = next((at_ns, b) for at_ns, kind, _, b, _ in log if kind == Decision.SHIFT)
    assert (at_ns / MS > 100, gear) == (True, 1), "40 in 100 ms and a little more are less than 400 a second"


def test_a_request_of_several_rows_is_written_with_its_last_and_degraded_answers_take_their_time_too() -> None:
    placed = {"a0": "d0", "b0": "d1"}
    case = Case(
        plan=small_plan(placed, small_gear(placed, "a b", (0.5,))),
        run_ns=[np.full(5, 5 * MS), np.full(5, 5 * MS)],
        certainty=np.array([[1.0, 0.0, 0.0], [1.0, 1.0, 1.0]]),
        workload=small_workload([0, 0, 2], deadline_ns=[50 * MS, 50 * MS, 12 * MS], continues=[False, True, False]),
    )
    tables, busy = plan_tables(case.plan), FrontEnd(arrival_ns=MS, answer_ns=2 * MS)
    assert_same_decisions(case, front_end=busy)
    run = simulate_tables(tables, np.stack(case.run_ns), case.certainty, case.workload, front_end=busy)
    assert (run.finished_ns // MS).tolist() == [6, 13, 11]
    assert (run.written_ns // MS).tolist() == [6, 15, 13]
    assert run.ended.tolist() == [Ending.ANSWERED, Ending.ANSWERED, Ending.DEGRADED]
    assert (1e3 * run.latency_s).tolist() == pytest.approx([15, 11])
    limit_s = run.limit_s(None)
    assert isinstance(limit_s, np.ndarray)
    assert (1e3 * limit_s).tolist() == pytest.approx([52, 12]), "in time is what was decided in time"


def test_arrivals_wait_for_a_busy_router_and_answers_are_written_one_after_another() -> None:
    placed = {"a0": "d0"}
    case = Case(
        plan=small_plan(placed, small_gear(placed, "a", largest=2, minimum={"a0": 2}, wait_ms=50)),
        run_ns=[np.array([0, 10, 10]) * MS],
        certainty=np.ones((1, 3)),
        workload=small_workload([0, 0, 1]),
    )
    log = assert_same_decisions(case, front_end=FrontEnd(arrival_ns=3 * MS, answer_ns=4 * MS))
    told = [(at_ns // MS, Decision(kind), a) for at_ns, kind, a, _, _ in log if kind != Decision.TAKE]
    assert told == [
        (3, Decision.ROUTE, 0),
        (6, Decision.ROUTE, 1),
        (6, Decision.START, 0),
        (9, Decision.ROUTE, 2),
        (16, Decision.ANSWER, 0),
        (16, Decision.ANSWER, 1),
        (59, Decision.START, 0),
        (69, Decision.ANSWER, 2),
    ]


@given(cases_with_exits())
@settings(max_examples=often(150), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_router_and_simulator_decide_alike_where_samples_leave_early(case: Case) -> None:
    assert_same_decisions(case)


def test_a_sample_that_leaves_goes_on_to_the_next_model_while_its_batch_still_runs() -> None:
    placed = {"a0": "d0", "b0": "d1"}
    case = Case(
        plan=small_plan(placed, small_gear(placed, "a b", (0.5,), minimum={"a0": 3}, wait_ms=50)),
        run_ns=[(np.arange(5) * 10) * MS, np.full(5, 5 * MS)],
        certainty=np.array([[0.0, 1.0, 1.0], [1.0, 1.0, 1.0]]),
        workload=small_workload([0, 0, 0]),
        exits=Exits(
            np.stack([[np.arange(5) * 4 * MS, np.arange(5) * 6 * MS], [np.full(5, 5 * MS), np.zeros(5)]]).astype(int),
            np.array([[0, 1, 0], [0, 0, 0]]),
        ),
    )
    log = assert_same_decisions(case)
    told = [(at_ns // MS, Decision(kind), a) for at_ns, kind, a, _, _ in log if kind != Decision.TAKE][3:]
    assert told == [
        (0, Decision.START, 0),
        (12, Decision.ROUTE, 0),
        (12, Decision.ANSWER, 2),
        (12, Decision.START, 1),
        (17, Decision.ANSWER, 0),
        (18, Decision.ANSWER, 1),
    ]


@given(cases_with_cores())
@settings(max_examples=often(50), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_router_and_simulator_decide_alike_where_cores_change_with_the_gear(case: Case) -> None:
    assert_same_decisions(case)


def test_router_and_simulator_decide_alike_in_every_way_in_which_a_scaler_chooses_cores() -> None:
    met = set[str]()

    @given(cases_with_scaler())
    @settings(max_examples=often(100), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    def note(case: Case) -> None:
        shifts = set[int]()
        for at_ns, kind, _, wanted, had in assert_same_decisions(case):
            shifts |= {at_ns} if kind == Decision.SHIFT else set()
            if kind == Decision.CORES:
                met.add(f"{'more' if wanted > had else 'fewer'} at a {'shift' if at_ns in shifts else 'period'}")

    note()
    assert met == {"more at a shift", "fewer at a shift", "more at a period", "fewer at a period"}


def test_router_and_simulator_alike_give_replicas_of_a_worker_its_cores_together_at_periods_alone() -> None:
    met = set[str]()

    @given(cases_with_shared_workers())
    @settings(max_examples=often(100), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    def note(case: Case) -> None:
        assert case.shared is not None
        period_ns = round(case.shared.scaling.period_s * 1e9)
        of_worker = {replica: tuple(numbers) for numbers in case.shared.workers for replica in numbers}
        asked: dict[tuple[int, tuple[int, ...], int], set[int]] = {}
        for at_ns, kind, replica, wanted, had in assert_same_decisions(case):
            if kind == Decision.CORES:
                assert at_ns % period_ns == 0
                asked.setdefault((at_ns, of_worker[replica], wanted), set()).add(replica)
                met.add(f"{'more' if wanted > had else 'fewer'} of {min(2, len(of_worker[replica]))}")
        assert all(replicas == set(worker) for (_, worker, _), replicas in asked.items())

    note()
    assert met == {"more of 1", "fewer of 1", "more of 2", "fewer of 2"}


def test_cores_change_at_once_where_they_shrink_and_later_where_they_grow() -> None:
    placed = {"a0": "d0", "b0": "d1"}
    gears = (
        with_cores(small_gear(placed, "a b", (0.5,), load=(0.0, 100.0)), {"a0": 1, "b0": 3}),
        with_cores(small_gear(placed, "a", load=(100.0, None)), {"a0": 3, "b0": 1}),
    )
    plan = small_plan(placed, *gears)
    case = Case(
        plan=msgspec.structs.replace(plan, hardware=msgspec.structs.replace(plan.hardware, pool_cores=4)),
        run_ns=[np.zeros(5, dtype=np.int64)] * 2,
        certainty=np.array([[0.0] * 60, [1.0] * 60]),
        workload=small_workload(np.arange(60) * 5),
        core_run_ns=np.array([[np.arange(5) * 12 // max(1, cores) * MS for cores in range(4)]] * 2),
        effect_ms=40,
    )
    log = assert_same_decisions(case)
    told = [(at_ns // MS, *row) for at_ns, kind, *row in log if kind == Decision.CORES]
    assert told[:2] == [(100, 0, 3, 1), (100, 1, 1, 3)]
    starts = [(at_ns // MS, size) for at_ns, kind, replica, size, _ in log if kind == Decision.START and replica == 0]
    took = [(at, (after - at) / size) for (at, size), (after, _) in pairwise(starts)]
    assert {ms for at, ms in took if at < 140} == {12}
    assert min(ms for at, ms in took if at >= 140) < 12


@pytest.mark.long
@given(st.one_of(cases(), cases_with_exits(), cases_with_cores(), cases_with_scaler(), cases_with_shared_workers()))
@settings(max_examples=5000, deadline=None, suppress_health_check=list(HealthCheck))
def test_router_and_simulator_decide_alike_on_many_random_plans(case: Case) -> None:
    assert_same_decisions(case)


@pytest.mark.long
def test_router_and_simulator_decide_alike_on_a_long_trace_with_many_gear_shifts() -> None:
    log = assert_same_decisions(long_case(samples=60_000, seed=1))
    kinds = [row[1] for row in log]
    assert kinds.count(Decision.SHIFT) > 100
    assert kinds.count(Decision.ANSWER) == 60_000


def test_router_and_simulator_decide_alike_when_batches_end_together_on_many_devices() -> None:
    placed = {f"{model}{i:02d}": f"d{i:02d}" for model in "ab" for i in range(40)}
    generator = np.random.default_rng(1)
    workload = small_workload(np.sort(generator.integers(0, 40, 3000)))
    case = Case(
        plan=small_plan(placed, small_gear(placed, "a b", (0.5,))),
        run_ns=[(2 + np.arange(5)) * MS] * len(placed),
        certainty=generator.random((2, len(workload))),
        workload=workload,
    )
    log = assert_same_decisions(case)
    assert {row[2] for row in log if row[1] == Decision.START} == set(range(80))


@pytest.mark.parametrize(
    ("times", "meter"),
    first_short([(0.5, "backlog"), (0.5, "alpha"), (3.0, "backlog"), (3.0, "alpha")], 2),
)
def test_router_and_simulator_decide_alike_while_load_is_scaled_to_the_planned_one(meter: str, times: float) -> None:
    placed = {"a0": "d0", "b0": "d1"}
    gears = (
        small_gear(placed, "a b", (0.75,), load=(0.0, 15.0)),
        small_gear(placed, "a b", (0.25,), load=(15.0, 30.0)),
        small_gear(placed, "a", load=(30.0, None)),
    )
    plan = small_plan(
        placed, *gears, meter=meter, planned_load=PlannedLoad(shares=(0.4, 0.4, 0.2), over_s=60.0), upshift_margin=0.1
    )
    (operator,) = plan.pipelines.values()
    scaled = msgspec.structs.replace(operator, objective=Objective(accuracy=0.9))
    generator = np.random.default_rng(int(10 * times))
    swing = 20 * times * (1 + 0.8 * np.sin(np.linspace(0, 60, int(3000 * times))))
    workload = small_workload(1000 * np.cumsum(generator.exponential(1.0, len(swing)) / swing))
    cases = [
        Case(
            plan=msgspec.structs.replace(plan, pipelines={"task": each}),
            run_ns=[(1 + np.arange(5)) * MS] * 2,
            certainty=generator.random((2, len(workload))),
            workload=workload,
        )
        for each in (operator, scaled)
    ]
    plain, with_factor = ([row for row in assert_same_decisions(case) if row[1] == Decision.SHIFT] for case in cases)
    first = next(at for at, (a, b) in enumerate(zip(plain, with_factor, strict=False)) if a != b)
    assert min(plain[first][0], with_factor[first][0]) > 60_000 * MS


# Several pipelines ----------------------------------------------------------------------------------------------------


@given(cases_of_several(), st.one_of(st.just(NO_FRONT_END), BUSY))
@settings(max_examples=often(120), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_router_and_simulator_decide_alike_where_pipelines_share_replicas(case: Case, front_end: FrontEnd) -> None:
    assert_same_decisions(case, front_end=front_end)


def test_router_and_simulator_let_all_pipelines_shift_before_a_device_starts() -> None:
    placed = {"a0": "d0"}
    gears = {
        name: [
            small_gear(placed, "a", minimum=9, largest=1, wait_ms=500, load=(0, 25), node=name),
            small_gear(placed, "a", largest=largest, load=(25, None), node=name),
        ]
        for name, largest in (("p", 2), ("q", 4))
    }
    case = Case(
        plan=small_plan_of(placed, gears, alpha=0.0),
        run_ns=[np.full(5, 10 * MS)],
        certainty=np.ones((1, 3)),
        workload=merge_workloads([small_workload([1, 2, 3]), small_workload([4, 5, 6])]),
    )
    log = assert_same_decisions(case)
    assert [row[2:] for row in log if row[1] == Decision.SHIFT] == [(0, 1, 0), (0, 1, 1)]


# Graphs ---------------------------------------------------------------------------------------------------------------


@given(graph_cases(), st.one_of(st.just(NO_FRONT_END), BUSY))
@settings(max_examples=often(200), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_router_and_simulator_decide_alike_in_graphs(case: Case, front_end: FrontEnd) -> None:
    assert_same_decisions(case, front_end=front_end)


@given(graph_cases().filter(lambda case: case.workload.deadline_ns is not None))
@settings(max_examples=often(40), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_router_and_simulator_decide_alike_in_graphs_where_late_answers_are_wanted(case: Case) -> None:
    assert_same_decisions(case, "answer")


@given(st.one_of(cases(), cases_of_several(), graph_cases()).flatmap(with_bulk), st.one_of(st.just(NO_FRONT_END), BUSY))
@settings(max_examples=often(120), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_router_and_simulator_decide_alike_on_bulk_work_beside_online_requests(case: Case, front_end: FrontEnd) -> None:
    log = assert_same_decisions(case, front_end=front_end)
    first = case.workload.bulk_gear
    assert first is not None
    taken = {row[2]: row[4] for row in log if row[1] == Decision.ANSWER and row[2] < len(first) and first[row[2]] >= 0}
    assert all(gear == first[sample] for sample, gear in taken.items())


@given(st.one_of(cases(), graph_cases()).flatmap(with_choices).flatmap(with_bulk))
@settings(max_examples=often(40), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_router_and_simulator_keep_one_tuple_for_bulk_work_where_gears_choose(case: Case) -> None:
    assert_same_decisions(case)


def test_router_and_simulator_agree_on_latency_of_three_pipelines_while_the_loads_of_all_move() -> None:
    case = three_pipelines(requests=700, seed=1)
    log = assert_same_decisions(case)
    shifts = [row[4] for row in log if row[1] == Decision.SHIFT]
    assert all(shifts.count(pipeline) >= 5 for pipeline in range(3))
    tables = plan_tables(case.plan)
    run = simulate_tables(tables, np.stack(case.run_ns), case.certainty, case.workload, recorded=case.recorded)
    p95_s = {pipeline.name: percentile(run.of(pipeline.name).latency_s, 0.95) for pipeline in tables.pipelines}
    assert p95_s["first"] < min(p95_s["doubts"], p95_s["faces"]), "it has one node"
    assert all(0.002 < seconds < 0.2 for seconds in p95_s.values())
