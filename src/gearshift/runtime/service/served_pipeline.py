"""One pipeline of a service: admits its requests, and answers them."""

import asyncio
import itertools
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from gearshift.clock import NS_PER_S, Clock
from gearshift.decisions import Ending
from gearshift.model import Arrays
from gearshift.observability.journal import Journal
from gearshift.observability.metrics import Known, Metrics
from gearshift.observability.tracing import RequestSpan
from gearshift.plans.plan_tables import PipelineTables, PlanTables
from gearshift.request import LEAST_URGENT, NO_DEADLINE_NS, NOT_BULK, Answer, BulkWork, Request, Sample
from gearshift.runtime.router.by_deadline import TOO_LATE, DeadlineRules
from gearshift.runtime.router.status import PipelineStatus, pipeline_status
from gearshift.runtime.service.admission import NOT_READY, STOPPED, Accepting, Admission
from gearshift.runtime.service.answers import (
    DEADLINE_REASONS,
    NO_WORKER,
    QUEUE_FULL,
    TOO_MANY_ROWS,
    Done,
    OpenRequest,
    OpenRequests,
    Withdraw,
    answer_of,
    answer_to,
    rows_of,
    unfit,
)
from gearshift.runtime.service.bulk_gear import bulk_gear_of
from gearshift.runtime.service.driver import Driver
from gearshift.runtime.service.graph_answers import facts_of, graph_answer
from gearshift.runtime.service.in_parts import InParts
from gearshift.runtime.service.room import BulkRoom, Client, HeldBytes, Room, WideRoom, memory_of
from gearshift.runtime.watch.adapting import Adapting

