"""Memory that a process frees: a worker keeps it, as its next batch wants as much again; a front end does not."""

import ctypes
import os
import sys
from collections.abc import Mapping

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Of `mallopt`."""
LARGEST_ON_HEAP = 32 << 20
"""The most that glibc takes for a threshold from which on it asks the system for a block of its own."""
KEPT_BYTES = 1 << 30
"""Freed at the heap's end, from which on it is given back."""
GIVEN_BACK_BYTES = 128 << 10
"""glibc's threshold until it has seen larger blocks freed."""
BY_USER = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def keep_freed_memory() -> None:
    """Have the C library keep what is freed.

    As it is, glibc gives hidden outputs of a few megabytes back to the system after each layer, and the next one gets
    its memory page by page, each by a fault and filled with zeros.  Does nothing where the user has set this, or where
    the C library is another one.
    """
    _set({MMAP_THRESHOLD: LARGEST_ON_HEAP, TRIM_THRESHOLD: KEPT_BYTES})


def give_back_freed_memory() -> None:
    """Have the C library give back what is freed, however large blocks were before.

    As it is, glibc gives back less once it has seen a large block freed, and what a front end reads in a surge and
    hands on stays with it.  Does nothing where `keep_freed_memory` would not.
    """
    _set({MMAP_THRESHOLD: GIVEN_BACK_BYTES, TRIM_THRESHOLD: GIVEN_BACK_BYTES})


def _set(settings: Mapping[int, int]) -> None:
    if sys.platform != "linux" or any(name in os.environ for name in BY_USER):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for name, value in settings.items():
            mallopt(name, value)
