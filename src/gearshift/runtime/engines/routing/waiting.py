"""Requests that wait for a model, earliest deadline first."""

from bisect import bisect_left, insort
from collections.abc import Iterator

from gearshift.runtime.engines.requests.engine_request import EngineRequest


class WaitingQueue:
    """By `order_ns`, and as they came where that is the same."""

    __slots__ = ("_entries", "_next", "_place")

    def __init__(self) -> None:
        self._entries: list[tuple[int, int, EngineRequest]] = []
        self._place: dict[EngineRequest, tuple[int, int]] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, request: EngineRequest) -> bool:
        return request in self._place

    def __iter__(self) -> Iterator[EngineRequest]:
        return (request for _, _, request in self._entries)

    def add(self, request: EngineRequest, *, first: bool = False) -> None:
        """With `first` it goes before those of the same order that are there."""
        place = self._place[request] = request.order_ns, -self._next if first else self._next
        self._next += 1
        insort(self._entries, (*place, request))

    def remove(self, request: EngineRequest) -> None:
        del self._entries[bisect_left(self._entries, self._place.pop(request))]

    def before(self, order_ns: int) -> list[EngineRequest] | None:
        """Those that go before a new one with this order; None for all of them."""
        if not self._entries or self._entries[-1][0] <= order_ns:
            return None
        return [request for _, _, request in self._entries[: bisect_left(self._entries, (order_ns + 1,))]]
