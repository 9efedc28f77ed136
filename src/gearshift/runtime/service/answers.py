"""Requests and their answers: splits requests into rows, joins results, delivers answers."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from gearshift.clock import NS_PER_S, Clock
from gearshift.decisions import Ending
from gearshift.errors import DeadlinePassed, GearshiftError, NotReady, QueueFull, TooLarge, UnknownModel
from gearshift.model import Arrays
from gearshift.observability.metrics import Metrics
from gearshift.observability.tracing import RequestSpan
from gearshift.request import BY_TIME, NO_DEADLINE_NS, Answer, ItemFacts, Outcome, Request, RowFacts, Sample
from gearshift.runtime.router.by_deadline import TOO_LATE, DeadlineRules
from gearshift.runtime.service.room import Client, HeldBytes, Room, bytes_of, has_room

EXECUTION = Ending.EXECUTION.name.lower()
DEADLINE_REASONS = frozenset(ending.name.lower() for ending in TOO_LATE)
QUEUE_FULL, NO_WORKER, UNKNOWN = "queue_full", "no_worker", "unknown"
"""Other reasons of refusals: no room, a model without workers or answers, or bulk work that asks for a gear that the
plan does not have."""
Done = Callable[[Answer], None]
Withdraw = Callable[[], None]


TOO_MANY_ROWS = "too_many_rows"
"""The error of a request of which a fan-out has more rows than its node allows begins so."""


MISFIT = "the models of this cascade answer outputs of different names or shapes"
NO_ROOM, TOO_MUCH = "no_room", "too_much"
"""The error of a request begins so where outputs of its nodes do not fit into memory: now, or ever."""


RAISED: dict[str, type[GearshiftError]] = {
    **dict.fromkeys(DEADLINE_REASONS, DeadlinePassed),
    TOO_MANY_ROWS: TooLarge,
    TOO_MUCH: TooLarge,
    NO_ROOM: QueueFull,
    QUEUE_FULL: QueueFull,
    UNKNOWN: UnknownModel,
}
"""The errors that refusals are raised as, by reason; `NotReady` for all others, whose reason is a text."""
COUNTED = {
    **{reason: reason for reason in (*DEADLINE_REASONS, TOO_MANY_ROWS)},
    NO_ROOM: QUEUE_FULL,
    TOO_MUCH: QUEUE_FULL,
}
"""The reasons under which refusals of accepted requests are counted; `NO_WORKER` for all others."""


class Parts(Protocol):
    def withdraw(self) -> None: ...


@dataclass(slots=True, eq=False)
class OpenRequest:
    request: Request
    samples: list[Sample]
    missing: int
    done: Done
    client: Client
    held_rows: int
    held_bytes: int
    room: Room
    items: list[ItemFacts] | None = None
    """Of a pipeline of several nodes, the items that have ended."""
    timer: asyncio.TimerHandle | None = None
    """Ends bulk work at its deadline, and holds this until it is cancelled."""

    parts: "Parts | None" = None
    """Those of a request whose rows run as bulk work; then it has no samples of its own."""

    def hold(self, more_bytes: int) -> None:
        """Count further bytes until the request ends."""
        self.held_bytes += more_bytes
        self.room.take(0, more_bytes, self.client)

    def hold_result(self, row: Sample) -> bool:
        """Count what a row has brought, until the last row has; False, with its error, where there is no room."""
        outputs: Any = row.result
        size_bytes = bytes_of(outputs or {})
        if has_room(self.room.held, size_bytes):
            self.hold(size_bytes)
            return True
        row.error, row.result = no_room(self.held_bytes + size_bytes, self.room.held), None
        return False


def rows_of(inputs: Arrays, rows: int) -> list[dict[str, NDArray[Any]]]:
    if rows == 1:
        return [dict(inputs)]
    return [{name: array[row : row + 1] for name, array in inputs.items()} for row in range(rows)]


def answer_of(samples: Sequence[Sample], models: Sequence[str], gear: int) -> Answer:
    queue_ns = run_ns = 0
    errors: list[str] = []
    rows: list[RowFacts] = []
    reason, by_time = "", False
    for s in samples:
        queue_ns, run_ns = max(queue_ns, s.queue_ns), max(run_ns, s.run_ns)
        if s.error:
            errors.append(s.error)
            continue
        rows.append(
            RowFacts(
                model=models[s.model],
                stage=s.stage,
                certainty=s.certainty,
                exit_segment=s.exit_segment,
                by_time=s.ending == Ending.TIME,
            )
        )
        by_time = by_time or s.ending == Ending.TIME
        reason = reason or s.degraded_by
    queue_s, run_s = queue_ns / NS_PER_S, run_ns / NS_PER_S
    if errors:
        no_memory = next(filter(None, map(unfit, errors)), None)
        if no_memory is not None:
            return msgspec.structs.replace(no_memory, gear=gear)
        outcome: Outcome = "refused" if all(s.refused or s.ending for s in samples if s.error) else "failed"
        if all(error.startswith(TOO_MANY_ROWS) for error in errors):
            return Answer(outcome="refused", reason=TOO_MANY_ROWS, errors=tuple(errors), gear=gear)
        ending = next((s.ending for s in samples if s.error and s.ending), None)
        reason = errors[0] if ending is None or outcome == "failed" else ending.name.lower()
        return Answer(outcome=outcome, reason=reason, errors=tuple(errors), gear=gear, queue_s=queue_s, run_s=run_s)
    try:
        outputs = stack_results(samples)
    except (KeyError, ValueError):
        return Answer(outcome="failed", reason=MISFIT, errors=(MISFIT,), gear=gear, queue_s=queue_s, run_s=run_s)
    how: Outcome = "degraded" if reason else "answered"
    if not reason and by_time:
        reason = BY_TIME
    return Answer(
        outcome=how,
        reason=reason,
        rows=tuple(rows),
        outputs=outputs,
        gear=gear,
        queue_s=queue_s,
        run_s=run_s,
    )


def no_room(own_bytes: int, held: HeldBytes) -> str:
    """The error of a request with outputs of `own_bytes`, for which there is no memory."""
    if own_bytes > held.most_bytes:
        return (
            f"{TOO_MUCH}: the outputs of this request's nodes take {own_bytes} bytes in memory, at most "
            f"{held.most_bytes} may be held; send fewer rows at once"
        )
    return (
        f"{NO_ROOM}: requests and the outputs of their nodes hold {held.all_held_bytes} bytes already, and those of "
        f"this one do not fit; send fewer rows at once, or try again later"
    )


def unfit(error: str) -> Answer | None:
    """The refusal for an error of `no_room`; None for another error."""
    code = error.partition(":")[0]
    return Answer(outcome="refused", reason=code, errors=(error,)) if code in (NO_ROOM, TOO_MUCH) else None


def judged(answer: Answer, request: Request, now_ns: int, *, refuses: bool) -> Answer:
    """`answer` with the time left until the client's deadline; after it, refused or `late`."""
    deadline_ns = request.deadline_ns
    if deadline_ns == NO_DEADLINE_NS:
        return answer
    answer = msgspec.structs.replace(answer, remaining_s=(deadline_ns - now_ns) / NS_PER_S)
    if now_ns <= deadline_ns or answer.outcome not in ("answered", "degraded"):
        return answer
    if not refuses:
        return msgspec.structs.replace(answer, outcome="late")
    text = TOO_LATE[Ending.EXECUTION]
    return msgspec.structs.replace(answer, outcome="refused", reason=EXECUTION, errors=(text,), rows=(), outputs=None)


