"""The requests that are open: passes them between router, engines and clients, until each has its one answer."""

import asyncio
from collections.abc import Callable
from functools import partial

from gearshift.clock import NS_PER_S, Clock, to_ns
from gearshift.errors import printable
from gearshift.observability.journal import Journal
from gearshift.observability.language_metrics import LanguageMetrics
from gearshift.profiles.engines.engine_tables import EngineTables
from gearshift.request import NO_DEADLINE_NS
from gearshift.runtime.engines.answers.answer_stream import AnswerStream, Reader
from gearshift.runtime.engines.answers.drift import AnswerDrift
from gearshift.runtime.engines.answers.second_engine import SecondEngine
from gearshift.runtime.engines.certainties import Certainties
from gearshift.runtime.engines.identities import Identities
from gearshift.runtime.engines.requests.asked import Asked
from gearshift.runtime.engines.requests.engine_request import NOWHERE, EngineRequest, Hedge, Sent, StageOutcome
from gearshift.runtime.engines.requests.prompt_sizes import PromptSizes
from gearshift.runtime.engines.routing.first_token_promise import FirstTokenPromise
from gearshift.runtime.engines.routing.rate_limits import RateLimits
from gearshift.runtime.engines.routing.router import EngineRouter
from gearshift.runtime.engines.served_engines import Asking, CertaintyOf, Engines, is_for_our_logprobs
from gearshift.runtime.engines.stages import Stages
from gearshift.runtime.engines.upstream.call import Fault
from gearshift.runtime.engines.upstream.refusals import Kind, for_client, kind_of
from gearshift.runtime.faults.failure_log import FailureLog, OwnErrors
from gearshift.runtime.service.admission import STOPPED
from gearshift.runtime.service.room import Room

TOO_LATE = Fault("the deadline passed before a model could answer", status=504, for_clients=True)
LONGEST_REASON = 300
"""Characters of an engine's fault in journal and log."""
SHORTEST_PAUSE_S = 1.0
"""For an endpoint that asks to be sent nothing, and does not say for how long."""


