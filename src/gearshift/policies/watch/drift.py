"""Whether the world has moved away from what a plan was made for.

These look back over minutes and change no answer, so the simulator compiles none of them.
"""

import math
from collections.abc import Sequence

STRONG = 0.2
"""A difference of loads begins to count once it is certain that so much time is spent elsewhere than planned."""
OVER = 0.1
"""It is over when the measured difference is below this."""
ERROR_OF_CHANCE = 1e-6

WRONG_SHARE = 0.2
LEAST_WRONG_NS = 200_000
"""A fifth of a very short batch is within the noise of a clock and an event loop."""
SPANS_PER_EPISODE = 6


def load_distance(ticks: Sequence[int], planned_shares: Sequence[float]) -> float:
    """The Kolmogorov distance of measured load, `ticks` (gears,) in each range, from the planned shares (gears,).

    That is the most by which the share of time below the beginning of any range differs from the planned one.
    """
    total = sum(ticks)
    if total == 0:
        return 0.0
    below, planned, farthest = 0, 0.0, 0.0
    for count, share in zip(ticks, planned_shares, strict=True):
        below += count
        planned += share
        farthest = max(farthest, abs(below / total - planned))
    return farthest


def load_drifts(drifting: bool, distance: float, windows: float) -> bool:
    """Whether load has drifted, after `distance` was measured in so many windows of the meter that do not overlap.

    A drift begins where the distance is more than `STRONG` beyond what chance makes of as many draws from the planned
    distribution but once in 1 / `ERROR_OF_CHANCE` times (Dvoretzky, Kiefer and Wolfowitz 1956, with Massart's
    constant; halved, as the plan's own shares are a sample as well).  It ends where the distance is below `OVER`.
    """
    if drifting:
        return distance >= OVER
    if windows <= 0:
        return False
    return distance - math.sqrt(math.log(2 / ERROR_OF_CHANCE) / windows) > STRONG


def run_times_are_wrong(observed_ns: int, predicted_ns: int, batches: int) -> bool:
    """Whether so many batches took a fifth more or less in sum than was profiled."""
    wrong_ns = abs(observed_ns - predicted_ns)
    return wrong_ns > WRONG_SHARE * predicted_ns and wrong_ns > LEAST_WRONG_NS * batches


def episode(drifting: bool, against: int, wrong: bool) -> tuple[bool, int]:
    """Whether a profile has drifted after another ten seconds, and for how many in a row they have said otherwise.

    An episode begins, and ends, with the sixth in a row.
    """
    if wrong == drifting:
        return drifting, 0
    if against + 1 == SPANS_PER_EPISODE:
        return wrong, 0
    return drifting, against + 1
