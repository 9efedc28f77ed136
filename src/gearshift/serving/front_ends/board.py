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
HELD_BYTES, CONNECTIONS, UNSENT_BYTES = range(3)
"""Columns of each process; three for each pipeline follow, which only the router writes."""
WAITING, TAKING, MOST_WAITING = range(3)
OWN_COLUMNS, PIPELINE_COLUMNS, NUMBER_BYTES = 3, 3, 8


class Board:
    """The board of a server of so many `pipelines` behind a file descriptor, for the process of `row`."""

    def __init__(self, fd: int, row: int, pipelines: int = 1) -> None:
        self.fd = fd
        self._numbers = memoryview(mmap.mmap(fd, 0)).cast("q")
        self._columns = OWN_COLUMNS + PIPELINE_COLUMNS * pipelines
        self._row = row
        self.pipelines = [
            PipelineOnBoard(self._numbers, OWN_COLUMNS + PIPELINE_COLUMNS * number) for number in range(pipelines)
        ]

    @classmethod
    def of_router(cls, front_ends: int, pipelines: int = 1) -> "Board":
        fd = memory_file("gearshift")
        os.ftruncate(fd, (1 + front_ends) * (OWN_COLUMNS + PIPELINE_COLUMNS * pipelines) * NUMBER_BYTES)
        return cls(fd, ROUTER, pipelines)

    def close(self) -> None:
        """Close the file descriptor; the memory stays while this object exists."""
        os.close(self.fd)

    def write(self, column: int, number: int) -> None:
        self._numbers[self._row * self._columns + column] = number

    def own(self, column: int) -> int:
        return self._numbers[self._row * self._columns + column]

    def clear(self, row: int) -> None:
        for column in range(self._columns):
            self._numbers[row * self._columns + column] = 0

    def all(self, column: int) -> int:
        return sum(self._numbers[column :: self._columns])

    def count_connections(self, here: int) -> int:
        self.write(CONNECTIONS, here)
        return self.all(CONNECTIONS)

    def count_unsent(self, here: int) -> int:
        self.write(UNSENT_BYTES, here)
        return self.all(UNSENT_BYTES)

    @property
    def held_bytes(self) -> int:
        """Bytes of requests held by other processes, and of unread answers in all processes.

        See `runtime/service/room.Elsewhere`.
        """
        return self.all(HELD_BYTES) - self.own(HELD_BYTES) + self.all(UNSENT_BYTES)


class PipelineOnBoard:
    """The router's numbers of one pipeline, which begin at column `begin`."""

    def __init__(self, numbers: "memoryview[int]", begin: int) -> None:
        self._numbers, self._begin = numbers, begin

    def write(self, column: int, number: int) -> None:
        self._numbers[self._begin + column] = number

    @property
    def waiting(self) -> int:
        """Samples that wait in the router."""
        return self._numbers[self._begin + WAITING]

    @property
    def taking(self) -> bool:
        """Whether requests are accepted."""
        return bool(self._numbers[self._begin + TAKING])

    @property
    def most_waiting(self) -> int:
        """Samples that may wait; the router sets it, since each plan has its own bound."""
        return self._numbers[self._begin + MOST_WAITING]
