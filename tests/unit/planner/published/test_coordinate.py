import dataclasses
import functools
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gearshift.errors import Infeasible, InvalidInput
from gearshift.gear import GearPlan, PipelinePlan
from gearshift.hardware import Device, Hardware, identical_devices
from gearshift.objective import Objective
from gearshift.planner import planners
from gearshift.planner.published.coordinate import (
    PLANNER,
    assign_cascades,
    place_models,
    search_cascades,
    time_weighted_accuracy,
    tune_queues,
)
from gearshift.planner.published.coordination.problem import Draft, NoRoom, Problem, TooSlow
from gearshift.planner.space.hosts import count_of
from gearshift.planner.space.metered import range_weights
from gearshift.planner.space.pareto import undominated
from gearshift.planner.space.request import PlanRequest, silent
from gearshift.plans.plan_file import encode_plan
from gearshift.profiles.profile import PredictionRecords, Profile
from tests.often import often
from tests.unit.planner.little import PROFILE, little_request, little_trace
from tests.worlds import synthetic_profile

frontier, plan = PLANNER.frontier, PLANNER.plan

MODEL_BYTES = 1 << 28  # of every model of the little world


@functools.cache
def planned(latency_s: float = 0.03, devices: int = 1) -> GearPlan:
    return plan(little_request(latency_s=latency_s, devices=devices))


def operator_of(made: GearPlan) -> PipelinePlan:
    return made.pipelines["task"]


def models_of(made: GearPlan) -> list[tuple[str, ...]]:
    return [gear.cascade.models for gear in operator_of(made).gears]


def for_accuracy(accuracy: float, **changed: Any) -> PlanRequest:
    return little_request(objective=Objective(accuracy=accuracy), **changed)


def refused(request: PlanRequest) -> Infeasible:
    with pytest.raises(Infeasible) as caught:
        plan(request)
    return caught.value


# A latency objective --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("latency_s", [0.02, 0.03, 0.05])
def test_every_range_holds_at_its_upper_end(latency_s: float) -> None:
    gears = operator_of(planned(latency_s)).gears
    ends = little_request().upper_ends()
    for gear, end in zip(gears, ends, strict=True):
        assert gear.predicted is not None
        assert gear.predicted.load_qps == end
        assert gear.predicted.latency_p95_s <= latency_s
        assert gear.predicted.share_late <= 0.05
    assert gears[-1].load_range.to is None


def test_a_looser_objective_gives_no_less_time_weighted_accuracy() -> None:
    found = [time_weighted_accuracy(planned(latency_s), little_request()) for latency_s in (0.02, 0.03, 0.05)]
    assert found == sorted(found)
    assert found[-1] > found[0]


def test_two_devices_give_no_less_time_weighted_accuracy_than_one() -> None:
    one, two = (time_weighted_accuracy(planned(devices=n), little_request()) for n in (1, 2))
    assert two >= one


def test_the_last_range_holds_the_cheapest_cascade_unless_it_is_the_only_one() -> None:
    assert models_of(planned())[-1] == ("m0",)
    assert models_of(plan(little_request(ranges=1, latency_s=0.1))) != [("m0",)]


def test_a_plan_says_how_it_was_made_and_shifts_as_cascadeserve_does() -> None:
    made = plan(little_request(seed=3))
    assert (made.planner, made.seed, made.unfinished) == ("coordinate", 3, False)
    assert (operator_of(made).meter, operator_of(made).alpha) == ("alpha", 8.0)
    assert made.predictions["task"].requests == len(little_trace())


def test_the_same_inputs_and_seed_give_the_same_bytes() -> None:
    assert encode_plan(plan(little_request())) == encode_plan(planned())


def test_every_range_is_planned_for_the_margin_asked_for() -> None:
    made = plan(little_request(least_margin=1.5))
    assert time_weighted_accuracy(made, little_request()) <= time_weighted_accuracy(planned(), little_request())
    ends = little_request().upper_ends().tolist()
    assert [gear.predicted and gear.predicted.load_qps for gear in operator_of(made).gears] == ends


def test_it_is_found_by_its_name() -> None:
    assert planners.plan("coordinate", little_request()).planner == "coordinate"


# An accuracy objective ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("accuracy", [0.7, 0.78, 0.84])
def test_an_accuracy_objective_is_reached_by_time(accuracy: float) -> None:
    request = for_accuracy(accuracy)
    made = plan(request)
    assert time_weighted_accuracy(made, request) >= accuracy - 1e-9


