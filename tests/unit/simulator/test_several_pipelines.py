"""Pipelines of one node over shared replicas."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from gearshift.decisions import Decision
from gearshift.errors import InvalidInput
from gearshift.gear import GearPlan
from gearshift.hardware import Hardware
from gearshift.objective import Objective
from gearshift.placement import Placement
from gearshift.plans.plan_tables import plan_tables
from gearshift.policies.batching import FULL, LONGEST_WAIT
from gearshift.profiles.profile import Profile
from gearshift.simulator.simulate import UNBOUNDED, Simulation, simulate, simulate_tables
from gearshift.workload import PlannedLoad, Workload, merge_workloads
from tests.conformance.plans import MS, Case, cases, cases_of_several
from tests.conformance.small import small_gear, small_plan_of, small_workload
from tests.often import often
from tests.worlds import synthetic_profile

SHARED = {"a0": "d0"}


def run(
    plan: GearPlan,
    run_ms: Mapping[str, float],
    workloads: Sequence[Workload],
    *,
    most_waiting: int | Sequence[int] = UNBOUNDED,
) -> Simulation:
    """`run_ms` is how long a model's batch takes, whatever its size."""
    tables, merged = plan_tables(plan), merge_workloads(workloads)
    run_ns = np.array([[0] + [run_ms[r[0]] * MS] * 8 for r in tables.replica_ids]).astype(np.int64)
    sure = np.ones((len(tables.models), len(merged)))
    return simulate_tables(tables, run_ns, sure, merged, most_waiting=most_waiting, log_rows=5000)


def run_case(case: Case) -> Simulation:
    tables = plan_tables(case.plan)
    return simulate_tables(tables, np.stack(case.run_ns), case.certainty, case.workload, log_rows=9000)


