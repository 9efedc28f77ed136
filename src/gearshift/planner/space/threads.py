"""The number of replays to run in threads: the kernel releases the interpreter's lock."""

from gearshift.support.processors import usable_processors

MOST_REQUESTS_AT_ONCE = 60_000_000
"""A replay with its figures takes about 60 bytes per request of the trace: 3.6 GB in all."""


def replays_at_once(requests: int) -> int:
    """One per processor, fewer for long traces, to limit memory; at least one."""
    return max(1, min(usable_processors(), MOST_REQUESTS_AT_ONCE // requests))
