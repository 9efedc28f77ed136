"""By which emulated engines on the same devices know which of them are at work: times in a file that all map."""

import mmap
import os
import time
from collections.abc import Sequence
from pathlib import Path

from gearshift.policies.engines.sharing import stretch_of

STALE_NS = 50_000_000
"""An engine that ended without a word is taken to be at work for this long after its last."""


class Board:
    """`factors` (engines,) are those of the engine at `place` beside each of them."""

    def __init__(self, path: Path, place: int, factors: Sequence[float]) -> None:
        self._place, count = place, len(factors)
        self._members = range(count)
        self._factors = [0.0] * (count * count)
        self._factors[place * count : (place + 1) * count] = factors
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.ftruncate(file, 8 * count)
            self._until_ns = memoryview(mmap.mmap(file, 8 * count)).cast("q")
        finally:
            os.close(file)

    def stretch(self) -> float:
        """How many times as long as alone a step takes now."""
        now_ns = time.monotonic_ns()
        at_work = [int(until_ns >= now_ns) for until_ns in self._until_ns]
        return stretch_of(self._place, 0, len(at_work), self._members, at_work, self._factors)

    def work_until(self, until_ns: int) -> None:
        self._until_ns[self._place] = until_ns + STALE_NS

    def rest(self) -> None:
        self._until_ns[self._place] = 0
