"""Memory that a worker frees stays with it: the next batch wants as much again."""

import ctypes
import os
import sys

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Of `mallopt`."""
LARGEST_ON_HEAP = 32 << 20
"""The most that glibc takes for a threshold from which on it asks the system for a block of its own."""
KEPT_BYTES = 1 << 30
"""Freed at the heap's end, from which on it is given back."""
BY_USER = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def keep_freed_memory() -> None:
    """Have the C library keep what is freed.

    As it is, glibc gives hidden outputs of a few megabytes back to the system after each layer, and the next one gets
    its memory page by page, each by a fault and filled with zeros.  Does nothing where the user has set this, or where
    the C library is another one.
    """
    if sys.platform != "linux" or any(name in os.environ for name in BY_USER):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(MMAP_THRESHOLD, LARGEST_ON_HEAP)
        mallopt(TRIM_THRESHOLD, KEPT_BYTES)
