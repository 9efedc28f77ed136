"""The lowest priority that the system has, for work that nobody who is served shall notice."""

import os
import sys
from contextlib import suppress

LOWEST_PRIORITY = 19
"""As niceness."""


def give_way_to_all() -> None:
    """Run this thread, and what it starts from now on, only where nothing else wants to.

    Niceness alone decides on shares of a core: what wakes beside such work still waits until its slice is over, up to
    a tick of 4 ms.  Linux takes the core from what runs as `SCHED_IDLE` at once.
    """
    with suppress(OSError):
        os.nice(LOWEST_PRIORITY)
    if sys.platform == "linux":
        with suppress(OSError):  # where the sandbox forbids it, niceness is what there is
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
