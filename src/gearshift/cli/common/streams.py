"""Standard output and standard error, as they are found: closed, full, of another encoding, or printed to by others."""

import errno
import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from typing import Any, BinaryIO

from gearshift.support.files import not_written

NAME = "standard output"

_closed = set[int]()
"""Standard streams that were closed when the process began."""
_results: list[BinaryIO] = []
"""Standard output itself, while what others print goes elsewhere."""


def make_usable() -> None:
    """Have three standard streams that take any text; what was closed leads nowhere.

    Else the next file that is opened, such as a client's connection, would be what children and libraries print to.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free, which is this one
            os.set_inheritable(number, True)
            _closed.add(number)
    for name, number in (("stdout", 1), ("stderr", 2)):
        stream: Any = getattr(sys, name)
        if stream is None:
            setattr(sys, name, os.fdopen(number, "w", errors="backslashreplace", closefd=False))
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


@contextmanager
def json_alone() -> Iterator[None]:
    """Have whatever is printed within the block, by whom ever, go to standard error, so that the result is alone."""
    sys.stdout.flush()
    with _aside() as result:
        _results.append(result)
        try:
            yield
        finally:
            _results.pop()


@contextmanager
def _aside() -> Iterator[BinaryIO]:
    """Standard output, while its descriptor, or the object that a program has put there, leads to standard error."""
    if not _is_real():
        result = sys.stdout.buffer
        with redirect_stdout(sys.stderr):
            yield result
        return
    with os.fdopen(os.dup(1), "wb", buffering=0) as result:
        os.dup2(2, 1)
        try:
            yield result
        finally:
            with suppress(OSError):
                sys.stdout.flush()
            os.dup2(result.fileno(), 1)


def write_result(data: bytes) -> None:
    """Write `data` to standard output as bytes; raises `InvalidInput` where that is closed or full."""
    if 1 in _closed:
        raise not_written(NAME, OSError(errno.EBADF, "it is closed"))
    file = _results[-1] if _results else sys.stdout.buffer
    with told_if_full():
        rest = memoryview(data)
        while rest:
            try:
                taken = file.write(rest)
            except BlockingIOError as error:  # of a buffered one
                taken = error.characters_written
            if not taken:
                _until_taken(file)
            rest = rest[taken or 0 :]
        while True:
            try:
                file.flush()
                break
            except BlockingIOError:
                _until_taken(file)


def _until_taken(file: BinaryIO) -> None:
    """Wait for the reader of a full pipe or terminal, that somebody has set not to wait by itself."""
    waiting = select.poll()
    waiting.register(file, select.POLLOUT)
    waiting.poll()


@contextmanager
def told_if_full() -> Iterator[None]:
    """Raises `InvalidInput` where standard output cannot be written, but for a pipe that nobody reads any more."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        forget_the_rest()
        raise not_written(NAME, error) from None


def forget_the_rest() -> None:
    """Have what is left for standard output go nowhere."""
    with suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)


def _is_real() -> bool:
    try:
        return sys.stdout.fileno() == 1
    except (AttributeError, OSError, ValueError):
        return False
