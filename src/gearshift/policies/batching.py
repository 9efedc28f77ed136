"""Decides when a batch starts, and its size."""

NOT_YET = 0
FULL = 1
LONGEST_WAIT = 2
RETRY = 3
"""A batch of samples that have lost their worker; never a result of `start_reason`."""
AUDIT = 4
"""A sample that asks the strongest model for a second answer; never a result of `start_reason`."""
DEADLINE = 5
"""A batch that starts early, as it would end after its head's deadline otherwise; never a result
of `start_reason`."""
REFINES = 6
"""A batch of rows that have an answer, and wait for a better one; never a result of `start_reason`."""
BULK = 7
"""A batch of bulk work, on a device on which nothing else starts; never a result of `start_reason`."""


def start_reason(
    queue_length: int, oldest_entered_ns: int, now_ns: int, minimum_queue_length: int, longest_wait_ns: int
) -> int:
    """Why a batch may start now: `FULL` at the minimum queue length, `LONGEST_WAIT`, or `NOT_YET`."""
    if queue_length == 0:
        return NOT_YET
    if queue_length >= minimum_queue_length:
        return FULL
    if now_ns - oldest_entered_ns >= longest_wait_ns:
        return LONGEST_WAIT
    return NOT_YET


def batch_size(queue_length: int, largest_batch_size: int) -> int:
    """A batch takes all queued samples up to the largest size."""
    return queue_length if queue_length < largest_batch_size else largest_batch_size
