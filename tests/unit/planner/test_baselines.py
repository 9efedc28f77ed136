import dataclasses
import functools
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gearshift.cascade import Cascade
from gearshift.errors import Infeasible, InvalidInput
from gearshift.gear import GearPlan, PipelinePlan
from gearshift.hardware import Device, Hardware, identical_devices
from gearshift.objective import Objective
from gearshift.planner import planners
from gearshift.planner.baselines.one_gear import SINGLE
from gearshift.planner.baselines.restricted import PLACEMENT_HEURISTIC, exclusive_placement, placements_by_rule
from gearshift.planner.contract import ladder
from gearshift.planner.contract.planner import Planner, SoFar
from gearshift.planner.search.optimal import single_model_plan
from gearshift.planner.space.cascade_search import CandidateCascade, cascade_front, single_models
from gearshift.planner.space.request import PlanRequest
from gearshift.plans.plan_file import encode_plan
from tests.often import first_short, often
from tests.unit.planner.little import PROFILE, little_request, little_trace
from tests.worlds import synthetic_profile

NAMES = ["single", "model-switching", "static-cascade", "placement-heuristic"]
GIB = 1 << 30
BUSY = little_trace(low_qps=200, high_qps=800)


@functools.cache
def planned(name: str, latency_s: float = 0.03, devices: int = 1) -> GearPlan:
    return planners.plan(name, little_request(latency_s=latency_s, devices=devices))


def operator_of(made: GearPlan) -> PipelinePlan:
    return made.pipelines["task"]


def models_of(made: GearPlan) -> list[tuple[str, ...]]:
    return [gear.cascade.models for gear in operator_of(made).gears]


def accuracy_of(made: GearPlan) -> float:
    return made.predictions["task"].accuracy


def refused(name: str, **changed: Any) -> Infeasible:
    with pytest.raises(Infeasible) as caught:
        planners.plan(name, little_request(**changed))
    return caught.value


# All ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", first_short(NAMES, 2))
def test_a_baselines_plan_meets_the_latency_objective_and_bears_its_name(name: str) -> None:
    made = planned(name)
    assert made.planner == name
    assert made.predictions["task"].share_late <= 0.05
    assert operator_of(made).objective.latency_s == 0.03


@pytest.mark.parametrize("name", first_short(NAMES, 2))
def test_an_objective_that_is_hardly_above_the_fastest_run_time_is_infeasible_and_the_nearest_one_is_feasible(
    name: str,
) -> None:
    error = refused(name, latency_s=0.00115)
    assert error.nearest_latency_s is not None
    assert error.nearest_latency_s > 0.00115
    assert planners.plan(name, little_request(latency_s=error.nearest_latency_s))


@pytest.mark.parametrize("name", first_short(NAMES, 2))
def test_an_accuracy_that_no_candidate_has_is_infeasible(name: str) -> None:
    error = refused(name, objective=Objective(accuracy=0.99))
    assert "has an accuracy of 0.99, on any devices" in str(error)
    assert error.load_range == ""


