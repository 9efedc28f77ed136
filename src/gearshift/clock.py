"""Time as an object: int64 nanoseconds since the run began."""

import time
from typing import Protocol

NS_PER_S = 1_000_000_000
NEVER_NS = 1 << 62
"""Later than any instant of a run."""


def to_ns(seconds: float) -> int:
    return round(seconds * NS_PER_S)


class Clock(Protocol):
    """The runtime's source of time, in nanoseconds since the run began."""

    def now_ns(self) -> int: ...


class WallClock:
    """The machine's monotonic clock, counted from its creation or from a given origin."""

    def __init__(self, origin_ns: int | None = None) -> None:
        self.origin_ns = time.monotonic_ns() if origin_ns is None else origin_ns

    def now_ns(self) -> int:
        return time.monotonic_ns() - self.origin_ns
