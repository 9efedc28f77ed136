"""Prepare this process for an event loop that generates load."""

import asyncio
import gc
from collections.abc import Callable

from gearshift.support.open_files import allow_many_connections


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def allow_much_load() -> None:
    """Allow many connections, and exempt existing objects from garbage collection pauses."""
    allow_many_connections()
    gc.collect()
    gc.freeze()
