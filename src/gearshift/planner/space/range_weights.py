"""The share of time in each load range, and accuracy weighted by it (CascadeServe appendix C.2)."""

import numpy as np
from numpy.typing import NDArray

from gearshift.gear import GearPlan
from gearshift.planner.space.request import PlanRequest


def range_weights(request: PlanRequest) -> NDArray[np.float64]:
    """Shares (ranges,) of time: as 1 / k for range k (appendix C.2), or the trace's."""
    upper_ends = request.upper_ends()
    if request.load == "trace":
        visited = np.searchsorted(upper_ends[:-1], request.trace.counts_per_second(), side="right")
        weights = np.bincount(visited, minlength=len(upper_ends)).astype(np.float64)
    else:
        weights = 1.0 / np.arange(1, len(upper_ends) + 1)
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def time_weighted_accuracy(made: GearPlan, request: PlanRequest) -> float:
    """CascadeServe's objective (appendix C.2): accuracy of gears on part A, weighted by time."""
    gears = made.pipelines[request.profile.operator].gears
    return float(np.dot(range_weights(request), [g.predicted.accuracy if g.predicted else 0.0 for g in gears]))
