import dataclasses
import functools
import math
from typing import Any

import msgspec
import numpy as np
import pytest

from gearshift.errors import Infeasible, InvalidInput
from gearshift.gear import Gear, GearPlan, PipelinePlan
from gearshift.hardware import identical_devices
from gearshift.objective import Objective
from gearshift.planner import planners
from gearshift.planner.contract.ladder import accuracy_on_part_a
from gearshift.planner.contract.planner import SoFar
from gearshift.planner.evaluate.confirm import workload_of
from gearshift.planner.evaluate.steady_state import SteadyState
from gearshift.planner.search.capacities import Capacities, Ranges, capacities_of
from gearshift.planner.search.optimal import PLANNER, single_model_plan
from gearshift.planner.search.plan_search import PlanSearch
from gearshift.planner.space.metered import shares_of_ranges
from gearshift.planner.space.request import PlanRequest
from gearshift.plans.plan_file import encode_plan
from gearshift.profiles.profile import PART_B, PredictionRecords, Profile
from gearshift.simulator.simulate import simulate
from gearshift.workload import Trace
from tests.often import first_short
from tests.unit.planner.little import PROFILE, bursty_trace, constant_plan, little_request, little_trace
from tests.worlds import synthetic_profile

plan = PLANNER.plan

OBJECTIVES_S = [0.02, 0.03, 0.05]


@functools.cache
def planned(latency_s: float = 0.03, devices: int = 1) -> GearPlan:
    return plan(little_request(latency_s=latency_s, devices=devices))


def operator_of(made: GearPlan) -> PipelinePlan:
    return made.pipelines["task"]


def work_s(gear: Gear) -> float:
    """Seconds per request of a gear's cascade on all samples."""
    records, reached, work = PROFILE.predictions, np.ones(1000, dtype=bool), 0.0
    for stage, model in enumerate(gear.cascade.models):
        work += float(reached.mean()) * 3.0 ** int(model[1:])
        if stage < len(gear.cascade.thresholds):
            reached = reached & (records.certainty[records.models.index(model)] < gear.cascade.thresholds[stage])
    return work


@pytest.mark.parametrize("latency_s", first_short(OBJECTIVES_S))
def test_a_plan_is_confirmed_within_its_objective(latency_s: float) -> None:
    assert planned(latency_s).predictions["task"].share_late <= 0.05
    assert planned(latency_s).predictions["task"].latency_s.p95 <= latency_s


@pytest.mark.long
@pytest.mark.parametrize("latency_s", first_short(OBJECTIVES_S))
def test_a_confirmed_plan_holds_on_seeds_it_has_not_seen(latency_s: float) -> None:
    for seed in range(100, 105):
        run = simulate(planned(latency_s), PROFILE, workload_of(little_trace(), PROFILE, part=PART_B, seed=seed))
        result = run.result(PROFILE, latency_objective_s=latency_s)
        predicted = planned(latency_s).predictions["task"]
        assert result.share_late <= 0.06
        assert result.accuracy == pytest.approx(predicted.accuracy, abs=0.02)


@pytest.mark.parametrize("latency_s", first_short(OBJECTIVES_S))
def test_every_gear_is_predicted_to_meet_the_objective_at_the_upper_end_of_its_range(latency_s: float) -> None:
    for gear in operator_of(planned(latency_s)).gears:
        assert gear.predicted is not None
        assert gear.predicted.share_late <= 0.05
        top_qps = 1.2 * little_trace().peak_qps  # what ranges beyond it are planned for
        assert gear.predicted.load_qps in (gear.load_range.to, pytest.approx(top_qps)) or gear.load_range.to is None


def is_constant(made: GearPlan) -> bool:
    """One cascade up to a load that the trace does not have, planned for the top of the ranges that were asked for."""
    first, *others = operator_of(made).gears
    assert first.predicted is not None
    assert first.predicted.load_qps == pytest.approx(1.2 * little_trace().peak_qps)
    return len(others) == 1 and (first.load_range.to or 0.0) >= 2 * first.predicted.load_qps


