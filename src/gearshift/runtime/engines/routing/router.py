"""The one owner of queues, load and gear for language models: docs/design/language-models.md.

Synchronous and on a given clock. At each instant the caller reports what happened, then calls `dispatch`.
"""

import math
from collections.abc import Callable

from gearshift.decisions import Decision
from gearshift.policies.engines.deciding import DECIDES_AT_END, DECIDES_BY_ID, decides_now
from gearshift.policies.engines.outstanding import model_drain_ns, outstanding_load, replica_with_room
from gearshift.policies.next_step import ANSWER, NOT_IN_CASCADE, next_step
from gearshift.profiles.engines.engine_tables import EngineTables
from gearshift.request import NO_DEADLINE_NS
from gearshift.runtime.engines.requests.engine_request import NOWHERE, EngineRequest
from gearshift.runtime.engines.routing.availability import Availability
from gearshift.runtime.engines.routing.engine_driver import EngineDriver
from gearshift.runtime.engines.routing.expected import Expected
from gearshift.runtime.engines.routing.gear_in_force import GearInForce
from gearshift.runtime.engines.routing.hedging import Hedging
from gearshift.runtime.engines.routing.placing import LONGEST_RETRY_NS, Placing
from gearshift.runtime.engines.routing.rate_limits import RateLimits
from gearshift.runtime.engines.routing.work import Work
from gearshift.runtime.faults.ejections import RetryBudget
from gearshift.runtime.router.decision_log import DecisionLog, TakeRow

Certainty = Callable[[int], float] | float | None
"""By `decide_at_tokens`, `DECIDES_AT_END` for that of the whole answer; None: unknown, so not sure."""


