"""Queues: of one replica, in the order of `policies/order.py`; of rows to refine, in that of `policies/refine.py`.

Those of bulk work are apart.
"""

import heapq
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterator
from itertools import chain
from typing import Any

from gearshift.plans.plan_tables import PlanTables
from gearshift.policies.bulk import shortest_queue
from gearshift.policies.order import is_starving, queue_key
from gearshift.policies.refine import LEVELS
from gearshift.request import NO_DEADLINE_NS, Sample

Entry = tuple[Any, ...]
"""Integers that set the order, the last two of them entry time and number; then the sample."""
MOST_GONE = 8
"""Most entries beyond twice the waiting samples, before those of gone samples are removed."""


class InOrder:
    """Entries in ascending order.

    Entries that arrive in order, as almost all do, are in a deque, where only the ends are
    touched; the others are in a heap. With a heap alone, each removal would compare a dozen
    entries that are in no processor cache, which makes an overloaded server slowest.
    """

    def __init__(self) -> None:
        self._line: deque[Entry] = deque()
        self._heap: list[Entry] = []

    def __iter__(self) -> Iterator[Entry]:
        return chain(self._line, self._heap)

    def __len__(self) -> int:
        return len(self._line) + len(self._heap)

    def add(self, entry: Entry) -> None:
        if self._line and entry < self._line[-1]:
            heapq.heappush(self._heap, entry)
        else:
            self._line.append(entry)

    def first(self) -> Entry:
        line, heap = self._line, self._heap
        return heap[0] if heap and (not line or heap[0] < line[0]) else line[0]

    def drop_first(self) -> None:
        if self._line and self.first() is self._line[0]:
            self._line.popleft()
        else:
            heapq.heappop(self._heap)

    def clear(self) -> None:
        self._line.clear()
        self._heap.clear()

    def keep(self, waiting: dict[int, int]) -> None:
        """Keep only the entries of waiting samples (number to entry time)."""
        self._line = deque([entry for entry in self._line if waiting.get(entry[-2]) == entry[-3]])
        self._heap = [entry for entry in self._heap if waiting.get(entry[-2]) == entry[-3]]
        heapq.heapify(self._heap)


class WaitingQueue:
    """Samples in two orders at once: by urgency, and by entry time.

    A sample taken by one order is skipped in the other when it surfaces there, or is removed with
    many others. `limited`: a sample with a client's deadline has entered since the queue was
    empty.
    """

    def __init__(self, starvation_ns: int) -> None:
        self._starvation_ns = starvation_ns
        self._by_urgency, self._by_entry = InOrder(), InOrder()
        self._waiting: dict[int, int] = {}
        self.limited = False

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, sample: Sample, now_ns: int) -> None:
        sample.entered_ns = now_ns
        self._waiting[sample.sequence] = now_ns
        request = sample.request
        deadline_ns = request.deadline_ns
        self.limited = self.limited or deadline_ns < NO_DEADLINE_NS
        priority, by_ns, entered_ns, sequence = queue_key(request.priority, deadline_ns, now_ns, sample.sequence)
        self._by_urgency.add((priority, by_ns, entered_ns, sequence, sample))
        self._by_entry.add((now_ns, sample.sequence, sample))

    def head(self) -> Sample:
        while True:
            _, _, entered_ns, sequence, sample = self._by_urgency.first()
            if self._waiting.get(sequence) == entered_ns:
                return sample  # type: ignore[no-any-return]
            self._by_urgency.drop_first()

    def oldest(self) -> Sample:
        while True:
            entered_ns, sequence, sample = self._by_entry.first()
            if self._waiting.get(sequence) == entered_ns:
                return sample  # type: ignore[no-any-return]
            self._by_entry.drop_first()

    def is_starving(self, now_ns: int) -> bool:
        return is_starving(self.oldest().entered_ns, now_ns, self._starvation_ns)

    def next_out(self, now_ns: int) -> Sample:
        return self.oldest() if self.is_starving(now_ns) else self.head()

    def take(self, count: int, now_ns: int) -> list[Sample]:
        """Remove `count` samples: starving ones by age, then the most urgent."""
        taken, starving = [], True
        for _ in range(count):
            starving = starving and self.is_starving(now_ns)  # if the oldest does not starve, none does
            sample = self.oldest() if starving else self.head()
            del self._waiting[sample.sequence]
            taken.append(sample)
        self._forget()
        return taken

    def waiting(self) -> list[Sample]:
        return [sample for entered_ns, sequence, sample in self._by_entry if self._waiting.get(sequence) == entered_ns]

    def remove(self, sample: Sample) -> bool:
        here = self._waiting.pop(sample.sequence, None) is not None
        self._forget()
        return here

    def clear(self) -> list[Sample]:
        gone = sorted(self.waiting(), key=lambda sample: (sample.entered_ns, sample.sequence))
        self._waiting.clear()
        self._forget()
        return gone

    def _forget(self) -> None:
        waiting = self._waiting
        if not waiting:
            self._by_urgency.clear()
            self._by_entry.clear()
            self.limited = False
            return
        most = MOST_GONE + 2 * len(waiting)
        for order in (self._by_urgency, self._by_entry):
            if len(order) > most:
                order.keep(waiting)


Until = tuple[int, int]
"""When a row's time to refine ends, and its number."""


class GainQueue:
    """Rows that have an answer and wait for a better one, in the order of `policies/refine.py`."""

    def __init__(self) -> None:
        self._by_time: list[Until] = []
        self._at_level: list[list[Until]] = [[] for _ in range(LEVELS)]
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

    def last(self) -> Sample:
        """The row that is refined last, of those of the lowest level."""
        _, sequence = next(entries for entries in self._at_level if entries)[-1]
        return self._waiting[sequence][0]

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


class BulkQueues:
    """Queues of bulk work: one for each replica, from which a device takes a batch when it starts nothing else.

    Neither meter nor backlog counts what is in them.

    `waiting` counts the samples in all of them; `skipped` marks replicas that take none.
    """

    def __init__(self, tables: PlanTables, skipped: list[bool]) -> None:
        self.queues = [WaitingQueue(0) for _ in tables.replica_ids]
        self._model_begin: list[int] = tables.model_begin.tolist()
        self._skipped = skipped
        self.waiting = 0

    def choose(self, model: int) -> int:
        """The replica of `model` with the shortest queue, -1 if all are skipped."""
        begin, end = self._model_begin[model : model + 2]
        lengths = [-1 if self._skipped[replica] else len(self.queues[replica]) for replica in range(begin, end)]
        place = shortest_queue(lengths, 0, end - begin)
        return place if place < 0 else begin + place

    def add(self, sample: Sample, replica: int, now_ns: int) -> None:
        self.queues[replica].add(sample, now_ns)
        self.waiting += 1

    def take(self, replica: int, count: int, now_ns: int) -> list[Sample]:
        self.waiting -= count
        return self.queues[replica].take(count, now_ns)

    def remove(self, sample: Sample) -> bool:
        here = self.queues[sample.replica].remove(sample)
        self.waiting -= here
        return here

    def clear(self, replica: int) -> list[Sample]:
        gone = self.queues[replica].clear()
        self.waiting -= len(gone)
        return gone

    def first(self, replicas: list[int]) -> int:
        """The replica whose oldest sample has waited longest, the first of several; -1 if none waits."""
        chosen, oldest_ns = -1, 0
        for replica in replicas:
            queue = self.queues[replica]
            if len(queue):
                entered_ns = queue.oldest().entered_ns
                if chosen < 0 or entered_ns < oldest_ns:
                    chosen, oldest_ns = replica, entered_ns
        return chosen
