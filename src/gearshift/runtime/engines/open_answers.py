"""The requests that are open: passes them between router, engines and clients, until each has its one answer."""

import asyncio
from collections.abc import Callable
from functools import partial

from gearshift.clock import NS_PER_S, Clock
from gearshift.observability.journal import Journal
from gearshift.observability.language_metrics import LanguageMetrics
from gearshift.profiles.engines.engine_tables import EngineTables
from gearshift.runtime.engines.answers.answer_stream import AnswerStream, Reader
from gearshift.runtime.engines.answers.drift import AnswerDrift
from gearshift.runtime.engines.answers.given_tokens import GivenTokens
from gearshift.runtime.engines.certainties import Certainties
from gearshift.runtime.engines.identities import Identities
from gearshift.runtime.engines.own_errors import OwnErrors
from gearshift.runtime.engines.requests.asked import Asked
from gearshift.runtime.engines.requests.engine_request import NOWHERE, EngineRequest, Sent, StageOutcome
from gearshift.runtime.engines.requests.prompt_sizes import PromptSizes
from gearshift.runtime.engines.router import EngineRouter
from gearshift.runtime.engines.served_engines import CertaintyOf, Engines, models_by_certainty
from gearshift.runtime.engines.stages import Stages
from gearshift.runtime.engines.upstream.call import Fault
from gearshift.runtime.service.room import HeldBytes

