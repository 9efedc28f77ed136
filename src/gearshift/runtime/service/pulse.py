"""Calls the router at every tick of the meter, and when something is due."""

import asyncio
from collections.abc import Callable

from gearshift.clock import NEVER_NS, Clock
from gearshift.policies.load import METER_WINDOW_NS
from gearshift.support.fine_timer import FineTimer


class Pulse:
    """Calls `tick` on a fixed grid, and `wake` at the requested time or before."""

    def __init__(self, clock: Clock, tick: Callable[[], None], wake: Callable[[], None]) -> None:
        self._clock, self._tick, self._wake = clock, tick, wake
        self._timers: tuple[FineTimer, FineTimer] | None = None
        self._armed_ns = NEVER_NS

    @property
    def started(self) -> bool:
        return self._timers is not None

    def start(self) -> None:
        """Open the timers; raises `OSError` if the system gives none."""
        loop = asyncio.get_running_loop()
        self._timers = FineTimer(loop, self._ticked), FineTimer(loop, self._woken)
        for timer in self._timers:
            timer.start()
        self._arm_tick()

    def stop(self) -> None:
        for timer in self._timers or ():
            timer.stop()

    def wake_by(self, at_ns: int) -> None:
        """Wake at `at_ns` or before; waking too early does no harm."""
        if self._timers is not None and at_ns < self._armed_ns:
            self._armed_ns = at_ns
            self._timers[1].set(at_ns - self._clock.now_ns())

    def _ticked(self) -> None:
        self._tick()
        self._arm_tick()

    def _arm_tick(self) -> None:
        """Set the next point of the grid; those missed while the loop was held up are skipped."""
        if self._timers is not None:
            now_ns = self._clock.now_ns()
            self._timers[0].set((now_ns // METER_WINDOW_NS + 1) * METER_WINDOW_NS - now_ns)

    def _woken(self) -> None:
        self._armed_ns = NEVER_NS
        self._wake()
