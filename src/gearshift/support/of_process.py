"""Resources of one process, such as sockets and threads: a forked process makes its own."""

import http.client
import os
import select
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class OfProcess(Generic[T]):
    """A `T` for each process that asks for it: after a fork, parent and child must not speak on one connection.

    What a child has inherited is kept as it was: to close it may reach into what it shares with its parent, such as an
    event loop's list of sockets.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._of: dict[int, T] = {}

    def own(self) -> T:
        """This process's own, made when it first asks."""
        process = os.getpid()
        held = self._of.get(process)
        return self._of.setdefault(process, self._make()) if held is None else held


class KeptConnections:
    """Connections to one server that nobody uses now; several threads may take and keep them."""

    def __init__(self) -> None:
        self._free = OfProcess(list[http.client.HTTPConnection])

    def keep(self, connection: http.client.HTTPConnection) -> None:
        """Let another have it."""
        self._free.own().append(connection)

    def take(self) -> http.client.HTTPConnection | None:
        """A connected one, unless the server has closed all."""
        while (kept := self._pop()) is not None:
            if not _readable(kept):
                return kept
            kept.close()
        return None

    def close(self) -> None:
        """Close all."""
        while (kept := self._pop()) is not None:
            kept.close()

    def _pop(self) -> http.client.HTTPConnection | None:
        try:
            return self._free.own().pop()
        except IndexError:
            return None


def _readable(connection: http.client.HTTPConnection) -> bool:
    """Whether there is something to read on an idle connection, which is its end."""
    poller = select.poll()
    poller.register(connection.sock, select.POLLIN)
    return bool(poller.poll(0))
