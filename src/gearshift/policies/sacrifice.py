"""Whom a queue under pressure gives up, so that the others make it."""

from collections.abc import Sequence


def sacrificed(
    deadlines_ns: Sequence[int], waiting: int, now_ns: int, run_ns: Sequence[int], largest_batch: int
) -> int:
    """How many of the most urgent are refused at the start of a batch, for the fewest misses of all who wait.

    A batch is no larger than its most urgent request allows.  Under pressure that is a trap: small batches are served
    slowly, the queue grows, everyone becomes urgent, and batches stay small for ever.  Each way to give up the first
    j is followed through, with batches as large as their most urgent then allows, up to the first j that allows a
    whole batch; of equals the smallest j is taken.  `run_ns[b]` is the time of a batch of b; deadlines come earliest
    first, of `waiting` samples.
    """
    best, fewest = 0, waiting + 1
    for j in range(waiting):
        i, misses, at_ns = j, j, now_ns
        while i < waiting and misses < fewest:
            left_ns = deadlines_ns[i] - at_ns
            if run_ns[1] > left_ns:
                misses += 1
                i += 1
                continue
            size = waiting - i if waiting - i < largest_batch else largest_batch
            while run_ns[size] > left_ns:
                size -= 1
            at_ns += run_ns[size]
            i += size
        if misses < fewest:
            best, fewest = j, misses
        whole = waiting - j if waiting - j < largest_batch else largest_batch
        if now_ns + run_ns[whole] <= deadlines_ns[j]:
            break
    return best