def test_no_cascade_that_holds_at_all_loads_is_more_accurate() -> None:
    request = little_request(latency_s=0.03)
    constant, by_static = constant_plan(request), planners.plan("static-cascade", request)
    assert is_constant(constant)
    accuracies = [accuracy_on_part_a(made, request) for made in (by_static, constant, planned(0.03))]
    assert accuracies == sorted(accuracies)


def calm_request(latency_s: float) -> PlanRequest:
    """Of eight ranges up to 540 requests/s the trace visits the first few."""
    objective = Objective(latency_s=latency_s, scope="trace")
    return little_request(objective=objective, trace=little_trace(low_qps=90, high_qps=110), max_qps=540.0, ranges=8)


def unseen_ranges_not_held(made: GearPlan, request: PlanRequest) -> list[float]:
    """The upper ends of ranges above all that the trace visits where the gear in force misses the objective."""
    steady = SteadyState(request.profile, made.hardware, made.placement, request.objective, seed=0)
    ends = request.upper_ends()
    unseen = ends[np.flatnonzero(shares_of_ranges(request.trace, ends))[-1] + 1 : -1].tolist()
    assert len(unseen) >= 3
    gears = [
        next(g for g in operator_of(made).gears if g.load_range.to is None or g.load_range.to >= e) for e in unseen
    ]
    cells = [steady.simulate(g.cascade, 1.15 * e, g.replicas) for g, e in zip(gears, unseen, strict=True)]
    return [end for end, cell in zip(unseen, cells, strict=True) if not steady.meets(cell)]


@pytest.mark.long
@pytest.mark.parametrize(
    "latency_s", [pytest.param(each, marks=[pytest.mark.long] * (each != 0.03)) for each in OBJECTIVES_S]
)
def test_loads_above_all_that_the_trace_has_are_held(latency_s: float) -> None:
    """Though the objective is asked of the trace alone: if they come, nothing was replayed for them."""
    assert unseen_ranges_not_held(plan(calm_request(latency_s)), calm_request(latency_s)) == []


@pytest.mark.long
def test_one_cascade_at_all_loads_of_the_trace_is_the_same_whatever_was_asked_before() -> None:
    request = calm_request(0.03)
    made, search = constant_plan(request), PlanSearch(SoFar(request)).space.searches(request)[0]
    assert unseen_ranges_not_held(made, request) == []
    search.choices()
    again = search.constant(-1.0)
    assert again is not None
    assert encode_plan(msgspec.structs.replace(again, planner=made.planner)) == encode_plan(made)


def test_gears_of_one_cascade_at_all_loads_of_the_trace_are_predicted_at_the_end_of_their_own_range() -> None:
    gears = operator_of(constant_plan(calm_request(0.03))).gears
    assert len(gears) > 3
    assert [g.predicted and g.predicted.load_qps for g in gears] == [g.load_range.to or 540.0 for g in gears]


def test_one_cascade_at_all_loads_leaves_low_ones_that_hardly_come_to_better_ones() -> None:
    request = little_request(latency_s=0.02, trace=little_trace(low_qps=242, high_qps=250), ranges=8)
    search = PlanSearch(SoFar(request)).space.searches(request)[0]
    best, constant, *_ = search.choices()
    assert best.constant == constant.constant is not None
    assert set(constant.assignment[:-1]) == {constant.constant.candidate}
    assert best.assignment[0] > constant.constant.candidate == best.assignment[-2]
    assert best.accuracy >= constant.accuracy
    starts = [gear.load_range.from_ for gear in operator_of(search.plan_of(best)).gears]
    assert starts == [0.0, *search.ranges.upper_ends[: len(starts) - 2], constant.constant.to_qps]


def test_work_does_not_rise_with_load() -> None:
    for latency_s in OBJECTIVES_S:
        works = [work_s(gear) for gear in operator_of(planned(latency_s)).gears]
        assert works == sorted(works, reverse=True)


