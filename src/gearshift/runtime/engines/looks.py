"""A look at the load every 100 ms, which shifts gears, and every second one at engines and answers."""

import asyncio

from gearshift.clock import NS_PER_S, Clock
from gearshift.observability.journal import Journal
from gearshift.observability.language_metrics import LanguageMetrics
from gearshift.policies.load import METER_WINDOW_NS
from gearshift.runtime.engines.open_answers import OpenAnswers
from gearshift.runtime.engines.served_engines import Engines
from gearshift.runtime.faults.failure_log import OwnErrors
from gearshift.runtime.watch.drift import LiveTrace

TICKS_PER_LOOK = 10


class Looks:
    """`trace` counts the requests that arrive, `rate_qps` is that of the latest second."""

    def __init__(
        self,
        answers: OpenAnswers,
        engines: Engines,
        *,
        clock: Clock,
        metrics: LanguageMetrics,
        journal: Journal,
        errors: OwnErrors,
    ) -> None:
        self._answers, self._router, self._engines = answers, answers.router, engines
        self._clock, self._metrics, self._journal, self._errors = clock, metrics, journal, errors
        self.trace = LiveTrace()
        self._ticks, self._rated, self.rate_qps = 0, 0, 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    def tick(self) -> None:
        """Look now, and again and again until `stop`."""
        self._timer = self._loop.call_later(METER_WINDOW_NS / NS_PER_S, self.tick)
        for where, step in (
            ("at the load", self._look_at_load),
            ("at late answers", self._answers.look),
            ("at engines", self._look_at_engines),
        ):
            try:
                step()
            except Exception as error:  # noqa: BLE001  the next tick comes all the same
                self._errors.log(f"in a look {where}", error)
        self._answers.dispatch_soon()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def hand_over_to(self, after: "Looks") -> None:
        """Leave the record of arrivals to the one that looks from now on."""
        after.trace, self.trace = self.trace, LiveTrace()
        after._rated, self._rated = after.trace.arrived, 0

    def shifted(self, before: int) -> None:
        """Tell that another gear is in force than `before`."""
        router = self._router
        self._metrics.shifts.inc()
        self._journal.write(
            "shift",
            before=before,
            after=router.gear,
            direction="downshift" if router.gear > before else "upshift",
            reason="pin" if router.pinned else "load",
            load=round(router.load, 3),
            waiting=router.waiting,
        )

    def _look_at_load(self) -> None:
        router, before, now_ns = self._router, self._router.gear, self._clock.now_ns()
        self.trace.ticked(now_ns)
        router.tick(now_ns)
        if router.gear != before:
            self.shifted(before)

    def _look_at_engines(self) -> None:
        self._ticks += 1
        if self._ticks % TICKS_PER_LOOK == 0:
            arrived, self._rated = self.trace.arrived - self._rated, self.trace.arrived
            self.rate_qps = arrived / (TICKS_PER_LOOK * METER_WINDOW_NS / NS_PER_S)
            for engine in self._engines.all:
                engine.link.look()
            self._answers.certainties.tell_drift()
