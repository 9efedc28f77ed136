"""A clock for tests and virtual runs."""


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
