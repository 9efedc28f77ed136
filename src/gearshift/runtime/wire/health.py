"""Detects stuck workers: idle ones are probed, and a batch has a longest time."""

import asyncio
from collections.abc import Callable


class Health:
    """Checks a worker every `probe_s`, and calls `stuck(why)` once when it is stuck.

    An idle worker is probed (`ask`) and must have `answered` by the next check. A busy one must be
    done within the time given to `began`; that is noticed at the next check. A check that is late,
    because this process was held up itself, decides nothing, as an answer may be unread.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, *, probe_s: float, ask: Callable[[], None], stuck: Callable[[str], None]
    ) -> None:
        self._loop, self._probe_s, self._ask, self._stuck = loop, probe_s, ask, stuck
        self._timer: asyncio.TimerHandle | None = None
        self._due_s = 0.0
        self._asked = False
        self._longest_s: float | None = None
        self._ends_s: float | None = None

    def start(self) -> None:
        self._arm()

    def began(self, longest_s: float | None) -> None:
        self._longest_s = longest_s
        self._ends_s = float("inf") if longest_s is None else self._loop.time() + longest_s

    def ended(self) -> None:
        self._ends_s = None

    def answered(self) -> None:
        self._asked = False

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self) -> None:
        self._due_s = self._loop.time() + self._probe_s
        self._timer = self._loop.call_at(self._due_s, self._look)

    def _look(self) -> None:
        now_s = self._loop.time()
        late = now_s - self._due_s > self._probe_s / 2
        if self._ends_s is not None:
            if now_s >= self._ends_s and not late:
                self._stuck(f"it had held a batch for longer than {self._longest_s:.3g} s")
                return
        elif not self._asked:
            self._asked = True
            self._ask()
        elif not late:
            self._stuck(f"it had not answered for {self._probe_s:.3g} s while it had nothing to do")
            return
        self._arm()
