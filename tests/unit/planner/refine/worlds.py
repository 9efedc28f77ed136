"""A small world to plan in."""

from functools import cache

import numpy as np

from benchmarks.shared.worlds import arrivals, devices, five_models
from gearshift.objective import Objective
from gearshift.planner.space.request import PlanRequest


@cache
def request(count: int, latency_s: float = 0.02) -> PlanRequest:
    """Five models on `count` devices, and four seconds of load up to 1,000 requests per second and device."""
    return PlanRequest(
        profile=five_models(samples=400),
        trace=arrivals(count * np.array([300, 1000, 700, 500])),
        hardware=devices(count),
        objective=Objective(latency_s=latency_s),
        ranges=4,
    )