def stack_results(samples: Sequence[Sample]) -> Mapping[str, NDArray[Any]]:
    """Join results of one row each; raises `KeyError` or `ValueError` if they do not fit."""
    if len(samples) == 1:
        return samples[0].result  # type: ignore[return-value]
    results: list[dict[str, NDArray[Any]]] = [sample.result for sample in samples]  # type: ignore[misc]
    for result in results:
        if result.keys() != results[0].keys():
            raise KeyError("outputs of different names")
    return {name: np.concatenate([result[name] for result in results]) for name in results[0]}


def raise_if_refused(answer: Answer) -> Answer:
    """Return `answer`, or raise for a refusal what it is: `DeadlinePassed`, `UnknownModel`, `QueueFull`, ...."""
    if answer.outcome != "refused":
        return answer
    kind = RAISED.get(answer.reason)
    if kind is None:
        raise NotReady(answer.reason)
    text = answer.errors[0] if kind is DeadlinePassed else answer.errors[0].removeprefix(f"{answer.reason}: ")
    if kind is QueueFull:
        raise QueueFull(text, answer.retry_after_s)
    raise kind(text)


def refused(error: GearshiftError) -> Answer:
    """A refusal for `error`, from which `raise_if_refused` raises it in another process."""
    text = str(error)
    reason = UNKNOWN if isinstance(error, UnknownModel) else QUEUE_FULL if isinstance(error, QueueFull) else text
    return Answer(outcome="refused", reason=reason, errors=(text,), retry_after_s=error.retry_after_s or 1)


