"""Resources of one process, such as sockets and threads: a forked process makes its own."""

import http.client
import os
import select
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class OfProcess(Generic[T]):
    """A `T` for each process that asks for it: after a fork, parent and child must not share one.

    The object inherited by a child stays open: closing it may reach into what it shares with its
    parent, such as an event loop's list of sockets.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._of: dict[int, T] = {}

    def own(self) -> T:
        process = os.getpid()
        held = self._of.get(process)
        return self._of.setdefault(process, self._make()) if held is None else held


class KeptConnections:
    """Idle connections to one server; several threads may take and keep them."""

    def __init__(self) -> None:
        self._free = OfProcess(list[http.client.HTTPConnection])

    def keep(self, connection: http.client.HTTPConnection) -> None:
        self._free.own().append(connection)

    def take(self) -> http.client.HTTPConnection | None:
        while (kept := self._pop()) is not None:
            if not _readable(kept):
                return kept
            kept.close()
        return None

    def close(self) -> None:
        while (kept := self._pop()) is not None:
            kept.close()

    def _pop(self) -> http.client.HTTPConnection | None:
        try:
            return self._free.own().pop()
        except IndexError:
            return None


def _readable(connection: http.client.HTTPConnection) -> bool:
    """Whether an idle connection is readable, which means that the server has closed it."""
    poller = select.poll()
    poller.register(connection.sock, select.POLLIN)
    return bool(poller.poll(0))
