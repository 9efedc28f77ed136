"""Whether a request is let in."""


def admits(
    waiting: int, waiting_bytes: int, rows: int, request_bytes: int, most_waiting: int, most_waiting_bytes: int
) -> bool:
    """A request is admitted whole while queued samples and bytes, its own included, stay within their bounds."""
    return waiting + rows <= most_waiting and waiting_bytes + request_bytes <= most_waiting_bytes


def counted_rows(rows: int, most_waiting: int) -> int:
    """How many of the `rows` of one client connection count against others: at most half of those that may wait.

    One client may fill the queues, and others still find the other half.
    """
    return min(rows, max(1, most_waiting // 2))
