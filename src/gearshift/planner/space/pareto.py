"""Plans that no other beats, and the area of the latency-accuracy plane that they cover."""

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from gearshift.errors import require


def front_indices(work: NDArray[np.float64], score: NDArray[np.float64]) -> NDArray[np.int64]:
    """Indices of points (n,) with more score than all with as little work, by rising work."""
    order = np.lexsort((-score, work))
    best = np.maximum.accumulate(score[order])
    improves = np.concatenate([[True], score[order][1:] > best[:-1]])
    front: NDArray[np.int64] = order[improves]
    return front


def undominated(points: Sequence[tuple[float, float]]) -> list[int]:
    """Indices of points (latency, accuracy) that no other dominates, by rising latency.

    Of equal points the first stays.
    """
    kept: list[int] = []
    for i in sorted(range(len(points)), key=lambda i: (points[i][0], -points[i][1], i)):
        if not kept or points[i][1] > points[kept[-1]][1]:
            kept.append(i)
    return kept


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
