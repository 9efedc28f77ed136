"""Resources of one process, such as sockets and threads: a forked process makes its own."""

import os
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