CLIENTS_FAULTS = frozenset({400, 413, 422})
"""Statuses of endpoints for requests that no other engine would answer either."""
TOO_LONG = b"context length", b"context_length", b"context size", b"context_size", b"too long", b"maximum context"
"""Parts of what endpoints say of a prompt that their model has no room for."""
LOGPROBS = b"logprobs"
STOPPED = "the server stopped before this request was answered; send it again"
TOO_LATE = Fault("the deadline passed before a model could answer", status=504, for_clients=True)


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
        held: HeldBytes,
        certainty_of: CertaintyOf,
        drift: AnswerDrift | None,
        least_top: int,
        gives_late_answers: bool,
        clock: Clock,
        metrics: LanguageMetrics,
        journal: Journal,
        errors: OwnErrors,
    ) -> None:
        self.tables, self._engines, self._identities = tables, engines, identities
        self._held, self._clock, self._metrics, self._errors = held, clock, metrics, errors
        self._least_top, self._gives_late_answers = least_top, gives_late_answers
        self.router = EngineRouter(tables, self)
        self.certainties = Certainties(
            tables.models, self.router, certainty_of=certainty_of, drift=drift, metrics=metrics, journal=journal
        )
        self.sizes = PromptSizes.of(tables)
        self._stages = Stages(tables, clock, metrics)
        self._by_certainty = models_by_certainty(tables)
        self._streams: dict[EngineRequest, AnswerStream] = {}
        self._none_open = asyncio.Event()
        self._none_open.set()
        self._next_number, self._dispatches = 0, False
        self._loop = asyncio.get_running_loop()

    def __len__(self) -> int:
        return len(self._streams)

    # Requests ------------------------------------------------------------------------------------

    def open(self, asked: Asked, reader: Reader) -> AnswerStream:
        """Take a request for which there is room; `reader` gets its answer, after this has returned."""
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
        stream = AnswerStream(self, request, asked, reader, self._held, now_ns)
        self._streams[request] = stream
        self._none_open.clear()
        self._held.held_bytes += asked.held_bytes
        try:
            if asked.deadline_s is not None:
                stream.deadline = self._loop.call_later(asked.deadline_s, self._expire, stream)
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

    async def none_open(self) -> None:
        """Wait until all are answered."""
        await self._none_open.wait()

    def fail_all(self) -> None:
        for stream in list(self._streams.values()):
            self._take_from_router(stream.request)
            self._fail(stream, Fault(STOPPED, status=503, retry_after_s=1, for_clients=True))

    def _expire(self, stream: AnswerStream) -> None:
        request = stream.request
        has_nothing = request.tokens == 0 and request.whole_answer_of == NOWHERE
        if request.answered or stream.broken is not None or (has_nothing and self._gives_late_answers):
            return
        stream.fault = TOO_LATE
        self._for(stream, self.router.expired, request, self._clock.now_ns())
        self.dispatch_soon()

    def _close(self, stream: AnswerStream) -> None:
        del self._streams[stream.request]
        stream.let_go()
        stream.call = None
        self._held.held_bytes -= stream.asked.held_bytes
        stream.asked.let_go()
        if stream.deadline is not None:
            stream.deadline.cancel()
        if not self._streams:
            self._none_open.set()

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
        engine = self._engines.all[replica]
        decides = self._by_certainty[request.model] and request.model not in stream.no_logprobs
        stream.begin_stage(
            GivenTokens(has_tools="tools" in stream.asked.fields) if decides else None,
            held_tokens=self.tables.engines[replica].held_tokens,
        )
        least = self._least_top if decides else stream.asked.top_logprobs
        body = stream.asked.body(engine.name, least_top_logprobs=least)
        stream.sent = Sent(request.model, replica, request.stage, self._clock.now_ns())
        stream.call = engine.link.post(stream.asked.path, body, stream)

    def cancel(self, replica: int, request: EngineRequest) -> None:
        stream = self._streams[request]
        self._left(stream, "cancelled" if stream.fault is TOO_LATE else "unsure")
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
        self._metrics.answered(
            self.tables.models[request.model],
            "degraded" if request.degraded else "answered",
            ttft_s=(stream.answered_ns - stream.arrived_ns) / NS_PER_S,
            decision_s=(stream.answered_ns - (stream.first_ns or stream.answered_ns)) / NS_PER_S,
            total_s=(max(stream.last_ns, stream.answered_ns) - stream.arrived_ns) / NS_PER_S,
            output_tokens=stream.output_tokens,
        )
        self._for(stream, stream.reader.ended, stream)

    def unanswered(self, request: EngineRequest) -> None:
        stream = self._streams[request]
        self._fail(stream, stream.fault)

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
        certainty = partial(self.certainties.of, stream)
        self.router.tokens(stream.request, stream.count, certainty, self._clock.now_ns())
        self.dispatch_soon()

    def stage_ended(self, stream: AnswerStream) -> None:
        request, model = stream.request, stream.request.model
        if stream.usage is not None and stream.usage.prompt_tokens > 0:
            self.sizes.learn(request, stream.asked, stream.usage)
        stream.call = None
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
        if self._is_for_our_logprobs(stream, fault):
            stream.no_logprobs |= {request.model}
            stream.held.take()
            self._for(stream, self._send, replica, request, stream)
            return
        stream.fault = fault if fault.for_clients else fault.of(f"replica {self.tables.replicas[replica]!r}")
        self._left(stream, "failed")
        too_long = fault.status in CLIENTS_FAULTS and any(said in fault.body.lower() for said in TOO_LONG)
        if fault.status in CLIENTS_FAULTS and not too_long:
            self._take_from_router(request)
            self._fail(stream, stream.fault)
        else:
            if fault.unreachable:
                self._engines.suspect(replica, fault)
            if not request.answered and stream.count:
                self._stages.gave_way(stream, request.model, keep=False)
            stream.held.take()
            self.router.failed(request, self._clock.now_ns(), too_long=too_long)
        self.dispatch_soon()

    def _is_for_our_logprobs(self, stream: AnswerStream, fault: Fault) -> bool:
        """Whether an engine refuses log-probabilities that only the stage wants, which is not sure without them.

        llama.cpp's server gives none where tools are streamed.
        """
        ours = stream.asked.top_logprobs is None and stream.given is not None
        return ours and fault.status in CLIENTS_FAULTS and LOGPROBS in fault.body.lower()

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
            self.router.left(request)
        except Exception as error:  # noqa: BLE001  the client's answer ends all the same
            self._errors.log("when a request left the router", error)
