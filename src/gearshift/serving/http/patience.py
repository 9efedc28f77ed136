"""The time that one client may take: to send a request, and to read its answers."""

import asyncio
from collections.abc import Callable

from gearshift.serving.http.connections import Connections

LEAST_TAKEN_BYTES_PER_S = 8 << 10
"""For an answer larger than the system's buffer.  A client that reads more slowly over
`keep_alive_s` is disconnected."""
NEVER = float("inf")


class Patience:
    """When the client's turn began, and when it times out; one timer looks again now and then."""

    def __init__(self, connections: Connections) -> None:
        self._all, self._loop = connections, asyncio.get_running_loop()
        self.turn_began_s, self.due_s = 0.0, NEVER
        """`due_s` is `NEVER` while it is the server's turn."""
        self.idle = False
        """Whether nothing of the next request has arrived."""
        self._timer: asyncio.TimerHandle | None = None
        self._unsent_bytes, self._unsent_since_s = 0, 0.0
        """Unsent bytes, and the time, when the client last read its answers fast enough."""

    def begin_turn(self, longest_s: float, idle: bool) -> None:
        self.idle, self.turn_began_s = idle, self._loop.time()
        self.due_s = self.turn_began_s + longest_s

    def expect_request(self) -> None:
        self.idle = False
        self.wait(self._all.longest_read_s)

    def rest(self) -> None:
        self.idle, self.due_s = False, NEVER

    def wait(self, longest_s: float) -> None:
        self.due_s = self._loop.time() + longest_s

    @property
    def over(self) -> bool:
        return self._loop.time() >= self.due_s

    def look_again(self, look: Callable[[], None]) -> None:
        """Set the timer to the shorter bound at most: nothing that begins later is due earlier."""
        shortest_s = min(self._all.longest_read_s, self._all.keep_alive_s)
        delay_s = max(0.001, min(shortest_s, self.due_s - self._loop.time()))
        self._timer = self._loop.call_later(delay_s, look)

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def note_unsent(self, unsent_bytes: int) -> None:
        self._unsent_bytes, self._unsent_since_s = unsent_bytes, self._loop.time()

    def reads_too_slowly(self, unsent_bytes: int, *, much: bool) -> bool:
        """Return whether the client read nothing, or too little of `much`, for `keep_alive_s`."""
        past_s = self._loop.time() - self._unsent_since_s
        least_bytes = LEAST_TAKEN_BYTES_PER_S * past_s if much else 1
        if unsent_bytes == 0 or not 0 <= self._unsent_bytes - unsent_bytes < least_bytes:
            self.note_unsent(unsent_bytes)
            return False
        return past_s >= self._all.keep_alive_s
