"""Counts that the router and its front ends show one another, in memory that they share.

Each process writes a row of its own and reads those of the others, so that a request can be refused before its body is
read, without a word to the router.  What is read may be a moment old: the router itself has the last word.  The memory
has no name, and ends with the processes that hold it.
"""

import mmap
import os

from gearshift.support.files import memory_file

ROUTER = 0
"""The router's row; front end n has row n + 1."""
WAITING, HELD_BYTES, CONNECTIONS, TAKING, UNSENT_BYTES, MOST_WAITING = range(6)
COLUMNS, NUMBER_BYTES = 6, 8


class Board:
    """The board behind a file descriptor, seen by the process of `row`."""

    def __init__(self, fd: int, row: int) -> None:
        self.fd = fd
        self._numbers = memoryview(mmap.mmap(fd, 0)).cast("q")
        self._row, self._rows = row, len(self._numbers) // COLUMNS

    @classmethod
    def of_router(cls, front_ends: int) -> "Board":
        """A new one."""
        fd = memory_file("gearshift")
        os.ftruncate(fd, (1 + front_ends) * COLUMNS * NUMBER_BYTES)
        return cls(fd, ROUTER)

    def close(self) -> None:
        """Give the file descriptor back; the memory stays as long as this object."""
        os.close(self.fd)

    def write(self, column: int, number: int) -> None:
        """Show a number of one's own."""
        self._numbers[self._row * COLUMNS + column] = number

    def own(self, column: int) -> int:
        """A number of one's own."""
        return self._numbers[self._row * COLUMNS + column]

    def clear(self, row: int) -> None:
        """The process of this row has ended."""
        for column in range(COLUMNS):
            self._numbers[row * COLUMNS + column] = 0

    def all(self, column: int) -> int:
        """The sum over all processes."""
        return sum(self._numbers[column::COLUMNS])

    def count_connections(self, here: int) -> int:
        """Show the number of clients of this process; returns the sum over all processes."""
        self.write(CONNECTIONS, here)
        return self.all(CONNECTIONS)

    def count_unsent(self, here: int) -> int:
        """Show the bytes of untaken answers of this process; returns the sum over all processes."""
        self.write(UNSENT_BYTES, here)
        return self.all(UNSENT_BYTES)

    @property
    def taking(self) -> bool:
        """Whether the router lets requests in, where there is room."""
        return bool(self._numbers[ROUTER * COLUMNS + TAKING])

    @property
    def most_waiting(self) -> int:
        """Samples that may wait in all; the router sets it, since each plan has its own bound."""
        return self._numbers[ROUTER * COLUMNS + MOST_WAITING]

    # What is held elsewhere (`runtime/service/room.Elsewhere`)

    @property
    def waiting(self) -> int:
        """Samples that wait in the router, for all others."""
        return self.all(WAITING) - self.own(WAITING)

    @property
    def held_bytes(self) -> int:
        """Bytes of requests held by other processes, and of untaken answers in all processes."""
        return self.all(HELD_BYTES) - self.own(HELD_BYTES) + self.all(UNSENT_BYTES)
