"""The latest events of a journal, kept for who looks at the server now."""

import time
from collections import deque
from collections.abc import Callable

import msgspec

from gearshift.observability.journal import ARRIVALS, Journal

MOST_EVENTS = 100
MOST_EVENT_BYTES = 2000


class RecentEvents(Journal):
    """Writes to another journal, and keeps the latest events as JSON, but for `arrivals`, which come all the time."""

    def __init__(self, journal: Journal, now_s: Callable[[], float] = time.time) -> None:
        self._journal, self._now_s = journal, now_s
        self._kept: deque[tuple[float, bytes]] = deque(maxlen=MOST_EVENTS)
        self._count = 0

    def write(self, event: str, **facts: object) -> None:
        self._journal.write(event, **facts)
        if event == ARRIVALS:
            return
        self._count += 1
        at = round(self._now_s(), 3)
        head: dict[str, object] = {"number": self._count, "at": at, "event": event}
        encoded = msgspec.json.encode(facts | head)
        self._kept.append((at, encoded if len(encoded) <= MOST_EVENT_BYTES else msgspec.json.encode(head)))

    def close(self) -> None:
        self._journal.close()

    def as_json(self) -> bytes:
        """A list of the events, the latest last; one with very long facts stands without them."""
        return b"[" + b",".join(encoded for _, encoded in self._kept) + b"]"

    def after(self, at_s: float) -> list[msgspec.Raw]:
        """Those after the Unix time `at_s`, the latest last."""
        return [msgspec.Raw(encoded) for at, encoded in self._kept if at > at_s]
