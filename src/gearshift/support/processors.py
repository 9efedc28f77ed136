"""The processors that this process may use."""

import errno
import logging
import os
from collections.abc import Collection

_FORBIDDEN = (errno.EACCES, errno.ENOSYS, errno.EPERM)
"""Errors of sandboxes for a system call that they leave out."""

log = logging.getLogger(__name__)


def usable_processors() -> int:
    return len(processors_of())


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
