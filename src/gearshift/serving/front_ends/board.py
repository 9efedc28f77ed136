"""Counts that the router and its front ends share in memory.

Each process writes its own row and reads the others, so that a front end can refuse a request before
its body is read, without asking the router.  Values may be slightly old: the router decides.  The
memory has no name, and is freed with the processes that hold it.
"""

import mmap
import os

from gearshift.support.files import memory_file

ROUTER = 0
"""The router's row; front end n has row n + 1."""
WAITING, HELD_BYTES, CONNECTIONS, TAKING, UNSENT_BYTES, MOST_WAITING = range(6)
COLUMNS, NUMBER_BYTES = 6, 8


class Board:
    """The board behind a file descriptor, for the process of `row`."""

    def __init__(self, fd: int, row: int) -> None:
        self.fd = fd
        self._numbers = memoryview(mmap.mmap(fd, 0)).cast("q")
        self._row, self._rows = row, len(self._numbers) // COLUMNS

    @classmethod
    def of_router(cls, front_ends: int) -> "Board":
        fd = memory_file("gearshift")
        os.ftruncate(fd, (1 + front_ends) * COLUMNS * NUMBER_BYTES)
        return cls(fd, ROUTER)

    def close(self) -> None:
        """Close the file descriptor; the memory stays while this object exists."""
        os.close(self.fd)

    def write(self, column: int, number: int) -> None:
        self._numbers[self._row * COLUMNS + column] = number

    def own(self, column: int) -> int:
        return self._numbers[self._row * COLUMNS + column]

    def clear(self, row: int) -> None:
        for column in range(COLUMNS):
            self._numbers[row * COLUMNS + column] = 0

    def all(self, column: int) -> int:
        return sum(self._numbers[column::COLUMNS])

    def count_connections(self, here: int) -> int:
        self.write(CONNECTIONS, here)
        return self.all(CONNECTIONS)

    def count_unsent(self, here: int) -> int:
        self.write(UNSENT_BYTES, here)
        return self.all(UNSENT_BYTES)

    @property
    def taking(self) -> bool:
        return bool(self._numbers[ROUTER * COLUMNS + TAKING])

    @property
    def most_waiting(self) -> int:
        """Samples that may wait in all; the router sets it, since each plan has its own bound."""
        return self._numbers[ROUTER * COLUMNS + MOST_WAITING]

    # Held by other processes (`runtime/service/room.Elsewhere`)

    @property
    def waiting(self) -> int:
        """Samples that wait in the router; for the router itself, 0."""
        return self.all(WAITING) - self.own(WAITING)

    @property
    def held_bytes(self) -> int:
        """Bytes of requests held by other processes, and of unread answers in all processes."""
        return self.all(HELD_BYTES) - self.own(HELD_BYTES) + self.all(UNSENT_BYTES)
