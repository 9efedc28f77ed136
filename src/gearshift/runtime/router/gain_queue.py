"""The rows that have an answer and wait for a better one, in the order of `policies/refine.py`."""

from bisect import bisect_left, insort
from collections.abc import Iterator

from gearshift.policies.refine import LEVELS
from gearshift.request import Sample

Entry = tuple[int, int]
"""When a row's time to refine ends, and its number."""


class GainQueue:
    """Rows by the end of their time, and by level and then that end."""

    def __init__(self) -> None:
        self._by_time: list[Entry] = []
        self._at_level: list[list[Entry]] = [[] for _ in range(LEVELS)]
        self._waiting: dict[int, tuple[Sample, int, int]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, sample: Sample, until_ns: int, level: int) -> None:
        self._waiting[sample.sequence] = sample, until_ns, level
        entry = until_ns, sample.sequence
        insort(self._by_time, entry)
        insort(self._at_level[level], entry)

    def remove(self, sample: Sample) -> bool:
        """Remove a row; False if it does not wait here."""
        found = self._waiting.pop(sample.sequence, None)
        if found is None:
            return False
        _, until_ns, level = found
        entry = until_ns, sample.sequence
        for entries in (self._by_time, self._at_level[level]):
            del entries[bisect_left(entries, entry)]
        return True

    def first(self) -> tuple[Sample, int]:
        """The row whose time ends first, and when."""
        until_ns, sequence = self._by_time[0]
        return self._waiting[sequence][0], until_ns

    def best(self) -> tuple[int, int]:
        """The highest level of a row, and when the first at that level ends."""
        level = LEVELS - 1
        while not self._at_level[level]:
            level -= 1
        return level, self._at_level[level][0][0]

    def in_order(self) -> Iterator[tuple[Sample, int, int]]:
        """Rows in the order in which they are refined, each with the end of its time and its level."""
        for level in range(LEVELS - 1, -1, -1):
            for _, sequence in self._at_level[level]:
                yield self._waiting[sequence]

    def clear(self) -> list[Sample]:
        gone = [self._waiting[sequence][0] for _, sequence in self._by_time]
        self._waiting.clear()
        self._by_time.clear()
        for entries in self._at_level:
            entries.clear()
        return gone
