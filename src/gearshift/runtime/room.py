"""How much a service may hold at a time: samples that wait, and bytes of requests that are read or not answered yet."""

from collections.abc import Callable
from types import TracebackType
from typing import Protocol

from gearshift.errors import QueueFull
from gearshift.policies.admission import admits


class Queues(Protocol):
    """Where samples wait."""

    @property
    def waiting(self) -> int:
        """How many do."""
        ...


class Elsewhere(Protocol):
    """What other processes hold for the same service."""

    @property
    def waiting(self) -> int:
        """Requests that they read."""
        ...

    @property
    def held_bytes(self) -> int:
        """Bytes of those."""
        ...


class Nowhere:
    """There are no other processes."""

    waiting: int = 0
    held_bytes: int = 0


class Room:
    """Bounds on samples in `queues` and on bytes; `refused` is told of each refusal.

    An idle system admits any request (`policies/admission.py`).  What is held `elsewhere` counts too.
    """

    def __init__(self, queues: Queues, most_requests: int, most_bytes: int, refused: Callable[[], None]) -> None:
        self._most_requests, self._most_bytes = most_requests, most_bytes
        self._queues, self._refused = queues, refused
        self.elsewhere: Elsewhere = Nowhere()
        self.reading = 0
        self.held_bytes = 0

    @property
    def waiting(self) -> int:
        """Samples that wait here, and requests that are read here."""
        return self._queues.waiting + self.reading

    @property
    def all_held_bytes(self) -> int:
        """Those held elsewhere included."""
        return self.held_bytes + self.elsewhere.held_bytes

    def admits(self, rows: int, payload_bytes: int) -> bool:
        """Whether a request of `rows` may come in."""
        waiting = self.waiting + self.elsewhere.waiting
        return admits(waiting, self.all_held_bytes, rows, payload_bytes, self._most_requests, self._most_bytes)

    def require(self, rows: int, payload_bytes: int) -> None:
        """Raise `QueueFull` where a request of `rows` is one too many."""
        if not self.admits(rows, payload_bytes):
            raise self.full()

    def require_more(self, held_bytes: int, more_bytes: int) -> None:
        """Raise `QueueFull` where `more_bytes` are too many beside others than the `held_bytes` of their request."""
        if self.all_held_bytes + more_bytes > self._most_bytes and self.all_held_bytes > held_bytes:
            raise self.full()

    def full(self) -> QueueFull:
        """What a request is refused with, which is counted."""
        self._refused()
        waiting = self.waiting + self.elsewhere.waiting
        return QueueFull(f"{waiting} requests wait and {self.all_held_bytes} bytes are held already; try again later")


class Reading:
    """The bytes of a request that is being read, held until the block, or `close`, ends that."""

    __slots__ = ("_bytes", "_room")

    def __init__(self, room: Room, payload_bytes: int) -> None:
        self._room: Room | None = room
        self._bytes = payload_bytes
        room.reading += 1
        room.held_bytes += payload_bytes

    def hold(self, more_bytes: int) -> None:
        """Hold further bytes of a body whose length was not known; raises `QueueFull`."""
        if self._room is not None:
            self._room.require_more(self._bytes, more_bytes)
            self._bytes += more_bytes
            self._room.held_bytes += more_bytes

    def close(self) -> None:
        """Hold them no longer; may be called twice."""
        if self._room is not None:
            self._room.reading -= 1
            self._room.held_bytes -= self._bytes
            self._room = None

    def __enter__(self) -> "Reading":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
