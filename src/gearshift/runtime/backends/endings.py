"""Ends several things at once, so that a fault of one leaves no other running."""

import asyncio
from collections.abc import Awaitable, Iterable


async def all_ended(endings: Iterable[Awaitable[None]]) -> None:
    """Wait until all have ended, then raise the first fault among them."""
    for fault in await asyncio.gather(*endings, return_exceptions=True):
        if fault is not None:
            raise fault
