"""The end of a process: of a child, as an event of the loop, and of one that ends with its parent."""

import asyncio
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


class ProcessEnd:
    """Calls `ended` once on the loop's thread, when a child has ended and is still to be reaped.

    The caller reaps it. The kernel reports the end by `pidfd` (Linux 5.3), else a thread waits.
    """

    def __init__(self, pid: int, ended: Callable[[], None]) -> None:
        self._pid, self._ended = pid, ended
        self._loop = asyncio.get_running_loop()
        self._open = True
        try:
            self._fd = os.pidfd_open(pid)
        except (AttributeError, OSError):
            self._fd = -1
            threading.Thread(target=self._wait, name=f"end of {pid}", daemon=True).start()
        else:
            self._loop.add_reader(self._fd, self._tell)

    def close(self) -> None:
        self._open = False
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _wait(self) -> None:
        with suppress(ChildProcessError):  # already reaped
            os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOWAIT)
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        if self._open:
            self.close()
            self._ended()


def adopt_orphans() -> None:
    """Have the kernel make this process the parent of descendants whose own has ended (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent(parent: int) -> bool:
    """Have the kernel kill this process when its parent ends (Linux); False if it already has."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    return os.getppid() == parent