@pytest.mark.parametrize("name", first_short(NAMES, 2))
@pytest.mark.parametrize(
    ("objective", "sentence"),
    [
        (Objective(), "there is no objective; give a latency, an accuracy, or both"),
        (Objective(latency_s=0.1, confidence=0.9), "planner {!r} takes no confidence"),
    ],
)
def test_objectives_that_baselines_do_not_take_are_refused(name: str, objective: Objective, sentence: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        planners.plan(name, little_request(objective=objective))
    assert str(caught.value).startswith(sentence.format(name))


@pytest.mark.parametrize("name", ["single", "static-cascade"])
def test_the_same_inputs_and_seed_give_the_same_bytes(name: str) -> None:
    assert encode_plan(planners.plan(name, little_request())) == encode_plan(planned(name))


def test_an_unknown_planner_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(InvalidInput, match="there is no planner 'singel'; name one of coordinate, frontier, "):
        planners.plan("singel", little_request())


@pytest.mark.parametrize("name", first_short(NAMES, 2))
def test_models_that_fit_no_device_are_left_out(name: str) -> None:
    """Each model takes 256 MiB but the last, which takes more than there is."""
    made = planners.plan(name, little_request(hardware=identical_devices(1, memory_bytes=GIB // 4)))
    assert len(made.placement.replicas) == 1


@pytest.mark.parametrize("name", first_short(NAMES, 2))
def test_devices_without_memory_for_any_model_are_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="hardware: no model fits the memory of any device; plan for devices with"):
        planners.plan(name, little_request(hardware=identical_devices(1, memory_bytes=1)))


# One model at all loads -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("latency_s", "devices"), [(0.03, 1), (0.03, 2), (0.03, 5), (0.008, 5)])
def test_single_is_the_most_accurate_model_that_meets_the_latency(latency_s: float, devices: int) -> None:
    request = little_request(latency_s=latency_s, devices=devices)
    alone = {model: single_model_plan(request, model) for model in PROFILE.models}
    holding = [
        model
        for model, made in alone.items()
        if made.predictions["task"].share_late <= 0.05
        and (at_top := operator_of(made).gears[0].predicted) is not None
        and at_top.share_late <= 0.05
    ]
    assert models_of(planned("single", latency_s, devices)) == [(holding[-1],)]


def test_single_for_an_accuracy_is_the_fastest_model_that_has_it() -> None:
    made = planners.plan("single", little_request(devices=5, objective=Objective(accuracy=0.7)))
    assert models_of(made) == [("m1",)]


def test_single_for_both_meets_both_or_says_why_not() -> None:
    both = Objective(latency_s=0.03, accuracy=0.7)
    assert models_of(planners.plan("single", little_request(devices=5, objective=both))) == [("m2",)]
    assert "no candidate at all loads" in str(
        refused("single", devices=5, objective=Objective(latency_s=0.002, accuracy=0.7))
    )


def test_a_model_that_cannot_carry_the_load_names_itself_and_the_devices_it_takes() -> None:
    error = refused("single", objective=Objective(accuracy=0.85))
    assert str(error).startswith("1 device cannot carry ")
    assert error.bottleneck == "m2"


def test_the_frontier_of_single_has_a_plan_for_each_model_that_carries_the_load() -> None:
    made = planners.frontier("single", little_request(devices=5))
    assert [models_of(p) for p in made] == [[("m0",)], [("m1",)], [("m2",)]]


# One cascade at all loads ---------------------------------------------------------------------------------------------


def test_a_static_cascade_is_one_gear_chosen_for_the_trace_alone() -> None:
    made = planned("static-cascade")
    assert len(models_of(made)) == 1
    assert operator_of(made).objective.scope == "trace"


@pytest.mark.parametrize("devices", [1, 2])
def test_a_static_cascade_is_no_less_accurate_than_a_single_model(devices: int) -> None:
    static = accuracy_of(planned("static-cascade", devices=devices))
    assert static >= accuracy_of(planned("single", devices=devices))


def test_a_static_cascade_places_no_other_models() -> None:
    made = planned("static-cascade")
    assert made.placement.models == tuple(sorted(models_of(made)[0]))


# One model per load ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "latency_s", [pytest.param(0.01, marks=pytest.mark.long), 0.03, pytest.param(0.06, marks=pytest.mark.long)]
)
def test_switching_models_is_no_less_accurate_than_the_best_of_them_alone(latency_s: float) -> None:
    switching = planned("model-switching", latency_s)
    assert {len(models) for models in models_of(switching)} == {1}
    assert accuracy_of(switching) >= accuracy_of(planned("single", latency_s))


def test_model_switching_for_both_says_how_accurate_it_gets() -> None:
    error = refused("model-switching", objective=Objective(latency_s=0.03, accuracy=0.85))
    assert str(error).startswith("within 30 ms the best accuracy is 0.7")


# Latency objectives for accuracies, and frontiers ---------------------------------------------------------------------


def by_ladder(
    request: PlanRequest, best_within: Callable[[SoFar], GearPlan] = SINGLE.best_within
) -> Planner[PlanRequest]:
    """`single`, or another search for a latency, on a ladder to an accuracy of 0.9."""
    best = max(single_models(request), key=lambda one: one.accuracy)
    return ladder.planner(
        "ladder", lambda _: ladder.OfCascades(request, best_within, dataclasses.replace(best, accuracy=0.9))
    )


@pytest.mark.long
def test_the_lowest_latency_of_an_accuracy_is_found_to_5_percent() -> None:
    wanted = little_request(devices=5, objective=Objective(accuracy=0.7))
    made = by_ladder(wanted).plan(wanted)
    latency_s = operator_of(made).objective.latency_s
    assert latency_s is not None
    assert operator_of(made).objective.accuracy == 0.7
    assert accuracy_of(made) > 0.7
    lower = refused("single", devices=5, objective=Objective(latency_s=latency_s * 0.93, accuracy=0.7))
    assert lower.nearest_latency_s == pytest.approx(latency_s, rel=0.15)


def test_an_accuracy_that_no_latency_gives_is_infeasible() -> None:
    with pytest.raises(Infeasible, match=r"no plan within .* ms has an accuracy of 0.9; the load range"):
        by_ladder(asked := little_request(devices=5, objective=Objective(accuracy=0.9))).plan(asked)


def test_load_that_no_latency_helps_to_carry_is_infeasible_at_once() -> None:
    tried = []

    def best_within(so_far: SoFar) -> GearPlan:
        tried.append(so_far.request)
        raise Infeasible("1 device cannot carry it")

    with pytest.raises(Infeasible, match="1 device cannot carry it"):
        by_ladder(asked := little_request(objective=Objective(accuracy=0.8)), best_within).plan(asked)
    assert len(tried) == 1


def test_the_frontier_of_a_ladder_finds_every_model_once() -> None:
    request = little_request(devices=5)
    best = max(single_models(request), key=lambda one: one.accuracy)
    made = ladder.frontier_by_ladder(SoFar(request), ladder.OfCascades(request, SINGLE.best_within, best))
    assert [models_of(p) for p in made] == [[("m0",)], [("m1",)], [("m2",)]]


@pytest.mark.parametrize("name", first_short(NAMES, 2))
def test_the_frontier_of_one_model_is_one_plan(name: str) -> None:
    request = little_request(profile=synthetic_profile(models=1, samples=400), ranges=2)
    assert [(p.planner, set(models_of(p))) for p in planners.frontier(name, request)] == [(name, {("m0",)})]


@pytest.mark.parametrize("name", ["single", "static-cascade", pytest.param("model-switching", marks=pytest.mark.long)])
def test_no_plan_of_a_frontier_is_dominated(name: str) -> None:
    request = little_request(profile=synthetic_profile(models=2, samples=400, fastest_s=0.004), devices=2, ranges=2)
    made = planners.frontier(name, request)
    points = [(p.predictions["task"].latency_s.p95, accuracy_of(p)) for p in made]
    assert len(points) >= 1
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(points))
    assert {p.planner for p in made} == {name}


# Placement by rule ----------------------------------------------------------------------------------------------------


def candidate(models: str, reach: tuple[float, ...]) -> CandidateCascade:
    names = tuple(models.split())
    return CandidateCascade(
        cascade=Cascade(models=names, thresholds=(0.5,) * (len(names) - 1)), accuracy=0.8, work_s=0.001, reach=reach
    )


def test_all_models_are_on_every_device_when_they_fit() -> None:
    request = little_request(devices=2)
    (only,) = placements_by_rule(request, cascade_front(request))
    assert len(only.replicas) == 6


def test_each_device_goes_to_the_model_that_carries_least_so_far() -> None:
    """A device carries 1,928 requests/s of m0; of m2, which half of them reach, 431."""
    hardware = identical_devices(5, memory_bytes=GIB // 4)
    placement, qps = exclusive_placement(PROFILE, hardware, candidate("m0 m2", (1.0, 0.5)))
    assert [replica.model for replica in placement.replicas] == ["m0", "m2", "m2", "m2", "m2"]
    assert qps == pytest.approx(4 * 430.7, rel=0.001)


def test_a_cascade_with_more_models_than_devices_carries_nothing() -> None:
    _, qps = exclusive_placement(PROFILE, identical_devices(1), candidate("m0 m2", (1.0, 0.5)))
    assert qps == 0


@settings(max_examples=often(50), deadline=None, derandomize=True)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=8), st.lists(st.floats(0, 1), min_size=2, max_size=2))
def test_exclusive_placements_put_one_model_on_a_device_and_within_its_memory(
    quarters: list[int], reach: list[float]
) -> None:
    hardware = Hardware(devices=tuple(Device(id=f"d{i}", memory_bytes=q * GIB // 4) for i, q in enumerate(quarters)))
    placement, qps = exclusive_placement(PROFILE, hardware, candidate("m0 m1 m2", (1.0, *sorted(reach, reverse=True))))
    assert sorted(r.device_ids[0] for r in placement.replicas) == sorted(d.id for d in hardware.devices)
    assert (qps > 0) == (len(placement.models) == 3)


@pytest.mark.long
def test_models_that_do_not_fit_together_are_placed_on_devices_of_their_own() -> None:
    request = little_request(hardware=identical_devices(3, memory_bytes=GIB // 2), trace=BUSY)
    made = PLACEMENT_HEURISTIC.plan(request)
    devices = [replica.device_ids for replica in made.placement.replicas]
    assert len(devices) == len(set(devices)) == 3
    assert made.predictions["task"].share_late <= 0.05


def test_where_no_exclusive_placement_carries_the_load_the_strongest_is_tried_and_infeasible() -> None:
    heavy = little_trace(low_qps=3000, high_qps=5000)
    hardware = identical_devices(2, memory_bytes=GIB // 2)
    request = little_request(hardware=hardware, trace=heavy)
    assert len(placements_by_rule(request, cascade_front(request))) == 1
    assert str(refused("placement-heuristic", hardware=hardware, trace=heavy)).startswith("2 devices cannot carry ")


def test_candidates_come_by_rising_work() -> None:
    for candidates in (single_models(little_request()), cascade_front(little_request())):
        works = [c.work_s for c in candidates]
        assert works == sorted(works)