@pytest.mark.long
def test_the_last_range_holds_the_cheapest_cascade_of_the_plan() -> None:
    gears = operator_of(planned()).gears
    assert work_s(gears[-1]) == min(work_s(gear) for gear in gears)
    assert gears[-1].load_range.to is None


def test_a_looser_objective_gives_no_less_accuracy() -> None:
    accuracies = [planned(latency_s).predictions["task"].accuracy for latency_s in OBJECTIVES_S]
    assert accuracies == sorted(accuracies)


def test_a_plan_shifts_to_more_accurate_gears_than_the_fastest_model_alone() -> None:
    alone = single_model_plan(little_request(), "m0").predictions["task"].accuracy
    assert planned().predictions["task"].accuracy > alone + 0.02


@pytest.mark.long
def test_two_devices_give_no_less_accuracy_than_one() -> None:
    assert planned(devices=2).predictions["task"].accuracy >= planned(devices=1).predictions["task"].accuracy


@pytest.mark.long
def test_the_same_inputs_and_seed_give_the_same_bytes() -> None:
    assert encode_plan(plan(little_request())) == encode_plan(planned())


@functools.cache
def planned_and_told() -> tuple[GearPlan, list[float]]:
    """A plan of another seed, and how far the planner said to be meanwhile."""
    told: list[float] = []
    return plan(little_request(seed=3), progress=lambda what, share: told.append(share)), told


def test_a_plan_says_how_it_was_made() -> None:
    made, _ = planned_and_told()
    assert (made.planner, made.seed, made.unfinished) == ("optimal", 3, False)
    assert operator_of(made).starvation_s == pytest.approx(0.3)


@functools.cache
def planned_where_two_of_three_fit() -> GearPlan:
    gib = 1 << 30
    profile = synthetic_profile(models=3, samples=1000, fastest_s=0.001, memory_bytes=gib)
    return plan(little_request(profile=profile, hardware=identical_devices(2, memory_bytes=2 * gib)))


@pytest.mark.long
def test_load_shares_of_every_model_in_a_gears_cascade_add_up_to_one() -> None:
    made = planned_where_two_of_three_fit()
    model_of = {replica.id: replica.model for replica in made.placement.replicas}
    for gear in operator_of(made).gears:
        total = dict.fromkeys(made.placement.models, 0.0)
        for settings in gear.replicas:
            total[model_of[settings.replica]] += settings.load_share
        assert total == pytest.approx({m: float(m in gear.cascade.models) for m in total})


def test_no_devices_memory_is_exceeded() -> None:
    made = planned_where_two_of_three_fit()
    for device in made.hardware.devices:
        assert sum(device.id in replica.device_ids for replica in made.placement.replicas) <= 2


def test_the_ranges_reach_beyond_the_peak_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "gearshift.planner.search.plan_search.MOST_CELLS", 0
    )  # published planners have ranges of their own
    gears = operator_of(plan(little_request(latency_s=0.01))).gears
    widths_qps = [gear.load_range.to - gear.load_range.from_ for gear in gears if gear.load_range.to is not None]
    assert widths_qps[:3] == pytest.approx([widths_qps[0]] * 3)
    assert gears[-1].predicted is not None
    assert gears[-1].predicted.load_qps == pytest.approx(1.2 * little_trace().peak_qps)
    assert gears[-1].load_range.from_ > gears[-1].predicted.load_qps


@pytest.mark.long
def test_the_top_of_the_ranges_is_as_asked() -> None:
    gears = operator_of(plan(little_request(max_qps=800.0))).gears
    assert [gear.load_range.from_ for gear in gears] == [0.0, 200.0, 400.0, 600.0]


@pytest.mark.long
def test_devices_of_two_cores_are_planned_for_by_the_run_times_on_two_cores() -> None:
    curves = tuple(msgspec.structs.replace(curve, cores=2) for curve in PROFILE.curves)
    made = plan(
        little_request(profile=dataclasses.replace(PROFILE, curves=curves), hardware=identical_devices(1, cores=2))
    )
    assert {replica.cores for replica in made.placement.replicas} == {2}


