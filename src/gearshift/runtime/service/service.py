"""The service: the router, a backend and the clock on one event loop; it answers requests."""

import asyncio
import itertools
import logging
import math
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn

from gearshift.clock import NS_PER_S, Clock, WallClock
from gearshift.errors import NotReady, require
from gearshift.model import Arrays
from gearshift.observability.core_metrics import CoreMetrics
from gearshift.observability.journal import Journal
from gearshift.observability.metrics import Known, Metrics
from gearshift.observability.tracing import RequestSpan, trace_batch
from gearshift.plans.plan_tables import PlanTables
from gearshift.runtime.backends.base import Backend, Batch, all_ended
from gearshift.request import LEAST_URGENT, NO_DEADLINE_NS, Answer, Request, Sample
from gearshift.runtime.cores.vertical import NoScaling
from gearshift.runtime.router.by_deadline import DeadlineRules
from gearshift.runtime.router.retries import Retries
from gearshift.runtime.router.router import Router
from gearshift.runtime.router.status import ServedPlan, State, Status, shift_facts, status_of
from gearshift.runtime.service.answers import (
    DEADLINE_REASONS,
    EXECUTION,
    NO_WORKER,
    NOT_READY,
    QUEUE_FULL,
    Done,
    OpenRequest,
    answer_of,
    judged,
    raise_if_refused,
    rows_of,
    why_refused,
)
from gearshift.runtime.service.pulse import Pulse
from gearshift.runtime.service.room import Client, Reading, Room, memory_of
from gearshift.runtime.service.silence import Silence
from gearshift.runtime.watch.adapting import Adapting

Withdraw = Callable[[], None]
log = logging.getLogger(__name__)

STOPPED = "the server stopped before this request was answered; send it again"


