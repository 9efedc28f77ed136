"""Joins router, engines and clients: every accepted request gets exactly one answer."""

import asyncio
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from gearshift.clock import NS_PER_S, Clock, WallClock
from gearshift.errors import NotReady, QueueFull
from gearshift.observability.journal import Journal
from gearshift.observability.language_metrics import LanguageMetrics
from gearshift.policies.engines.deciding import DECIDES_AT_END
from gearshift.policies.load import METER_WINDOW_NS
from gearshift.profiles.engines.engine_tables import EngineTables
from gearshift.runtime.engines.answers.answer_stream import AnswerStream, Reader
from gearshift.runtime.engines.answers.drift import AnswerDrift
from gearshift.runtime.engines.answers.drift_told import REPLAN, tell_drift
from gearshift.runtime.engines.answers.given_tokens import GivenTokens
from gearshift.runtime.engines.replicas.identity import FINGERPRINT, NAMED, Identity
from gearshift.runtime.engines.requests.asked import Asked
from gearshift.runtime.engines.requests.engine_request import NOWHERE, EngineRequest, Sent, StageOutcome, StageVisit
from gearshift.runtime.engines.requests.prompt_sizes import PromptSizes
from gearshift.runtime.engines.router import EngineRouter
from gearshift.runtime.engines.served_engines import CertaintyOf, Engines, models_by_certainty
from gearshift.runtime.engines.upstream.call import Fault
from gearshift.runtime.service.room import HeldBytes, Room
from gearshift.runtime.watch.drift import LiveTrace

CLIENTS_FAULTS = frozenset({400, 413, 422})
"""Statuses of endpoints for requests that no other engine would answer either."""
TOO_LONG = b"context length", b"context_length", b"context size", b"context_size", b"too long", b"maximum context"
"""Parts of what endpoints say of a prompt that their model has no room for."""
LONGEST_RETRY_S = 60
TICKS_PER_LOOK = 10
STOPPED = "the server stopped before this request was answered; send it again"
TOO_LATE = Fault("the deadline passed before a model could answer", status=504, for_clients=True)

log = logging.getLogger(__name__)


