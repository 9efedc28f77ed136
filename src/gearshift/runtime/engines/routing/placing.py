"""Where a request goes whose replica failed, or whose model takes nothing now."""

from gearshift.policies.watch.lost_workers import retry_until_ns
from gearshift.runtime.engines.requests.engine_request import NOWHERE, EngineRequest
from gearshift.runtime.engines.routing.availability import Availability
from gearshift.runtime.engines.routing.expected import Expected
from gearshift.runtime.engines.routing.gear_in_force import GearInForce
from gearshift.runtime.faults.ejections import RetryBudget

LONGEST_RETRY_NS = 30_000_000_000


class Placing:
    """Finds the model that a request goes to.

    It waits for one that cools down until its deadline, and for `longest_retry_ns` at most.
    """

    def __init__(
        self,
        available: Availability,
        gears: GearInForce,
        models: int,
        *,
        budget: RetryBudget,
        objective_ns: int,
        longest_retry_ns: int,
        expected: Expected,
    ) -> None:
        self._available, self._gears, self._models = available, gears, models
        self._objective_ns, self._longest_retry_ns = objective_ns, longest_retry_ns
        self.budget, self._expected = budget, expected

    def open_model(self, request: EngineRequest, now_ns: int) -> int:
        """Its model if that takes something soon, else a later stage's that does now, else one worth waiting for.

        Soon is within the objective of the plan.
        """
        models = list(self._gears.later_models(request.model))
        within_ns = self._objective_ns
        for model in models:
            if self._opens_ns(model, request) <= now_ns + within_ns and not (
                within_ns and now_ns + within_ns > request.deadline_ns
            ):
                return model
            within_ns = 0
        return next((model for model in models if self.is_worth_waiting(model, request, now_ns)), NOWHERE)

    def any_model(self, request: EngineRequest, now_ns: int) -> int:
        """Any model that may answer it, the most accurate first; for an answer that is degraded."""
        for model in (*reversed(self._gears.models), *reversed(range(self._models))):
            if self._opens_ns(model, request) <= now_ns:
                return model
        return NOWHERE

    def is_worth_waiting(self, model: int, request: EngineRequest, now_ns: int) -> bool:
        """Whether the model takes something while the request may wait for it."""
        opens_ns = self._opens_ns(model, request)
        if opens_ns > now_ns:
            self.begin_waiting(request, now_ns)
        return opens_ns <= max(now_ns, request.wait_until_ns)

    def begin_waiting(self, request: EngineRequest, now_ns: int) -> None:
        """From now it waits for a pause to be over, if it did not do so before."""
        if request.wait_until_ns == 0:
            request.wait_until_ns = retry_until_ns(now_ns, self._longest_retry_ns, request.ends_ns, 0)

    def may_go_on(self, model: int, request: EngineRequest, now_ns: int) -> bool:
        """Whether a request whose stage is not sure may go to this model: it would answer in time."""
        return self.is_worth_waiting(model, request, now_ns) and not self._expected.is_late(request, model, now_ns)

    def _opens_ns(self, model: int, request: EngineRequest) -> int:
        return self._available.opens_ns(model, request.failed_replicas)
