"""The processors that this process may use."""

import os


def usable_processors() -> int:
    """How many they are: those of the process's affinity, where the system has one."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