def test_less_accuracy_is_faster() -> None:
    slow, fast = (plan(for_accuracy(accuracy)).predictions["task"].latency_s.mean for accuracy in (0.85, 0.75))
    assert fast < slow


def test_accurate_cascades_go_to_the_ranges_of_low_load() -> None:
    accuracies = [gear.predicted.accuracy for gear in operator_of(plan(for_accuracy(0.8))).gears if gear.predicted]
    assert accuracies == sorted(accuracies, reverse=True)


def test_an_accuracy_out_of_reach_says_how_much_there_is() -> None:
    error = refused(for_accuracy(0.99))
    assert str(error).startswith(
        "no plan on 1 device has a time-weighted accuracy of 0.99, the most accurate has about"
    )
    assert error.load_range
    assert error.bottleneck == "m2"


# Infeasible -----------------------------------------------------------------------------------------------------------


def test_an_infeasible_latency_names_the_range_the_bottleneck_and_the_nearest_objective() -> None:
    error = refused(little_request(latency_s=0.001))
    assert error.bottleneck == "m0"
    assert error.load_range.endswith(", inf)")
    assert str(error).startswith("no cascade keeps 0.95 of requests within 1 ms on 1 device; ")
    assert error.nearest_latency_s is not None
    assert plan(little_request(latency_s=error.nearest_latency_s))


HEAVY = little_trace(low_qps=3000, high_qps=5000)


def test_too_much_load_names_devices_that_can_carry_it() -> None:
    error = refused(little_request(latency_s=0.1, trace=HEAVY))
    assert str(error).startswith("1 device cannot carry ")
    devices = int(str(error).split("about ")[1].split(" could")[0])
    assert plan(little_request(latency_s=0.1, trace=HEAVY, devices=devices))


# Memory, and devices of several kinds ---------------------------------------------------------------------------------


def test_where_memory_is_short_models_are_spread() -> None:
    made = plan(little_request(latency_s=0.05, hardware=identical_devices(3, memory_bytes=MODEL_BYTES)))
    assert len(made.placement.replicas) <= 3
    assert any(len(models) > 1 for models in models_of(made))


@settings(deadline=None, derandomize=True, max_examples=often(10))
@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.sampled_from([Objective(latency_s=0.04), Objective(latency_s=0.01), Objective(accuracy=0.75)]),
)
def test_no_devices_memory_is_exceeded_and_load_shares_add_up_to_one(fitting: list[int], objective: Objective) -> None:
    devices = tuple(Device(id=f"d{i}", memory_bytes=n * MODEL_BYTES) for i, n in enumerate(fitting))
    made = plan(little_request(hardware=Hardware(devices=devices), objective=objective))
    for device, n in zip(devices, fitting, strict=True):
        assert sum(device.id in replica.device_ids for replica in made.placement.replicas) <= n
    model_of = {replica.id: replica.model for replica in made.placement.replicas}
    for gear in operator_of(made).gears:
        total = dict.fromkeys(made.placement.models, 0.0)
        for each in gear.replicas:
            total[model_of[each.replica]] += each.load_share
        assert total == pytest.approx({m: float(m in gear.cascade.models) for m in total}, abs=1e-9)


def test_devices_of_several_kinds_take_load_by_their_own_run_times() -> None:
    slow = synthetic_profile(models=1, samples=1000, fastest_s=0.001)
    quick = synthetic_profile(models=1, samples=1000, fastest_s=0.0002, device_kind="gpu")
    profile = dataclasses.replace(slow, curves=slow.curves + quick.curves)
    hardware = Hardware(devices=(Device(id="c"), Device(id="g", kind="gpu")))
    taken = {
        s.replica: s.load_share
        for s in operator_of(plan(little_request(profile=profile, hardware=hardware))).gears[0].replicas
    }
    # A request of a batch of 32 takes (0.5 + 16) / 32 of fastest_s, and 0.1 ms / 32 of overhead.
    slow_s, quick_s = ((16.5 * fastest_s + 0.0001) / 32 for fastest_s in (0.001, 0.0002))
    assert taken == pytest.approx({"m0@c": quick_s / (slow_s + quick_s), "m0@g": slow_s / (slow_s + quick_s)}, rel=1e-3)


