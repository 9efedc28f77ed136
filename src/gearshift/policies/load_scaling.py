"""The factor for measured load that makes its distribution the plan's (CascadeServe appendix C.2).

Loads are counted in bins that are `1 / STEPS_PER_OCTAVE` of an octave wide, so that multiplying
every load by a factor moves each count by the same number of bins.
"""

from collections.abc import MutableSequence, Sequence

STEPS_PER_OCTAVE = 16
BINS = 24 * STEPS_PER_OCTAVE
LARGEST_STEP = 5 * STEPS_PER_OCTAVE
"""Factors are from 1/32 to 32."""
LOAD_EDGES = tuple(2.0 ** (edge / STEPS_PER_OCTAVE - 3) for edge in range(BINS))
"""Where the bins of load begin, in requests per second; the first also holds lower loads."""
FACTORS = tuple(2.0 ** (step / STEPS_PER_OCTAVE) for step in range(-LARGEST_STEP, LARGEST_STEP + 1))
TICKS_PER_ESTIMATE = 600
"""In ticks of the meter: a minute."""


def load_bin(load: float, edges: Sequence[float]) -> int:
    """The bin that holds `load`; bins begin at `edges`."""
    low, high = 0, len(edges) - 1
    while low < high:
        middle = (low + high + 1) // 2
        if edges[middle] <= load:
            low = middle
        else:
            high = middle - 1
    return low


def load_factor(
    counts: Sequence[int],
    below: MutableSequence[int],
    range_bins: Sequence[int],
    planned_shares: Sequence[float],
    factors: Sequence[float],
) -> float:
    """The one of `factors` that brings measured loads, counted by bin (bins,), closest to the plan.

    Closest means the smallest sum of differences from the planned shares of time below the
    beginning of each load range, whose bins are `range_bins` (gears,); of equal factors the one
    nearest to 1. `planned_shares` (gears,) are the shares of time planned for each range; `below`
    (bins + 1,) is working memory.
    """
    total = 0
    for place in range(len(counts)):
        below[place] = total
        total += counts[place]
    below[len(counts)] = total
    middle = len(factors) // 2
    best, least = middle, -1.0
    if total == 0:
        return factors[best]
    for turn in range(len(factors)):
        step = (turn + 1) // 2 if turn % 2 == 1 else -(turn // 2)
        planned, apart = 0.0, 0.0
        for gear in range(1, len(range_bins)):
            planned += planned_shares[gear - 1]
            place = min(max(range_bins[gear] - step, 0), len(counts))
            apart += abs(below[place] / total - planned)
        if least < 0 or apart < least - 1e-9:
            best, least = middle + step, apart
    return factors[best]
