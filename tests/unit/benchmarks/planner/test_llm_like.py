import math
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from benchmarks.planner.llm_like import (
    CHEAPEST_BUSY,
    MAY_BE_REFUSED,
    MOST_REQUESTS,
    QUICK,
    compared,
    costs,
    methods,
    request_like,
    scaled,
    wrong_loads,
)
from gearshift.planner import planners
from gearshift.planner.space.request import PlanRequest
from gearshift.workload import Trace
from tests.unit.planner.little import PROFILE, little_trace
from tests.unit.planner.spanning import spanning_request

LIGHT = {"trace": little_trace(low_qps=2, high_qps=5), "ranges": 2, "most_candidates": 4}


def request() -> PlanRequest:
    return spanning_request(**LIGHT)


def test_the_dearest_model_is_that_of_most_device_seconds() -> None:
    assert costs(request()) == pytest.approx((0.1, 0.8, 0.25))


def test_measured_models_are_loaded_as_much_without_batches() -> None:
    then = request_like(request(), PROFILE)
    assert {c.batch_sizes for c in then.profile.curves} == {(1,)}
    assert len(then.hardware.devices) == 8
    (_, before_s, before_run_s), (_, after_s, after_run_s) = costs(request()), costs(then)
    assert then.trace.mean_qps * after_s == pytest.approx(request().trace.mean_qps * before_s, rel=0.02)
    assert then.latency_s / after_run_s == pytest.approx(request().latency_s / before_run_s)


def test_the_cheapest_measured_model_is_not_overloaded() -> None:
    alike = replace(PROFILE, curves=tuple(msgspec.structs.replace(PROFILE.curves[0], model=m) for m in PROFILE.models))
    then = request_like(request(), alike)
    assert float(then.upper_ends()[-1]) * costs(then)[0] / 8 == pytest.approx(CHEAPEST_BUSY, rel=0.05)


def test_scaled_traffic_keeps_its_shape_and_has_an_end() -> None:
    trace = little_trace()
    assert scaled(trace, 3.0).counts_per_second().tolist() == (3 * trace.counts_per_second()).tolist()
    some = scaled(trace, MOST_REQUESTS / len(trace) * 2)
    assert MOST_REQUESTS / 2 < len(some) <= MOST_REQUESTS


def test_wrong_loads_stay_below_the_true_peak_but_for_noise() -> None:
    trace = Trace(np.sort(np.random.default_rng(0).integers(0, 60 * 10**9, 2400)), 60.0)
    for expected in wrong_loads(trace).values():
        assert expected.duration_s == pytest.approx(trace.duration_s)
        assert expected.peak_qps <= 1.5 * trace.peak_qps


@pytest.mark.long
def test_every_planner_and_ablation_finds_a_frontier_with_a_model_that_spans_devices(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked, size = request(), replace(QUICK, rungs=2)
    volumes = compared(asked, size)
    assert set(volumes) == set(methods(asked, size))
    assert set(planners.for_()) - {"single"} <= set(volumes)
    assert {name for name, v in volumes.items() if math.isnan(v)} == set(MAY_BE_REFUSED)  # no two models fit here
    assert capsys.readouterr().out.count("\n| ") == 1 + len(volumes)