# Odd sets of models ---------------------------------------------------------------------------------------------------


def with_models(*rows: int) -> Profile:
    """Models of the little world, by number; one that is named twice is there under two names."""
    records, names = PROFILE.predictions, tuple(f"n{i}" for i in range(len(rows)))
    curves = [
        msgspec.structs.replace(curve, model=name)
        for row, name in zip(rows, names, strict=True)
        for curve in PROFILE.curves
        if curve.model == f"m{row}"
    ]
    predictions = PredictionRecords(
        models=names, quality=records.quality[list(rows)], certainty=records.certainty[list(rows)], part=records.part
    )
    return Profile(operator="task", curves=tuple(curves), predictions=predictions)


def test_one_model_serves_all_ranges() -> None:
    assert set(models_of(plan(little_request(profile=with_models(1), latency_s=0.1)))) == {("n0",)}


def test_two_identical_models_do_as_well_as_one() -> None:
    one, two = (plan(little_request(profile=with_models(*rows))).predictions["task"] for rows in ((0,), (0, 0)))
    assert two.accuracy >= one.accuracy


def test_a_model_that_is_as_good_and_cheaper_dominates() -> None:
    profile = with_models(0, 1)
    better = profile.predictions.quality.copy()
    better[0] = 1.0
    profile = dataclasses.replace(profile, predictions=dataclasses.replace(profile.predictions, quality=better))
    assert set(models_of(plan(little_request(profile=profile)))) == {("n0",)}


def test_where_no_model_fits_the_remedy_is_named() -> None:
    with pytest.raises(InvalidInput, match="no model fits the memory of any device; plan for devices with more"):
        plan(little_request(hardware=identical_devices(2, memory_bytes=MODEL_BYTES - 1)))


