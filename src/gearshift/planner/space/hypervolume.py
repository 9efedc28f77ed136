"""The area of the latency-accuracy plane that a set of plans covers."""

import math
from collections.abc import Iterable

from gearshift.errors import require
from gearshift.planner.space.pareto import undominated


def hypervolume(points: Iterable[tuple[float, float]], *, reference: tuple[float, float]) -> float:
    """The area that `points` (seconds, accuracy) dominate up to `reference`, over ln(latency).

    Points that are not better than the reference in both add nothing. Larger is better; 0 for no
    points.
    """
    slowest_s, worst = reference
    require(slowest_s > 0, f"the reference latency is {slowest_s}", remedy="give positive seconds")
    better = [(latency_s, accuracy) for latency_s, accuracy in points if latency_s < slowest_s and accuracy > worst]
    require(all(latency_s > 0 for latency_s, _ in better), "a latency is not positive")
    area, below = 0.0, worst
    for i in undominated(better):
        latency_s, accuracy = better[i]
        area += math.log(slowest_s / latency_s) * (accuracy - below)
        below = accuracy
    return area
