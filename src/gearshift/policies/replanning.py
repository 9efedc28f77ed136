"""Decides which implementation of a node takes an item, by the time that is left for its request.

Gati section 5.2 splits that time over the nodes beforehand and ignores queues. Here each
implementation has a table: the expected quality of the whole request from here on, by the time
that is left when the item begins (`planner/joint/replanning/timed_quality.py`). What it would wait is taken off first.
"""

from collections.abc import Sequence

NO_CHOICE = -1


def wait_ns(waiting: int, largest: int, run_ns: Sequence[int], own: bool) -> int:
    """How much longer a device is busy with a queue of `waiting` items in batches up to `largest`.

    `run_ns` are the times of a replica's batches by size. With `own` another item joins the queue,
    and counts with what its batch takes longer than it would alone.
    """
    whole = waiting // largest * run_ns[largest]
    rest = waiting % largest
    if own:
        return whole + run_ns[rest + 1] - run_ns[1]
    return whole + run_ns[rest]


def best_choice(
    begin: int,
    end: int,
    left_ns: int,
    waits_ns: Sequence[int],
    visited: int,
    stage: int,
    prefixes: Sequence[int],
    most_stages: int,
    table_begin: Sequence[int],
    table_ns: Sequence[int],
    table_quality: Sequence[float],
) -> int:
    """The implementation of highest expected quality among `begin` to `end`, from cheap to dear.

    `left_ns` is the time left of the request, margin taken off, counted as if the item began now:
    with the run times of models it has visited added. `waits_ns[c - begin]` is what it would wait
    for its next model in implementation c. Once it has visited models (bits of `visited`, `stage`
    of them), only implementations count whose first `stage` models are these: `prefixes[c *
    most_stages + stage - 1]`. The table of c is `table_begin[c]` to `table_begin[c + 1]` of
    `table_ns`, which rise, and of `table_quality`; below its first time the quality is 0. At equal
    quality the cheaper one is taken; `NO_CHOICE` where none is left.
    """
    best, best_quality = NO_CHOICE, -1.0
    for choice in range(begin, end):
        if stage > 0 and prefixes[choice * most_stages + stage - 1] != visited:
            continue
        here_ns = left_ns - waits_ns[choice - begin]
        low, high = table_begin[choice], table_begin[choice + 1]
        first = low
        while low < high:
            middle = (low + high) // 2
            if table_ns[middle] <= here_ns:
                low = middle + 1
            else:
                high = middle
        quality = table_quality[low - 1] if low > first else 0.0
        if quality > best_quality:
            best, best_quality = choice, quality
    return best
