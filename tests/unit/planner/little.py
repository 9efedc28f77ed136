"""A small world to plan for: three models, one device, ten seconds of traffic that swings."""

from typing import Any

import msgspec
import numpy as np

from gearshift.gear import GearPlan
from gearshift.hardware import identical_devices
from gearshift.objective import Objective
from gearshift.planner.contract.planner import SoFar
from gearshift.planner.search.optimal import single_model_plan
from gearshift.planner.search.plan_search import PlanSearch
from gearshift.planner.space.request import PlanRequest
from gearshift.workload import Trace
from tests.worlds import synthetic_profile

PROFILE = synthetic_profile(models=3, samples=1000, fastest_s=0.001)


def little_trace(*, low_qps: float = 150.0, high_qps: float = 450.0, seed: int = 0) -> Trace:
    generator = np.random.default_rng(seed)
    counts = generator.poisson(np.where(np.arange(10) % 5 < 3, low_qps, high_qps))
    times_s = np.concatenate([second + generator.random(count) for second, count in enumerate(counts)])
    return Trace(np.sort(times_s * 1e9).astype(np.int64), 10.0)


def bursty_trace(*, low_qps: float, burst_qps: float, every: int, length: int) -> Trace:
    """Ten seconds in which `length` of every so many tenths of a second are bursts."""
    generator = np.random.default_rng(0)
    counts = generator.poisson(np.where(np.arange(100) % every < length, burst_qps, low_qps) / 10)
    times_s = np.concatenate([(tenth + generator.random(count)) / 10 for tenth, count in enumerate(counts)])
    return Trace(np.sort(times_s * 1e9).astype(np.int64), 10.0)


def little_request(*, latency_s: float = 0.03, devices: int = 1, **changed: Any) -> PlanRequest:
    fields: dict[str, Any] = {
        "profile": PROFILE,
        "trace": little_trace(),
        "hardware": identical_devices(devices),
        "objective": Objective(latency_s=latency_s),
        "ranges": 4,
        "most_candidates": 6,
    }
    return PlanRequest(**(fields | changed))


def single_plan(model: str) -> GearPlan:
    return single_model_plan(little_request(), model)


def constant_plan(request: PlanRequest) -> GearPlan:
    """The most accurate confirmed plan of one cascade at all loads."""
    made = PlanSearch(SoFar(request)).space.searches(request)[0].constant(-1.0)
    assert made is not None
    return msgspec.structs.replace(made, planner="optimal")
