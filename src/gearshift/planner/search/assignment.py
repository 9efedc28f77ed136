"""The best monotone assignment of cascades to load ranges."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gearshift.planner.space.cascade_search import CandidateCascade


def best_monotone_assignment(
    candidates: Sequence[CandidateCascade], highest_range: Sequence[int], weights: NDArray[np.float64]
) -> list[int]:
    """A candidate per range, work not rising with load, with the greatest weighted accuracy.

    Candidate c, by rising work, holds in ranges 0 to `highest_range[c]` (-1: in none); the
    cheapest must hold everywhere. Exact, by dynamic programming from the highest range down:
    `best[c]` is the best total of ranges k and up when range k has candidate c; range k - 1 may
    have c or any more expensive one. Of equal totals the one with less work wins.
    """
    n, ranges = len(candidates), len(weights)
    accuracy = np.array([c.accuracy for c in candidates])
    holds = np.array([[k <= highest_range[c] for c in range(n)] for k in range(ranges)])
    total = np.where(holds[-1], weights[-1] * accuracy, -np.inf)
    follow: list[NDArray[np.int64]] = []
    for k in range(ranges - 2, -1, -1):
        cheapest_best = np.zeros(n, dtype=np.int64)
        for c in range(1, n):
            cheapest_best[c] = c if total[c] > total[cheapest_best[c - 1]] + 1e-15 else cheapest_best[c - 1]
        follow.append(cheapest_best)
        total = np.where(holds[k], weights[k] * accuracy + total[cheapest_best], -np.inf)
    first = int(np.argmax(total))
    assignment = [first]
    for cheapest_best in reversed(follow):
        assignment.append(int(cheapest_best[assignment[-1]]))
    return assignment