class Service:
    """Serves one operator; every accepted request gets exactly one answer.

    `most_waiting_requests` bounds the samples in queues; `most_waiting_bytes` bounds the bytes of
    all requests that are being read or not answered yet. `capacity_qps` is the rate at which
    waiting samples are answered; refused clients get their retry time from it. The objective wants
    answers `answer_within_s` after arrivals, if that is given; later ones count as late if the
    client gave no deadline, and nothing else is decided by it. `retries` decides what happens to samples that
    were on a lost worker. `deadlines` decides what clients' deadlines do apart from ordering
    queues; without it late answers are wanted. `vertical` changes the cores of replicas.
    `accuracies` are the plan's predictions for its gears, for the metrics.
    """

    def __init__(
        self,
        tables: PlanTables,
        backend: Backend,
        *,
        most_waiting_requests: int = 10_000,
        most_waiting_bytes: int = 256 << 20,
        capacity_qps: float = math.inf,
        default_priority: int = LEAST_URGENT,
        answer_within_s: float | None = None,
        accuracies: Sequence[float] = (),
        retries: Retries | None = None,
        adapting: Adapting | None = None,
        deadlines: DeadlineRules | None = None,
        vertical: NoScaling | None = None,
        clock: Clock | None = None,
        metrics: Metrics | None = None,
        journal: Journal | None = None,
    ) -> None:
        self._tables, self._backend, self._accuracies = tables, backend, tuple(accuracies)
        replicas = range(len(tables.replica_ids))
        self._model_names = [tables.model_of(replica) for replica in replicas]
        self._device_names = [tables.devices_of(replica) for replica in replicas]
        self._default_priority = default_priority
        self._answer_within_ns = NO_DEADLINE_NS if answer_within_s is None else round(answer_within_s * NS_PER_S)
        self._clock = clock or WallClock()
        self._metrics = metrics or Metrics()
        self._journal = journal or Journal()
        told: Any = {"start": self._start_batch, "answered": self._answered, "shifted": self._shifted}
        self._deadlines = deadlines or DeadlineRules(tables, late="answer")
        self.router = Router(tables, **told, retries=retries, deadlines=self._deadlines)
        self.room = Room(
            self.router,
            most_waiting_requests,
            most_waiting_bytes,
            partial(self._count_refused, QUEUE_FULL),
            capacity_qps,
        )
        self._open: dict[int, OpenRequest] = {}
        self._ended: deque[tuple[Sample, int]] = deque()
        """Samples to answer, with the gear in which each ended."""
        self._settled: deque[tuple[Done, Answer, int]] = deque()
        """Answers to deliver, with the time at which each was due (0: none)."""
        self._delivers = False
        self.adapting = adapting or Adapting(tables)
        self.adapting.tell(self._metrics.adapting)
        self._vertical = vertical or NoScaling()
        self._vertical.tell(self._metrics.cores)
        self._spans: dict[int, RequestSpan] = {}
        self._request_ids, self._sequence, self._batch_ids = itertools.count(1), itertools.count(), itertools.count(1)
        self._started_ns: dict[int, int] = {}
        self._accepting = self._drained = self._ending = False
        self._in_force = True
        """Whether this service sets the replica metrics. False after another took over."""
        self._ready_replicas: set[int] = set()
        self._silence = Silence(tables.models)
        self._idle = asyncio.Event()
        self._idle.set()
        self._pulse = Pulse(self._clock, self._tick, self._wake)
        self.ticked: Callable[[], None] = lambda: None  # called at the end of each window of the meter

    # Life ------------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Raises `ModelFailed` or `WorkerDied` with nothing left running."""
        await self._backend.start(self)
        try:
            await self._vertical.start(self.router.by_deadline, self._arm_wake)
        except BaseException:
            await self.stop()
            raise
        self._pulse.start()
        self._watch()
        self._accepting = not (self._drained or self._ending)
        self._journal.write("ready", replicas=len(self._tables.replica_ids))

    def stop_accepting(self) -> None:
        self._accepting = False

    async def drain(self, longest_s: float) -> bool:
        """Refuse new requests and answer the rest; False if some failed after `longest_s`."""
        self._ending = True
        self.refuse_new()
        try:
            async with asyncio.timeout(longest_s):
                await self._idle.wait()
        except TimeoutError:
            self._fail_open()
            return False
        return True

    async def stop(self) -> None:
        """End at once: unanswered requests fail, and nothing is left running."""
        self._ending = True
        self.stop_accepting()
        fault: BaseException | None = None
        try:
            self._fail_open()
        except BaseException as error:  # noqa: BLE001  raised below, once nothing is left running
            fault = error
        self._pulse.stop()
        try:  # together, because a change under way ends with its worker
            await all_ended((self._vertical.stop(), self._backend.stop()))
        except BaseException as error:  # noqa: BLE001  as above
            fault = fault or error
        self._journal.write("stop")
        if fault is not None:
            raise fault

    @property
    def accepting(self) -> bool:
        return self._accepting

    @property
    def waiting(self) -> int:
        return self.router.waiting

    @property
    def most_waiting(self) -> int:
        return self.room.most_requests

    @property
    def ready(self) -> bool:
        """Whether requests are accepted, and every model has a replica and answers."""
        models = {self._model_names[replica] for replica in self._ready_replicas}
        return self._accepting and len(models) == len(self._tables.models) and not self._silence.models

    # Operators -------------------------------------------------------------------------------------------------------

    def status(self, plan: ServedPlan) -> Status:
        stopped: State = "draining" if self._pulse.started else "starting"
        return status_of(
            plan,
            self._tables,
            self.router,
            state="serving" if self._accepting else stopped,
            uptime_s=self._clock.now_ns() / NS_PER_S,
            ready=self._ready_replicas,
            silent=self._silence.models,
            open_requests=len(self._open),
            held_bytes=self.room.all_held_bytes,
            most_waiting=self.room.most_requests,
            most_held_bytes=self.room.most_bytes,
            adapting=self.adapting.status(self.router),
        )

    def pin_gear(self, gear: int) -> None:
        """Keep `gear` in force until `free_gear`; raises `InvalidInput` if the plan lacks it."""
        last = self._tables.gears - 1
        require(0 <= gear <= last, f"there is no gear {gear}", remedy=f"pin one from 0 to {last}")
        self._journal.write("pin", gear=gear)
        self.router.pin(gear, self._clock.now_ns())
        self._arm_wake()

    def free_gear(self) -> None:
        self._journal.write("free", gear=self.router.pipeline.gear)
        self.router.free()

    def refuse_new(self) -> None:
        """Refuse new requests from now on; accepted ones are answered, however long that takes."""
        self._journal.write("drain", unanswered=len(self._open))
        self._drained = True
        self.stop_accepting()

    def undo_drain(self) -> None:
        """Accept new requests again; raises `NotReady` if the service is ending."""
        if self._ending:
            raise NotReady("the server is ending")
        if self._drained:
            self._journal.write("drain_undone")
            self._drained, self._accepting = False, self._pulse.started

    def take_over_from(self, before: "Service") -> None:
        """Take over the metrics and the metered load of `before`; both need the same clock."""
        self._metrics, before._in_force = before._metrics, False
        self.adapting.take_over_from(before.adapting)
        before._vertical.tell(CoreMetrics())
        self._vertical.tell(self._metrics.cores)
        self._vertical.let_in()
        self._watch()
        self.router.take_meter(before.router, self._clock.now_ns())
        self._arm_wake()

    # Requests --------------------------------------------------------------------------------------------------------

    def require_room(self, rows: int, held_bytes: int, client: Client | None = None) -> None:
        """Raise `NotReady`, `QueueFull` or `TooLarge` if a request of `rows` would be refused."""
        if not self._accepting:
            self._refuse("the server is not accepting requests; try another one, or again later")
        if self.router.lacks_first_model:
            self._refuse(f"no worker of model {self.router.first_model!r} is running; try again later")
        self.room.require(rows, held_bytes, client)

    def reading(self, announced_bytes: int) -> Reading:
        self.require_room(1, announced_bytes)
        return Reading(self.room)

    def submit(
        self,
        inputs: Arrays,
        done: Done,
        *,
        priority: int = 0,
        deadline_ns: int = NO_DEADLINE_NS,
        sent_ns: int | None = None,
        payload_bytes: int = 0,
        client: Client | None = None,
        span: RequestSpan | None = None,
    ) -> Withdraw:
        """Accept a request whose arrays have one row per sample; `done` gets its answer once.

        The outcome is `failed` if a row failed. It is `degraded` if a row should have been
        forwarded to a model without a live replica; if the operator wants such requests refused,
        it is `refused` (`raise_if_refused`). A late answer is `late` if late answers are wanted,
        else `refused`. `done` is called on a later turn of the event loop, and must not raise.

        Priority 0 and a missing deadline stand for the operator's defaults; `deadline_ns` and
        `sent_ns` are on the service's clock (`now_ns`). Requests of one `client` share that
        client's room.

        The returned function withdraws the request: its waiting samples leave their queues, and
        unless it is answered already, `done` is never called.

        Raises `NotReady`, `QueueFull` and `TooLarge`.
        """
        rows = len(next(iter(inputs.values())))
        client, held_bytes = client or Client(), memory_of(inputs, rows, payload_bytes)
        self.require_room(rows, held_bytes, client)
        arrived_ns = self._clock.now_ns()
        if sent_ns is not None:
            self._metrics.deadlines.communication.observe((arrived_ns - sent_ns) / NS_PER_S)
        request = Request(
            id=next(self._request_ids),
            operator=self._tables.operator,
            arrived_ns=arrived_ns,
            rows=rows,
            sent_ns=sent_ns,
            deadline_ns=deadline_ns,
            answer_by_ns=min(NO_DEADLINE_NS, arrived_ns + self._answer_within_ns),
            priority=priority or self._default_priority,
            payload_bytes=payload_bytes,
        )
        sequence = self._sequence
        samples = [Sample(request, row, next(sequence), payload) for row, payload in enumerate(rows_of(inputs, rows))]
        opened = OpenRequest(request, samples, rows, done, client, rows, held_bytes)
        self._open[request.id] = opened
        self.room.take(rows, held_bytes, client)
        self._idle.clear()
        if span is not None:
            span.accepted(arrived_ns)
            self._spans[request.id] = span
        self.adapting.trace.arrived += rows
        self.router.arrive(samples, arrived_ns)
        self._arm_wake()
        return partial(self._abandon, opened)

    async def infer(self, inputs: Arrays, **asked: Any) -> Answer:
        """Like `submit`, but wait and apply `raise_if_refused`; a cancelled caller withdraws."""
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        def done(answer: Answer) -> None:
            if not answered.done():
                answered.set_result(answer)

        withdraw = self.submit(inputs, done, **asked)
        try:
            return raise_if_refused(await answered)
        except asyncio.CancelledError:
            withdraw()
            raise

    def now_ns(self) -> int:
        return self._clock.now_ns()

    def _refuse(self, why: str) -> NoReturn:
        self._count_refused(NOT_READY)
        raise NotReady(why)

    def _count_refused(self, reason: str) -> None:
        self._metrics.refused(self._tables.operator, reason)

    def _abandon(self, opened: OpenRequest) -> None:
        if self._close(opened):
            self._withdraw(opened)
            self._metrics.finished(self._tables.operator, "cancelled")

    def _withdraw(self, opened: OpenRequest) -> None:
        self.router.cancel(opened.samples, self._clock.now_ns())
        self._arm_wake()

    def _fail_open(self) -> None:
        try:
            self._answer_ended()
        finally:
            for opened in list(self._open.values()):
                self._withdraw(opened)
                self._settle(opened, Answer(outcome="failed", reason=STOPPED, errors=(STOPPED,)))

    def _settle(self, opened: OpenRequest, answer: Answer) -> None:
        request, span = opened.request, self._spans.get(opened.request.id) if self._spans else None
        if not self._close(opened):
            return
        if span is not None:
            span.answered(answer)
        now_ns = self._clock.now_ns()
        if request.deadline_ns != NO_DEADLINE_NS:
            answer = judged(answer, request, now_ns, refuses=self._deadlines.refuses)
            self._metrics.deadlines.settled(answer)
        outcome = answer.outcome
        if outcome == "refused":
            self._count_refused(why_refused(answer))
        else:
            self._metrics.answered(self._tables.operator, answer, (now_ns - request.arrived_ns) / NS_PER_S)
        if now_ns > request.late_after_ns and outcome in ("answered", "degraded", "late"):
            self._metrics.late(self._tables.operator)
        due_ns = 0
        if outcome in ("answered", "late") or answer.reason == EXECUTION:
            due_ns = max([sample.due_ns for sample in opened.samples])
        self._settled.append((opened.done, answer, due_ns))
        self._deliver_soon()

    def _deliver_soon(self) -> None:
        if not self._delivers:
            self._delivers = True
            asyncio.get_running_loop().call_soon(self._deliver)

    def _deliver(self) -> None:
        """Run on a later turn: devices get their next batches before answers are written."""
        self._delivers = False
        try:
            if self._ended:
                self._answer_ended()
                self.adapting.audit(self.router, self._clock.now_ns())
            while self._settled:
                done, answer, due_ns = self._settled.popleft()
                done(answer)
                if due_ns:
                    self._deadlines.written(due_ns, self._clock.now_ns())
        finally:
            if self._ended or self._settled:  # an error affects one answer only
                self._deliver_soon()

    def _answer_ended(self) -> None:
        while self._ended:
            self._answer(*self._ended.popleft())

    def _close(self, opened: OpenRequest) -> bool:
        if self._open.pop(opened.request.id, None) is None:
            return False
        if self._spans:
            self._spans.pop(opened.request.id, None)
        self.room.give_back(opened.held_rows, opened.held_bytes, opened.client)
        if not self._open:
            self._idle.set()
        return True

    # Callbacks of the router -----------------------------------------------------------------------------------------

    def _start_batch(self, replica: int, samples: Sequence[Sample], reason: int) -> None:
        self._started_ns[replica] = now_ns = self._clock.now_ns()
        self._backend.run(Batch(next(self._batch_ids), replica, samples))  # first: the device is waiting
        self._metrics.batch_started(self._model_names[replica], len(samples), reason)
        self._metrics.deadlines.started(samples, now_ns)

    def _answered(self, sample: Sample) -> None:
        if sample.request.id in self._open:
            self._ended.append((sample, self.router.pipeline.gear))
            self._deliver_soon()
        else:
            self.adapting.second_answer(sample)

    def _answer(self, sample: Sample, gear: int) -> None:
        opened = self._open.get(sample.request.id)
        if opened is None:  # withdrawn meanwhile, or ended by another row
            return
        self.adapting.answered(sample, gear)
        opened.missing -= 1
        if opened.held_rows > 1:  # the last row is given back with the request
            opened.held_rows -= 1
            self.room.give_back(1, 0, opened.client)
        if opened.missing == 0 or sample.poisonous or sample.ending:
            self._settle(opened, answer_of(opened.samples, self._tables.models, gear))
        if sample.poisonous or (sample.ending and opened.missing):
            self._withdraw(opened)
        if sample.poisonous:
            self._journal.write("poisonous", request=sample.request.id, reason=sample.error)

    def _shifted(self, before: int, after: int) -> None:
        self._journal.write("shift", **shift_facts(self.router, before, after))
        self._vertical.shifted(after)

    # Callbacks of the backend ----------------------------------------------------------------------------------------

    def samples_finished(self, batch: Batch, samples: Sequence[Sample]) -> None:
        now_ns = self._clock.now_ns()
        if self._spans:
            self._trace(batch, samples, now_ns)
        self._silence.samples_finished(self._model_names[batch.replica], samples, now_ns)
        self.router.stage_ended(batch.replica, samples, now_ns)
        if len(samples) < len(batch.samples):  # else `batch_finished` arms it
            self._arm_wake()

    def _trace(self, batch: Batch, samples: Sequence[Sample], now_ns: int) -> None:
        trace_batch(
            self._spans,
            samples,
            model=self._model_names[batch.replica],
            replica=self._tables.replica_ids[batch.replica],
            gear=self.router.pipeline.gear,
            size=len(batch.samples),
            started_ns=self._started_ns.get(batch.replica, now_ns),
            now_ns=now_ns,
        )

    def batch_finished(self, batch: Batch) -> None:
        now_ns = self._clock.now_ns()
        run_ns = now_ns - self._started_ns.pop(batch.replica, now_ns)
        self.router.executor_free(batch.replica, now_ns)
        model, devices = self._model_names[batch.replica], self._device_names[batch.replica]
        self._metrics.batch_finished(model, devices, run_ns / NS_PER_S)
        self._vertical.batch_finished(batch.replica, len(batch.samples), run_ns, now_ns)
        self.adapting.batch_finished(self.router, batch.replica, len(batch.samples), run_ns, now_ns)
        self._arm_wake()

    def replicas_lost(self, replicas: Sequence[int], how: str) -> None:
        for replica in replicas:
            replica_id = self._tables.replica_ids[replica]
            self._ready_replicas.discard(replica)
            self._metrics.restarted(replica_id)
            self._tell_replicas(replica)
            self._journal.write("replica_lost", replica=replica_id, how=how)
        self._vertical.replicas_lost(replicas)
        self.router.replicas_lost(replicas, self._clock.now_ns())
        self._arm_wake()

    def replica_ready(self, replica: int) -> None:
        if replica in self._ready_replicas:
            return
        self._ready_replicas.add(replica)
        self._tell_replicas(replica)
        self._journal.write("replica_ready", replica=self._tables.replica_ids[replica])
        self._vertical.replica_ready(replica)
        self.router.replica_ready(replica, self._clock.now_ns())
        self._arm_wake()

    def _watch(self) -> None:
        self._metrics.watch(self.router.pipeline, self, last_gear=self._tables.gears - 1, accuracies=self._accuracies)
        self._metrics.begin(
            Known(
                operator=self._tables.operator,
                models=self._tables.models,
                replicas=self._tables.replica_ids,
                devices=self._tables.device_ids,
                stages=self._tables.most_stages,
                reasons=(*sorted(DEADLINE_REASONS), QUEUE_FULL, NOT_READY, NO_WORKER),
            )
        )
        for replica in range(len(self._tables.replica_ids)):
            self._tell_replicas(replica)

    def _tell_replicas(self, replica: int) -> None:
        if not self._in_force:
            return
        model = self._model_names[replica]
        ready = sum(self._model_names[other] == model for other in self._ready_replicas)
        self._metrics.replicas_ready(model, ready)

    # Time ------------------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        self._deadlines.take_aim(idle=not any(self.router.running_lengths()))
        self.router.tick(now_ns := self._clock.now_ns())
        self.adapting.ticked(self.router, now_ns)
        self._tell_silence(now_ns)
        self.ticked()
        self._arm_wake()

    def _tell_silence(self, now_ns: int) -> None:
        for model, silent in self._silence.ticked(now_ns):
            self._journal.write("model_silent" if silent else "model_answers", model=model)
            if silent:
                log.warning("model %r gives no answers: is its endpoint down? `gearshift status` says so too", model)
            else:
                log.warning("model %r is taken to answer again", model)

    def _wake(self) -> None:
        self.router.timer(self._clock.now_ns())
        self._arm_wake()

    def _arm_wake(self) -> None:
        self._pulse.wake_by(self.router.next_timer_ns())