class LanguageService:
    """Serves one pipeline of language models.

    `certainty_of` makes a certainty of tokens, which with `likeliest_other` needs the likeliest
    other tokens too. At most `most_waiting` requests wait for engines. `held` counts bytes together
    with another service, whose place this one takes. Where a deadline passes before a stage has
    decided, what there is is given; if there is nothing, it is refused unless the service
    `gives_late_answers`. `before_of` has what the endpoint of each model said when it was profiled,
    as `Identity` has it; `drift` compares answers with the recorded ones.
    """

    def __init__(
        self,
        tables: EngineTables,
        engines: Engines,
        *,
        certainty_of: CertaintyOf,
        likeliest_other: bool = False,
        most_waiting: int = 10_000,
        most_held_bytes: int = 256 << 20,
        held: HeldBytes | None = None,
        gives_late_answers: bool = True,
        before_of: Mapping[str, Mapping[str, Sequence[str]]] | None = None,
        drift: AnswerDrift | None = None,
        clock: Clock | None = None,
        metrics: LanguageMetrics | None = None,
        journal: Journal | None = None,
    ) -> None:
        self.tables, self._engines = tables, engines
        self._clock, self._journal = clock or WallClock(), journal or Journal()
        self.metrics = metrics or LanguageMetrics(tables.pipeline, tables.models, tables.replicas)
        self._certainty_of, self._least_top = certainty_of, 2 if likeliest_other else 0
        self.router = EngineRouter(tables, self)
        self.held = held or HeldBytes(most_held_bytes)
        self.room = Room(self, most_waiting, self.held, partial(self.metrics.refused, "queue_full"))
        self._sizes = PromptSizes(len(tables.models))
        known = before_of or {}
        models = [tables.models[model] for model in tables.replica_model]
        self._identities = [Identity(one.name, known.get(m)) for one, m in zip(engines.all, models, strict=True)]
        self._drift = drift
        self._by_certainty = models_by_certainty(tables)
        self._streams: dict[EngineRequest, AnswerStream] = {}
        self._none_open = asyncio.Event()
        self._none_open.set()
        self._gives_late_answers = gives_late_answers
        self._next_number, self._ticks = 0, 0
        self.trace = LiveTrace()
        self._rated, self.rate_qps = 0, 0.0
        self.accepting = self._drained = self._ending = self._dispatches = False
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._logged = set[str]()
        """Errors of this process that were logged: each kind once."""
        if not self.metrics.is_watching:
            self._report()

    # Life ----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to accept requests; the engines are there."""
        self._tick()
        self.accepting = not (self._drained or self._ending)
        self._report()
        self._journal.write("ready", replicas=len(self.tables.replicas))

    def _report(self) -> None:
        tables = self.tables
        self.metrics.watch(self, len(tables.stage_count) - 1, tables.models, tables.replicas)
        for name in self.drifting_models:
            self.metrics.profile_drift(name, drifting=True)

    def take_over_from(self, before: "LanguageService") -> None:
        """Begin in the gear for the load of `before`, with what it has learned of prompts and answers.

        Nothing of `before` changes; call `start` next, then its `hand_over_to`.
        """
        tables = self.tables
        if tables.load_unit == before.tables.load_unit:
            self.router.begin_at(before.load)
        if tables.models == before.tables.models:
            self._sizes = before._sizes
        if self._drift is not None and before._drift is not None and self._drift.compares_as(before._drift):
            self._drift = before._drift

    def hand_over_to(self, after: "LanguageService") -> None:
        """Leave the record of arrivals to the service that has begun; only that one judges answers from now on."""
        after.trace, self.trace = self.trace, LiveTrace()
        after._rated, self._rated = after.trace.arrived, 0
        self._drift = None

    async def drain(self, longest_s: float) -> bool:
        """Refuse new requests and answer the rest; False if some failed after `longest_s`."""
        self._ending = True
        self.refuse_new()
        try:
            async with asyncio.timeout(longest_s):
                await self._none_open.wait()
        except TimeoutError:
            self._fail_open()
            return False
        return True

    def stop(self) -> None:
        """End at once: unanswered requests fail."""
        self._ending, self.accepting = True, False
        self._fail_open()
        if self._timer is not None:
            self._timer.cancel()
        self._journal.write("stop")

    def refuse_new(self) -> None:
        """Refuse new requests from now on; accepted ones are answered, however long that takes."""
        self._journal.write("drain", unanswered=self.open_requests)
        self._drained, self.accepting = True, False

    def undo_drain(self) -> None:
        """Accept new requests again; raises `NotReady` if the service is ending."""
        if self._ending:
            raise NotReady("the server is ending")
        if self._drained:
            self._journal.write("drain_undone")
            self._drained, self.accepting = False, self._timer is not None

    # Requests ------------------------------------------------------------------------------------

    def require_room(self, size_bytes: int) -> None:
        """Raise `NotReady`, `QueueFull` or `TooLarge` where a request of this size would not be accepted now."""
        if not self.accepting:
            self.metrics.refused("not_ready")
            raise NotReady("the server is ending" if self._drained or self._ending else "the server is starting")
        if all(self.router.is_lost):
            self.metrics.refused("no_engine")
            raise NotReady("no engine answers")
        try:
            self.room.require(1, size_bytes)
        except QueueFull:
            again_s, held = self.retry_after_s, self.held.all_held_bytes
            raise QueueFull(
                f"{self.waiting} requests wait and {held} bytes are held already; try again in {again_s} s", again_s
            ) from None

    def submit(self, asked: Asked, reader: Reader) -> AnswerStream:
        """Accept a request; `reader` gets its answer, after this has returned. Raises as `require_room`."""
        self.require_room(asked.held_bytes)
        request = EngineRequest(
            self._next_number,
            asked.by_id,
            self._sizes.tokens(asked.prompt_bytes),
            asked.most_tokens,
            asked.choices,
            asked.whole,
            asked.echoes,
        )
        self._next_number += 1
        self.trace.arrived += 1
        now_ns = self._clock.now_ns()
        stream = AnswerStream(self, request, asked, reader, self.held, now_ns)
        self._streams[request] = stream
        self._none_open.clear()
        self.held.held_bytes += asked.held_bytes
        try:
            if asked.deadline_s is not None:
                stream.deadline = self._loop.call_later(asked.deadline_s, self._expire, stream)
            self.router.arrive(request, now_ns)
        except Exception:
            self._take_from_router(request)
            self._close(stream)
            raise
        self._dispatch_soon()
        return stream

    def withdraw(self, stream: AnswerStream) -> None:
        """The client has left: nobody works on its request any more, and its reader hears nothing."""
        if stream.request in self._streams:
            self._take_from_router(stream.request)
            self._close(stream)
            self.metrics.ended("cancelled")
            self._dispatch_soon()

    def _expire(self, stream: AnswerStream) -> None:
        request = stream.request
        has_nothing = request.tokens == 0 and request.whole_answer_of == NOWHERE
        if request.answered or stream.broken is not None or (has_nothing and self._gives_late_answers):
            return
        stream.fault = TOO_LATE
        self._for(stream, self.router.expired, request, self._clock.now_ns())
        self._dispatch_soon()

    def _close(self, stream: AnswerStream) -> None:
        del self._streams[stream.request]
        stream.let_go()
        stream.call = None
        self.held.held_bytes -= stream.asked.held_bytes
        if stream.deadline is not None:
            stream.deadline.cancel()
        if not self._streams:
            self._none_open.set()

    def _fail_open(self) -> None:
        for stream in list(self._streams.values()):
            self._take_from_router(stream.request)
            self._fail(stream, Fault(STOPPED, status=503, retry_after_s=1, for_clients=True))

    def _fail(self, stream: AnswerStream, fault: Fault) -> None:
        self._close(stream)
        if fault is TOO_LATE:
            self.metrics.refused("deadline")
        else:
            self.metrics.ended("failed")
        if stream.broken is None:
            self._for(stream, stream.reader.failed, fault)

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
            self.metrics.ended("failed")
            self._dispatch_soon()
        stream.reader.broke(error)

    def _take_from_router(self, request: EngineRequest) -> None:
        self._left(self._streams[request], "cancelled")
        try:
            self.router.left(request)
        except Exception as error:  # noqa: BLE001  the client's answer ends all the same
            self._log_once("when a request left the router", error)

    def _log_once(self, where: str, error: Exception) -> None:
        kind = f"{where}: {type(error).__name__}"
        if kind not in self._logged:
            self._logged.add(kind)
            log.error("fault %s; the like is not logged again", where, exc_info=error)

    # What engines report (`answer_stream.Owner`) -------------------------------------------------

    def now_ns(self) -> int:
        return self._clock.now_ns()

    def tokens_came(self, stream: AnswerStream) -> None:
        self.router.tokens(stream.request, stream.count, partial(self._certainty, stream), self._clock.now_ns())
        self._dispatch_soon()

    def stage_ended(self, stream: AnswerStream) -> None:
        request, model = stream.request, stream.request.model
        if stream.usage is not None and stream.usage.prompt_tokens > 0:
            self._sizes.learn(model, stream.asked.prompt_bytes, stream.usage.prompt_tokens)
        stream.call = None
        if request.answered:
            self._left(stream, "answered")
        if self._drift is not None and _is_first(stream) and not self._may_be_short(stream):
            self._drift.ended(model, stream.output_tokens, stream.asked.most_tokens)
        self.router.ended(request, partial(self._certainty, stream), self._clock.now_ns())
        if not request.answered:
            self._left(stream, "unsure")
            self._gave_way(stream, model, keep=True)
        self._dispatch_soon()

    def stage_failed(self, stream: AnswerStream, fault: Fault) -> None:
        request, replica = stream.request, stream.request.replica
        stream.call = None
        if replica == NOWHERE:
            return
        stream.fault = fault
        self._left(stream, "failed")
        too_long = fault.status in CLIENTS_FAULTS and any(said in fault.body.lower() for said in TOO_LONG)
        if fault.status in CLIENTS_FAULTS and not too_long:
            self._take_from_router(request)
            self._fail(stream, fault)
        else:
            if fault.unreachable:
                self._engines.suspect(replica, fault)
            if too_long:
                request.failed_replicas |= self._replicas_of(request.model)
            if not request.answered and stream.count:
                self._gave_way(stream, request.model, keep=False)
            stream.held.take()
            self.router.failed(request, self._clock.now_ns())
        self._dispatch_soon()

    def lost(self, replica: int) -> None:
        """The replica is not there: it gets nothing more."""
        if not self.router.is_lost[replica]:
            self.metrics.lost(self.tables.replicas[replica])
            self._journal.write("lost", replica=self.tables.replicas[replica])
            self.router.lost(replica, self._clock.now_ns())
            self._dispatch_soon()

    def begun(self, stream: AnswerStream, model: object, fingerprint: object) -> None:
        replica = stream.request.replica
        self.said(replica, NAMED, model if isinstance(model, str) else "")
        self.said(replica, FINGERPRINT, fingerprint if isinstance(fingerprint, str) else "")

    def said(self, replica: int, what: str, value: str) -> None:
        """As `engine_replica.OnChange`; an engine that was replaced under its address is told."""
        if sentence := self._identities[replica].told(what, value):
            id = self.tables.replicas[replica]
            log.warning("the engine of replica %r may be another than was planned for: %s; %s", id, sentence, REPLAN)
            self._journal.write("engine_changed", replica=id, what=sentence)
            self.metrics.engine_changed(id)

    def found(self, replica: int) -> None:
        self._journal.write("found", replica=self.tables.replicas[replica])
        self.router.found(replica)
        self._dispatch_soon()

    def _left(self, stream: AnswerStream, outcome: StageOutcome) -> None:
        """The request leaves its engine, if it has one: count the prompt where a token came, and tell the stage."""
        request, sent, stream.sent = stream.request, stream.sent, None
        if sent is None:
            return
        model = self.tables.models[sent.model]
        counted = 0 if stream.usage is None else stream.usage.prompt_tokens
        prompt_tokens = counted or request.prompt_tokens[sent.model]
        if counted or stream.count:
            self.metrics.prompt(model, prompt_tokens)
        queued_ns, stream.queued_ns = stream.queued_ns, self._clock.now_ns()
        if stream.asked.visited is not None:
            decided = stream.decided and outcome in ("answered", "unsure")
            visit = StageVisit(
                model=model,
                replica=self.tables.replicas[sent.replica],
                stage=sent.stage,
                queued_ns=queued_ns,
                sent_ns=sent.sent_ns,
                ended_ns=stream.queued_ns,
                prompt_tokens=prompt_tokens,
                output_tokens=stream.output_tokens,
                certainty=stream.certainty if decided else math.nan,
                outcome=outcome,
            )
            self._for(stream, stream.asked.visited, visit)

    def _gave_way(self, stream: AnswerStream, model: int, *, keep: bool) -> None:
        name = self.tables.models[model]
        self.metrics.discarded(name, stream.output_tokens)
        stream.give_way(name, keep=keep)

    def _may_be_short(self, stream: AnswerStream) -> bool:
        """Whether its client or the gear may have made the answer shorter than those that were recorded."""
        return "stop" in stream.asked.fields or self.router.may_cut(stream.request)

    def _certainty(self, stream: AnswerStream, at: int) -> float:
        """At a token at which stages decide; -inf, so not sure, where no token has a log-probability."""
        decide_at = None if at == DECIDES_AT_END else at
        so_far = None if stream.given is None else stream.given.until(decide_at)
        if so_far is None or so_far.tokens == 0:
            stream.certainty = -math.inf
        else:
            request = stream.request
            model, prompt_tokens = self.tables.models[request.model], request.prompt_tokens[request.model]
            stream.certainty = self._certainty_of(model, so_far, prompt_tokens, decide_at)
        stream.decided, stream.decided_model = True, stream.request.model
        if self._drift is not None and _is_first(stream):
            request = stream.request
            self._drift.decided(request.model, decide_at, stream.certainty, self.router.threshold_of(request.model))
        return stream.certainty

    def _replicas_of(self, model: int) -> int:
        """Bits of the model's replicas."""
        begin, end = self.tables.replica_begin[model : model + 2].tolist()
        return (1 << int(end)) - (1 << int(begin))

    # What the router decides (`router.EngineDriver`) ---------------------------------------------

    def send(self, replica: int, request: EngineRequest) -> None:
        stream = self._streams[request]
        self._for(stream, self._send, replica, request, stream)

    def _send(self, replica: int, request: EngineRequest, stream: AnswerStream) -> None:
        engine = self._engines.all[replica]
        decides = self._by_certainty[request.model]
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
            self._gave_way(stream, request.model, keep=False)

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
            self.metrics.ended("failed")
            return
        self.metrics.answered(
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

    def _dispatch_soon(self) -> None:
        if not self._dispatches:
            self._dispatches = True
            self._loop.call_soon(self._dispatch)

    def _dispatch(self) -> None:
        self._dispatches = False
        try:
            self.router.dispatch(self._clock.now_ns())
        except Exception as error:  # noqa: BLE001  those that wait first end, so that the others go on
            self._log_once("when requests were sent", error)
            for queue in self.router.queues:
                if queue:
                    self.broke(self._streams[next(iter(queue))], error)

    def _tick(self) -> None:
        self._timer = self._loop.call_later(METER_WINDOW_NS / NS_PER_S, self._tick)
        for where, step in (("at the load", self._look_at_load), ("at engines", self._look_at_engines)):
            try:
                step()
            except Exception as error:  # noqa: BLE001  the next tick comes all the same
                self._log_once(f"in a look {where}", error)
        self._dispatch_soon()

    def _look_at_load(self) -> None:
        router, before, now_ns = self.router, self.router.gear, self._clock.now_ns()
        self.trace.ticked(now_ns)
        router.tick(now_ns)
        if router.gear != before:
            self._shifted(before)

    def _look_at_engines(self) -> None:
        self._ticks += 1
        if self._ticks % TICKS_PER_LOOK == 0:
            arrived, self._rated = self.trace.arrived - self._rated, self.trace.arrived
            self.rate_qps = arrived / (TICKS_PER_LOOK * METER_WINDOW_NS / NS_PER_S)
            for engine in self._engines.all:
                engine.link.look()
            self._tell_drift()

    def _tell_drift(self) -> None:
        if self._drift is not None:
            tell_drift(self._drift, self.tables.models, self.metrics, self._journal)

    def _shifted(self, before: int) -> None:
        router = self.router
        self.metrics.shifted()
        self._journal.write(
            "shift",
            before=before,
            after=router.gear,
            direction="downshift" if router.gear > before else "upshift",
            reason="pin" if router.pinned else "load",
            load=round(router.load, 3),
            waiting=self.waiting,
        )

    # For operators -------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        placed = [model for model in range(len(self.tables.models)) if self._replicas_of(model)]
        return self.accepting and all(self.replicas_ready(model) for model in placed)

    @property
    def started(self) -> bool:
        return self._timer is not None

    @property
    def gear(self) -> int:
        return self.router.gear

    @property
    def pinned(self) -> bool:
        return self.router.pinned

    @property
    def load(self) -> float:
        return self.router.load

    @property
    def waiting(self) -> int:
        return sum(map(len, self.router.queues))

    @property
    def open_requests(self) -> int:
        return len(self._streams)

    @property
    def retry_after_s(self) -> int:
        return max(1, min(LONGEST_RETRY_S, math.ceil(self.router.drain_ns / NS_PER_S)))

    @property
    def drifting_models(self) -> list[str]:
        """Models whose answers are not as recorded."""
        drift = self._drift
        return [] if drift is None else [name for m, name in enumerate(self.tables.models) if drift.drifts(m)]

    def outstanding(self, replica: int) -> int:
        return self.router.outstanding[replica]

    def replicas_ready(self, model: int) -> int:
        begin, end = self.tables.replica_begin[model : model + 2].tolist()
        return sum(not lost for lost in self.router.is_lost[begin:end])

    def pin(self, gear: int | None) -> None:
        """Keep a gear in force, or let the load choose again."""
        before = self.router.gear
        if gear is None:
            self._journal.write("free", gear=before)
            self.router.pinned = False
            return
        self._journal.write("pin", gear=gear)
        self.router.pin(gear, self._clock.now_ns())
        if gear != before:
            self._shifted(before)
        self._dispatch_soon()


def _is_first(stream: AnswerStream) -> bool:
    """Whether no other model has worked on a plain request, so that its answers are a fair sample of all."""
    request, asked = stream.request, stream.asked
    return request.visited == 1 << request.model and asked.choices == 1 and not asked.echoes
