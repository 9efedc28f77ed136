"""All open connections of an HTTP server: their handler and bounds."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol

from gearshift.runtime.wire.seats import Caller, Seats
from gearshift.serving.http.http_exchange import HttpExchange

RESERVE = 64
"""Connections beyond the bound; only health, metrics and status paths answer them."""
STEP_BYTES = 4 << 10
"""Bytes read and parsed at a time, so that one read cannot become hundreds of waiting requests."""
LARGEST_READ_BYTES = 256 << 10
"""Bytes per read while all of them belong to one request's body."""

Seat = Literal["own", "reserve", "none"]

log = logging.getLogger(__name__)


class Handler(Protocol):
    """Answers requests; no method raises."""

    def begun(self, exchange: HttpExchange) -> None:
        """Answer a request whose head has arrived, or set `exchange.then` to receive its body.

        If the body has arrived too, the exchange is complete, and its body may be taken at once.
        """
        ...

    def completed(self, exchange: HttpExchange) -> None: ...

    def measured(self, exchange: HttpExchange, part_bytes: int) -> None:
        """Answer the request if a body of unknown size has become too large."""
        ...


class Open(Caller, Protocol):
    """A connection, or one that is still agreeing on TLS keys."""

    def end(self) -> None: ...


@dataclass(slots=True, eq=False, kw_only=True)
class Connections:
    """All connections of a server, their `handler`, and their bounds.

    `longest_read_s` bounds the time to send one request, head and body, from its first byte; it
    does not run while a complete request waits for its answer.  `first_byte_s` bounds the silence
    before the first byte.  An address has more than its share from `most_of_address` connections
    on.  `ending` closes each connection after its next answer.  If other processes listen on the
    same port, `count` and `count_unsent` receive this process's open connections and unread answer
    bytes, and return the totals.
    """

    handler: Handler
    largest_header_bytes: int = 64 << 10
    longest_read_s: float = 60.0
    first_byte_s: float = 10.0
    keep_alive_s: float = 75.0
    most_connections: int = 10_000
    most_of_address: int = 2_500
    most_unsent_bytes: int = 128 << 20
    count: Callable[[int], int] = int
    count_unsent: Callable[[int], int] = int
    ending: bool = False
    open: set[Open] = field(default_factory=set)
    seats: Seats = field(init=False)
    buffer: memoryview = field(default_factory=lambda: memoryview(bytearray(LARGEST_READ_BYTES)))
    """The buffer that all connections read into; each takes its bytes from it at once."""
    step: memoryview = field(init=False)
    _reserve: Seats = field(default_factory=lambda: Seats(RESERVE))
    _unsent: dict[Open, int] = field(default_factory=dict)
    """Unread answer bytes of each client, slowest clients first."""
    _unsent_bytes: int = 0
    _fewer: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.seats = Seats(self.most_of_address)
        self.step = self.buffer[:STEP_BYTES]

    def add(self, connection: Open, address: str | None) -> Seat:
        """Add a connection; it gets a seat, perhaps another's, or one of the reserve, or none."""
        self.open.add(connection)
        if self.count(len(self.seats) + 1) > self.most_connections:
            leaving = self.seats.longest_waited_for()
            if leaving is None:
                self.count(len(self.seats))
                return self._add_to_reserve(connection)
            log.warning(
                "%d connections are open, as many as may be: the one that was silent for longest is closed for another",
                self.most_connections,
            )
            self.seats.remove(leaving)
            leaving.abort()
        self.seats.add(connection, address)
        return "own"

    def _add_to_reserve(self, connection: Open) -> Seat:
        log.warning("%d connections wait for answers, as many as may be open: others get 503", self.most_connections)
        if len(self._reserve) >= RESERVE:
            leaving = self._reserve.longest_waited_for()
            if leaving is None:
                return "none"
            self._reserve.remove(leaving)
            leaving.abort()
        self._reserve.add(connection, None)
        return "reserve"

    def remove(self, connection: Open) -> None:
        self.open.discard(connection)
        self.seats.remove(connection)
        self._reserve.remove(connection)
        self.keep_unsent(connection, 0)
        self.count(len(self.seats))
        self._fewer.set()

    def keep_unsent(self, connection: Open, unsent_bytes: int) -> None:
        """Note a client's unread bytes; while their sum is too large, abort the slowest other."""
        before = self._unsent.pop(connection, 0) if unsent_bytes == 0 else self._unsent.get(connection, 0)
        if unsent_bytes == before:
            return
        if unsent_bytes:
            self._unsent[connection] = unsent_bytes
        self._unsent_bytes += unsent_bytes - before
        while self.count_unsent(self._unsent_bytes) > self.most_unsent_bytes and unsent_bytes > before:
            slowest = next(iter(self._unsent))
            if slowest is connection:
                return
            log.warning("%d bytes of answers are not taken: a slow client is cut off", self._unsent_bytes)
            self.keep_unsent(slowest, 0)
            slowest.abort()

    async def closed(self) -> None:
        while self.open:
            self._fewer.clear()
            await self._fewer.wait()
