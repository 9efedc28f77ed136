"""gRPC messages on their way: how many bytes of them are held, and for how long they may take."""

import asyncio
from collections.abc import Callable
from typing import Any

from grpc.aio import EOF

from gearshift.errors import DeadlinePassed
from gearshift.policies.arrivals import given_up
from gearshift.runtime.room import Room
from gearshift.serving.grpc_sockets import GrpcSockets

LOOK_S = 0.05
"""A message that has come by then was never slow; others are looked at as often."""
LEAST_REST = 10
"""Looking takes at most one part of so many of the event loop's time."""
WINDOW_BYTES = 65_535
"""What the library takes of a call before the call asks for it."""


class Arrival:
    """A message that is awaited on a connection, `timeout` while it is; of a stream it may not have begun yet."""

    __slots__ = ("began_s", "connection", "given_up", "may_rest", "timeout")

    def __init__(self, connection: "Connection", began_s: float, longest_s: float, may_rest: bool) -> None:
        self.connection, self.began_s, self.may_rest = connection, began_s, may_rest
        self.timeout = asyncio.timeout(None if may_rest else longest_s)
        self.given_up = False


class Connection:
    """One on which messages are awaited, and what of them has come: `held_bytes`, as was last looked at."""

    __slots__ = ("_from_bytes", "_taken_bytes", "arrivals", "held_bytes", "peer")

    def __init__(self, peer: str, received_bytes: int | None) -> None:
        self.peer = peer
        self.arrivals: dict[Arrival, None] = {}
        self._from_bytes, self._taken_bytes = received_bytes or 0, 0
        self.held_bytes = 0

    def take(self, arrival: Arrival, message_bytes: int) -> None:
        """The message is whole, or given up."""
        del self.arrivals[arrival]
        self._taken_bytes += message_bytes

    def look(self, received_bytes: int | None, largest_bytes: int) -> None:
        """Count what has come: at most what the connection has received, and what messages may have."""
        if received_bytes is None:
            self.held_bytes = largest_bytes * sum(not arrival.may_rest for arrival in self.arrivals)
        else:
            came_bytes = received_bytes - self._from_bytes - self._taken_bytes
            self.held_bytes = max(0, min(came_bytes, largest_bytes * len(self.arrivals)))

    @property
    def youngest(self) -> Arrival:
        """The message that began last."""
        return next(reversed(self.arrivals))


class Arrivals:
    """Messages of up to `largest_bytes` on their way, held in the room that `room` answers.

    None may take longer than `longest_s`, and all of them not more than `most_bytes`, but that one alone may always
    come.  What the library holds is not to be had from it, so that slow messages are counted by what their connections
    have received (`GrpcSockets`), and as the largest that they may be where that is not known either.
    """

    def __init__(
        self, room: Callable[[], Room], sockets: GrpcSockets, *, largest_bytes: int, most_bytes: int, longest_s: float
    ) -> None:
        self._room, self._sockets = room, sockets
        self._largest_bytes, self._most_bytes, self._longest_s = largest_bytes, most_bytes, longest_s
        self._connections: dict[str, Connection] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._all_known = True
        self._held_in: Room | None = None
        self._held_bytes = 0

    async def receive(self, context: Any, *, may_rest: bool = False) -> bytes | None:
        """The next message of a call, None where its client sends no more.

        With `may_rest` the call is a stream, which may be silent for long between messages: the time of a message runs
        once more than the window has come.  Raises `QueueFull` where it was given up for others, and `DeadlinePassed`.
        """
        loop = asyncio.get_running_loop()
        connection = self._connection(context.peer())
        arrival = Arrival(connection, loop.time(), self._longest_s, may_rest)
        connection.arrivals[arrival] = None
        if self._timer is None:
            self._timer = loop.call_later(LOOK_S, self._look, loop)
        data = None
        try:
            async with arrival.timeout:
                data = await context.read()
        except TimeoutError:
            if arrival.given_up:
                raise self._room().full() from None
            raise DeadlinePassed(f"a message was not whole after {self._longest_s:g} s; send it faster") from None
        finally:
            connection.take(arrival, len(data) if isinstance(data, bytes) else 0)
            if not connection.arrivals:
                del self._connections[connection.peer]
                self._hold(self._held_bytes - connection.held_bytes)
        return None if data is EOF else data

    def _connection(self, peer: str) -> Connection:
        connection = self._connections.get(peer)
        if connection is None:
            self._all_known &= self._sockets.knows(peer)
            connection = self._connections[peer] = Connection(peer, self._sockets.received_bytes(peer))
        return connection

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """See what has come of the slow ones, and give up what is too much."""
        self._timer = None
        began_s = loop.time()
        if not self._all_known:
            self._sockets.look_through()
            self._all_known = True
        slow = []
        for connection in self._connections.values():
            connection.held_bytes = 0
            if next(iter(connection.arrivals)).began_s + LOOK_S <= began_s:
                slow.append(connection)
        for connection in slow:
            connection.look(self._sockets.received_bytes(connection.peer), self._largest_bytes)
            for arrival in connection.arrivals:
                if arrival.may_rest and connection.held_bytes > WINDOW_BYTES:
                    arrival.may_rest = False
                    arrival.timeout.reschedule(began_s + self._longest_s)
        self._give_up(sorted(slow, key=lambda connection: connection.youngest.began_s), began_s)
        self._hold(sum(connection.held_bytes for connection in slow))
        if self._connections:
            pause_s = max(LOOK_S, LEAST_REST * (loop.time() - began_s))
            self._timer = loop.call_later(pause_s, self._look, loop)

    def _give_up(self, slow: list[Connection], now_s: float) -> None:
        while (place := given_up([one.held_bytes for one in slow], self._most_bytes)) is not None:
            connection = slow[place]
            waiting = [arrival for arrival in connection.arrivals if not arrival.given_up]
            if not waiting:
                return
            waiting[-1].given_up = True
            waiting[-1].timeout.reschedule(now_s)
            connection.held_bytes -= connection.held_bytes // len(waiting)

    def _hold(self, held_bytes: int) -> None:
        if self._held_in is not None:
            self._held_in.held_bytes -= self._held_bytes
        self._held_in, self._held_bytes = self._room(), held_bytes
        self._held_in.held_bytes += held_bytes
