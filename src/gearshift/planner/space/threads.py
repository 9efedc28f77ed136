"""How many replays of a trace run side by side, in threads: the kernel runs without the interpreter's lock."""

from gearshift.support.processors import usable_processors

MOST_REQUESTS_AT_ONCE = 60_000_000
"""A replay with its figures holds some 60 bytes per request of the trace : 3.6 GB."""


def replays_at_once(requests: int) -> int:
    """One per processor, fewer where the trace has so many requests that memory would not do; one at least."""
    return max(1, min(usable_processors(), MOST_REQUESTS_AT_ONCE // requests))