class OpenAnswers:
    """As `LanguageService`, whose part it is.

    For the router it is the `EngineDriver`, for each stream its `Owner`. With `least_top` certainty
    needs so many of the likeliest tokens.
    """

    def __init__(
        self,
        tables: EngineTables,
        engines: Engines,
        identities: Identities,
        *,
        room: Room,
        certainty_of: CertaintyOf,
        drift: AnswerDrift | None,
        least_top: int,
        promise: FirstTokenPromise,
        limits: RateLimits | None,
        longest_retry_s: float,
        shortest_hang_s: float,
        clock: Clock,
        metrics: LanguageMetrics,
        journal: Journal,
        errors: OwnErrors,
    ) -> None:
        self.tables, self._engines, self._identities = tables, engines, identities
        self._room, self._clock, self._metrics, self._errors = room, clock, metrics, errors
        self._asking, self.promise = Asking(tables, engines, least_top), promise
        self._shortest_hang_ns = to_ns(shortest_hang_s)
        self.router = EngineRouter(
            tables,
            self,
            objective_ns=promise.objective_ns or 0,
            limits=limits,
            longest_retry_ns=to_ns(longest_retry_s),
        )
        models = [tables.models[model] for model in tables.replica_model]
        self.failures = FailureLog(
            tables.replicas, models, lambda *named: metrics.failures.labels(*named).inc(), journal, tries="requests"
        )
        self.router.available.ejections.changed = self.failures.changed
        self.certainties = Certainties(
            tables.models, self.router, certainty_of=certainty_of, drift=drift, metrics=metrics, journal=journal
        )
        self.sizes = PromptSizes.of(tables)
        self._stages = Stages(tables, clock, metrics)
        self._streams: dict[EngineRequest, AnswerStream] = {}
        self.none_open = asyncio.Event()
        self.none_open.set()
        self._next_number, self._dispatches = 0, False
        self._loop = asyncio.get_running_loop()

    def __len__(self) -> int:
        return len(self._streams)

    # Requests ------------------------------------------------------------------------------------

    def open(self, asked: Asked, reader: Reader) -> AnswerStream:
        """Take a request for which there is room; `reader` gets its answer, after this has returned.

        Raises `QueueFull` where its first token would be late.
        """
        request = EngineRequest(
            self._next_number,
            asked.by_id,
            self.sizes.tokens(asked),
            asked.most_tokens,
            asked.choices,
            asked.whole,
            asked.echoes,
        )
        self._next_number += 1
        now_ns = self._clock.now_ns()
        self.promise.require_in_time(request, asked, self.router, now_ns)
        stream = AnswerStream(self, request, asked, reader, self._room.held, now_ns)
        self._streams[request] = stream
        self.none_open.clear()
        self._room.take(1, asked.held_bytes, asked.client)
        try:
            if request.deadline_ns != NO_DEADLINE_NS:
                due_ns = max(now_ns, request.deadline_ns)
                stream.deadline = self._loop.call_later((due_ns - now_ns) / NS_PER_S, self._expire, stream, due_ns)
            self.router.arrive(request, now_ns)
        except Exception:
            self._take_from_router(request)
            self._close(stream)
            raise
        self.dispatch_soon()
        return stream

    def withdraw(self, stream: AnswerStream) -> None:
        """The client has left: nobody works on its request any more, and its reader hears nothing."""
        if stream.request in self._streams:
            self._take_from_router(stream.request)
            self._close(stream)
            self._metrics.ended("cancelled")
            self.dispatch_soon()

    def fail_all(self) -> None:
        for stream in list(self._streams.values()):
            self._take_from_router(stream.request)
            self._fail(stream, Fault(STOPPED, status=503, retry_after_s=1, for_clients=True))

    def _expire(self, stream: AnswerStream, due_ns: int) -> None:
        request, now_ns = stream.request, self._clock.now_ns()
        self.promise.expired(now_ns - due_ns)
        if stream.broken is not None or request.ends_ns == NO_DEADLINE_NS:
            return
        self._for(stream, self.router.expired, request, now_ns)
        self.dispatch_soon()

    def _close(self, stream: AnswerStream) -> None:
        del self._streams[stream.request]
        self._drop_second(stream)
        stream.let_go()
        stream.call = None
        self._room.give_back(1, stream.asked.held_bytes, stream.asked.client)
        stream.asked.let_go()
        if stream.deadline is not None:
            stream.deadline.cancel()
        if not self._streams:
            self.none_open.set()

    def _fail(self, stream: AnswerStream, fault: Fault) -> None:
        self._close(stream)
        if fault is TOO_LATE:
            self._metrics.refused("deadline")
        else:
            self._metrics.ended("failed")
        if stream.broken is None:
            self._for(stream, stream.reader.failed, fault)

    # What the router decides (`router.EngineDriver`) ---------------------------------------------

    def send(self, replica: int, request: EngineRequest) -> None:
        stream = self._streams[request]
        self._for(stream, self._send, replica, request, stream)

    def _send(self, replica: int, request: EngineRequest, stream: AnswerStream) -> None:
        self._begin_stage(stream, replica, self._clock.now_ns())
        stream.call = self._asking.post(stream, request.model, replica, stream)
        stream.call.longest_silence_s = self.router.expected.longest_first_s(request, self._shortest_hang_ns)

    def _begin_stage(self, stream: AnswerStream, replica: int, sent_ns: int) -> None:
        request = stream.request
        given, held_tokens = self._asking.tokens_of(stream, request.model), self.tables.engines[replica].held_tokens
        stream.begin_stage(given, held_tokens=held_tokens)
        stream.sent = Sent(request.model, replica, request.stage, sent_ns)

    def cancel(self, replica: int, request: EngineRequest) -> None:
        stream = self._streams[request]
        self._left(stream, "cancelled" if request.late else "unsure")
        self._drop_second(stream)
        if stream.call is not None:
            stream.call.cancel()
            stream.call = None
        if not request.answered:
            self._stages.gave_way(stream, request.model, keep=False)

    def answered(self, request: EngineRequest) -> None:
        stream = self._streams[request]
        stream.answered_ns = self._clock.now_ns()
        if stream.call is None:  # its stage has ended
            self._left(stream, "answered")
        stream.given = None
        self._for(stream, partial(stream.show, whole=request.replica == NOWHERE))

    def finished(self, request: EngineRequest) -> None:
        stream = self._streams[request]
        self._close(stream)
        if stream.broken is not None:
            self._metrics.ended("failed")
            return
        model, tokens = self.tables.models[request.model], stream.output_tokens
        self._metrics.answered(model, stream.outcome, output_tokens=tokens, **stream.times_s())
        self._for(stream, stream.reader.ended, stream)

    def unanswered(self, request: EngineRequest) -> None:
        stream = self._streams[request]
        self._fail(stream, TOO_LATE if request.late else stream.fault)

    def dispatch_soon(self) -> None:
        """Let the router send what waits, once what is being done is done."""
        if not self._dispatches:
            self._dispatches = True
            self._loop.call_soon(self._dispatch)

    def _dispatch(self) -> None:
        self._dispatches = False
        try:
            self.router.dispatch(self._clock.now_ns())
        except Exception as error:  # noqa: BLE001  those that wait first end, so that the others go on
            self._errors.log("when requests were sent", error)
            for queue in self.router.queues:
                if queue:
                    self.broke(self._streams[next(iter(queue))], error)

    # What engines report (`answer_stream.Owner`) -------------------------------------------------

    def now_ns(self) -> int:
        return self._clock.now_ns()

    def begun(self, stream: AnswerStream, model: object, fingerprint: object) -> None:
        self._identities.begun(stream.request.replica, model, fingerprint)

    def tokens_came(self, stream: AnswerStream) -> None:
        request = stream.request
        if request.tokens == 0:
            self._drop_second(stream)
            if stream.call is not None:
                longest_s = self.router.expected.longest_between_s(request, self._shortest_hang_ns)
                stream.call.longest_silence_s = longest_s
        certainty = partial(self.certainties.of, stream)
        self.router.tokens(request, stream.count, certainty, self._clock.now_ns())
        self.dispatch_soon()

    def stage_ended(self, stream: AnswerStream) -> None:
        request, model = stream.request, stream.request.model
        if stream.usage is not None and stream.usage.prompt_tokens > 0:
            self.sizes.learn(request, stream.asked, stream.usage)
        stream.call = None
        self._drop_second(stream)
        if request.answered:
            self._left(stream, "answered")
        self.certainties.stage_ended(stream)
        self.router.ended(request, partial(self.certainties.of, stream), self._clock.now_ns())
        if not request.answered:
            self._left(stream, "unsure")
            self._stages.gave_way(stream, model, keep=True)
        self.dispatch_soon()

    def stage_failed(self, stream: AnswerStream, fault: Fault) -> None:
        request, replica = stream.request, stream.request.replica
        stream.call = None
        if replica == NOWHERE:
            return
        if is_for_our_logprobs(stream, fault):
            stream.no_logprobs |= {request.model}
            stream.held.take()
            self._for(stream, self._send, replica, request, stream)
            return
        kind = kind_of(fault)
        if kind.of_model:
            fault = for_client(fault)
        stream.fault = fault if fault.for_clients else fault.of(f"replica {self.tables.replicas[replica]!r}")
        now_ns = self._clock.now_ns()
        if kind is Kind.ENGINE:
            self._note_failure(replica, fault)
        if stream.second is not None and kind is not Kind.REQUEST:
            self._go_on_with_second(stream, first_failed=kind is Kind.ENGINE and not fault.is_limit)
            return
        self._left(stream, "failed")
        if kind is Kind.REQUEST:
            self._take_from_router(request)
            self._fail(stream, stream.fault)
        else:
            if not request.shown and stream.count:
                self._stages.gave_way(stream, request.model, keep=False)
            stream.held.take()
            if request.answered and not request.shown:
                stream.take_back()
            if kind is Kind.ENGINE and fault.is_limit:
                pause_s = max(SHORTEST_PAUSE_S, fault.retry_after_s or 0.0)
                self.router.limited(request, now_ns + to_ns(pause_s), now_ns)
            else:
                self.router.failed(request, now_ns, of_model=kind.of_model)
        self.dispatch_soon()

    def _note_failure(self, replica: int, fault: Fault) -> None:
        if fault.unreachable:
            self._engines.suspect(replica, fault)
        self.failures.failed(replica, fault.kind, printable(fault.reason)[:LONGEST_REASON])

    # Late first tokens ---------------------------------------------------------------------------

    def look(self) -> None:
        """Ask second engines for answers whose first token is late."""
        now_ns, hedging = self._clock.now_ns(), self.router.hedging
        for sent in self.router.sent:
            for request in [one for one in sent if hedging.is_due(one, now_ns)]:
                stream = self._streams[request]
                if hedge := hedging.begin(request, now_ns):
                    self._for(stream, self._ask_second, stream, hedge, now_ns)
        self.failures.ticked(now_ns)

    def _ask_second(self, stream: AnswerStream, hedge: Hedge, now_ns: int) -> None:
        stream.second = second = SecondEngine(
            stream,
            now_ns,
            won=partial(self._go_on_with_second, stream, first_failed=False),
            failed=partial(self._second_failed, stream),
        )
        second.call = self._asking.post(stream, hedge.model, hedge.replica, second)
        second.call.longest_silence_s = self._shortest_hang_ns / NS_PER_S

    def _go_on_with_second(self, stream: AnswerStream, *, first_failed: bool) -> None:
        """The second engine answers, or the first one has failed."""
        second, request = stream.second, stream.request
        assert second is not None
        self._left(stream, "failed" if first_failed else "cancelled")
        if stream.call is not None:
            stream.call.cancel()
        self.router.hedging.won(request, self._clock.now_ns(), first_failed=first_failed)
        stream.second = None
        self._begin_stage(stream, request.replica, second.sent_ns)
        stream.call = second.call
        second.adopt()
        self.dispatch_soon()

    def _second_failed(self, stream: AnswerStream, fault: Fault) -> None:
        hedge, now_ns = stream.request.hedge, self._clock.now_ns()
        stream.second = None
        if hedge is None:
            return
        if kind_of(fault) is Kind.ENGINE and not fault.is_limit:
            self._note_failure(hedge.replica, fault)
            self.router.hedging.failed(stream.request, now_ns)
        else:
            self.router.hedging.dropped(stream.request, now_ns)

    def _drop_second(self, stream: AnswerStream) -> None:
        second, stream.second = stream.second, None
        if second is not None and second.call is not None:
            second.call.cancel()
        if second is not None and stream.request.hedge is not None:
            self.router.hedging.dropped(stream.request, self._clock.now_ns())

    def _left(self, stream: AnswerStream, outcome: StageOutcome) -> None:
        visit = self._stages.left(stream, outcome)
        if visit is not None and stream.asked.visited is not None:
            self._for(stream, stream.asked.visited, visit)

    # Errors of this process ----------------------------------------------------------------------

    def _for(self, stream: AnswerStream, step: Callable[..., None], *given: object) -> None:
        """Take a step for one request, which ends where that raises; all others go on."""
        try:
            step(*given)
        except Exception as error:  # noqa: BLE001  whatever it is, the client's answer ends
            self.broke(stream, error)

    def broke(self, stream: AnswerStream, error: Exception) -> None:
        """As `answer_stream.Owner`; the router may be amid a step, so it loses the request after that."""
        if stream.broken is None:
            stream.broken = error
            self._loop.call_soon(self._end_broken, stream, error)

    def _end_broken(self, stream: AnswerStream, error: Exception) -> None:
        if stream.request in self._streams:
            self._take_from_router(stream.request)
            self._close(stream)
            self._metrics.ended("failed")
            self.dispatch_soon()
        stream.reader.broke(error)

    def _take_from_router(self, request: EngineRequest) -> None:
        self._left(self._streams[request], "cancelled")
        try:
            self.router.left(request, self._clock.now_ns())
        except Exception as error:  # noqa: BLE001  the client's answer ends all the same
            self._errors.log("when a request left the router", error)
