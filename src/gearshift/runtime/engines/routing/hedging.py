"""Asks a second engine where the first token of an answer is late."""

from collections.abc import Callable

from gearshift.runtime.engines.requests.engine_request import NOWHERE, EngineRequest, Hedge
from gearshift.runtime.engines.routing.availability import Availability
from gearshift.runtime.engines.routing.expected import Expected
from gearshift.runtime.engines.routing.gear_in_force import GearInForce
from gearshift.runtime.engines.routing.work import Work
from gearshift.runtime.faults.ejections import RetryBudget


class Hedging:
    """`with_room` gives a model's replica that may have one more, but for those whose bit is given."""

    def __init__(
        self,
        work: Work,
        gears: GearInForce,
        available: Availability,
        expected: Expected,
        *,
        with_room: Callable[[int, int], int],
        budget: RetryBudget,
    ) -> None:
        self._work, self._gears, self._available, self._expected = work, gears, available, expected
        self._with_room, self._budget = with_room, budget

    def is_due(self, request: EngineRequest, now_ns: int) -> bool:
        """Whether its first token is late, and no second engine is asked."""
        waits = request.replica != NOWHERE and request.tokens == 0 and request.hedge is None
        return waits and now_ns > self._expected.late_first_token_ns(request)

    def begin(self, request: EngineRequest, now_ns: int) -> Hedge | None:
        """Ask another replica of its model as well, else one of a later stage's; None where none has room."""
        failed = request.failed_replicas | 1 << request.replica
        for model in self._gears.later_models(request.model):
            replica = self._with_room(model, failed)
            if replica != NOWHERE and self._budget.take(now_ns):
                prompt_ns, output_ns, _ = self._work.expect(request, replica, model)
                first_ns = self._expected.first_token_ns(replica, prompt_ns, output_ns)
                stage = max(0, self._gears.stage_of(model))
                hedge = request.hedge = Hedge(model, replica, stage, prompt_ns, output_ns, first_ns)
                self._work.hedge(hedge)
                self._available.sent(replica, now_ns)
                return hedge
        return None

    def failed(self, request: EngineRequest, now_ns: int) -> None:
        """The second engine does not answer; the first may."""
        hedge = self.end(request)
        request.failed_replicas |= 1 << hedge.replica
        self._available.failed(hedge.replica, now_ns)

    def dropped(self, request: EngineRequest, now_ns: int) -> None:
        """The second engine is not asked any more, as the first one answers."""
        self._available.left(self.end(request).replica, now_ns)

    def won(self, request: EngineRequest, now_ns: int, *, first_failed: bool) -> None:
        """The second engine, which gave the first token, or whose first one failed, goes on alone."""
        hedge = self.end(request)
        request.failed_replicas |= 1 << request.replica
        if first_failed:
            self._available.failed(request.replica, now_ns)
        else:
            self.gave_up(request, now_ns)
        self._work.take_from_engine(request)
        self._work.hedge(hedge)
        self._work.adopt(request, hedge)
        request.sent_ns, request.first_token_ns = now_ns, hedge.first_token_ns

    def gave_up(self, request: EngineRequest, now_ns: int) -> None:
        """Its replica is not waited for any more: a failure if it stalls, else it tells nothing."""
        if request.tokens == 0 and self._expected.stalls(request, now_ns):
            self._available.failed(request.replica, now_ns)
        else:
            self._available.left(request.replica, now_ns)

    def end(self, request: EngineRequest) -> Hedge:
        hedge = request.hedge
        assert hedge is not None
        self._work.end_hedge(hedge)
        request.hedge = None
        return hedge
