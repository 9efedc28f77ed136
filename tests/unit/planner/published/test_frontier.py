import dataclasses
import functools
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gearshift.errors import Infeasible, InvalidInput
from gearshift.gear import Gear, GearPlan
from gearshift.hardware import GIB, Hardware, identical_devices
from gearshift.objective import Objective
from gearshift.placement import Placement
from gearshift.planner import planners
from gearshift.planner.contract import planner as contract
from gearshift.planner.evaluate.confirm import replay
from gearshift.planner.published.frontier import PLANNER
from gearshift.planner.space.pareto import undominated
from gearshift.planner.space.request import PlanRequest
from gearshift.plans.plan_file import encode_plan
from gearshift.profiles.profile import PART_A, PART_B, PredictionRecords, Profile
from tests.often import often
from tests.unit.planner.little import PROFILE, little_request, little_trace
from tests.unit.planner.spanning import CURVES, curve, mixed, nodes, spanning_profile, spanning_request
from tests.worlds import synthetic_profile

frontier, plan = PLANNER.frontier, PLANNER.plan

HEAVY = little_trace(low_qps=3000, high_qps=5000)


@functools.cache
def planned(latency_s: float | None = 0.03, accuracy: float | None = None, devices: int = 1) -> GearPlan:
    return plan(little_request(objective=Objective(latency_s=latency_s, accuracy=accuracy), devices=devices))


@functools.cache
def plans(devices: int = 1) -> list[GearPlan]:
    return frontier(little_request(devices=devices))


def on_part_a(made: GearPlan, request: PlanRequest) -> tuple[float, float]:
    """Latency and accuracy of the trace as it is, on which plans are chosen."""
    replayed = replay(made, request, part=PART_A, seeds=1)
    return float(replayed.latency_s[0]), replayed.result.accuracy


def gears_of(made: GearPlan) -> tuple[Gear, ...]:
    return made.pipelines["task"].gears


# The frontier ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("devices", [1, 2])
def test_no_plan_of_the_frontier_beats_another_and_latency_rises(devices: int) -> None:
    points = [on_part_a(made, little_request(devices=devices)) for made in plans(devices)]
    assert undominated(points) == list(range(len(points)))
    assert len(points) >= 4


def test_the_frontier_reaches_from_the_cheapest_model_to_an_accuracy_that_one_gear_cannot_carry() -> None:
    assert {gear.cascade.models for gear in gears_of(plans()[0])} == {("m0",)}
    assert plans()[-1].predictions["task"].accuracy > plans()[0].predictions["task"].accuracy + 0.1
    assert len({gear.cascade for gear in gears_of(plans()[-1])}) > 1


def test_each_plan_says_what_made_it_and_what_it_predicts() -> None:
    for made in plans():
        assert (made.planner, made.unfinished) == ("frontier", False)
        assert made.predictions["task"].requests == len(little_trace())
        assert [gear.predicted is not None for gear in gears_of(made)] == [True] * 4


def test_each_gear_is_planned_at_the_upper_end_of_its_range() -> None:
    top_qps = 1.2 * little_trace().peak_qps
    for made in plans():
        ends = [gear.predicted.load_qps for gear in gears_of(made) if gear.predicted]
        assert ends == pytest.approx([top_qps * k / 4 for k in range(1, 5)])
        assert [gear.load_range.to for gear in gears_of(made)] == [*ends[:-1], None]


def test_the_planner_is_found_by_its_name() -> None:
    request = little_request(ranges=2, most_candidates=3)
    assert planners.plan("frontier", request).planner == "frontier"
    assert {made.planner for made in planners.frontier("frontier", request)} == {"frontier"}


@pytest.mark.long
def test_the_same_inputs_and_seed_give_the_same_bytes() -> None:
    request = little_request(hardware=identical_devices(2, memory_bytes=3 << 28), ranges=3, most_candidates=4)
    first, second = ([encode_plan(made) for made in frontier(request)] for _ in range(2))
    assert first == second


