"""All connections of an HTTP server: what answers their requests, their bounds, and which are open."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from gearshift.serving.http_exchange import HttpExchange


class Handler(Protocol):
    """What answers requests; neither method raises."""

    def begun(self, exchange: HttpExchange) -> None:
        """The head of a request has arrived: answer it, or say in `exchange.then` what is to become of its body.

        Where that has arrived with it, the exchange is complete, and its body may be taken at once.
        """
        ...

    def completed(self, exchange: HttpExchange) -> None:
        """Its body has arrived too."""
        ...

    def measured(self, exchange: HttpExchange, part_bytes: int) -> None:
        """A part of a body has arrived of which the size was not known: answer the request if that is too much."""
        ...


class Open(Protocol):
    """A connection, or what is to become one."""

    def end(self) -> None:
        """Close it where nothing is under way on it."""
        ...

    def abort(self) -> None:
        """Cut it off."""
        ...


@dataclass(slots=True, eq=False, kw_only=True)
class Connections:
    """All connections of a server, `handler` of what comes on them, and their bounds.

    `longest_read_s` is how long a client may take over one request, head and body; it runs from when the connection
    opens or from the request's first byte, and not while a complete request waits for its answer.  `ending` closes
    each connection after its next answer.  Where other processes listen on the same port, `count` is told how many
    are open here, and answers how many are open in all.
    """

    handler: Handler
    largest_header_bytes: int = 64 << 10
    longest_read_s: float = 60.0
    keep_alive_s: float = 75.0
    most_connections: int = 10_000
    count: Callable[[int], int] = int
    ending: bool = False
    open: set[Open] = field(default_factory=set)
    _fewer: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, connection: Open) -> bool:
        """It is open; whether it may stay, or is one too many."""
        self.open.add(connection)
        return self.count(len(self.open)) <= self.most_connections

    def remove(self, connection: Open) -> None:
        """It is closed."""
        self.open.discard(connection)
        self.count(len(self.open))
        self._fewer.set()

    async def closed(self) -> None:
        """Return when none is open."""
        while self.open:
            self._fewer.clear()
            await self._fewer.wait()
