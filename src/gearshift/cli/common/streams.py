"""Standard output and standard error in any state: closed, full, of another encoding."""

import errno
import os
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from typing import Any, BinaryIO

from gearshift.support.files import not_written

NAME = "standard output"

_closed = set[int]()
"""Standard streams that were closed when the process began."""
_results: list[BinaryIO] = []
"""The real standard output, while other prints are redirected."""
_signals: list[int] = []
"""Signals but Ctrl-C that came to end this process."""


def make_usable() -> None:
    """Make the three standard streams accept any text; a closed one leads to /dev/null.

    Otherwise the next file opened would receive what children and libraries print.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
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
    """Redirect all printing in the block to standard error, so that the result stands alone."""
    sys.stdout.flush()
    with _aside() as result:
        _results.append(result)
        try:
            yield
        finally:
            _results.pop()


@contextmanager
def _aside() -> Iterator[BinaryIO]:
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
    """Write bytes to standard output; raises `InvalidInput` if that is closed or full."""
    if 1 in _closed:
        raise not_written(NAME, OSError(errno.EBADF, "it is closed"))
    file = _results[-1] if _results else sys.stdout.buffer
    with told_if_full():
        rest = memoryview(data)
        while rest:
            try:
                taken = file.write(rest)
            except BlockingIOError as error:  # from a buffered stream
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
    """Wait for the reader of a full pipe or terminal that another process made non-blocking."""
    waiting = select.poll()
    waiting.register(file, select.POLLOUT)
    waiting.poll()


@contextmanager
def told_if_full() -> Iterator[None]:
    """Raise `InvalidInput` if standard output cannot be written, except for a broken pipe."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        forget_the_rest()
        raise not_written(NAME, error) from None


def end_as_at_ctrl_c(number: int, _: object) -> None:
    """A handler of signals that lets nothing half made stay."""
    _signals.append(number)
    raise KeyboardInterrupt(number)


def interrupted_code(interrupt: KeyboardInterrupt) -> int:
    """The exit code of what Ctrl-C ended, or the signal whose number the exception has.

    A search that took the signal, to give the best plan so far, may end its verb with an exception that has none.
    """
    return 128 + (interrupt.args[0] if interrupt.args else _signals[-1] if _signals else signal.SIGINT)


def forget_the_rest() -> None:
    with suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)


def _is_real() -> bool:
    try:
        return sys.stdout.fileno() == 1
    except (AttributeError, OSError, ValueError):
        return False