@settings(max_examples=often(5), deadline=None, derandomize=True)
@given(st.integers(2, 4), st.integers(1, 3), st.integers(0, 99))
def test_every_plan_keeps_memory_and_shares_whole_loads(room: int, devices: int, seed: int) -> None:
    hardware = identical_devices(devices, memory_bytes=room << 28)
    for made in frontier(little_request(hardware=hardware, seed=seed, ranges=2, most_candidates=3)):
        for device in hardware.devices:
            here = [r.model for r in made.placement.replicas if device.id in r.device_ids]
            assert len(here) == len(set(here)) <= room
        for gear in gears_of(made):
            total = dict.fromkeys(made.placement.models, 0.0)
            for s in gear.replicas:
                total[next(r.model for r in made.placement.replicas if r.id == s.replica)] += s.load_share
            assert total == pytest.approx({m: float(m in gear.cascade.models) for m in total})


def test_a_raised_minimum_queue_length_comes_with_a_longest_wait() -> None:
    settings_ = [s for made in plans() for gear in gears_of(made) for s in gear.replicas]
    assert any(s.minimum_queue_length > 1 for s in settings_)
    assert all((s.minimum_queue_length > 1) == (s.longest_wait_s > 0) for s in settings_)
    assert all(s.minimum_queue_length <= s.largest_batch_size for s in settings_)


# Answers to objectives ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("latency_s", [0.02, 0.03, 0.05])
def test_with_a_latency_the_plan_keeps_it_on_the_trace_and_in_every_range(latency_s: float) -> None:
    made = planned(latency_s)
    request = little_request(latency_s=latency_s)
    assert replay(made, request, part=PART_A).share_late_bound() <= 0.05
    for gear in gears_of(made):
        assert gear.predicted is not None
        assert gear.predicted.share_late <= 0.05


def test_a_looser_latency_gives_no_less_accuracy() -> None:
    accuracies = [on_part_a(planned(s), little_request())[1] for s in (0.02, 0.03, 0.05)]
    assert accuracies == sorted(accuracies)


def test_a_plan_is_more_accurate_than_the_fastest_model_alone() -> None:
    assert planned(0.03).predictions["task"].accuracy > plans()[0].predictions["task"].accuracy + 0.02


@pytest.mark.long
def test_a_larger_margin_gives_no_more_accuracy() -> None:
    tight, loose = (plan(little_request(least_margin=margin)) for margin in (1.0, 1.6))
    assert on_part_a(loose, little_request())[1] <= on_part_a(tight, little_request())[1]


def test_with_an_accuracy_the_plan_has_it_and_is_as_fast_as_any_of_the_frontier() -> None:
    latency_s, accuracy = on_part_a(planned(None, 0.75), little_request())
    assert accuracy >= 0.75 - 0.01
    enough = [on_part_a(made, little_request()) for made in plans()]
    assert latency_s <= min(latency_s for latency_s, accuracy in enough if accuracy >= 0.76)


def test_with_both_the_plan_has_both() -> None:
    made = planned(0.03, 0.72)
    request = little_request()
    assert replay(made, request, part=PART_A).result.accuracy >= 0.72
    assert replay(made, request, part=PART_A).share_late_bound() <= 0.05


def test_of_scope_trace_only_the_trace_is_asked_for() -> None:
    trace = little_trace(low_qps=100, high_qps=1500)
    assert plan(little_request(trace=trace, objective=Objective(latency_s=0.1, scope="trace")))


def test_by_zipfs_law_the_plan_still_keeps_its_latency_on_the_trace() -> None:
    made = plan(little_request(load="zipf"))
    assert replay(made, little_request(), part=PART_A).share_late_bound() <= 0.05


@pytest.mark.long
def test_of_a_long_trace_pieces_are_searched_and_the_whole_is_kept() -> None:
    counts = np.random.default_rng(0).poisson(3000, 10)
    times_s = np.concatenate([second + np.arange(count) / count for second, count in enumerate(counts)])
    trace = dataclasses.replace(little_trace(), arrivals_ns=(times_s * 1e9).astype(np.int64))
    request = little_request(trace=trace, devices=3, ranges=2, most_candidates=3)
    made = frontier(request)
    points = [on_part_a(each, request) for each in made]
    assert undominated(points) == list(range(len(points)))
    assert plan(request).predictions["task"].share_late <= 0.06


# Part A and part B ----------------------------------------------------------------------------------------------------


def with_part_b_wrong() -> Profile:
    records = PROFILE.predictions
    quality, certainty = records.quality.copy(), records.certainty.copy()
    other = records.indices(PART_B)
    quality[:, other], certainty[:, other] = 0, -certainty[:, other]
    changed = PredictionRecords(models=records.models, quality=quality, certainty=certainty, part=records.part)
    return dataclasses.replace(PROFILE, predictions=changed)