REASONS = (*sorted(DEADLINE_REASONS), QUEUE_FULL, NOT_READY, NO_WORKER)
"""Reasons of refusals, known to the metrics from the start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineOptions:
    """Bounds and settings of one pipeline.

    `most_waiting_requests` bounds its samples in queues. `capacity_qps` is the rate at which
    waiting samples are answered; refused clients get their retry time from it. The objective wants
    answers `answer_within_s` after arrivals, if that is given; later ones count as late if the
    client gave no deadline, and nothing else is decided by it. `accuracies` are the plan's
    predictions for its gears, NaN where unknown; bulk work is to have `bulk_accuracy`, if that is given.
    """

    most_waiting_requests: int = 10_000
    capacity_qps: float = math.inf
    default_priority: int = LEAST_URGENT
    answer_within_s: float | None = None
    accuracies: Sequence[float] = ()
    bulk_accuracy: float | None = None
    adapting: Adapting | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class Shared:
    """The parts of a service that all its pipelines share; `metrics` change when another takes over."""

    tables: PlanTables
    driver: Driver
    held: HeldBytes
    deadlines: DeadlineRules
    clock: Clock
    metrics: Metrics
    journal: Journal
    spans: dict[int, RequestSpan]
    request_ids: "itertools.count[int]"
    sequence: "itertools.count[int]"
    accepting: Accepting


class ServedPipeline:
    """Takes the requests of one pipeline; every accepted one gets exactly one answer.

    The outcome of a request is `failed` if a row failed. It is `degraded` if a row should have
    been forwarded to a model without a live replica; if such requests are to be refused, it is
    `refused` (`raise_if_refused`). A late answer is `late` if late answers are wanted, else
    `refused`.
    """

    def __init__(self, tables: PipelineTables, shared: Shared, options: PipelineOptions, adapting: Adapting) -> None:
        self.name, self.number, self._tables, self._shared = tables.name, tables.number, tables, shared
        self.adapting, self._accuracies = adapting, tuple(options.accuracies)
        self._default_priority, within_s = options.default_priority, options.answer_within_s
        self._answer_within_ns = NO_DEADLINE_NS if within_s is None else round(within_s * NS_PER_S)
        self._clock, self._driver = shared.clock, shared.driver
        self._router = shared.driver.router
        self._pipeline = self._router.pipelines[tables.number]
        self.models = shared.tables.models_used_by(tables.number)
        full = partial(self._count_refused, QUEUE_FULL)
        most, capacity_qps = options.most_waiting_requests, options.capacity_qps
        self.room = Room(self._pipeline, most, shared.held, full, capacity_qps)
        self._bulk_room = BulkRoom(most, shared.held, capacity_qps)
        self._admission = Admission(
            shared.accepting,
            self.room,
            self._bulk_room,
            lacking=partial(self._router.lacking, self._pipeline),
            refused=self._count_refused,
        )
        self.require_room, self.reading = self._admission.require_room, self._admission.reading
        self._wide_room = WideRoom(self.room, full, capacity_qps)
        self._bulk_accuracy = options.bulk_accuracy
        self.open_requests = OpenRequests(
            tables.name,
            shared.deadlines,
            shared.clock,
            shared.metrics,
            shared.spans,
            self._deliver_soon,
        )
        self._ended: deque[tuple[Sample, int]] = deque()
        """Samples to answer, with the gear in which each ended."""
        self._delivers = False
        self._is_graph = self._pipeline.is_graph

    @property
    def accepting(self) -> bool:
        return self._shared.accepting.now

    @property
    def waiting(self) -> int:
        return self._pipeline.waiting

    @property
    def most_waiting(self) -> int:
        return self.room.most_requests

    @property
    def ready(self) -> bool:
        """Whether new requests are accepted and answered, perhaps by fewer models than planned (`degraded`)."""
        return self._shared.accepting.now and self._router.can_answer(self._pipeline)

    @property
    def degraded(self) -> list[str]:
        """The models of the pipeline without a replica that answers."""
        return self._driver.degraded(self.models)

    @property
    def lacking(self) -> str:
        """A model with which requests begin, and which has no replica; empty if there is none."""
        return self._router.lacking(self._pipeline)

    def now_ns(self) -> int:
        return self._clock.now_ns()

    # Requests --------------------------------------------------------------------------------------------------------

    def submit(
        self,
        inputs: Arrays,
        done: Done,
        *,
        priority: int = 0,
        bulk: BulkWork | None = None,
        deadline_ns: int = NO_DEADLINE_NS,
        sent_ns: int | None = None,
        payload_bytes: int = 0,
        client: Client | None = None,
        span: RequestSpan | None = None,
    ) -> Withdraw:
        """Accept a request whose arrays have one row per sample; `done` gets its answer once.

        `done` is called on a later turn of the event loop, and must not raise. Priority 0 stands
        for the pipeline's default; times are on the service's clock (`now_ns`). The returned
        function withdraws the request: its waiting samples leave their queues, and unless it is
        answered already, `done` is never called. `bulk` work is not metered, and waits behind all others, in
        a room of its own. So do the rows of a request of more rows than may wait (`in_parts.py`). Raises `NotReady`,
        `QueueFull` and `TooLarge`, and `UnknownModel` for bulk work that asks for a gear which the plan does not have.
        """
        rows = len(next(iter(inputs.values())))
        client, held_bytes = client or Client(), memory_of(inputs, rows, payload_bytes)
        priority = priority or self._default_priority
        asked: dict[str, Any] = {"priority": priority, "sent_ns": sent_ns, "payload_bytes": payload_bytes}
        if bulk is not None:
            room: Room = self._bulk_room
            gear = bulk_gear_of(bulk, self._accuracies, self._tables.gears, self._bulk_accuracy)
            request = self._request(rows, bulk_gear=gear, **asked)
        else:
            room, within_ns = self.room, self._answer_within_ns
            if rows > room.most_requests:
                room, within_ns = self._wide_room, NO_DEADLINE_NS
            request = self._request(rows, deadline_ns=deadline_ns, answer_within_ns=within_ns, **asked)
        self._admission.require(room, rows, held_bytes, client)
        opened = OpenRequest(request, [], rows, done, client, rows, held_bytes, room)
        self.open_requests.add(opened, span)
        if room is self._wide_room:
            self._run_in_parts(opened, inputs)
        else:
            self._run(opened, inputs)
        if room is self.room:
            self.adapting.trace.arrived += rows
        elif bulk is not None or self._shared.deadlines.refuses:
            self._limit(opened, deadline_ns)
        return partial(self._abandon, opened)

    def _request(self, rows: int, *, answer_within_ns: int = NO_DEADLINE_NS, **asked: Any) -> Request:
        arrived_ns = self._clock.now_ns()
        return Request(
            id=next(self._shared.request_ids),
            operator=self.name,
            arrived_ns=arrived_ns,
            rows=rows,
            answer_by_ns=min(NO_DEADLINE_NS, arrived_ns + answer_within_ns),
            pipeline=self.number,
            **asked,
        )

    def _run(self, opened: OpenRequest, inputs: Arrays, first: int = 0) -> None:
        """Hand the rows of a request to the router, the first with number `first`."""
        request, sequence = opened.request, self._shared.sequence
        rows = enumerate(rows_of(inputs, request.rows), first)
        opened.samples = [Sample(request, row, next(sequence), payload) for row, payload in rows]
        opened.items = [] if self._is_graph else None
        self._router.arrive(opened.samples, request.arrived_ns)
        self._driver.arm_timer()

    def _run_in_parts(self, whole: OpenRequest, inputs: Arrays) -> None:
        """Run the rows of a request as bulk work, some at a time."""
        gear = bulk_gear_of(BulkWork(), self._accuracies, self._tables.gears, self._bulk_accuracy)

        def open_part(part: Arrays, first: int, rows: int, done: Done) -> Withdraw:
            request = self._request(rows, bulk_gear=gear, priority=whole.request.priority)
            opened = OpenRequest(request, [], rows, done, whole.client, 0, 0, whole.room)
            self.open_requests.add(opened, None)
            self._run(opened, part, first)
            return partial(self._abandon, opened)

        whole.parts = InParts(whole, inputs, open_part, partial(self.open_requests.settle, whole))
        whole.parts.begin(graph=self._is_graph)

    def _limit(self, opened: OpenRequest, limit_ns: int) -> None:
        """Refuse a request at `limit_ns` if it is not answered by then; the router does not know of that."""
        if limit_ns != NO_DEADLINE_NS:
            left_s = (limit_ns - opened.request.arrived_ns) / NS_PER_S
            opened.timer = asyncio.get_running_loop().call_later(left_s, self._expire, opened)

    async def infer(self, inputs: Arrays, **asked: Any) -> Answer:
        """As `answer_to` by `submit`."""
        return await answer_to(self.submit, inputs, **asked)

    def _count_refused(self, reason: str) -> None:
        self._shared.metrics.refused(self.name, reason)

    def _abandon(self, opened: OpenRequest) -> None:
        if self.open_requests.abandon(opened):
            self._withdraw(opened)

    def _expire(self, opened: OpenRequest) -> None:
        if opened.request.id in self.open_requests.by_id:
            expired = Ending.EXPIRED_IN_QUEUE
            self._withdraw(opened)
            self.open_requests.settle(
                opened, Answer(outcome="refused", reason=expired.name.lower(), errors=(TOO_LATE[expired],))
            )

    def _withdraw(self, opened: OpenRequest) -> None:
        if opened.parts is not None:
            opened.parts.withdraw()
            return
        self._router.cancel(opened.samples, self._clock.now_ns())
        self._driver.arm_timer()

    # Answers ---------------------------------------------------------------------------------------------------------

    def answered(self, sample: Sample) -> None:
        """Take a sample that has ended, from the router."""
        if sample.request.id in self.open_requests.by_id:
            bulk_gear = sample.request.bulk_gear
            self._ended.append((sample, self._pipeline.gear if bulk_gear == NOT_BULK else bulk_gear))
            self._deliver_soon()
        else:
            self.adapting.second_answer(sample)

    def fail_open(self) -> None:
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
        try:
            if self._ended:
                self._answer_ended()
                self.adapting.audit(self._router, self._clock.now_ns())
            self.open_requests.deliver()
        finally:
            self._delivers = False
            if self._ended or self.open_requests.settled:  # an error affects one answer only
                self._deliver_soon()

    def _answer_ended(self) -> None:
        while self._ended:
            self._answer(*self._ended.popleft())

    def _answer(self, sample: Sample, gear: int) -> None:
        opened = self.open_requests.by_id.get(sample.request.id)
        if opened is None:  # withdrawn meanwhile, or ended by another row
            return
        if sample.request.bulk_gear == NOT_BULK:
            self.adapting.answered(sample, gear)
        opened.missing -= 1
        self.open_requests.give_back_row(opened)
        ends_request = sample.poisonous or bool(sample.error and (sample.ending or unfit(sample.error)))
        if opened.missing and not sample.error and not opened.hold_result(sample):
            ends_request = True
        if opened.missing == 0 or ends_request:
            self.open_requests.settle(opened, self._answer_of(opened, gear))
        if sample.poisonous or (ends_request and opened.missing):
            self._withdraw(opened)
        if sample.poisonous:
            self._shared.journal.write(
                "poisonous", **self._driver.named(self.number), request=sample.request.id, reason=sample.error
            )

    def _answer_of(self, opened: OpenRequest, gear: int) -> Answer:
        models = self._shared.tables.models
        if self._is_graph:
            return graph_answer(opened, models, gear, self._tables)
        return answer_of(opened.samples, models, gear)

    def item_ended(self, item: Sample) -> None:
        """Take an item of a graph whose request row goes on, from the router."""
        facts = facts_of(item, self._shared.tables.models, self._tables)
        self._shared.metrics.nodes.ended(self.name, facts)
        if self._shared.spans and (span := self._shared.spans.get(item.request.id)) is not None:
            span.visited(facts, self._clock.now_ns())
        opened = self.open_requests.by_id.get(item.request.id)
        if opened is not None and opened.items is not None:
            opened.items.append(facts)

    # Operators -------------------------------------------------------------------------------------------------------

    def status(self) -> PipelineStatus:
        return pipeline_status(
            self._shared.tables,
            self._pipeline,
            most_waiting=self.room.most_requests,
            open_requests=len(self.open_requests.by_id),
            adapting=self.adapting.status(self._router),
        )

    def report_to(self, metrics: Metrics) -> None:
        self.open_requests.metrics = metrics
        metrics.watch(
            self._pipeline, self, operator=self.name, last_gear=self._tables.gears - 1, accuracies=self._accuracies
        )
        tables = self._shared.tables
        metrics.begin(
            Known(
                operator=self.name,
                models=[model for model in tables.models if model in self.models],
                replicas=tables.replica_ids,
                devices=tables.device_ids,
                stages=tables.most_stages,
                reasons=(*REASONS, TOO_MANY_ROWS) if self._is_graph else REASONS,
            )
        )
        if self._is_graph:
            metrics.nodes.begin(self.name, self._tables.nodes)