# What is asked --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("objective", "sentence"),
    [
        (Objective(), "there is no objective; give a latency, an accuracy, or both"),
        (Objective(latency_s=0.1, accuracy=0.9), "this planner takes a latency objective or an accuracy objective"),
        (Objective(accuracy=0.9, confidence=0.9), "planner 'coordinate' takes no confidence"),
    ],
)
def test_an_objective_that_it_does_not_take_is_refused(objective: Objective, sentence: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        plan(little_request(objective=objective))
    assert str(caught.value).startswith(sentence)


def test_without_time_the_cheapest_plan_is_the_answer_and_is_marked_unfinished() -> None:
    made = plan(little_request(budget_s=1e-9))
    assert made.unfinished
    assert set(models_of(made)) == {("m0",)}


def test_without_time_and_without_a_plan_that_is_said() -> None:
    assert str(refused(for_accuracy(0.85, budget_s=1e-9))).startswith("no plan was found within 1e-09 s; ")


def test_progress_begins_at_nothing_and_ends_with_the_time_weighted_accuracy() -> None:
    told: list[tuple[str, float]] = []
    made = plan(little_request(), progress=lambda what, share: told.append((what, share)))
    assert told[0][1] == 0.0
    assert told[-1] == (f"time-weighted accuracy {time_weighted_accuracy(made, little_request()):.4f}", 1.0)


def test_ranges_are_visited_by_zipfs_law_unless_the_trace_is_asked_for() -> None:
    assert range_weights(little_request(ranges=3)) == pytest.approx(np.array([6, 3, 2]) / 11)
    by_trace = range_weights(little_request(load="trace", ranges=3, max_qps=900.0))
    assert by_trace == pytest.approx([0.6, 0.4, 0.0])  # six seconds of about 150 requests, four of about 450


# The frontier ---------------------------------------------------------------------------------------------------------


@functools.cache
def front() -> list[GearPlan]:
    return frontier(little_request())


@pytest.mark.long
def test_the_frontier_is_undominated_by_rising_latency() -> None:
    points = [(made.predictions["task"].latency_s.p95, made.predictions["task"].accuracy) for made in front()]
    assert len(points) >= 4
    assert undominated(points) == list(range(len(points)))


def test_each_plans_objective_is_the_one_that_it_was_made_for() -> None:
    latencies_s = [operator_of(made).objective.latency_s for made in front()]
    assert len(set(latencies_s)) == len(latencies_s)
    for made, latency_s in zip(front(), latencies_s, strict=True):
        assert latency_s is not None
        assert all(gear.predicted and gear.predicted.latency_p95_s <= latency_s for gear in operator_of(made).gears)


def test_a_frontier_without_time_is_the_cheapest_plan() -> None:
    plans = frontier(little_request(budget_s=1e-9))
    assert [made.unfinished for made in plans] == [True] * len(plans)
    assert {models for made in plans for models in models_of(made)} == {("m0",)}


def test_the_frontier_of_too_much_load_is_infeasible() -> None:
    with pytest.raises(Infeasible, match="cannot carry"):
        frontier(little_request(trace=HEAVY))


# The submodules, one at a time ----------------------------------------------------------------------------------------


def assigned(**changed: Any) -> tuple[Problem, Draft]:
    """A problem whose cascades are assigned for the first time."""
    problem = Problem(little_request(**changed), silent)
    _, draft = search_cascades(problem, None, problem.initial)
    failure, draft = assign_cascades(problem, None, draft)
    assert failure is None
    return problem, draft


def test_the_search_always_holds_the_cheapest_and_the_most_accurate_cascade() -> None:
    _, draft = assigned(most_candidates=2)
    assert draft.offered[0].cascade.models == ("m0",)
    assert draft.offered[-1].accuracy == max(each.accuracy for each in assigned(most_candidates=500)[1].offered)


def test_an_error_that_reaches_the_cascade_search_is_final() -> None:
    problem, draft = assigned()
    assert search_cascades(problem, TooSlow({1: "m0"}), draft) == (TooSlow({1: "m0"}), draft)


def test_only_the_range_that_an_error_names_is_downgraded() -> None:
    problem, draft = assigned()
    failure, after = assign_cascades(problem, TooSlow({1: "m2"}), draft)
    assert failure is None
    assert [a == b for a, b in zip(draft.assigned, after.assigned, strict=True)] == [True, False, True, True]
    assert after.assigned[1].work_s < draft.assigned[1].work_s


def test_models_that_memory_cannot_hold_together_are_given_up_one_at_a_time() -> None:
    problem, draft = assigned()
    used = {model for each in draft.assigned for model in each.cascade.models}
    failure, after = assign_cascades(problem, NoRoom(tuple(sorted(used)), ()), draft)
    assert failure is None
    assert len({model for each in after.assigned for model in each.cascade.models}) < len(used | {"m1"})


def test_more_load_than_all_devices_carry_names_the_ranges_and_the_bottleneck() -> None:
    problem, draft = assigned()
    failure, _ = place_models(problem, None, draft)
    assert isinstance(failure, TooSlow)
    assert set(failure.bottlenecks.values()) == {"m2"}
    assert 2 in failure.bottlenecks
    assert 0 not in failure.bottlenecks


def test_a_bottleneck_gets_one_more_replica_where_that_helps() -> None:
    """Twenty ranges, of which the lowest alone asks for m2: m0 at the highest load leaves it one device of four."""
    hardware = identical_devices(4, memory_bytes=MODEL_BYTES)
    problem, draft = assigned(hardware=hardware, ranges=20, trace=little_trace(low_qps=300, high_qps=900))
    cheapest, best = draft.offered[0], draft.offered[-1]
    assert best.cascade.models == ("m0", "m2")
    failure, draft = place_models(problem, None, dataclasses.replace(draft, assigned=(best, *[cheapest] * 19)))
    assert failure is None
    assert (count_of(draft.placed, "m0"), count_of(draft.placed, "m2")) == (3, 1)
    failure, draft = place_models(problem, TooSlow({0: "m2"}), draft)
    assert failure is None
    assert (count_of(draft.placed, "m0"), count_of(draft.placed, "m2")) == (2, 2)


def test_where_no_more_replicas_help_the_error_travels_on() -> None:
    problem, draft = assigned(trace=little_trace(low_qps=20, high_qps=60))
    failure, draft = place_models(problem, None, draft)
    assert failure is None
    assert place_models(problem, TooSlow({0: "m2"}), draft) == (TooSlow({0: "m2"}), draft)


def test_ranges_that_are_too_slow_are_named() -> None:
    problem, draft = assigned(latency_s=0.012, trace=little_trace(low_qps=20, high_qps=60))
    _, draft = place_models(problem, None, draft)
    failure, _ = tune_queues(problem, None, draft)
    assert failure == TooSlow({0: "m2", 1: "m2", 2: "m2"})