class OpenRequests:
    """Holds the room of accepted requests, and counts each of them once when it ends.

    `deliver_soon` is called when an answer waits for `deliver`.
    """

    def __init__(
        self,
        operator: str,
        deadlines: DeadlineRules,
        clock: Clock,
        metrics: Metrics,
        spans: dict[int, RequestSpan],
        deliver_soon: Callable[[], None],
    ) -> None:
        self._operator, self._deadlines, self._clock = operator, deadlines, clock
        self.metrics, self.spans, self._deliver_soon = metrics, spans, deliver_soon
        self.by_id: dict[int, OpenRequest] = {}
        self.settled: deque[tuple[Done, Answer, int]] = deque()
        """Answers to deliver, with the expected end of its last batch (0: none)."""
        self.none_open = asyncio.Event()
        self.none_open.set()

    def add(self, opened: OpenRequest, span: RequestSpan | None) -> None:
        request = opened.request
        self.by_id[request.id] = opened
        opened.room.take(opened.held_rows, opened.held_bytes, opened.client)
        self.none_open.clear()
        if request.sent_ns is not None:
            self.metrics.deadlines.communication.observe((request.arrived_ns - request.sent_ns) / NS_PER_S)
        if span is not None:
            span.accepted(request.arrived_ns)
            self.spans[request.id] = span

    def give_back_row(self, opened: OpenRequest) -> None:
        """Give back the room of a row that has ended; the last row's goes with the request."""
        if opened.held_rows > 1:
            opened.held_rows -= 1
            opened.room.give_back(1, 0, opened.client)

    def abandon(self, opened: OpenRequest) -> bool:
        """Forget a request that nobody waits for; False if it has ended already."""
        closed = self._close(opened)
        if closed and opened.request.is_bulk:
            self.metrics.bulk_rows.labels(self._operator, "cancelled").inc(opened.request.rows)
        elif closed:
            self.metrics.finished(self._operator, "cancelled")
        return closed

    def settle(self, opened: OpenRequest, answer: Answer) -> None:
        request, span = opened.request, self.spans.get(opened.request.id) if self.spans else None
        if not self._close(opened):
            return
        if span is not None:
            span.answered(answer)
        now_ns = self._clock.now_ns()
        if request.deadline_ns != NO_DEADLINE_NS:
            answer = judged(answer, request, now_ns, refuses=self._deadlines.refuses)
            self.metrics.deadlines.settled(answer)
        outcome = answer.outcome
        if request.is_bulk:
            self.metrics.bulk_rows.labels(self._operator, outcome).inc(request.rows)
        elif outcome == "refused":
            self.metrics.refused(self._operator, COUNTED.get(answer.reason, NO_WORKER))
        else:
            self.metrics.answered(self._operator, answer, (now_ns - request.arrived_ns) / NS_PER_S)
        if now_ns > request.late_after_ns and outcome in ("answered", "degraded", "late"):
            self.metrics.late(self._operator)
        expected_end_ns = 0
        if not request.is_bulk and (outcome in ("answered", "late") or answer.reason == EXECUTION):
            expected_end_ns = max([sample.expected_end_ns for sample in opened.samples], default=0)
        self.settled.append((opened.done, answer, expected_end_ns))
        self._deliver_soon()

    def deliver(self) -> None:
        while self.settled:
            done, answer, expected_end_ns = self.settled.popleft()
            done(answer)
            if expected_end_ns:
                self._deadlines.written(expected_end_ns, self._clock.now_ns())

    def _close(self, opened: OpenRequest) -> bool:
        if self.by_id.pop(opened.request.id, None) is None:
            return False
        if self.spans:
            self.spans.pop(opened.request.id, None)
        if opened.timer is not None:
            opened.timer.cancel()
        opened.room.give_back(opened.held_rows, opened.held_bytes, opened.client)
        if not self.by_id:
            self.none_open.set()
        return True


async def answer_to(submit: Callable[..., Withdraw], inputs: Arrays, **asked: Any) -> Answer:
    """Wait for the answer, and apply `raise_if_refused`; a cancelled caller withdraws."""
    answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    def done(answer: Answer) -> None:
        if not answered.done():
            answered.set_result(answer)

    withdraw = submit(inputs, done, **asked)
    try:
        return raise_if_refused(await answered)
    except asyncio.CancelledError:
        withdraw()
        raise