@pytest.mark.long
def test_part_b_changes_what_is_reported_and_nothing_that_is_decided() -> None:
    made = plan(little_request(profile=with_part_b_wrong()))
    assert msgspec.structs.replace(made, predictions={}) == msgspec.structs.replace(planned(), predictions={})
    assert made.predictions["task"].accuracy == 0.0


# Models that span devices ---------------------------------------------------------------------------------------------


def checked(made: GearPlan, hardware: Hardware) -> Placement:
    """The placement, whose replicas are each on devices of one node and one kind, of a degree that was profiled."""
    devices = {device.id: device for device in hardware.devices}
    for replica in made.placement.replicas:
        assert len(replica.device_ids) == replica.tensor_parallel
        assert len({(devices[d].node, devices[d].kind) for d in replica.device_ids}) == 1
        assert (replica.model, replica.tensor_parallel) in {(c.model, c.tensor_parallel) for c in CURVES}
    return made.placement


@pytest.mark.long
@pytest.mark.parametrize("hardware", [nodes(4), nodes(2, 2), mixed()])
def test_models_that_fit_no_device_alone_span_several(hardware: Hardware) -> None:
    made = plan(spanning_request(hardware=hardware))
    assert max(len(r.device_ids) for r in checked(made, hardware).replicas if r.model == "m1") >= 2
    assert {s.largest_batch_size for gear in gears_of(made) for s in gear.replicas} == {1}
    assert made.predictions["task"].share_late <= 0.06


def test_a_backlog_of_slow_models_is_given_more_time_to_drain() -> None:
    assert plan(spanning_request()).pipelines["task"].alpha < 8
    assert planned().pipelines["task"].alpha == 8


def test_a_model_profiled_only_on_more_devices_than_a_node_has_is_not_used() -> None:
    made = plan(spanning_request(hardware=nodes(1, 1)))
    assert made.placement.models == ("m0",)


@pytest.mark.long
def test_old_devices_are_planned_for_by_their_own_run_times() -> None:
    """m0 takes 0.2 s on old devices, on new ones 0.1 s."""
    old, new = (frontier(spanning_request(hardware=nodes(4, kind=kind)))[0] for kind in ("old", "gpu"))
    assert old.predictions["task"].latency_s.p50 == pytest.approx(0.2)
    assert new.predictions["task"].latency_s.p50 <= 0.1


# Little, alike, and large models --------------------------------------------------------------------------------------


def test_one_model_has_a_frontier_of_one_plan() -> None:
    profile = synthetic_profile(models=1, samples=600, fastest_s=0.001)
    made = frontier(little_request(profile=profile, objective=Objective()))
    assert [gear.cascade.models for gear in gears_of(made[0])] == [("m0",)] * 4
    assert len(made) == 1


def test_two_identical_models_are_planned_for() -> None:
    profile = synthetic_profile(models=1, samples=600, fastest_s=0.001)
    records = profile.predictions
    twice = PredictionRecords(
        models=("m0", "m1"),
        quality=np.repeat(records.quality, 2, axis=0),
        certainty=np.repeat(records.certainty, 2, axis=0),
        part=records.part,
    )
    curves = (profile.curves[0], msgspec.structs.replace(profile.curves[0], model="m1"))
    assert plan(little_request(profile=dataclasses.replace(profile, curves=curves, predictions=twice)))


def test_a_model_that_fits_no_device_is_left_out() -> None:
    curves = tuple(msgspec.structs.replace(c, memory_bytes=GIB if c.model == "m2" else 1) for c in PROFILE.curves)
    profile = dataclasses.replace(PROFILE, curves=curves)
    made = frontier(little_request(profile=profile, hardware=identical_devices(1, memory_bytes=GIB - 1)))
    assert {model for each in made for gear in gears_of(each) for model in gear.cascade.models} == {"m0", "m1"}


def test_cascades_whose_models_do_not_fit_together_are_not_used() -> None:
    made = frontier(little_request(hardware=identical_devices(1, memory_bytes=1 << 28)))
    assert {len(gear.cascade.models) for each in made for gear in gears_of(each)} == {1}


