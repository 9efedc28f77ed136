"""The lowest priority of the system, for work that must not disturb serving."""

import os
import sys
from contextlib import suppress

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