def of_kind(run: Simulation, *kinds: Decision) -> list[tuple[int, ...]]:
    return [(at_ns // MS, *row) for at_ns, kind, *row in run.log if kind in kinds]


def one_gear(*names: str, **settings: int) -> GearPlan:
    return small_plan_of(SHARED, {name: [small_gear(SHARED, "a", node=name, **settings)] for name in names})


# Workloads ------------------------------------------------------------------------------------------------------------


def test_workloads_are_merged_on_one_clock_and_at_ties_the_earlier_pipelines_samples_go_first() -> None:
    merged = merge_workloads([small_workload([1, 2, 2, 5]), small_workload([0, 2, 5], priority=[1, 2, 3])])
    assert merged.pipeline is not None
    assert merged.priority is not None
    assert (merged.arrivals_ns // MS).tolist() == [0, 1, 2, 2, 2, 5, 5]
    assert merged.pipeline.tolist() == [1, 0, 0, 0, 1, 0, 1]
    assert merged.record.tolist() == [0, 0, 1, 2, 1, 3, 2]
    assert merged.priority.tolist() == [1, 1000, 1000, 1000, 2, 1000, 3]


def test_rows_of_one_request_stay_together() -> None:
    rows = small_workload([0, 0, 1, 1], continues=[False, True, False, True])
    merged = merge_workloads([small_workload([0, 1]), rows])
    assert merged.continues is not None
    assert merged.continues.tolist() == [False, False, True, False, False, True]


def test_a_request_with_rows_at_two_pipelines_is_refused() -> None:
    with pytest.raises(InvalidInput, match="rows of one request must arrive at one pipeline"):
        small_workload([0, 0], continues=[False, True], pipeline=[0, 1])


def test_a_workload_that_does_not_fit_the_plans_pipelines_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"the plan has pipelines \['p', 'q'\], and the workload does not say whose"):
        run_case_of(one_gear("p", "q"), small_workload([0]))
    with pytest.raises(InvalidInput, match="has samples of 3 pipelines, and the plan has"):
        run(one_gear("p", "q"), {"a": 1}, [small_workload([0])] * 3)


def run_case_of(plan: GearPlan, workload: Workload) -> Simulation:
    return simulate_tables(plan_tables(plan), np.array([[0, 1, 1, 1, 1]]), np.ones((1, 9)), workload)


# Worked out by hand ---------------------------------------------------------------------------------------------------


def test_samples_of_two_pipelines_share_a_batch() -> None:
    got = run(one_gear("p", "q"), {"a": 10}, [small_workload([0, 1]), small_workload([2])])
    assert of_kind(got, Decision.START) == [(0, 0, 1, FULL), (10, 0, 2, FULL)]
    assert (got.finished_ns // MS).tolist() == [10, 20, 20]


def test_each_pipeline_shifts_by_its_own_load_and_only_its_own_samples_count_in_its_gears() -> None:
    gears = {
        name: [small_gear(SHARED, "a", load=(0, 45), node=name), small_gear(SHARED, "a", load=(45, None), node=name)]
        for name in ("p", "q")
    }
    plan = small_plan_of(SHARED, gears, alpha=0.0)
    quiet, busy = small_workload([10, 150]), small_workload([1, 2, 3, 4, 5, 120, 121, 122, 123, 124])
    got = run(plan, {"a": 1}, [quiet, busy])
    assert of_kind(got, Decision.SHIFT) == [(100, 0, 1, 1)]
    assert got.arrived_in_gear.tolist() == [2, 0, 5, 5]
    p, q = got.of("p"), got.of("q")
    assert (p.arrived_in_gear.tolist(), q.arrived_in_gear.tolist()) == ([2, 0], [5, 5])
    assert (p.shifts.tolist(), q.shifts.tolist()) == ([], [[100 * MS, 1]])
    assert q.gear.tolist() == [0] * 5 + [1] * 5


def test_of_the_gears_that_give_a_replica_a_share_the_larger_batch_and_the_shorter_queue_and_wait_count() -> None:
    p = small_gear(SHARED, "a", largest=2, minimum=2, wait_ms=5, node="p")
    q = small_gear(SHARED, "a", largest=4, minimum=3, wait_ms=50, node="q")
    plan = small_plan_of(SHARED, {"p": [p], "q": [q]})
    got = run(plan, {"a": 10}, [small_workload([0, 1, 2, 3, 4]), small_workload([100])])
    # Two of p start; the three others run together, as q allows; and the lone sample of q waits no longer than p's may.
    assert of_kind(got, Decision.START) == [(1, 0, 2, FULL), (11, 0, 3, FULL), (105, 0, 1, LONGEST_WAIT)]


def test_turns_are_per_pipeline() -> None:
    placed = {"a0": "d0", "a1": "d1"}
    shares = {"p": {"a0": 0.5, "a1": 0.5}, "q": {"a0": 0.0, "a1": 1.0}}
    gears = {name: [small_gear(placed, "a", node=name, shares=share)] for name, share in shares.items()}
    got = run(small_plan_of(placed, gears), {"a": 1}, [small_workload([0, 10, 20, 30]), small_workload([5, 15, 25])])
    routed = of_kind(got, Decision.ROUTE)
    assert [replica for at, _, replica, _ in routed if at % 10 == 0] == [0, 1, 0, 1]
    assert [replica for at, _, replica, _ in routed if at % 10 == 5] == [1, 1, 1]


def test_each_pipeline_has_a_bound_on_its_own_waiting_samples() -> None:
    plan = one_gear("p", "q", largest=1)
    together = [small_workload([0, 1, 2, 3]), small_workload([1, 2])]
    got = run(plan, {"a": 10}, together, most_waiting=[1, 2])
    # p: one runs, one waits, two are refused; q: both wait.
    assert [(got.of(name).finished_ns < 0).tolist() for name in "pq"] == [[False, False, True, True], [False, False]]
    assert run(plan, {"a": 10}, together).most_waiting == 3
    assert [run(plan, {"a": 10}, together).of(name).most_waiting for name in "pq"] == [3, 2]


def test_the_backlog_of_a_pipeline_is_of_its_own_samples() -> None:
    plan = small_plan_of(
        SHARED,
        {
            name: [
                small_gear(SHARED, "a", largest=1, load=(0, 30), node=name),
                small_gear(SHARED, "a", largest=1, load=(30, None), node=name),
            ]
            for name in ("p", "q")
        },
        alpha=8.0,
    )
    got = run(plan, {"a": 90}, [small_workload([0]), small_workload([1, 2, 3, 4, 5, 6])])
    assert of_kind(got, Decision.SHIFT)[0] == (100, 0, 1, 1)
    assert not len(got.of("p").shifts)


def test_all_pipelines_shift_before_a_device_starts() -> None:
    gears = {
        name: [
            small_gear(SHARED, "a", minimum=9, largest=1, wait_ms=500, load=(0, 25), node=name),
            small_gear(SHARED, "a", largest=largest, load=(25, None), node=name),
        ]
        for name, largest in (("p", 2), ("q", 4))
    }
    got = run(
        small_plan_of(SHARED, gears, alpha=0.0), {"a": 10}, [small_workload([1, 2, 3]), small_workload([4, 5, 6])]
    )
    assert of_kind(got, Decision.SHIFT) == [(100, 0, 1, 0), (100, 0, 1, 1)]
    assert of_kind(got, Decision.START)[0] == (100, 0, 4, FULL)


# Every run ------------------------------------------------------------------------------------------------------------


@given(cases_of_several())
@settings(max_examples=often(60), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_every_sample_ends_once_in_a_gear_of_its_own_pipeline(case: Case) -> None:
    got = run_case(case)
    ends = (Decision.ANSWER, Decision.DEGRADE, Decision.DROP, Decision.REFUSE)
    assert sorted(row[2] for row in got.log if row[1] in ends) == list(range(len(case.workload)))
    for pipeline in got.tables.pipelines:
        one = got.of(pipeline.name)
        assert one.arrived_in_gear.sum() == len(one.workload)
        assert one.gear.max() < pipeline.gears


def beside(case: Case, other: Case) -> Case:
    """One plan for both, with the devices, replicas and models of `other` under other names."""
    renamed = msgspec.json.encode(other.plan).decode()
    for place in range(4):
        renamed = renamed.replace(f'"d{place}"', f'"e{place}"')
    names = {replica.id for replica in other.plan.placement.replicas} | set(other.plan.placement.models)
    for name in names:
        renamed = renamed.replace(f'"{name}"', f'"z{name}"')
    second = msgspec.json.decode(renamed, type=GearPlan)
    (p,), (q,) = case.plan.pipelines.values(), second.pipelines.values()
    without = [
        msgspec.structs.replace(s, load_share=0.0, minimum_queue_length=1, largest_batch_size=1, longest_wait_s=0.0)
        for s in (*p.gears[0].replicas, *q.gears[0].replicas)
    ]
    own, others = without[: len(p.gears[0].replicas)], without[len(p.gears[0].replicas) :]

    def widened(pipeline: object, before: Sequence[object], after: Sequence[object], name: str) -> object:
        gears = tuple(
            msgspec.structs.replace(
                gear, replicas=(*before, *gear.replicas, *after), cascades={name: gear.cascades["task"]}
            )
            for gear in pipeline.gears  # type: ignore[attr-defined]
        )
        node = msgspec.structs.replace(p.nodes["task"], operator=name)
        return msgspec.structs.replace(pipeline, gears=gears, nodes={name: node}, output=name)  # type: ignore[type-var]

    plan = msgspec.structs.replace(
        case.plan,
        hardware=Hardware(devices=case.plan.hardware.devices + second.hardware.devices),
        placement=Placement(replicas=case.plan.placement.replicas + second.placement.replicas),
        pipelines={"p": widened(p, (), others, "p"), "q": widened(q, own, (), "q")},
        profiles=dict.fromkeys("pq", case.plan.profiles["task"]),
        traces=dict.fromkeys("pq", case.plan.traces["task"]),
    )
    return Case(
        plan=plan,
        run_ns=case.run_ns + other.run_ns,
        certainty=np.concatenate([case.certainty, other.certainty]),
        workload=merge_workloads([case.workload, other.workload]),
    )


@given(cases(), cases())
@settings(max_examples=often(60), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_pipelines_that_share_nothing_run_as_each_does_alone(case: Case, other: Case) -> None:
    together = run_case(beside(case, other))
    for name, each in (("p", case), ("q", other)):
        got, alone = together.of(name), run_case(each)
        for column in ("finished_ns", "gear", "ended"):
            np.testing.assert_array_equal(getattr(got, column), getattr(alone, column))
        np.testing.assert_array_equal(got.arrived_in_gear, alone.arrived_in_gear)
        np.testing.assert_array_equal(got.shifts[: len(alone.shifts)], alone.shifts)


def test_load_is_scaled_per_pipeline() -> None:
    placed = {"a0": "d0", "b0": "d1"}
    loads = (0.0, 15.0), (15.0, 30.0), (30.0, None)
    gears = {
        name: [small_gear(placed, model, load=load, node=name) for load in loads]
        for name, model in (("p", "a"), ("q", "b"))
    }
    plan = small_plan_of(
        placed, gears, planned_load=PlannedLoad(shares=(0.4, 0.4, 0.2), over_s=60.0), upshift_margin=0.1
    )
    (p, q) = plan.pipelines.values()
    scaled = msgspec.structs.replace(q, objective=Objective(accuracy=0.9))
    plan = msgspec.structs.replace(plan, pipelines={"p": p, "q": scaled})
    generator = np.random.default_rng(5)
    swing = 10 * (1 + 0.8 * np.sin(np.linspace(0, 60, 1500)))
    same = small_workload(1000 * np.cumsum(generator.exponential(1.0, len(swing)) / swing))
    got = run(plan, {"a": 1, "b": 1}, [same, same])
    p_shifts, q_shifts = got.of("p").shifts, got.of("q").shifts
    first = next(i for i, (a, b) in enumerate(zip(p_shifts.tolist(), q_shifts.tolist(), strict=False)) if a != b)
    assert min(p_shifts[first, 0], q_shifts[first, 0]) > 60_000 * MS


# Profiles and figures -------------------------------------------------------------------------------------------------


def profile_of(operator: str, models: Sequence[str], *, samples: int, seed: int) -> Profile:
    profile = synthetic_profile(models=len(models), samples=samples, seed=seed)
    names = dict(zip(profile.models, models, strict=True))
    return replace(
        profile,
        operator=operator,
        curves=tuple(msgspec.structs.replace(curve, model=names[curve.model]) for curve in profile.curves),
        predictions=replace(profile.predictions, models=tuple(models)),
    )


def test_the_figures_of_a_pipeline_are_those_of_its_samples_by_its_operators_profile() -> None:
    placed = {"a0": "d0", "b0": "d1"}
    plan = small_plan_of(placed, {"p": [small_gear(placed, "a", node="p")], "q": [small_gear(placed, "b", node="q")]})
    profiles = {
        "p": profile_of("p", ["a"], samples=30, seed=1),
        "q": profile_of("q", ["b"], samples=200, seed=2),
    }
    workloads = [small_workload(np.arange(30) * 20), small_workload(np.arange(200) * 3)]
    got = simulate(plan, profiles, merge_workloads(workloads))
    for name, workload, requests in (("p", workloads[0], 30), ("q", workloads[1], 200)):
        figures = got.result(profiles, latency_objective_s=0.1, pipeline=name)
        expected = profiles[name].predictions.quality[0, workload.record].mean()
        assert (figures.requests, figures.accuracy) == (requests, pytest.approx(expected))
        assert set(figures.utilisation) == {"d0", "d1"}
        assert figures.utilisation["d1"] == pytest.approx(got.busy_s[1] / got.duration_s)


def test_figures_without_a_pipelines_name_and_of_an_unknown_one_are_refused() -> None:
    got = run(one_gear("p", "q"), {"a": 1}, [small_workload([0]), small_workload([1])])
    profile = profile_of("p", ["a"], samples=10, seed=0)
    with pytest.raises(InvalidInput, match=r"the plan has pipelines \['p', 'q'\]"):
        got.result(profile, latency_objective_s=None)
    with pytest.raises(InvalidInput, match=r"no pipeline 'r'; name one of p, q"):
        got.result(profile, latency_objective_s=None, pipeline="r")


def test_two_operators_with_a_model_of_one_name_are_refused() -> None:
    profiles = {name: profile_of(name, ["a"], samples=10, seed=0) for name in ("p", "q")}
    with pytest.raises(InvalidInput, match="operators 'p' and 'q' both have a model 'a'; give one of the models"):
        simulate(one_gear("p", "q"), profiles, merge_workloads([small_workload([0])] * 2))


def test_a_bound_for_each_pipeline_is_needed() -> None:
    with pytest.raises(InvalidInput, match="there are 3 bounds on waiting samples, and 2 pipelines"):
        run(one_gear("p", "q"), {"a": 1}, [small_workload([0])] * 2, most_waiting=[1, 2, 3])


def test_recorded_samples_are_counted_per_operator() -> None:
    profiles = {"p": profile_of("p", ["a"], samples=10, seed=0), "q": profile_of("q", ["b"], samples=50, seed=0)}
    placed = {"a0": "d0", "b0": "d1"}
    plan = small_plan_of(placed, {"p": [small_gear(placed, "a", node="p")], "q": [small_gear(placed, "b", node="q")]})
    few = small_workload(np.arange(20))
    with pytest.raises(InvalidInput, match="the workload names sample 19 of pipeline 'p', but there are records of 10"):
        simulate(plan, profiles, merge_workloads([few, few]))
