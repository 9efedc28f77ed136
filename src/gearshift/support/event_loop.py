"""What an event loop that generates load needs of its process."""

import asyncio
import gc
from collections.abc import Callable

from gearshift.support.open_files import allow_many_connections


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """That of uvloop, where it is installed."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def allow_much_load() -> None:
    """Let many connections be opened, and keep the garbage collector off what is there: it pauses for milliseconds."""
    allow_many_connections()
    gc.collect()
    gc.freeze()
