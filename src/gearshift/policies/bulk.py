"""Decides for bulk work: the replica it waits for, and how much of it starts where nothing else does."""

from collections.abc import Sequence

STARVATION_PER_BATCH = 200
"""A batch of bulk work takes at most this part of the time after which an online sample starves, which by default
is ten latency objectives: a sample that comes meanwhile waits for a twentieth of its objective."""


def shortest_queue(lengths: Sequence[int], begin: int, end: int) -> int:
    """The place of the shortest queue from `begin` to `end`, the first of several; -1 if no length is from 0 up."""
    shortest = -1
    for place in range(begin, end):
        if lengths[place] >= 0 and (shortest < 0 or lengths[place] < lengths[shortest]):
            shortest = place
    return shortest


def bulk_batch_size(queued: int, largest: int, run_ns: Sequence[int], starvation_ns: int) -> int:
    """As many samples as do not keep a device for long, at least one; `run_ns` is by batch size."""
    size = min(queued, largest)
    if starvation_ns > 0:
        while size > 1 and run_ns[size] * STARVATION_PER_BATCH > starvation_ns:
            size -= 1
    return size
