"""The service: the router, a backend and the clock on one event loop; it answers requests."""

import asyncio
import itertools
import math
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any, NoReturn

from gearshift.clock import NS_PER_S, Clock, WallClock
from gearshift.errors import NotReady, require
from gearshift.model import Arrays
from gearshift.observability.journal import Journal
from gearshift.observability.metrics import Known, Metrics
from gearshift.observability.tracing import RequestSpan
from gearshift.plans.plan_tables import PlanTables
from gearshift.request import LEAST_URGENT, NO_DEADLINE_NS, Answer, Request, Sample
from gearshift.runtime.backends.base import Backend, all_ended
from gearshift.runtime.cores.vertical import VerticalScaling
from gearshift.runtime.router.by_deadline import DeadlineRules
from gearshift.runtime.router.retries import Retries
from gearshift.runtime.router.status import ServedPlan, State, Status, status_of
from gearshift.runtime.service.answers import (
    DEADLINE_REASONS,
    NO_WORKER,
    NOT_READY,
    QUEUE_FULL,
    Done,
    OpenRequest,
    OpenRequests,
    Withdraw,
    answer_of,
    answer_to,
    rows_of,
)
from gearshift.runtime.service.driver import Driver
from gearshift.runtime.service.room import Client, Reading, Room, memory_of
from gearshift.runtime.watch.adapting import Adapting

STOPPED = "the server stopped before this request was answered; send it again"