# Infeasible and bad input ---------------------------------------------------------------------------------------------


def refused(**changed: Any) -> Infeasible:
    with pytest.raises(Infeasible) as caught:
        plan(little_request(**changed))
    return caught.value


def test_too_much_load_names_the_devices_that_about_could_carry_it() -> None:
    error = refused(latency_s=0.1, trace=HEAVY)
    assert str(error).startswith("1 device cannot carry ")
    assert (error.bottleneck, error.nearest_latency_s) == ("m0", None)
    assert error.load_range.endswith(", inf)")
    with pytest.raises(Infeasible):
        frontier(little_request(trace=HEAVY))


def test_a_latency_below_the_fastest_run_time_is_infeasible_and_the_nearest_one_is_feasible() -> None:
    error = refused(latency_s=0.001)
    assert str(error).startswith("no plan keeps 0.95 of requests within 1 ms on 1 device; ")
    assert error.bottleneck == "m0"
    assert error.load_range
    assert error.nearest_latency_s is not None
    assert plan(little_request(latency_s=error.nearest_latency_s)).predictions["task"].share_late <= 0.06


def test_an_accuracy_that_the_load_forbids_names_the_range_where_it_is_lost() -> None:
    error = refused(objective=Objective(accuracy=0.99))
    assert str(error).startswith("no plan reaches an accuracy of 0.99 on 1 device; the most accurate one has 0.8")
    assert error.load_range
    assert error.bottleneck == "m2"


@pytest.mark.long
def test_an_accuracy_too_slow_for_the_latency_names_the_nearest_latency_that_has_it() -> None:
    error = refused(objective=Objective(latency_s=0.005, accuracy=0.75))
    assert "within 5 ms with an accuracy of 0.75 on 1 device" in str(error)
    assert error.nearest_latency_s is not None
    both = Objective(latency_s=error.nearest_latency_s, accuracy=0.75)
    assert plan(little_request(objective=both))


class Ticking:
    """A clock on which each look takes 10 ms."""

    def __init__(self) -> None:
        self.looks = 0

    def monotonic(self) -> float:
        self.looks += 1
        return self.looks * 0.01


def test_a_search_cut_short_gives_its_best_plan_so_far_marked_unfinished(monkeypatch: pytest.MonkeyPatch) -> None:
    """After 35 simulations of more than a hundred, of which one is past the walk's part of the time."""
    monkeypatch.setattr(contract, "time", Ticking())
    short, long = (frontier(little_request(budget_s=budget_s)) for budget_s in (0.5, 1000))
    assert {made.unfinished for made in short} == {True}
    assert {made.unfinished for made in long} == {False}
    assert len(short) < len(long)
    assert plan(little_request(budget_s=0.5)).unfinished


def test_without_time_for_any_plan_it_says_so() -> None:
    with pytest.raises(Infeasible, match=r"no plan was found within the budget of 1e-09 s"):
        frontier(little_request(budget_s=1e-9))


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"objective": Objective()}, "there is no objective; give a latency, an accuracy, or both"),
        ({"objective": Objective(latency_s=0.1, confidence=0.9)}, "planner 'frontier' takes no confidence"),
        (
            {"hardware": identical_devices(2, memory_bytes=1)},
            "hardware: no model fits the memory of any device; plan for devices with more memory",
        ),
        (
            {"hardware": identical_devices(1, kind="gpu")},
            "hardware: the profile has no run times on devices of these kinds and cores: gpu with 1; profile",
        ),
    ],
)
def test_a_request_that_cannot_be_planned_names_the_value(changed: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        plan(little_request(**changed))
    assert str(caught.value).startswith(sentence)


def test_models_that_need_more_devices_than_any_node_has_fit_nowhere() -> None:
    profile = spanning_profile((curve("m0", 0.1, degree=4), curve("m1", 0.1, degree=8)))
    with pytest.raises(InvalidInput, match="no model fits the memory of any device"):
        plan(spanning_request(profile=profile, hardware=nodes(2, 2)))


def test_progress_goes_from_nothing_to_all() -> None:
    for make in (plan, frontier):
        told: list[float] = []
        make(little_request(ranges=2, most_candidates=3), progress=lambda what, share, told=told: told.append(share))
        assert (told[0], told[-1]) == (0.0, 1.0)
        assert told == sorted(told)
