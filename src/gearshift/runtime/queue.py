"""The queue of one replica, in the order that `policies/order.py` decides."""

import heapq

from gearshift.policies.order import Urgency, is_starving, queue_key
from gearshift.request import NO_DEADLINE_NS, Sample


class WaitingQueue:
    """Samples in two orders at once: most urgent first, and longest here first.

    Each order is a heap of entries; a sample taken by one is passed over in the other once it surfaces there.
    `limited` says whether a client's deadline has come in since it was empty last.
    """

    def __init__(self, starvation_ns: int) -> None:
        self._starvation_ns = starvation_ns
        self._by_urgency: list[tuple[Urgency, Sample]] = []
        self._by_entry: list[tuple[tuple[int, int], Sample]] = []
        self._waiting: dict[int, int] = {}
        self.limited = False

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, sample: Sample, now_ns: int) -> None:
        """Queue `sample` as entered now."""
        sample.entered_ns = now_ns
        self._waiting[sample.sequence] = now_ns
        request = sample.request
        deadline_ns = request.order_deadline_ns
        self.limited = self.limited or deadline_ns < NO_DEADLINE_NS
        key = queue_key(request.priority, deadline_ns, now_ns, sample.sequence)
        heapq.heappush(self._by_urgency, (key, sample))
        heapq.heappush(self._by_entry, ((now_ns, sample.sequence), sample))

    def head(self) -> Sample:
        """The most urgent sample."""
        heap = self._by_urgency
        while self._waiting.get(heap[0][1].sequence) != heap[0][0][2]:
            heapq.heappop(heap)
        return heap[0][1]

    def oldest(self) -> Sample:
        """The sample that has been here longest."""
        heap = self._by_entry
        while self._waiting.get(heap[0][1].sequence) != heap[0][0][0]:
            heapq.heappop(heap)
        return heap[0][1]

    def is_starving(self, now_ns: int) -> bool:
        """Whether the oldest sample goes before all others."""
        return is_starving(self.oldest().entered_ns, now_ns, self._starvation_ns)

    def next_out(self, now_ns: int) -> Sample:
        """The sample that goes next: the oldest where it starves, else the most urgent."""
        return self.oldest() if self.is_starving(now_ns) else self.head()

    def take(self, count: int, now_ns: int) -> list[Sample]:
        """Remove `count` samples: starving ones by age, then the most urgent."""
        taken, starving = [], True
        for _ in range(count):
            starving = starving and self.is_starving(now_ns)  # once one is not, none that is younger is
            sample = self.oldest() if starving else self.head()
            del self._waiting[sample.sequence]
            taken.append(sample)
        if not self._waiting:
            self._forget()
        return taken

    def waiting(self) -> list[Sample]:
        """All samples, in no order."""
        return [sample for (entered, _), sample in self._by_entry if self._is_here(sample, entered)]

    def remove(self, sample: Sample) -> bool:
        """Take `sample` out; False where it is not here."""
        here = self._waiting.pop(sample.sequence, None) is not None
        if not self._waiting:
            self._forget()
        return here

    def clear(self) -> list[Sample]:
        """Remove all, oldest first."""
        gone = [
            sample for (entered, _), sample in sorted(self._by_entry, key=_by_key) if self._is_here(sample, entered)
        ]
        self._waiting.clear()
        self._forget()
        return gone

    def _forget(self) -> None:
        self._by_urgency.clear()
        self._by_entry.clear()
        self.limited = False

    def _is_here(self, sample: Sample, entered_ns: int) -> bool:
        return self._waiting.get(sample.sequence) == entered_ns


def _by_key(entry: tuple[tuple[int, int], Sample]) -> tuple[int, int]:
    return entry[0]
