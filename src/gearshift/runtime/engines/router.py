"""The one owner of queues, load and gear for language models: docs/design/language-models.md.

Synchronous and on a given clock. At each instant the caller reports what happened, then calls `dispatch`.
"""

import math
from collections.abc import Callable, Iterator
from typing import Protocol

from gearshift.decisions import Decision
from gearshift.gear import METER_BACKLOG
from gearshift.policies.engines.deciding import DECIDES_AT_END, DECIDES_BY_ID, decides_now, first_stage
from gearshift.policies.engines.outstanding import (
    model_drain_ns,
    outstanding_load,
    replica_with_room,
)
from gearshift.policies.gear_shift import gear_asked_for, gear_in_force
from gearshift.policies.next_step import ANSWER, NOT_IN_CASCADE, next_step
from gearshift.profiles.engines.engine_tables import EngineTables
from gearshift.runtime.engines.requests.engine_request import NOWHERE, EngineRequest
from gearshift.runtime.engines.work import Work
from gearshift.runtime.router.decision_log import DecisionLog, TakeRow

Certainty = Callable[[int], float] | float | None
"""By `decide_at_tokens`, `DECIDES_AT_END` for that of the whole answer; None: unknown, so not sure."""


class EngineDriver(Protocol):
    """The engines, and those who wait for answers."""

    def send(self, replica: int, request: EngineRequest) -> None: ...

    def cancel(self, replica: int, request: EngineRequest) -> None:
        """Take the request from an engine that has not ended it."""
        ...

    def answered(self, request: EngineRequest) -> None:
        """A stage has decided to answer, so what was held may be shown."""
        ...

    def finished(self, request: EngineRequest) -> None:
        """The answer has ended."""
        ...

    def unanswered(self, request: EngineRequest) -> None:
        """No replica is left that could answer, or the one that did has failed."""
        ...


