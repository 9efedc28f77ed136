"""The processors that this process may use, and the lowest priority on them."""

import errno
import logging
import os
import platform
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_FORBIDDEN = (errno.EACCES, errno.ENOSYS, errno.EPERM)
"""Errors of sandboxes for a system call that they leave out."""

log = logging.getLogger(__name__)


def usable_processors() -> int:
    return len(processors_of())


def machine_in_words() -> str:
    """The processor's name, as far as the system tells, and how many this process may use."""
    name = platform.processor() or platform.machine()
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
        name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), name)
    return f"{name}, {usable_processors()} cores, {platform.system()}"


def processors_of(process: int = 0) -> set[int]:
    """The processors that a process (default: this one) may use; all where unknown."""
    try:
        return os.sched_getaffinity(process)
    except AttributeError:
        return set(range(os.cpu_count() or 1))
    except OSError as error:
        if error.errno not in _FORBIDDEN:
            raise
        return set(range(os.cpu_count() or 1))


def pin(processors: Collection[int], process: int = 0) -> bool:
    """Keep a process, or the calling thread, on these; False, with a warning, where forbidden."""
    if set(processors) == processors_of(process):
        return True
    try:
        os.sched_setaffinity(process, processors)
    except AttributeError:
        return False
    except OSError as error:
        if error.errno not in _FORBIDDEN:
            raise
        log.warning("this system lets no process be pinned to processors (%s): latencies will vary", error.strerror)
        return False
    return True


@contextmanager
def pinned(processors: Collection[int] | None) -> Iterator[None]:
    """As `pin` within the context; for None, nothing changes."""
    if processors is None:
        yield
        return
    before = processors_of()
    pin(processors)
    try:
        yield
    finally:
        pin(before)


LOWEST_PRIORITY = 19
"""As niceness."""


def give_way_to_all() -> None:
    """Run this thread, and those it starts, only when nothing else wants to run.

    Niceness only sets shares of a core: others still wait until the current slice is over, up to a
    tick of 4 ms. Linux preempts a `SCHED_IDLE` thread at once.
    """
    with suppress(OSError):
        os.nice(LOWEST_PRIORITY)
    if sys.platform == "linux":
        with suppress(OSError):  # some sandboxes forbid it; niceness remains
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
