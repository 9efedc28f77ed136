"""Refinement: rows that have an answer wait for a better one in the order of expected gain, until time ends.

`docs/design/refinement.md` has the rules. A level is an expected gain in `LEVELS` steps.
"""

from collections.abc import Sequence

LEVELS = 64
SCREEN = 0
REFINE = 1
URGENT = 2
OVERRUN_DIVISOR = 4
"""A batch overruns from this part of its expected time on, after its end was due."""


def expected_gain(certainty: float, begin: int, end: int, points: Sequence[float], gains: Sequence[float]) -> float:
    """The gain at the last of `points[begin:end]`, which rise, that `certainty` reaches; else the first."""
    low, high = begin, end - 1
    while low < high:
        middle = (low + high + 1) // 2
        if points[middle] <= certainty:
            low = middle
        else:
            high = middle - 1
    return gains[low]


def refine_key(gain: float, greatest: float) -> int:
    """The level of an expected gain, where `greatest` is the largest that occurs; 0 for none."""
    if gain <= 0 or greatest <= 0:
        return 0
    level = int(gain / greatest * LEVELS)
    return level if level < LEVELS else LEVELS - 1


def refine_until_ns(answer_by_ns: int, margin_ns: int, deadline_ns: int) -> int:
    """When a row's time to refine ends: the objective's, less the way back, or the client's if it is earlier."""
    by_objective_ns = answer_by_ns - margin_ns
    return by_objective_ns if by_objective_ns < deadline_ns else deadline_ns


def may_finish(until_ns: int, now_ns: int, run_ns: int) -> bool:
    """Whether a run that starts now ends within the time to refine."""
    return now_ns + run_ns <= until_ns


def release_at_ns(until_ns: int, one_run_ns: int) -> int:
    """The first instant at which a batch of this row alone would end too late."""
    return until_ns - one_run_ns + 1


def overrun_ns(started_ns: int, run_ns: int) -> int:
    """When a batch of rows with an answer, which was to run for `run_ns`, waits no more for a better one."""
    return started_ns + run_ns + run_ns // OVERRUN_DIVISOR


def answers_overrun(until_ns: int, overrun_ns: int, now_ns: int) -> bool:
    """Whether a row of a running batch is answered with what it has: its batch overruns, and its time has ended."""
    return until_ns <= now_ns and overrun_ns <= now_ns


def screen_batch_size(waiting: int, most: int, run_ns: Sequence[int]) -> int:
    """The size up to `waiting` and `most` that takes the least time for each row; the larger at a tie."""
    best = 1
    for size in range(2, (waiting if waiting < most else most) + 1):
        if run_ns[size] * best <= run_ns[best] * size:
            best = size
    return best


def refine_batch_size(
    count: int, most: int, run_ns: Sequence[int], left_ns: Sequence[int], levels: Sequence[int], for_gain: bool
) -> int:
    """The size of a batch from `count` rows in the order of their levels; 0 if none can finish alone.

    A row can be in a batch of some size if that runs no longer than the row's `left_ns`; the batch
    takes the first rows that can. Of the sizes for which there are enough, the one with the most
    gain per second, or with the most rows. The larger wins a tie.
    """
    least_ns = left_ns[0] if count > 0 else 0
    for i in range(1, count):
        least_ns = min(least_ns, left_ns[i])
    best, best_worth, best_run_ns, worth_of_all = 0, 0, 1, 0
    for size in range(1, (count if count < most else most) + 1):
        worth_of_all += 2 * levels[size - 1] + 1
        size_run_ns = run_ns[size]
        worth = worth_of_all if for_gain else size
        if worth * best_run_ns < best_worth * size_run_ns:
            continue
        if size_run_ns > least_ns:
            found = worth = 0
            for i in range(count):
                if left_ns[i] >= size_run_ns:
                    found += 1
                    worth += 2 * levels[i] + 1 if for_gain else 1
                    if found == size:
                        break
            if found < size or worth * best_run_ns < best_worth * size_run_ns:
                continue
        best, best_worth, best_run_ns = size, worth, size_run_ns
    return best


def screen_or_refine(
    refines: bool,
    screened_last: bool,
    full: bool,
    until_ns: int,
    now_ns: int,
    urgent_ns: int,
    screen_ns: int,
    refine_ns: int,
) -> int:
    """The first work of an idle device: `SCREEN` the rows that have waited longest, `REFINE` if it can, or `URGENT`.

    In turn, but it screens again while unscreened rows of some model fill a batch (`full`). Before
    either, rows are screened of which the time of one ends first (`until_ns`), where only that
    keeps it: a batch of them now, in `urgent_ns`, is in time, and would not be behind the other.
    """
    first, first_ns = SCREEN, screen_ns
    if refines and screened_last and not full:
        first, first_ns = REFINE, refine_ns
    if now_ns + urgent_ns <= until_ns < now_ns + first_ns + urgent_ns:
        return URGENT
    return first