class EngineRouter:
    def __init__(self, tables: EngineTables, driver: EngineDriver, *, log: TakeRow | None = None) -> None:
        self.tables, self._driver, self._log = tables, driver, DecisionLog(log)
        self._replica_model: list[int] = tables.replica_model.tolist()
        self._begin: list[int] = tables.replica_begin.tolist()
        self._stage_count: list[int] = tables.stage_count.tolist()
        self._stage_models: list[int] = tables.stage_models.tolist()
        self._thresholds: list[float] = tables.thresholds.tolist()
        self._decide_at: list[int] = tables.decide_at.tolist()
        self._range_starts: list[float] = tables.range_starts.tolist()
        self._shares: list[int] = tables.shares.tolist()
        self._most_outstanding: list[int] = tables.most_outstanding.tolist()
        self.work = Work(tables)
        self.queues, self.sent, self.outstanding = self.work.queues, self.work.sent, self.work.outstanding
        self.is_lost = [False] * len(tables.replicas)
        self.requests = 0
        """Those that are not finished."""
        self.gear, self._eased_ticks, self.load, self.pinned = 0, 0, 0.0, False

    # Events --------------------------------------------------------------------------------------

    def arrive(self, request: EngineRequest, now_ns: int) -> None:
        self.requests += 1
        stage = self._first_stage(request)
        model = self._stage_models[self._row + stage]
        if self._usable(model, request):
            self._enqueue(request, model, stage, now_ns)
        else:
            request.model = model
            self._place_again(request, now_ns, first=False)

    def tokens(self, request: EngineRequest, count: int, certainty_at: Certainty, now_ns: int) -> None:
        """The model that the request runs on has given `count` tokens in all."""
        if request.tokens == 0:
            self.work.prompt_is_done(request)
        request.tokens = count
        if not request.answered:
            self._decide(request, certainty_at, now_ns, ended=False)

    def ended(self, request: EngineRequest, certainty: Certainty, now_ns: int) -> None:
        """The answer of the model that the request runs on is whole."""
        if not request.answered:
            self._decide(request, certainty, now_ns, ended=True)
        if request.answered:
            self.work.take_from_engine(request)
            self._finish(request)

    def failed(self, request: EngineRequest, now_ns: int, *, too_long: bool = False) -> None:
        """Its replica could not answer it: another does, or a later stage, unless something was shown.

        A prompt that is `too_long` is so for all replicas of the model.
        """
        begin, end = self._begin[request.model : request.model + 2]
        request.failed_replicas |= (1 << end) - (1 << begin) if too_long else 1 << request.replica
        self.work.take_from_engine(request)
        if request.answered:
            self._give_up(request)
        else:
            self._place_again(request, now_ns)

    def lost(self, replica: int, now_ns: int) -> None:
        """The replica gets nothing more; what it has goes on until that fails as well."""
        self.is_lost[replica] = True
        model = self._replica_model[replica]
        for request in list(self.queues[model]):
            if not self._usable(model, request):
                self.work.unqueue(request)
                self._place_again(request, now_ns)

    def found(self, replica: int) -> None:
        """A lost replica is back."""
        self.is_lost[replica] = False

    def left(self, request: EngineRequest) -> None:
        """Nobody waits for the answer any more."""
        if self._withdraw(request):
            self.requests -= 1

    def expired(self, request: EngineRequest, now_ns: int) -> None:
        """A later stage would answer too late: give what there is, or nothing."""
        if request.answered:
            return
        request.degraded = True
        if request.whole_answer_of != NOWHERE:
            self._withdraw(request)
            self._answer_with_whole(request, now_ns)
        elif request.replica != NOWHERE and request.tokens:
            self._answer(request, now_ns)
        elif self._withdraw(request):
            self._give_up(request)

    def tick(self, now_ns: int) -> None:
        """Every 100 ms: measure the load, and shift."""
        tables, starts = self.tables, self._range_starts
        self.load = outstanding_load(tables.load_unit, self.requests, self.work.prompt_tokens, self.drain_ns)
        asked = gear_asked_for(METER_BACKLOG, self.gear, self.load, 0, 0.0, starts, len(starts))
        gear, self._eased_ticks = gear_in_force(
            self.gear, asked, self._eased_ticks, self.load, starts, tables.upshift_margin
        )
        if gear != self.gear and not self.pinned:
            self._shift(gear, now_ns)

    def begin_at(self, load: float) -> None:
        """Begin in the gear for this load, before there are requests."""
        starts = self._range_starts
        self.load, self.gear = load, gear_asked_for(METER_BACKLOG, self.gear, load, 0, 0.0, starts, len(starts))

    def pin(self, gear: int, now_ns: int) -> None:
        """Keep a gear until `pinned` is unset."""
        self.pinned = True
        if gear != self.gear:
            self._shift(gear, now_ns)

    def dispatch(self, now_ns: int) -> None:
        """Send what waits to replicas with room."""
        for model, queue in enumerate(self.queues):
            while queue:
                request = next(iter(queue))
                replica = replica_with_room(
                    self._begin[model],
                    self._begin[model + 1],
                    self._settings,
                    self.outstanding,
                    self.work.work_ns,
                    self._most_outstanding,
                    self._shares,
                    self.is_lost if request.failed_replicas == 0 else self._unusable(request),
                )
                if replica == NOWHERE:
                    break
                self._send(request, replica, now_ns)

    # Queues and engines --------------------------------------------------------------------------

    def _enqueue(self, request: EngineRequest, model: int, stage: int, now_ns: int, *, first: bool = False) -> None:
        self.work.enqueue(request, model, stage, first=first)
        self._log.write(now_ns, Decision.ENQUEUE, request.number, model, stage)

    def _send(self, request: EngineRequest, replica: int, now_ns: int) -> None:
        self.work.send(request, replica)
        self._log.write(now_ns, Decision.SEND, request.number, replica, self.outstanding[replica])
        self._driver.send(replica, request)

    # Decisions -----------------------------------------------------------------------------------

    @property
    def _row(self) -> int:
        """Where the gear in force begins in the arrays of stages."""
        return self.gear * self.tables.most_stages

    @property
    def _settings(self) -> int:
        """Where the gear in force begins in the arrays of replicas' settings."""
        return self.gear * len(self._replica_model)

    @property
    def waiting(self) -> int:
        return sum(map(len, self.queues))

    @property
    def drain_ns(self) -> int:
        """The time to clear what the busiest model's replicas have and what waits for them."""
        begin, waiting_ns, work_ns = self._begin, self.work.waiting_ns, self.work.work_ns
        return max(
            model_drain_ns(begin[model], begin[model + 1], self._settings, waiting_ns[model], work_ns, self._shares)
            for model in range(len(self.queues))
        )

    def threshold_of(self, model: int) -> float:
        """That of the model's stage in the gear in force; nan where it has none, or is the last."""
        stage = self._stage_of(model)
        decides = stage != NOT_IN_CASCADE and stage < self._stage_count[self.gear] - 1
        return self._thresholds[self._row + stage] if decides else math.nan

    def may_cut(self, request: EngineRequest) -> bool:
        """Whether the answer that it runs for might have been cut off at a token, so that whole ones are no sample."""
        gear = request.gear if request.answered else self.gear
        stage = self._stage_of(request.model, gear)
        decides = stage not in (NOT_IN_CASCADE, self._stage_count[gear] - 1) and not request.whole
        return decides and self._decide_at[gear * self.tables.most_stages + stage] not in (
            DECIDES_AT_END,
            DECIDES_BY_ID,
        )

    def _first_stage(self, request: EngineRequest) -> int:
        if request.last_alone:
            return self._stage_count[self.gear] - 1
        return first_stage(request.by_id, self._stage_count[self.gear], self._thresholds, self._decide_at, self._row)

    def _stage_of(self, model: int, gear: int | None = None) -> int:
        """The model's place in the cascade of a gear, else of the one in force, or `NOT_IN_CASCADE`."""
        gear = self.gear if gear is None else gear
        row = gear * self.tables.most_stages
        for stage in range(self._stage_count[gear]):
            if self._stage_models[row + stage] == model:
                return stage
        return NOT_IN_CASCADE

    def _decide(self, request: EngineRequest, certainty_at: Certainty, now_ns: int, *, ended: bool) -> None:
        stage, stages, row = self._stage_of(request.model), self._stage_count[self.gear], self._row
        by_certainty = not (request.degraded or request.last_alone) and stage not in (NOT_IN_CASCADE, stages - 1)
        by_certainty = by_certainty and self._decide_at[row + stage] != DECIDES_BY_ID
        if by_certainty and (
            (request.whole and not ended) or not decides_now(stage, stages, request.tokens, ended, self._decide_at, row)
        ):
            return
        model = ANSWER
        if by_certainty:
            at = DECIDES_AT_END if request.whole else self._decide_at[row + stage]
            certainty = _certainty(certainty_at, at)
            model = self._next_model(request, stage, certainty)
        if model == ANSWER:
            self._answer(request, now_ns)
            return
        self._log.write(now_ns, Decision.CANCEL, request.number, request.replica, request.tokens)
        if ended:
            request.whole_answer_of = request.model
        else:
            self._driver.cancel(request.replica, request)
        self.work.take_from_engine(request)
        self._enqueue(request, model, self._stage_of(model), now_ns)

    def _answer(self, request: EngineRequest, now_ns: int) -> None:
        request.answered, request.decided_at, request.gear = True, request.tokens, self.gear
        self._log.write(now_ns, Decision.ANSWER, request.number, request.model, self.gear)
        self._driver.answered(request)

    def _next_model(self, request: EngineRequest, stage: int, certainty: float) -> int:
        """By `next_step`, past models that have no replica; if none is left the answer is degraded."""
        stages, passed = self._stage_count[self.gear], request.visited
        while True:
            model = next_step(stage, certainty, passed, stages, self._stage_models, self._thresholds, self._row)
            if model == ANSWER:
                request.degraded = passed != request.visited
                return ANSWER
            if self._usable(model, request):
                return model
            passed |= 1 << model

    def _shift(self, gear: int, now_ns: int) -> None:
        before, self.gear, self._eased_ticks = self.gear, gear, 0
        self._log.write(now_ns, Decision.SHIFT, before, gear, 0)
        moving = []
        for model, queue in enumerate(self.queues):
            for request in queue:
                if request.visited == 0 and not request.degraded:
                    stage = self._first_stage(request)
                    first = self._stage_models[self._row + stage]
                    if first != model and self._usable(first, request):
                        moving.append((request, first, stage))
                    elif first == model:
                        request.stage = stage
        for request, first, stage in moving:
            self.work.unqueue(request)
            self._enqueue(request, first, stage, now_ns)

    # Faults --------------------------------------------------------------------------------------

    def _usable(self, model: int, request: EngineRequest) -> bool:
        """Whether a replica of the model may still answer the request."""
        return any(
            not self.is_lost[replica] and (request.failed_replicas >> replica) & 1 == 0
            for replica in range(self._begin[model], self._begin[model + 1])
        )

    def _unusable(self, request: EngineRequest) -> list[bool]:
        return [lost or (request.failed_replicas >> replica) & 1 == 1 for replica, lost in enumerate(self.is_lost)]

    def _place_again(self, request: EngineRequest, now_ns: int, *, first: bool = True) -> None:
        """Put a request first in the queue of its model, else of a later stage's, else answer it degraded."""
        for model in self._later_models(request.model):
            if self._usable(model, request):
                self._enqueue(request, model, max(0, self._stage_of(model)), now_ns, first=first)
                return
        request.degraded = True
        if request.whole_answer_of != NOWHERE:
            self._answer_with_whole(request, now_ns)
            return
        in_gear = self._stage_models[self._row : self._row + self._stage_count[self.gear]]
        for model in (*reversed(in_gear), *reversed(range(len(self.queues)))):
            if self._usable(model, request):
                self._enqueue(request, model, max(0, self._stage_of(model)), now_ns, first=first)
                return
        self._give_up(request)

    def _answer_with_whole(self, request: EngineRequest, now_ns: int) -> None:
        request.model = request.whole_answer_of
        self._answer(request, now_ns)
        self._finish(request)

    def _withdraw(self, request: EngineRequest) -> bool:
        """Take the request from where it is; False if it is nowhere."""
        if request.replica != NOWHERE:
            self._driver.cancel(request.replica, request)
            self.work.take_from_engine(request)
        elif request in self.queues[request.model]:
            self.work.unqueue(request)
        else:
            return False
        return True

    def _later_models(self, model: int) -> Iterator[int]:
        """The model itself, and those of the stages after it in the gear in force."""
        yield model
        stage = self._stage_of(model)
        if stage != NOT_IN_CASCADE:
            yield from self._stage_models[self._row + stage + 1 : self._row + self._stage_count[self.gear]]

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