class EngineRouter:
    """`objective_ns` orders requests without a deadline among those that have one."""

    def __init__(
        self,
        tables: EngineTables,
        driver: EngineDriver,
        *,
        log: TakeRow | None = None,
        objective_ns: int = 0,
        limits: RateLimits | None = None,
        longest_retry_ns: int = LONGEST_RETRY_NS,
    ) -> None:
        self.tables, self._driver, self._log = tables, driver, DecisionLog(log)
        self._begin: list[int] = tables.replica_begin.tolist()
        self._planned_shares: list[int] = tables.shares.tolist()
        self._shares = self._planned_shares
        self._most_outstanding: list[int] = tables.most_outstanding.tolist()
        self._objective_ns = objective_ns
        self.work = Work(tables)
        self.queues, self.sent, self.outstanding = self.work.queues, self.work.sent, self.work.outstanding
        self.gears, self.available = GearInForce(tables), Availability(tables, limits)
        self.expected = Expected(tables, self.work, self.gears, self.available)
        self._placing = Placing(
            self.available,
            self.gears,
            len(tables.models),
            budget=RetryBudget(sum(self._most_outstanding[: len(tables.replicas)])),
            objective_ns=objective_ns,
            longest_retry_ns=longest_retry_ns,
            expected=self.expected,
        )
        self._budget = self._placing.budget
        self.hedging = Hedging(
            self.work, self.gears, self.available, self.expected, with_room=self._with_room, budget=self._budget
        )
        self.requests = 0
        """Those that are not finished."""
        self.load, self.pinned = 0.0, False

    # Events --------------------------------------------------------------------------------------

    def arrive(self, request: EngineRequest, now_ns: int) -> None:
        self.requests += 1
        self._budget.arrived(now_ns)
        self._order(request, now_ns)
        stage = self.gears.first_stage(request)
        request.model = self.gears.models[stage]
        if self.available.opens_ns(request.model, 0) <= now_ns:
            self._enqueue(request, request.model, stage, now_ns)
        else:
            self._place(request, now_ns)

    def tokens(self, request: EngineRequest, count: int, certainty_at: Certainty, now_ns: int) -> None:
        """The model that the request runs on has given `count` tokens in all."""
        if request.tokens == 0:
            request.first_token_came_ns = now_ns
            self.expected.first_token_came(request, now_ns)
        self.work.progressed(request, count)
        if not request.answered:
            self._decide(request, certainty_at, now_ns, ended=False)

    def ended(self, request: EngineRequest, certainty: Certainty, now_ns: int) -> None:
        """The answer of the model that the request runs on is whole."""
        self._answered_by(request, now_ns)
        if not request.answered:
            self._decide(request, certainty, now_ns, ended=True)
        if request.answered:
            self.work.take_from_engine(request)
            self._finish(request)

    def failed(self, request: EngineRequest, now_ns: int, *, of_model: bool = False) -> None:
        """Its replica could not answer it: another does, or a later stage, unless something was shown.

        A fault `of_model`, such as a prompt that is too long, is one of all its replicas.
        """
        replica, (begin, end) = request.replica, self._begin[request.model : request.model + 2]
        request.failed_replicas |= (1 << end) - (1 << begin) if of_model else 1 << replica
        self._leave_engine(request)
        if of_model:
            self.available.left(replica, now_ns)
        else:
            self.available.failed(replica, now_ns)
            self._move_waiting(self._model_of(replica), now_ns)
        if request.answered and request.shown:
            self._give_up(request)
            return
        request.answered = False
        if of_model or self._budget.take(now_ns):
            self._place(request, now_ns, first=True)
        else:
            self._give_what_there_is(request, now_ns)

    def limited(self, request: EngineRequest, until_ns: int, now_ns: int) -> None:
        """Its replica takes nothing until then, and has not begun to work on it."""
        replica = request.replica
        self._leave_engine(request)
        self.available.limited(replica, until_ns, now_ns)
        self._placing.begin_waiting(request, now_ns)
        if request.wait_until_ns < now_ns:
            self._give_what_there_is(request, now_ns)
        else:
            self._place(request, now_ns, first=True)
        self._move_waiting(self._model_of(replica), now_ns)

    def lost(self, replica: int, now_ns: int) -> None:
        """The replica gets nothing more; what it has goes on until that fails as well."""
        self.available.lost(replica, now_ns)
        self._move_waiting(self._model_of(replica), now_ns)

    def found(self, replica: int, now_ns: int, *, restarted: bool = False) -> None:
        """A lost replica is back; as another process, where it was `restarted`."""
        self.available.found(replica, now_ns, restarted=restarted)

    def left(self, request: EngineRequest, now_ns: int) -> None:
        """Nobody waits for the answer any more."""
        if self._withdraw(request, now_ns):
            self.requests -= 1

    def expired(self, request: EngineRequest, now_ns: int) -> None:
        """Its deadline has come: give what there is, or nothing where that would be seen too late."""
        is_seen_late = request.seen_whole and request.refuse_after_ns != NO_DEADLINE_NS
        if request.answered and not is_seen_late:
            return
        request.degraded = request.late = True
        if request.whole_answer_of != NOWHERE and not request.answered:
            self._withdraw(request, now_ns)
            self._answer_with_whole(request, now_ns)
        elif request.replica != NOWHERE and request.tokens and not is_seen_late:
            self._answer(request, now_ns)
        elif self._withdraw(request, now_ns):
            self._give_up(request)

    def tick(self, now_ns: int) -> None:
        """Every 100 ms: measure the load, and shift."""
        self.available.look(now_ns)
        self.expected.tick(now_ns)
        self.load = outstanding_load(self.tables.load_unit, self.requests, self.work.prompt_tokens, self.drain_ns)
        gear = self.gears.for_load(self.load)
        if gear != self.gear and not self.pinned:
            self._shift(gear, now_ns)
        self._shares = self.available.ejections.shares(self._planned_shares)
        for model in range(len(self.queues)):
            if self.available.opens_ns(model, 0) > now_ns:
                self._move_waiting(model, now_ns)

    def begin_at(self, load: float) -> None:
        """Begin in the gear for this load, before there are requests."""
        self.load = load
        self.gears.begin_at(load)

    def pin(self, gear: int, now_ns: int) -> None:
        """Keep a gear until `pinned` is unset."""
        self.pinned = True
        if gear != self.gear:
            self._shift(gear, now_ns)

    def dispatch(self, now_ns: int) -> None:
        """Send what waits to replicas with room."""
        for model, queue in enumerate(self.queues):
            while queue and self.available.limits.opens_ns(model) <= now_ns:
                request = next(iter(queue))
                if request.refuse_after_ns < now_ns + request.prompt_ns:
                    self.expired(request, now_ns)
                    continue
                replica = self._with_room(model, request.failed_replicas)
                if replica == NOWHERE:
                    break
                self._send(request, replica, now_ns)

    def predicted_ns(self, request: EngineRequest, now_ns: int) -> tuple[int, int, int]:
        """As `Expected.first_stage_ns`, of a request that comes now."""
        self._order(request, now_ns)
        return self.expected.first_stage_ns(request)

    # Queues and engines --------------------------------------------------------------------------

    def _order(self, request: EngineRequest, now_ns: int) -> None:
        has_deadline = request.deadline_ns != NO_DEADLINE_NS
        request.order_ns = request.deadline_ns if has_deadline else now_ns + self._objective_ns

    def _enqueue(self, request: EngineRequest, model: int, stage: int, now_ns: int, *, first: bool = False) -> None:
        self.work.enqueue(request, model, stage, first=first)
        self._log.write(now_ns, Decision.ENQUEUE, request.number, model, stage)

    def _with_room(self, model: int, failed: int) -> int:
        trial = self.available.on_trial(model, failed)
        if trial != NOWHERE and self.outstanding[trial] < self._most_outstanding[self.gears.settings + trial]:
            return trial
        return replica_with_room(
            self._begin[model],
            self._begin[model + 1],
            self.gears.settings,
            self.outstanding,
            self.work.work_ns,
            self._most_outstanding,
            self._shares,
            self.available.closed_to(failed),
        )

    def _send(self, request: EngineRequest, replica: int, now_ns: int) -> None:
        request.prompt_ns, request.output_ns, tokens = self.work.expect(request, replica, request.model)
        request.sent_ns = now_ns
        request.first_token_ns = self.expected.first_token_ns(replica, request.prompt_ns, request.output_ns)
        self.work.send(request, replica)
        self.available.sent(replica, now_ns)
        self.available.limits.sent(request.model, request.prompt_tokens[request.model] + tokens, now_ns)
        self._log.write(now_ns, Decision.SEND, request.number, replica, self.outstanding[replica])
        self._driver.send(replica, request)

    # Decisions -----------------------------------------------------------------------------------

    @property
    def gear(self) -> int:
        return self.gears.gear

    @property
    def waiting(self) -> int:
        return sum(map(len, self.queues))

    @property
    def drain_ns(self) -> int:
        """The time to clear what the busiest model's replicas have and what waits for them."""
        begin, waiting_ns, work_ns = self._begin, self.work.waiting_ns, self.work.work_ns
        base, shares = self.gears.settings, self._planned_shares
        return max(
            model_drain_ns(begin[model], begin[model + 1], base, waiting_ns[model], work_ns, shares)
            for model in range(len(self.queues))
        )

    def _decide(self, request: EngineRequest, certainty_at: Certainty, now_ns: int, *, ended: bool) -> None:
        gears = self.gears
        stage, stages, row = gears.stage_of(request.model), gears.stages, gears.row
        by_certainty = not (request.degraded or request.last_alone) and stage not in (NOT_IN_CASCADE, stages - 1)
        by_certainty = by_certainty and gears.decide_at[row + stage] != DECIDES_BY_ID
        if by_certainty and (
            (request.whole and not ended) or not decides_now(stage, stages, request.tokens, ended, gears.decide_at, row)
        ):
            return
        model = ANSWER
        if by_certainty:
            at = DECIDES_AT_END if request.whole else gears.decide_at[row + stage]
            certainty = _certainty(certainty_at, at)
            model = self._next_model(request, stage, certainty, now_ns)
        if model == ANSWER:
            self._answer(request, now_ns)
            return
        self._log.write(now_ns, Decision.CANCEL, request.number, request.replica, request.tokens)
        if ended:
            request.whole_answer_of = request.model
        else:
            self._answered_by(request, now_ns)
            self._driver.cancel(request.replica, request)
        self.work.take_from_engine(request)
        self._order(request, now_ns)
        self._enqueue(request, model, gears.stage_of(model), now_ns)

    def _answer(self, request: EngineRequest, now_ns: int) -> None:
        request.answered, request.decided_at, request.gear = True, request.tokens, self.gear
        self._log.write(now_ns, Decision.ANSWER, request.number, request.model, self.gear)
        self._driver.answered(request)

    def _next_model(self, request: EngineRequest, stage: int, certainty: float, now_ns: int) -> int:
        """By `next_step`, past models that cannot answer in time; if none is left the answer is degraded."""
        gears, passed = self.gears, request.visited
        while True:
            model = next_step(stage, certainty, passed, gears.stages, gears.stage_models, gears.thresholds, gears.row)
            if model == ANSWER:
                request.degraded = passed != request.visited
                return ANSWER
            if self._placing.may_go_on(model, request, now_ns):
                return model
            passed |= 1 << model

    def _shift(self, gear: int, now_ns: int) -> None:
        before = self.gear
        self.gears.shift(gear)
        self._log.write(now_ns, Decision.SHIFT, before, gear, 0)
        moving = []
        for model, queue in enumerate(self.queues):
            for request in queue:
                if request.visited == 0 and not request.degraded:
                    stage = self.gears.first_stage(request)
                    first = self.gears.models[stage]
                    if first != model and self.available.opens_ns(first, request.failed_replicas) <= now_ns:
                        moving.append((request, first, stage))
                    elif first == model:
                        request.stage = stage
        for request, first, stage in moving:
            self.work.unqueue(request)
            self._order(request, now_ns)
            self._enqueue(request, first, stage, now_ns)

    # Faults --------------------------------------------------------------------------------------

    def _place(self, request: EngineRequest, now_ns: int, *, first: bool = False) -> None:
        """Let it wait for its model, else a later stage's, else give what there is."""
        model = self._placing.open_model(request, now_ns)
        if model != NOWHERE:
            self._enqueue(request, model, max(0, self.gears.stage_of(model)), now_ns, first=first)
            return
        other = NOWHERE if request.whole_answer_of != NOWHERE else self._placing.any_model(request, now_ns)
        if other != NOWHERE:
            request.degraded = True
            self._enqueue(request, other, max(0, self.gears.stage_of(other)), now_ns, first=first)
            return
        self._give_what_there_is(request, now_ns)

    def _give_what_there_is(self, request: EngineRequest, now_ns: int) -> None:
        request.degraded = True
        if request.whole_answer_of != NOWHERE:
            self._answer_with_whole(request, now_ns)
        else:
            self._give_up(request)

    def _move_waiting(self, model: int, now_ns: int) -> None:
        """Place requests anew that wait for a model which takes nothing in time."""
        for request in list(self.queues[model]):
            if request in self.queues[model] and self._placing.open_model(request, now_ns) != model:
                self.work.unqueue(request)
                self._place(request, now_ns)

    def _answer_with_whole(self, request: EngineRequest, now_ns: int) -> None:
        request.model = request.whole_answer_of
        self._answer(request, now_ns)
        self._finish(request)

    def _withdraw(self, request: EngineRequest, now_ns: int) -> bool:
        """Take the request from where it is; False if it is nowhere."""
        if request.replica != NOWHERE:
            self.hedging.gave_up(request, now_ns)
            self._driver.cancel(request.replica, request)
            self._leave_engine(request)
        elif request in self.queues[request.model]:
            self.work.unqueue(request)
        else:
            return False
        return True

    def _leave_engine(self, request: EngineRequest) -> None:
        if request.hedge is not None:
            self.hedging.end(request)
        self.work.take_from_engine(request)

    def _answered_by(self, request: EngineRequest, now_ns: int) -> None:
        """Its replica gave what was asked of it."""
        replica = request.replica
        self.available.answered(replica, now_ns)
        if request.tokens > 1:
            took_ns = now_ns - request.first_token_came_ns
            self.available.ejections.took(replica, took_ns, (request.tokens - 1) * self.expected.step_ns(replica))

    def _model_of(self, replica: int) -> int:
        return int(self.tables.replica_model[replica])

    def _finish(self, request: EngineRequest) -> None:
        self.requests -= 1
        self._driver.finished(request)

    def _give_up(self, request: EngineRequest) -> None:
        self.requests -= 1
        self._driver.unanswered(request)


def _certainty(certainty_at: Certainty, at: int) -> float:
    if certainty_at is None:
        return -math.inf
    return certainty_at if isinstance(certainty_at, float) else certainty_at(at)
