"""Bound gRPC messages that are still arriving: the bytes they hold, and the time they take."""

import asyncio
from collections.abc import Callable
from typing import Any

from grpc.aio import EOF

from gearshift.errors import DeadlinePassed
from gearshift.policies.admission import given_up
from gearshift.runtime.service.room import HeldBytes, Room
from gearshift.serving.grpc.sockets import GrpcSockets

LOOK_S = 0.05
"""Interval between checks of connections that await messages; a message that comes at once is
never checked."""
LEAST_REST = 10
"""Checks take at most one part in this many of the event loop's time."""
WINDOW_BYTES = 65_535
"""Bytes of a call that the library reads ahead."""


CALL_BYTES = 200
CONNECTION_BYTES = 1024
BYTES_PER_S = 10
"""Bytes besides messages: of each call, of each connection, and each second.  High estimates, so
that no message seems to have begun too early; the next check corrects an excess."""


class Arrival:
    """A message that `task` waits for, and whether it has begun: a stream may pause for long.

    `ended` is why it was given up: `late`, or `full` if there was no room.
    """

    __slots__ = ("began_s", "begun", "ended", "task")

    def __init__(self, began_s: float, begun: bool) -> None:
        self.began_s, self.begun = began_s, begun
        self.task: Any = asyncio.current_task()
        self.ended = ""

    def end(self, why: str) -> None:
        if not self.ended:
            self.ended = why
            self.task.cancel()


class Connection:
    """A gRPC connection; `held_bytes` of its awaited messages had arrived at the last check."""

    __slots__ = ("_looked_s", "_taken_bytes", "arrivals", "held_bytes", "peer")

    def __init__(self, peer: str, now_s: float) -> None:
        self.peer = peer
        self.arrivals: dict[Arrival, None] = {}
        self._taken_bytes, self._looked_s = float(CONNECTION_BYTES), now_s
        """Bytes received that belong to no awaited message."""
        self.held_bytes = 0

    def take(self, arrival: Arrival, message_bytes: int) -> int:
        """Account for a message that is whole or given up; return the bytes no longer held."""
        del self.arrivals[arrival]
        self._taken_bytes += message_bytes + CALL_BYTES
        less_bytes = min(self.held_bytes, message_bytes) if self.arrivals else self.held_bytes
        self.held_bytes -= less_bytes
        return less_bytes

    def look(self, received_bytes: int | None, largest_bytes: int, now_s: float) -> None:
        """Set `held_bytes`: at most the bytes received, and the largest size per message."""
        if received_bytes is None:
            self.held_bytes = largest_bytes * sum(arrival.begun for arrival in self.arrivals)
            return
        self._taken_bytes += BYTES_PER_S * (now_s - self._looked_s)
        self._looked_s = now_s
        if not self.arrivals or self._taken_bytes > received_bytes:
            self._taken_bytes = received_bytes
        self.held_bytes = min(int(received_bytes - self._taken_bytes), largest_bytes * len(self.arrivals))


class Arrivals:
    """Messages of up to `largest_bytes` that are arriving, held in the room that `room` returns.

    Each may take at most `longest_s`, and all together at most `most_bytes`, but a single one is
    always allowed.  The library does not report the bytes that it holds, so messages are counted
    by the bytes that their connections have received (`GrpcSockets`), or by their largest size if
    that is unknown.
    """

    def __init__(
        self, room: Callable[[], Room], sockets: GrpcSockets, *, largest_bytes: int, most_bytes: int, longest_s: float
    ) -> None:
        self._room, self._sockets = room, sockets
        self._largest_bytes, self._most_bytes, self._longest_s = largest_bytes, most_bytes, longest_s
        self._connections: dict[str, Connection] = {}
        self._used: dict[Connection, None] = {}
        """Connections with awaited messages now or since the last check."""
        self._timer: asyncio.TimerHandle | None = None
        self._held_in: HeldBytes | None = None
        self._held_bytes = 0

    async def receive(self, context: Any, *, may_rest: bool = False) -> bytes | None:
        """Return the next message of a call, None if its client sends no more.

        With `may_rest` the call is a stream, which may be silent for long between messages: the
        time of a message starts when more than the window has arrived.  Raises `QueueFull` if it
        was given up for others, and `DeadlinePassed`.
        """
        loop = asyncio.get_running_loop()
        peer = context.peer()
        connection = self._connections.get(peer)
        if connection is None:
            connection = self._connections[peer] = Connection(peer, loop.time())
        arrival = Arrival(loop.time(), not may_rest)
        connection.arrivals[arrival] = self._used[connection] = None
        if self._timer is None:
            self._timer = loop.call_later(min(LOOK_S, self._longest_s), self._look, loop)
        data = None
        try:
            data = await context.read()
        except asyncio.CancelledError:
            if not arrival.ended or arrival.task.uncancel():
                raise
        finally:
            less_bytes = connection.take(arrival, len(data) if isinstance(data, bytes) else 0)
            if less_bytes:
                self._hold(self._held_bytes - less_bytes)
        if arrival.ended == "full":
            raise self._room().full(0, 0)
        if arrival.ended:
            raise DeadlinePassed(f"a message was not whole after {self._longest_s:g} s; send it faster")
        return None if data is EOF else data

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        began_s = loop.time()
        if not all(self._sockets.knows(connection.peer) for connection in self._used):
            self._sockets.look_through()
            gone = [
                peer for peer, one in self._connections.items() if not (one in self._used or self._sockets.knows(peer))
            ]
            for peer in gone:
                del self._connections[peer]
        waited_on = []
        for connection in list(self._used):
            connection.look(self._sockets.received_bytes(connection.peer), self._largest_bytes, began_s)
            if connection.arrivals:
                self._time(connection, began_s)
                waited_on.append(connection)
            else:
                del self._used[connection]
        self._give_up(sorted(waited_on, key=lambda connection: next(reversed(connection.arrivals)).began_s))
        self._hold(sum(connection.held_bytes for connection in waited_on))
        pause_s = max(min(LOOK_S, self._longest_s), LEAST_REST * (loop.time() - began_s))
        self._timer = loop.call_later(pause_s, self._look, loop) if self._used else None

    def _time(self, connection: Connection, now_s: float) -> None:
        """End late messages; on a stream one begins when more than the window has arrived."""
        for arrival in connection.arrivals:
            if not arrival.begun and connection.held_bytes > WINDOW_BYTES:
                arrival.begun, arrival.began_s = True, now_s
            if arrival.begun and arrival.began_s + self._longest_s <= now_s:
                arrival.end("late")

    def _give_up(self, waited_on: list[Connection]) -> None:
        while (place := given_up([one.held_bytes for one in waited_on], self._most_bytes)) is not None:
            connection = waited_on[place]
            waiting = [arrival for arrival in connection.arrivals if not arrival.ended]
            connection.held_bytes -= connection.held_bytes // max(1, len(waiting))
            if waiting:
                waiting[-1].end("full")

    def _hold(self, held_bytes: int) -> None:
        if self._held_in is not None:
            self._held_in.held_bytes -= self._held_bytes
        self._held_in, self._held_bytes = self._room().held, held_bytes
        self._held_in.held_bytes += held_bytes
