"""Whether a worker is stuck: it is asked while it is idle, and a batch has a longest time."""

import asyncio
from collections.abc import Callable


class Health:
    """Looks at a worker every `probe_s`, and calls `stuck(why)` once when there is no hope for it.

    An idle worker is asked (`ask`) and must have `answered` by the next look.  A busy one must be done within the time
    given to `began`; that is noticed at the next look.  A look that comes late, as this process was held up itself,
    says nothing, as the answer may not have been read yet.
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
        """Look from now on."""
        self._arm()

    def began(self, longest_s: float | None) -> None:
        """A batch was sent, which may take `longest_s`, or for ever."""
        self._longest_s = longest_s
        self._ends_s = float("inf") if longest_s is None else self._loop.time() + longest_s

    def ended(self) -> None:
        """The batch is done."""
        self._ends_s = None

    def answered(self) -> None:
        """The worker has answered what it was asked."""
        self._asked = False

    def stop(self) -> None:
        """Look no more."""
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
