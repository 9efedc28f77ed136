"""Serve the clients of lost front ends in the router's process until they restart.

The kernel assigns each client of a shared port to one of its sockets for good, whether or not a
process accepts from it.
"""

import logging
import socket
from collections.abc import Callable, Sequence
from functools import partial

from gearshift.errors import GearshiftError
from gearshift.serving.door.settings import ServerSettings
from gearshift.serving.front_ends.board import Board
from gearshift.serving.http.application import Application
from gearshift.serving.http.server import HttpServer

log = logging.getLogger(__name__)


class StandIns:
    """A server for each lost front end; `application` answers the requests of its clients."""

    def __init__(self, application: Application, settings: ServerSettings, board: Board) -> None:
        self._application, self._settings = application, settings
        self._connections, self._unsent = _Sum(board.count_connections), _Sum(board.count_unsent)
        self._made, self._ending = 0, False
        self._now: dict[int, HttpServer] = {}
        self._before: list[HttpServer] = []
        """Servers whose front end is back; their clients are closed after their next answer."""

    async def begin(self, front_end: int, socks: Sequence[socket.socket]) -> None:
        if front_end in self._now:
            return
        self._made += 1
        counts = partial(self._connections.count, self._made), partial(self._unsent.count, self._made)
        server = HttpServer(self._application, self._settings, *counts)
        shared = list[socket.socket]()
        try:
            shared.extend(sock.dup() for sock in socks)
        except OSError:  # closed, as the server ends, or too many open files
            for sock in shared:
                sock.close()
            return
        try:
            await server.start(*shared)
        except (OSError, GearshiftError) as error:  # such as an unreadable certificate
            server.stop_listening()
            for sock in shared:
                sock.close()
            log.warning("clients of front end %d wait until it is started again (%s)", front_end, error)
            return
        self._now[front_end] = server
        if self._ending:
            self.end(front_end)

    def end(self, front_end: int) -> None:
        server = self._now.pop(front_end, None)
        if server is not None:
            server.stop_listening()
            self._before = [each for each in [*self._before, server] if each.open]

    def stop_listening(self) -> None:
        self._ending = True
        for front_end in list(self._now):
            self.end(front_end)

    async def stop(self, longest_s: float) -> None:
        self.stop_listening()
        for server in self._before:
            await server.stop(longest_s)


class _Sum:
    """A number of this process in parts; `tell` receives the sum after each change."""

    def __init__(self, tell: Callable[[int], int]) -> None:
        self._tell = tell
        self._parts: dict[int, int] = {}

    def count(self, number: int, part: int) -> int:
        self._parts[number] = part
        return self._tell(sum(self._parts.values()))
