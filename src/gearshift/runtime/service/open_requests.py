"""Accepted requests that have no answer yet, and the answers on their way to clients."""

import asyncio
from collections import deque
from collections.abc import Callable

from gearshift.clock import NS_PER_S, Clock
from gearshift.observability.metrics import Metrics
from gearshift.observability.tracing import RequestSpan
from gearshift.request import NO_DEADLINE_NS, Answer
from gearshift.runtime.router.by_deadline import DeadlineRules
from gearshift.runtime.service.answers import EXECUTION, Done, OpenRequest, judged, why_refused
from gearshift.runtime.service.room import Room


class OpenRequests:
    """Holds the room of accepted requests, and counts each of them once when it ends.

    `deliver_soon` is called when an answer waits for `deliver`.
    """

    def __init__(
        self,
        operator: str,
        room: Room,
        deadlines: DeadlineRules,
        clock: Clock,
        metrics: Metrics,
        spans: dict[int, RequestSpan],
        deliver_soon: Callable[[], None],
    ) -> None:
        self._operator, self._room, self._deadlines, self._clock = operator, room, deadlines, clock
        self.metrics, self.spans, self._deliver_soon = metrics, spans, deliver_soon
        self.by_id: dict[int, OpenRequest] = {}
        self.settled: deque[tuple[Done, Answer, int]] = deque()
        """Answers to deliver, with the time at which each was due (0: none)."""
        self.none_open = asyncio.Event()
        self.none_open.set()

    def add(self, opened: OpenRequest, span: RequestSpan | None) -> None:
        request = opened.request
        self.by_id[request.id] = opened
        self._room.take(opened.held_rows, opened.held_bytes, opened.client)
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
            self._room.give_back(1, 0, opened.client)

    def abandon(self, opened: OpenRequest) -> bool:
        """Forget a request that nobody waits for; False if it has ended already."""
        closed = self._close(opened)
        if closed:
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
        if outcome == "refused":
            self.metrics.refused(self._operator, why_refused(answer))
        else:
            self.metrics.answered(self._operator, answer, (now_ns - request.arrived_ns) / NS_PER_S)
        if now_ns > request.late_after_ns and outcome in ("answered", "degraded", "late"):
            self.metrics.late(self._operator)
        due_ns = 0
        if outcome in ("answered", "late") or answer.reason == EXECUTION:
            due_ns = max([sample.due_ns for sample in opened.samples])
        self.settled.append((opened.done, answer, due_ns))
        self._deliver_soon()

    def deliver(self) -> None:
        while self.settled:
            done, answer, due_ns = self.settled.popleft()
            done(answer)
            if due_ns:
                self._deadlines.written(due_ns, self._clock.now_ns())

    def _close(self, opened: OpenRequest) -> bool:
        if self.by_id.pop(opened.request.id, None) is None:
            return False
        if self.spans:
            self.spans.pop(opened.request.id, None)
        self._room.give_back(opened.held_rows, opened.held_bytes, opened.client)
        if not self.by_id:
            self.none_open.set()
        return True