class Service:
    """Serves one operator; every accepted request gets exactly one answer.

    `most_waiting_requests` bounds the samples in queues; `most_waiting_bytes` bounds the bytes of
    all requests that are being read or not answered yet. `capacity_qps` is the rate at which
    waiting samples are answered; refused clients get their retry time from it. The objective wants
    answers `answer_within_s` after arrivals, if that is given; later ones count as late if the
    client gave no deadline, and nothing else is decided by it. `retries` decides what happens to
    samples that were on a lost worker. `deadlines` decides what clients' deadlines do apart from
    ordering queues; without it late answers are wanted. `vertical` changes the cores of replicas.
    `accuracies` are the plan's predictions for its gears, for the metrics.

    The outcome of a request is `failed` if a row failed. It is `degraded` if a row should have
    been forwarded to a model without a live replica; if the operator wants such requests refused,
    it is `refused` (`raise_if_refused`). A late answer is `late` if late answers are wanted, else
    `refused`.
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
        vertical: VerticalScaling | None = None,
        clock: Clock | None = None,
        metrics: Metrics | None = None,
        journal: Journal | None = None,
    ) -> None:
        self._tables, self._accuracies = tables, tuple(accuracies)
        self._default_priority = default_priority
        self._answer_within_ns = NO_DEADLINE_NS if answer_within_s is None else round(answer_within_s * NS_PER_S)
        self._clock = clock or WallClock()
        self._metrics = metrics or Metrics()
        self._journal = journal or Journal()
        deadlines = deadlines or DeadlineRules(tables, late="answer")
        spans: dict[int, RequestSpan] = {}
        self.adapting = adapting or Adapting(tables)
        self.driver = Driver(
            tables,
            backend,
            answered=self._answered,
            retries=retries,
            deadlines=deadlines,
            adapting=self.adapting,
            vertical=vertical,
            clock=self._clock,
            metrics=self._metrics,
            journal=self._journal,
            spans=spans,
        )
        self.router = self.driver.router
        self.room = Room(
            self.router,
            most_waiting_requests,
            most_waiting_bytes,
            partial(self._count_refused, QUEUE_FULL),
            capacity_qps,
        )
        self.open_requests = OpenRequests(
            tables.pipeline.name, self.room, deadlines, self._clock, self._metrics, spans, self._deliver_soon
        )
        self._ended: deque[tuple[Sample, int]] = deque()
        """Samples to answer, with the gear in which each ended."""
        self._delivers = False
        self._request_ids, self._sequence = itertools.count(1), itertools.count()
        self._accepting = self._drained = self._ending = False

    # Life ------------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Raises `ModelFailed` or `WorkerDied` with nothing left running."""
        driver = self.driver
        await driver.backend.start(driver)
        if driver.vertical is not None:
            try:
                await driver.vertical.start(self.router.by_deadline, driver.arm_timer)
            except BaseException:
                await self.stop()
                raise
        driver.pulse.start()
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
                await self.open_requests.none_open.wait()
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
        self.driver.pulse.stop()
        try:  # together, because a change under way ends with its worker
            await all_ended(self.driver.endings())
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
        return self._accepting and self.driver.replicas.every_model_has_one and not self.driver.silence.models

    # Operators -------------------------------------------------------------------------------------------------------

    def status(self, plan: ServedPlan) -> Status:
        stopped: State = "draining" if self.driver.pulse.started else "starting"
        return status_of(
            plan,
            self._tables,
            self.router,
            state="serving" if self._accepting else stopped,
            uptime_s=self._clock.now_ns() / NS_PER_S,
            ready=self.driver.replicas.numbers,
            silent=self.driver.silence.models,
            open_requests=len(self.open_requests.by_id),
            held_bytes=self.room.all_held_bytes,
            most_waiting=self.room.most_requests,
            most_held_bytes=self.room.most_bytes,
            adapting=self.adapting.status(self.router),
        )

    def pin_gear(self, gear: int) -> None:
        """Keep `gear` in force until `free_gear`; raises `InvalidInput` if the plan lacks it."""
        last = self._tables.pipeline.gears - 1
        require(0 <= gear <= last, f"there is no gear {gear}", remedy=f"pin one from 0 to {last}")
        self._journal.write("pin", gear=gear)
        self.router.pin(gear, self._clock.now_ns())
        self.driver.arm_timer()

    def free_gear(self) -> None:
        self._journal.write("free", gear=self.router.pipeline.gear)
        self.router.pipeline.pinned = False

    def refuse_new(self) -> None:
        """Refuse new requests from now on; accepted ones are answered, however long that takes."""
        self._journal.write("drain", unanswered=len(self.open_requests.by_id))
        self._drained = True
        self.stop_accepting()

    def undo_drain(self) -> None:
        """Accept new requests again; raises `NotReady` if the service is ending."""
        if self._ending:
            raise NotReady("the server is ending")
        if self._drained:
            self._journal.write("drain_undone")
            self._drained, self._accepting = False, self.driver.pulse.started

    def take_over_from(self, before: "Service") -> None:
        """Take over the metrics and the metered load of `before`; both need the same clock."""
        self._metrics = self.open_requests.metrics = before._metrics
        self.driver.take_over_from(before.driver)
        self._watch()

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

        `done` is called on a later turn of the event loop, and must not raise. Priority 0 stands
        for the operator's default; times are on the service's clock (`now_ns`). The returned
        function withdraws the request: its waiting samples leave their queues, and unless it is
        answered already, `done` is never called. Raises `NotReady`, `QueueFull` and `TooLarge`.
        """
        rows = len(next(iter(inputs.values())))
        client, held_bytes = client or Client(), memory_of(inputs, rows, payload_bytes)
        self.require_room(rows, held_bytes, client)
        arrived_ns = self._clock.now_ns()
        request = Request(
            id=next(self._request_ids),
            operator=self._tables.pipeline.name,
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
        self.open_requests.add(opened, span)
        self.adapting.trace.arrived += rows
        self.router.arrive(samples, arrived_ns)
        self.driver.arm_timer()
        return partial(self._abandon, opened)

    async def infer(self, inputs: Arrays, **asked: Any) -> Answer:
        """As `answer_to` by `submit`."""
        return await answer_to(self.submit, inputs, **asked)

    def now_ns(self) -> int:
        return self._clock.now_ns()

    def _refuse(self, why: str) -> NoReturn:
        self._count_refused(NOT_READY)
        raise NotReady(why)

    def _count_refused(self, reason: str) -> None:
        self._metrics.refused(self._tables.pipeline.name, reason)

    def _abandon(self, opened: OpenRequest) -> None:
        if self.open_requests.abandon(opened):
            self._withdraw(opened)

    def _withdraw(self, opened: OpenRequest) -> None:
        self.router.cancel(opened.samples, self._clock.now_ns())
        self.driver.arm_timer()

    def _fail_open(self) -> None:
        try:
            self._answer_ended()
        finally:
            for opened in list(self.open_requests.by_id.values()):
                self._withdraw(opened)
                self.open_requests.settle(opened, Answer(outcome="failed", reason=STOPPED, errors=(STOPPED,)))

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
            self.open_requests.deliver()
        finally:
            if self._ended or self.open_requests.settled:  # an error affects one answer only
                self._deliver_soon()

    def _answer_ended(self) -> None:
        while self._ended:
            self._answer(*self._ended.popleft())

    # Callbacks of the router -----------------------------------------------------------------------------------------

    def _answered(self, sample: Sample) -> None:
        if sample.request.id in self.open_requests.by_id:
            self._ended.append((sample, self.router.pipeline.gear))
            self._deliver_soon()
        else:
            self.adapting.second_answer(sample)

    def _answer(self, sample: Sample, gear: int) -> None:
        opened = self.open_requests.by_id.get(sample.request.id)
        if opened is None:  # withdrawn meanwhile, or ended by another row
            return
        self.adapting.answered(sample, gear)
        opened.missing -= 1
        self.open_requests.give_back_row(opened)
        if opened.missing == 0 or sample.poisonous or sample.ending:
            self.open_requests.settle(opened, answer_of(opened.samples, self._tables.models, gear))
        if sample.poisonous or (sample.ending and opened.missing):
            self._withdraw(opened)
        if sample.poisonous:
            self._journal.write("poisonous", request=sample.request.id, reason=sample.error)

    def _watch(self) -> None:
        self._metrics.watch(
            self.router.pipeline, self, last_gear=self._tables.pipeline.gears - 1, accuracies=self._accuracies
        )
        self._metrics.begin(
            Known(
                operator=self._tables.pipeline.name,
                models=self._tables.models,
                replicas=self._tables.replica_ids,
                devices=self._tables.device_ids,
                stages=self._tables.most_stages,
                reasons=(*sorted(DEADLINE_REASONS), QUEUE_FULL, NOT_READY, NO_WORKER),
            )
        )
        self.driver.replicas.report_to(self._metrics)
