"""Whether a request is let in."""


def admits(
    waiting: int, waiting_bytes: int, rows: int, request_bytes: int, most_waiting: int, most_waiting_bytes: int
) -> bool:
    """A request is admitted whole while queued samples and bytes, its own included, stay within their bounds.

    An idle system admits any request, so that one larger than the bound is served and not refused for ever.
    """
    if waiting == 0:
        return True
    return waiting + rows <= most_waiting and waiting_bytes + request_bytes <= most_waiting_bytes
