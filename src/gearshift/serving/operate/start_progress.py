"""Tells how far the start of a server is, and how long the rest takes."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext, suppress

from gearshift.support.numbers import MOST_SHARE, Pace

Tell = Callable[[str, float], None]
"""With words, and the share that is done."""
Bar = Callable[[], AbstractContextManager[Tell]]
"""Shows progress while its block lasts."""
Ready = Callable[[], tuple[int, int]]
"""How many are ready, of how many."""

FIRST_S, EVERY_S, LOOK_S = 2.0, 10.0, 0.25


@asynccontextmanager
async def start_told(
    what: str, ready: Ready, about_s: float, say: Callable[[str], None], bar: Bar | None = None
) -> AsyncIterator[None]:
    """Tell of a start while the block lasts, on a `bar`, or in lines with `say`: after 2 s and every 10 s.

    `what` has places for the two numbers of `ready`.  The time left is that of `about_s`, which such a start
    is expected to take; if that is 0 or has passed, it is reckoned from how many are ready.
    """
    with nullcontext(_lines(say)) if bar is None else bar() as tell:
        telling = asyncio.create_task(_telling(what, ready, about_s, tell))
        try:
            yield
        finally:
            telling.cancel()
            with suppress(asyncio.CancelledError):
                await telling


async def _telling(what: str, ready: Ready, about_s: float, tell: Tell) -> None:
    began_s = time.monotonic()
    while True:
        done, of = ready()
        tell(what.format(done, of), share_done(time.monotonic() - began_s, about_s, done / of))
        await asyncio.sleep(LOOK_S)


def share_done(gone_s: float, about_s: float, ready_share: float) -> float:
    return min(MOST_SHARE, gone_s / about_s if gone_s < about_s else ready_share)


def _lines(say: Callable[[str], None], now_s: Callable[[], float] = time.monotonic) -> Tell:
    began_s = now_s()
    next_s, pace = began_s + FIRST_S, Pace(began_s)

    def tell(what: str, share: float) -> None:
        nonlocal next_s
        now = now_s()
        left = pace.left_in_words(now, share)
        if now >= next_s:
            say(what + left)
            next_s = now + EVERY_S

    return tell
