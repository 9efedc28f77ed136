"""When a model with a limit on requests or tokens per minute may be sent the next request.

The generic cell rate algorithm (ITU-T I.371): each request moves a due time on by its cost, and one
may be sent while the due time is less than `BURST_NS` ahead.
"""

MINUTE_NS = 60_000_000_000
BURST_NS = 5_000_000_000
"""Limits are enforced over less than a minute, so a minute's requests are not sent at once."""


def due_after_ns(due_ns: int, now_ns: int, cost: int, per_minute: int) -> int:
    """The due time once a request of this cost has been sent."""
    return max(due_ns, now_ns) + cost * MINUTE_NS // per_minute


def opens_ns(due_ns: int) -> int:
    """When the next request may be sent."""
    return due_ns - BURST_NS
