"""Prepare this process for an event loop with many connections, or with much load to generate."""

import asyncio
import gc
import resource
from collections.abc import Callable
from contextlib import suppress


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def allow_many_connections() -> None:
    """Raise the soft limit on open files to the hard one, at most 65,536."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65_536 if hard == resource.RLIM_INFINITY else min(hard, 65_536)
    if soft < wanted:
        with suppress(OSError, ValueError):  # a sandbox leaves the limit as it is
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def allow_much_load() -> None:
    """Allow many connections, and exempt existing objects from garbage collection pauses."""
    allow_many_connections()
    gc.collect()
    gc.freeze()
