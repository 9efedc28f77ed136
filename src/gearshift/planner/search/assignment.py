"""Which cascade for which load range: the best monotone assignment."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gearshift.planner.space.cascade_search import CandidateCascade


def best_monotone_assignment(
    candidates: Sequence[CandidateCascade], highest_range: Sequence[int], weights: NDArray[np.float64]
) -> list[int]:
    """A candidate per range, work not rising with load, with the greatest weighted accuracy.

    Candidate c holds in ranges 0 to `highest_range[c]` (-1: in none).  Candidates come by rising work.  Exact, by
    dynamic programming from the highest range down: `best[c]` is the best total of ranges k and up when range k has
    candidate c, and what range k - 1 may have is c or any dearer one.  Equal totals go to less work.
    The cheapest candidate must hold everywhere.
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
