"""Limits warnings that strangers can cause at any rate: one now and then, with the number of those left out."""

import logging
import time
from collections.abc import Callable

EVERY_S = 10.0


class Seldom:
    """Logs at most one warning in `EVERY_S`."""

    def __init__(self, log: logging.Logger, now_s: Callable[[], float] = time.monotonic) -> None:
        self._log, self._now_s = log, now_s
        self._next_s = float("-inf")
        self._left_out = 0

    def warning(self, text: str, *values: object) -> None:
        """Log it, and how many were left out since the last one, or leave it out."""
        now_s = self._now_s()
        if now_s < self._next_s:
            self._left_out += 1
            return
        more = f" ({self._left_out} more like this before)" if self._left_out else ""
        self._log.warning(text + more, *values)
        self._next_s, self._left_out = now_s + EVERY_S, 0
