"""A plan of two gears: a fast model up to 200 requests/s, and beyond it one that answers 50 a second at most."""

import dataclasses

import numpy as np
import pytest

from gearshift.cascade import Cascade
from gearshift.gear import Gear, GearPlan, GearPrediction, alone
from gearshift.hardware import identical_devices
from gearshift.planner.evaluate import spike_recovery
from gearshift.planner.evaluate.assemble import assemble, replica_settings
from gearshift.planner.evaluate.spike_recovery import made_top_qps, recovers
from gearshift.planner.space.hosts import place_everywhere
from gearshift.planner.space.request import PlanRequest, equal_ranges, load_ranges
from gearshift.profiles.profile import RunTimeCurve
from gearshift.workload import Trace
from tests.unit.planner import little
from tests.unit.planner.little import little_request

RUN_S = {"m0": 0.001, "m1": 0.002, "m2": 0.02}
TOP_QPS = 200.0


PROFILE = dataclasses.replace(
    little.PROFILE,
    curves=tuple(
        RunTimeCurve(model=m, device_kind="cpu", batch_sizes=(1,), median_s=(s,), p95_s=(s,), memory_bytes=1)
        for m, s in RUN_S.items()
    ),
)


def request(mean_qps: float, *, seed: int = 0) -> PlanRequest:
    times_s = np.arange(int(mean_qps * 4)) / mean_qps
    trace = Trace((times_s * 1e9).astype(np.int64), 4.0)
    return little_request(profile=PROFILE, hardware=identical_devices(1), trace=trace, seed=seed)


def plan_of(*models: str, top_qps: float = TOP_QPS, predicted: GearPrediction | None = None) -> GearPlan:
    """One gear for each model, in ranges as wide; the last begins at `top_qps`."""
    asked = request(50.0)
    placement = place_everywhere(asked.profile, asked.hardware)
    n = len(models)
    ranges = load_ranges(equal_ranges(top_qps * n / max(1, n - 1), n))
    gears = []
    for load_range, model in zip(ranges, models, strict=True):
        cascade = Cascade(models=(model,))
        shares = {r.id: float(r.model == model) for r in placement.replicas}
        settings = replica_settings(
            asked.profile, asked.hardware, placement, cascade, shares=shares, largest_batch_size=1
        )
        gears.append(
            Gear(load_range=load_range, cascades=alone("task", cascade), replicas=settings, predicted=predicted)
        )
    return assemble(asked, placement, gears, planner="by hand")


def test_a_plan_whose_last_gear_is_the_fastest_recovers() -> None:
    assert recovers(plan_of("m1", "m0"), request(50.0))


def test_a_backlog_that_the_last_gear_drains_in_time_is_recovered_from() -> None:
    """400 requests in a second leave 350 behind, which drain at 10/s until 25 of them ask for no low gear."""
    assert recovers(plan_of("m0", "m2"), request(40.0))


@pytest.mark.parametrize("mean_qps", [46.0, 80.0])
def test_a_plan_that_drains_slowly_or_never_does_not_recover(mean_qps: float) -> None:
    assert not recovers(plan_of("m0", "m2"), request(mean_qps))


def test_a_gear_that_was_in_force_before_the_spike_may_be_in_force_after_it() -> None:
    """At 250 requests/s the last gear is in force all along, and no better is expected."""
    assert recovers(plan_of("m1", "m0"), request(250.0))


def test_a_lower_top_has_a_lower_spike() -> None:
    assert recovers(plan_of("m0", "m2", top_qps=100.0), request(44.0))


def test_more_time_to_recover_is_enough_for_what_drains_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spike_recovery, "RECOVERY_S", 60.0)
    assert recovers(plan_of("m0", "m2"), request(44.0))
    assert not recovers(plan_of("m0", "m2"), request(80.0))


def test_the_answer_hangs_on_the_seed_alone() -> None:
    answers = [[recovers(plan_of("m0", "m2"), request(41.5, seed=seed)) for seed in range(8)] for _ in range(2)]
    assert answers[0] == answers[1]
    assert set(answers[0]) == {True, False}


def test_a_single_gear_recovers_for_there_is_no_other() -> None:
    assert recovers(plan_of("m2"), request(150.0))


def test_a_trace_so_thin_that_nothing_is_drawn_recovers() -> None:
    thin = little_request(profile=PROFILE, trace=Trace(np.array([0]), 1e6))
    assert recovers(plan_of("m0", "m2", top_qps=1e-9), thin)


def test_the_top_is_where_the_last_range_begins() -> None:
    assert made_top_qps(plan_of("m1", "m0")) == TOP_QPS
    assert made_top_qps(plan_of("m2", "m1", "m0", top_qps=300.0)) == pytest.approx(300.0)


def test_the_top_of_a_single_gear_is_what_it_was_planned_for() -> None:
    predicted = GearPrediction(load_qps=70.0, accuracy=0.8, latency_p95_s=0.1, share_late=0.0, utilisation=0.5)
    assert made_top_qps(plan_of("m0", predicted=predicted)) == 70.0
    assert made_top_qps(plan_of("m0")) == 1.0


@pytest.mark.parametrize(
    ("between_s", "gears"),
    [((0.0, 1.0), {0}), ((0.0, 2.0), {0, 2}), ((2.0, 2.5), {2}), ((2.5, 5.0), {2, 1}), ((3.0, 9.0), {1, 0})],
)
def test_gears_in_force_are_the_one_at_the_start_and_those_shifted_to(
    between_s: tuple[float, float], gears: set[int]
) -> None:
    """Shifts to gear 2 after two seconds, to 1 after three and to 0 after six; a run begins in gear 0."""
    shifts = np.array([[2_000_000_000, 2], [3_000_000_000, 1], [6_000_000_000, 0]])
    assert spike_recovery._gears_in_force(shifts, *between_s) == gears
    assert spike_recovery._gears_in_force(shifts[:0], *between_s) == {0}


def test_a_great_load_has_a_shorter_spike_and_is_still_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """With at most 100 requests in the spike nothing is left to drain after a tenth of a second."""
    monkeypatch.setattr(spike_recovery, "MOST_REQUESTS", 100)
    assert recovers(plan_of("m0", "m2"), request(150.0))
