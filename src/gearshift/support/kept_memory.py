"""Settings for freed memory: a worker keeps it for its next batch, a front end does not."""

import ctypes
import os
import sys
from collections.abc import Mapping

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Parameters of `mallopt`."""
LARGEST_ON_HEAP = 32 << 20
"""The largest threshold that glibc takes, above which blocks come from the system directly."""
KEPT_BYTES = 1 << 30
"""Free bytes at the heap's end above which they are given back."""
GIVEN_BACK_BYTES = 128 << 10
"""glibc's threshold until it has seen larger blocks freed."""
BY_USER = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def keep_freed_memory() -> None:
    """Have the C library keep freed memory.

    By default, glibc gives hidden outputs of a few megabytes back to the system after each layer,
    and the next one gets its memory page by page, each by a fault and filled with zeros. Does
    nothing if the user has set this, or with another C library.
    """
    _set({MMAP_THRESHOLD: LARGEST_ON_HEAP, TRIM_THRESHOLD: KEPT_BYTES})


def give_back_freed_memory() -> None:
    """Have the C library give freed memory back, however large blocks were before.

    By default, glibc gives back less once it has seen a large block freed, and a front end keeps
    the memory of a surge. Does nothing where `keep_freed_memory` would not.
    """
    _set({MMAP_THRESHOLD: GIVEN_BACK_BYTES, TRIM_THRESHOLD: GIVEN_BACK_BYTES})


def _set(settings: Mapping[int, int]) -> None:
    if sys.platform != "linux" or any(name in os.environ for name in BY_USER):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for name, value in settings.items():
            mallopt(name, value)
