"""The slowdown of models against their profile: learnt from batches, for gears and for refinement."""

from collections.abc import Sequence
from math import ceil

WEIGHT = 0.1
LEAST_OF_LOAD = 1.1
"""A slowdown below this is that of a sound machine, whose run times spread around the profile's medians."""
MOST_TIMES = 2.0
"""A batch counts as at most this many times the average so far, so that a stall changes little."""


def learnt(slowdown: float, took_ns: int, expected_ns: int) -> float:
    """The moving average of observed over expected run times, after one more batch."""
    if expected_ns <= 0:
        return slowdown
    ratio = took_ns / expected_ns
    ratio = min(ratio, MOST_TIMES * slowdown)
    return slowdown + WEIGHT * (ratio - slowdown)


def slowdown_of_load(slowdowns: Sequence[float], work_ns: Sequence[int], before: float) -> float:
    """The factor on load: the slowdowns of models, by the work that each has done of late.

    1 below `LEAST_OF_LOAD`; so a plan is not trusted to be right about a machine that is faster than
    profiled, either. `before` while nothing ran.
    """
    total, slowed = 0, 0.0
    for i in range(len(work_ns)):
        total += work_ns[i]
        slowed += work_ns[i] * slowdowns[i]
    if total == 0:
        return before
    return slowed / total if slowed >= LEAST_OF_LOAD * total else 1.0


def slowed_ns(run_ns: int, slowdown: float) -> int:
    """A profiled run time as it is to be expected now."""
    return run_ns if slowdown <= 1.0 else ceil(run_ns * slowdown)


def profiled_ns(left_ns: int, slowdown: float) -> int:
    """The profiled run time of what can be run now in `left_ns`."""
    return left_ns if slowdown <= 1.0 else int(left_ns / slowdown)
