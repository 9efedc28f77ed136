"""Requests and calls that are open, each with the key that it was let in by: they end when the key is revoked."""

import asyncio
import logging
from collections.abc import Callable, Hashable
from functools import partial
from typing import Generic, TypeVar

LOOK_S = 0.25
"""Interval at which files of keys are checked while a request is open.  A key that is missing twice
in a row is revoked: a file that is written in place is empty for a moment."""
MOST_AT_ONCE = 64
"""Requests that one turn of the event loop ends."""
REVOKED = "the key that this was sent with is no longer one that this server knows"

End = Callable[[], object]
Shown = TypeVar("Shown", bound=Hashable)

log = logging.getLogger(__name__)


class OpenExchanges(Generic[Shown]):
    """Each has an `end`, which is called at most once.

    `state` checks the files and returns a value that differs after each change; `admits` tells
    whether what a request has shown still lets it in.  No request costs a task or a timer: there is
    one timer, while any is open.
    """

    def __init__(self, state: Callable[[], object], admits: Callable[[Shown], bool]) -> None:
        self._state, self._admits = state, admits
        self._open: dict[End, Shown] = {}
        self._seen: object = None
        self._doubted: set[Shown] = set()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._open)

    def add(self, shown: Shown, end: End) -> End:
        """Call `end` if what was shown is revoked; what is returned says that the exchange is over."""
        self._open[end] = shown
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look)
        return partial(self._open.pop, end, None)

    def _look(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look) if self._open else None
        state = self._state()
        if state == self._seen and not self._doubted:
            return
        missing = {shown for shown in set(self._open.values()) if not self._admits(shown)}
        revoked = missing & self._doubted
        self._seen, self._doubted = state, missing - revoked
        if revoked:
            self._end([end for end, shown in self._open.items() if shown in revoked])

    def _end(self, ends: list[End]) -> None:
        for end in ends[:MOST_AT_ONCE]:
            if self._open.pop(end, None) is not None:
                try:
                    end()
                except Exception:  # the others end all the same
                    log.exception("fault while a request was ended whose key is revoked")
        if len(ends) > MOST_AT_ONCE:
            asyncio.get_running_loop().call_soon(self._end, ends[MOST_AT_ONCE:])