@pytest.mark.long
def test_of_scope_trace_only_the_trace_is_asked_for() -> None:
    """Replayed, 95 of 100 are answered within 10 ms; only 1.2 times the peak for ever cannot be carried."""
    trace = little_trace(low_qps=100, high_qps=1500)
    assert plan(little_request(trace=trace, objective=Objective(latency_s=0.1, scope="trace")))


# Part A and part B ----------------------------------------------------------------------------------------------------


def with_part_b(change: Any) -> Profile:
    """The profile with the columns of part B changed by `change(quality, certainty)`."""
    records = PROFILE.predictions
    other = records.indices(PART_B)
    quality, certainty = records.quality.copy(), records.certainty.copy()
    quality[:, other], certainty[:, other] = change(quality[:, other], certainty[:, other])
    changed = PredictionRecords(models=records.models, quality=quality, certainty=certainty, part=records.part)
    return dataclasses.replace(PROFILE, predictions=changed)


def decided(made: GearPlan) -> GearPlan:
    return msgspec.structs.replace(made, predictions={})


@pytest.mark.long
def test_the_order_of_part_bs_records_does_not_change_the_plan() -> None:
    order = np.random.default_rng(5).permutation(len(PROFILE.predictions.indices(PART_B)))
    shuffled = with_part_b(lambda quality, certainty: (quality[:, order], certainty[:, order]))
    assert decided(plan(little_request(profile=shuffled))) == decided(planned())


def test_part_bs_qualities_change_what_is_reported_and_nothing_that_is_decided() -> None:
    wrong = with_part_b(lambda quality, certainty: (0 * quality, certainty))
    made = plan(little_request(profile=wrong))
    assert decided(made) == decided(planned())
    assert made.predictions["task"].accuracy == 0.0


@pytest.mark.long
def test_the_accuracy_reported_is_part_bs() -> None:
    perfect = with_part_b(lambda quality, certainty: (0 * quality + 1, certainty))
    assert plan(little_request(profile=perfect)).predictions["task"].accuracy == 1.0


# Infeasible -----------------------------------------------------------------------------------------------------------


def refused(**changed: Any) -> Infeasible:
    with pytest.raises(Infeasible) as caught:
        plan(little_request(**changed))
    return caught.value


@functools.cache
def refused_as_too_tight() -> Infeasible:
    return refused(latency_s=0.001)


@functools.cache
def refused_as_too_much_load() -> Infeasible:
    return refused(latency_s=0.1, trace=HEAVY)


def test_an_objective_below_the_fastest_run_time_is_infeasible_and_the_nearest_one_is_feasible() -> None:
    error = refused_as_too_tight()
    assert error.nearest_latency_s is not None
    assert error.nearest_latency_s > 0.001
    assert plan(little_request(latency_s=error.nearest_latency_s)).predictions["task"].share_late <= 0.05


def test_an_infeasible_objective_names_the_range_the_bottleneck_and_the_nearest_objective() -> None:
    error = refused_as_too_tight()
    assert error.bottleneck == "m0"
    assert error.load_range.endswith(", inf)")
    assert str(error).startswith("no cascade keeps 0.95 of requests within 1 ms on 1 device; ")
    assert f"the nearest feasible latency is {error.nearest_latency_s * 1e3:.4g} ms" in str(error)


HEAVY = little_trace(low_qps=3000, high_qps=5000)


def test_too_much_load_is_infeasible_and_names_the_devices_that_about_could_carry_it() -> None:
    error = refused_as_too_much_load()
    assert str(error).startswith("1 device cannot carry ")
    assert error.nearest_latency_s is None
    assert 2 <= devices_named(error) <= 6


