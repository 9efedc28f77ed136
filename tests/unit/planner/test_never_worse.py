"""No other planner's plan that could be confirmed is more accurate than ours: in worlds drawn from seeds."""

import contextlib
import dataclasses

import msgspec
import numpy as np
import pytest

from gearshift.errors import Infeasible
from gearshift.gear import GearPlan
from gearshift.hardware import identical_devices
from gearshift.objective import Objective
from gearshift.planner import planners
from gearshift.planner.evaluate.confirm import replay
from gearshift.planner.evaluate.spike_recovery import recovers
from gearshift.planner.search.plan_search import SAME_ACCURACY, holds_every_range
from gearshift.planner.space.request import PlanRequest
from gearshift.profiles.profile import PART_A, PART_B, Profile
from gearshift.workload import Trace
from tests.unit.planner.little import bursty_trace, little_request
from tests.worlds import synthetic_profile

MODEL_BYTES = 1 << 28
FEW_RANGES = (2, 3, 4, 6, 8)
SLOTS = 40


def without_batches(profile: Profile) -> Profile:
    curves = tuple(
        msgspec.structs.replace(c, batch_sizes=c.batch_sizes[:1], median_s=c.median_s[:1], p95_s=c.p95_s[:1])
        for c in profile.curves
    )
    return dataclasses.replace(profile, curves=curves)


def drawn_trace(draw: np.random.Generator, peak_qps: float) -> Trace:
    """About a thousand requests that swing like steps, like a wave, or as they please."""
    seconds = min(400.0, max(4.0, 2000 / peak_qps))
    shapes = (
        np.where(np.arange(SLOTS) % 5 < 3, 0.3, 1.0),
        0.55 + 0.45 * np.sin(np.arange(SLOTS) / SLOTS * 4 * np.pi),
        None,
    )
    shape = shapes[int(draw.integers(len(shapes)))]
    levels = draw.random(SLOTS) if shape is None else shape
    counts = draw.poisson(levels * peak_qps * seconds / SLOTS)
    times_s = np.concatenate([(slot + draw.random(n)) * seconds / SLOTS for slot, n in enumerate(counts)])
    return Trace(np.sort(times_s * 1e9).astype(np.int64), float(np.ceil(seconds)))


def world(seed: int) -> PlanRequest:
    """Fast or second-long models with batches or without, on few devices, with few load ranges."""
    draw = np.random.default_rng(seed)
    models, fastest_s, growth = (
        int(draw.integers(2, 5)),
        float(draw.choice([0.001, 0.01, 0.1])),
        draw.choice([2.0, 3.0]),
    )
    profile = synthetic_profile(
        models=models, samples=600, fastest_s=fastest_s, growth=float(growth), seed=int(draw.integers(0, 50))
    )
    if draw.random() < 0.5:
        profile = without_batches(profile)
    devices, slowest_s = int(draw.integers(1, 5)), max(c.median_s[0] for c in profile.curves)
    lowest, highest = np.log(0.5 * devices / slowest_s), np.log(0.7 * devices / fastest_s)
    trace = drawn_trace(draw, float(np.exp(draw.uniform(lowest, highest))))
    held, scope = int(draw.integers(max(1, models - 1), models + 1)), str(draw.choice(["every-range", "trace"]))
    latency_s = float(slowest_s * np.exp(draw.uniform(np.log(0.7), np.log(15))))
    return PlanRequest(
        profile=profile,
        trace=trace,
        hardware=identical_devices(devices, memory_bytes=held * MODEL_BYTES),
        objective=Objective(latency_s=latency_s, percentile=float(draw.choice([0.9, 0.95])), scope=scope),
        ranges=int(draw.choice(FEW_RANGES)),
        most_candidates=int(draw.choice([6, 12])),
        least_margin=1.0 if scope == "every-range" else None,  # as the others plan
    )


def accuracy_if_confirmed(name: str, request: PlanRequest) -> float:
    """What the replay gives on part A, of a plan that holds there and on part B and recovers; else -1."""
    try:
        made = planners.plan(name, request)
    except Infeasible:
        return -1.0
    return replayed_accuracy(made, request)


def replayed_accuracy(made: GearPlan, request: PlanRequest) -> float:
    runs = [replay(made, request, part=part) for part in (PART_A, PART_B)]
    held = all(run.share_late_bound() <= 1 - request.objective.percentile for run in runs)
    return runs[0].result.accuracy if held and recovers(made, request) else -1.0


def lost_to_others(request: PlanRequest) -> dict[str, float]:
    """By how much others are more accurate, if any is: with scope `every-range` those that plan for every range."""
    names = ["coordinate", "frontier", "single"] + ["static-cascade"] * (request.objective.scope == "trace")
    ours = accuracy_if_confirmed("optimal", request)
    theirs = {name: accuracy_if_confirmed(name, request) for name in names}
    return {name: found - ours for name, found in theirs.items() if found > ours}


def lost_with_margin(request: PlanRequest) -> dict[str, float]:
    """As `lost_to_others`, to plans of the published planners that hold every range with our own margin, as ours do."""
    request = dataclasses.replace(request, least_margin=None)
    ours, lost = accuracy_if_confirmed("optimal", request), {}
    for name in ("coordinate", "frontier"):
        with contextlib.suppress(Infeasible):
            made = planners.plan(name, request)
            lost[name] = replayed_accuracy(made, request) - ours if holds_every_range(made, request) else -1.0
    return lost


def test_in_a_little_world_no_other_planner_is_more_accurate() -> None:
    request = little_request(ranges=2, most_candidates=3)
    assert accuracy_if_confirmed("single", request) > 0
    assert lost_to_others(request) == {}


@pytest.mark.long
def test_a_burst_that_the_meter_sees_does_not_make_two_ranges_too_coarse() -> None:
    """Bursts of 300 requests/s within seconds of 63 put both ranges where no load lasts, if they reach so far."""
    profile = synthetic_profile(models=3, samples=1000, fastest_s=0.008)
    bursts = bursty_trace(low_qps=20.0, burst_qps=300.0, every=20, length=1)
    request = little_request(profile=profile, latency_s=0.3, ranges=2, least_margin=1.0, trace=bursts)
    assert lost_to_others(request) == {}


@pytest.mark.long
def test_a_cascade_that_just_holds_at_the_end_of_a_range_is_used_there() -> None:
    assert lost_to_others(world(14)) == {}


@pytest.mark.long
@pytest.mark.parametrize("seed", [4, 7, 8, 9, 10, 12, 14, 15, 17, 18, 20, 21])
def test_no_published_plan_that_holds_every_range_with_our_margin_is_more_accurate(seed: int) -> None:
    assert world(seed).objective.scope == "every-range"
    assert max(lost_with_margin(world(seed)).values(), default=0.0) <= SAME_ACCURACY


@pytest.mark.long
@pytest.mark.parametrize("seed", range(40))
def test_with_few_ranges_no_other_planner_is_more_accurate(seed: int) -> None:
    """Up to what the replays of two plans may differ by."""
    assert max(lost_to_others(world(seed)).values(), default=0.0) <= SAME_ACCURACY
