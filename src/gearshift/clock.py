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


class ManualClock:
    """A clock that stands still until it is moved, for tests and virtual runs."""

    def __init__(self) -> None:
        self._now_ns = 0

    def now_ns(self) -> int:
        return self._now_ns

    def move_to(self, now_ns: int) -> None:
        """Set the time; raises `ValueError` where it would go back."""
        if now_ns < self._now_ns:
            raise ValueError(f"time cannot go back from {self._now_ns} to {now_ns}")
        self._now_ns = now_ns
