"""What `benchmarks/planner/recovery.py` measures with: in single requests m0 carries 1,000/s, m1 333 and m2 111."""

import math

import numpy as np
import pytest

from benchmarks.planner.recovery import back_after_s, without_spike
from gearshift.cascade import Cascade
from gearshift.gear import Gear, GearPlan, alone
from gearshift.planner.evaluate.assemble import assemble, replica_settings
from gearshift.planner.evaluate.spike_recovery import BEFORE_S, SPIKE_S, spiked
from gearshift.planner.space.hosts import place_everywhere
from gearshift.planner.space.request import PlanRequest, equal_ranges, load_ranges
from tests.unit.planner.little import little_request, little_trace


def asked(mean_qps: float) -> PlanRequest:
    return little_request(trace=little_trace(low_qps=mean_qps, high_qps=mean_qps))


def plan_of(*models: str) -> GearPlan:
    """One model in each of the load ranges of 800 requests/s."""
    request = asked(100.0)
    placement = place_everywhere(request.profile, request.hardware)
    gears = []
    for load_range, model in zip(load_ranges(equal_ranges(800.0 * len(models), len(models))), models, strict=True):
        cascade = Cascade(models=(model,))
        shares = {r.id: float(r.model == model) for r in placement.replicas}
        settings = replica_settings(
            request.profile, request.hardware, placement, cascade, shares=shares, largest_batch_size=1
        )
        gears.append(Gear(load_range=load_range, cascades=alone("task", cascade), replicas=settings))
    return assemble(request, placement, gears, planner="by hand")


def test_a_plan_is_back_once_its_backlog_is_gone() -> None:
    assert 0 < back_after_s(plan_of("m1", "m0"), asked(100.0)) < 5


def test_a_plan_whose_high_gear_is_too_slow_is_never_back() -> None:
    assert back_after_s(plan_of("m0", "m2"), asked(300.0)) == math.inf


@pytest.mark.parametrize("models", [("m0",), ("m0", "m0")])
def test_a_plan_without_another_gear_to_be_in_is_back_at_once(models: tuple[str, ...]) -> None:
    loads = {1: 100.0, 2: 900.0}  # at 900/s the higher of two gears is in force without a spike, too
    assert back_after_s(plan_of(*models), asked(loads[len(models)])) == 0.0


def test_without_the_spike_all_other_requests_are_the_same() -> None:
    drawn = spiked(plan_of("m1", "m0"), asked(100.0))
    assert drawn is not None
    workload, ends_s = drawn
    usual = without_spike(workload, ends_s)
    seconds = np.bincount((usual.arrivals_ns / 1e9).astype(int))
    assert ends_s == BEFORE_S + SPIKE_S
    assert seconds.max() < 150 < np.bincount((workload.arrivals_ns / 1e9).astype(int)).max()
    outside = [(w.arrivals_ns < BEFORE_S * 1e9) | (w.arrivals_ns >= ends_s * 1e9) for w in (usual, workload)]
    assert usual.arrivals_ns[outside[0]].tolist() == workload.arrivals_ns[outside[1]].tolist()
    assert usual.record[outside[0]].tolist() == workload.record[outside[1]].tolist()