@pytest.mark.long
def test_the_devices_named_can_carry_the_load() -> None:
    devices = devices_named(refused_as_too_much_load())
    assert plan(little_request(latency_s=0.1, trace=HEAVY, devices=devices)).predictions["task"].share_late <= 0.05


def devices_named(error: Infeasible) -> int:
    return int(str(error).split("about ")[1].split(" could")[0])


BURSTY = bursty_trace(low_qps=50, burst_qps=1200, every=10, length=3)
RARE_BURSTS = bursty_trace(low_qps=50, burst_qps=1700, every=20, length=3)


@functools.cache
def planned_for_rare_bursts() -> GearPlan | Infeasible:
    try:
        return plan(little_request(latency_s=0.06, trace=RARE_BURSTS))
    except Infeasible as error:
        return error


@pytest.mark.long
def test_what_steady_state_flattered_is_repaired_until_the_trace_holds() -> None:
    """Unrepaired, a fifth of these requests are late."""
    assert plan(little_request(latency_s=0.06, trace=BURSTY)).predictions["task"].share_late <= 0.05


def the_cheapest_alone_is_hardly_late(latency_s: float, trace: Trace) -> bool:
    alone = single_model_plan(little_request(latency_s=latency_s, trace=trace), "m0")
    return alone.predictions["task"].share_late < 0.01


@pytest.mark.long
def test_an_objective_that_the_cheapest_cascade_meets_alone_is_feasible() -> None:
    assert the_cheapest_alone_is_hardly_late(0.06, RARE_BURSTS)
    assert isinstance(planned_for_rare_bursts(), GearPlan)


@pytest.mark.long
def test_a_tighter_objective_that_the_cheapest_cascade_meets_alone_is_feasible_too() -> None:
    assert the_cheapest_alone_is_hardly_late(0.03, BURSTY)
    assert plan(little_request(latency_s=0.03, trace=BURSTY))


@pytest.mark.long
def test_the_nearest_feasible_objective_is_not_tighter_than_the_one_that_was_refused() -> None:
    found = planned_for_rare_bursts()
    nearest_s = found.nearest_latency_s if isinstance(found, Infeasible) else math.inf  # where it is not refused at all
    assert nearest_s is not None
    assert nearest_s > 0.06


# What is asked --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"objective": Objective()}, "there is no objective; give a latency, an accuracy, or both"),
        ({"objective": Objective(latency_s=0.1, confidence=0.9)}, "a confidence is given without an accuracy"),
        ({"ranges": 0}, "0 load ranges asked for; ask for 1 to 1000"),
        ({"max_qps": 0.0}, "max_qps is 0.0; give a positive rate"),
        ({"max_qps": math.inf}, "max_qps is inf; give a positive rate"),
        ({"most_candidates": 1}, "most_candidates is 1, needs 2 to 10000"),
    ],
)
def test_a_request_that_cannot_be_planned_names_the_value(changed: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        plan(little_request(**changed))
    assert str(caught.value).startswith(sentence)


def test_a_single_models_plan_is_made_whether_or_not_it_holds() -> None:
    made = single_model_plan(little_request(latency_s=0.001), "m2")
    assert made.planner == "single"
    assert [gear.cascade.models for gear in operator_of(made).gears] == [("m2",)]
    assert made.predictions["task"].share_late > 0.05


def test_progress_goes_from_nothing_to_all() -> None:
    _, told = planned_and_told()
    assert told[0] == 0.0
    assert told[-1] == 1.0
    assert len(told) >= 4


@pytest.mark.long
def test_a_device_less_is_not_simulated_where_it_would_surely_be_less_accurate(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: set[int] = set()

    def noted(ranges: Ranges, steady: SteadyState, **how: Any) -> Capacities:
        searched.add(len(ranges.request.hardware.devices))
        return capacities_of(ranges, steady, **how)

    monkeypatch.setattr("gearshift.planner.search.slo_search.capacities_of", noted)
    assert plan(little_request(devices=3, ranges=2, trace=little_trace(low_qps=1120, high_qps=1400)))
    assert searched == {3}
