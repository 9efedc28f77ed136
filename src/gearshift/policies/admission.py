"""Decides whether a request is admitted or dropped, and when a refused one may be sent again."""

from collections.abc import Sequence

LONGEST_RETRY_S = 3600


def admits(
    waiting: int, waiting_bytes: int, rows: int, request_bytes: int, most_waiting: int, most_waiting_bytes: int
) -> bool:
    """Admit a request as a whole while queued samples and bytes, with its own, are in bounds."""
    return waiting + rows <= most_waiting and waiting_bytes + request_bytes <= most_waiting_bytes


def fair_share(most_waiting: int) -> int:
    """Rows of one client connection that count against others: half of those that may wait.

    One client may fill the queues, and others can still use the other half.
    """
    return max(1, most_waiting // 2)


def retry_after_s(
    waiting: int,
    waiting_bytes: int,
    rows: int,
    request_bytes: int,
    most_waiting: int,
    most_waiting_bytes: int,
    capacity_qps: float,
) -> int:
    """Whole seconds, at least 1, until there is room for a refused request.

    Samples are taken to leave the queues at `capacity_qps`, and bytes evenly with them.
    """
    too_many = float(max(0, waiting + rows - most_waiting))
    too_many_bytes = waiting_bytes + request_bytes - most_waiting_bytes
    if too_many_bytes > 0 and waiting_bytes > 0:
        too_many = max(too_many, waiting * min(1.0, too_many_bytes / waiting_bytes))
    seconds = min(float(LONGEST_RETRY_S), too_many / capacity_qps)
    return max(1, int(-(-seconds // 1)))


def given_up(held_bytes: Sequence[int], most_bytes: int) -> int | None:
    """The place of the connection that must drop its message; None where all may go on.

    `held_bytes` are in the order in which the connections' youngest messages began. Among those
    that take more than an equal share, the youngest is dropped: the others are further on, and
    small messages are never in the way of large ones. A single one always goes on: another bound
    limits its size.
    """
    holding = sum(held > 0 for held in held_bytes)
    if sum(held_bytes) <= most_bytes or holding < 2:
        return None
    return max(place for place, held in enumerate(held_bytes) if held > most_bytes // holding)
