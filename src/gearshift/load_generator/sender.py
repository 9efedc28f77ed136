"""The loop that generates load: it sends each request at its instant, whatever the answers do."""

import asyncio
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gearshift.clock import NS_PER_S, Clock
from gearshift.errors import InvalidInput, NoAnswer
from gearshift.load_generator.replay_result import ANSWERED, DEGRADED, LATE, REFUSED, UNKNOWN, Effort, RequestLog
from gearshift.load_generator.sources import Label, quality_of
from gearshift.load_generator.targets import Reply, Sending, Target
from gearshift.profiles.doubts import told
from gearshift.serving.door.deadline_headers import refused_before_it_ran
from gearshift.support.fine_timer import FineSleeper

PROGRESS_EVERY_S = 0.1
SEND_AT_ONCE = 32

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Encoded requests and labels by sample, and the log with their instants and samples.

    `under_way_s` (n,) tells the server how long before its instant each request was sent;
    `deadline_s` (n,) how long after sending its answer is due, NaN for no deadline.
    """

    requests: Mapping[int, Any]
    labels: Mapping[int, Label | None]
    log: RequestLog
    under_way_s: NDArray[np.float64] | None = None
    deadline_s: NDArray[np.float64] | None = None


async def send(
    target: Target, load: Load, sending: Sending, *, clock: Clock, begin_ns: int, progress: Progress | None
) -> Effort:
    """Send `load` from `begin_ns` on, await every answer and fill the log; return the effort."""
    run = _Run(target, load, sending, clock, begin_ns, progress)
    began_s = time.process_time()
    try:
        async with asyncio.TaskGroup() as group:
            await run.send_all(group)
    except ExceptionGroup as errors:
        raise first_of(errors) from None
    if progress:
        progress(len(load.log), len(load.log))
    return Effort(
        processor_s=time.process_time() - began_s,
        waited=run.waited,
        began_ns=time.monotonic_ns() - clock.now_ns() + begin_ns,
    )


class _Run:
    def __init__(
        self, target: Target, load: Load, sending: Sending, clock: Clock, begin_ns: int, progress: Progress | None
    ) -> None:
        self._target, self._requests, self._labels, self._log = target, load.requests, load.labels, load.log
        self._records = load.log.record.tolist()
        self._under_way_s = None if load.under_way_s is None else load.under_way_s.tolist()
        self._deadline_s = None if load.deadline_s is None else load.deadline_s.tolist()
        self._models: dict[str, int] = {}
        self._turns = asyncio.Semaphore(sending.connections)
        self._longest_s = sending.longest_s
        self._clock, self._begin_ns, self._progress = clock, begin_ns, progress
        self._done = 0
        self._next_progress_s = 0.0
        self.waited = 0

    def _now_s(self) -> float:
        return (self._clock.now_ns() - self._begin_ns) / NS_PER_S

    async def send_all(self, group: asyncio.TaskGroup) -> None:
        sleeper = FineSleeper()
        try:
            for i, due_s in enumerate(self._log.due_s.tolist()):
                if due_s > self._now_s():
                    while (ahead_s := due_s - self._now_s()) > 0:
                        await sleeper.sleep(round(ahead_s * NS_PER_S))
                elif i % SEND_AT_ONCE == 0:
                    await asyncio.sleep(0)  # behind schedule: handle answers in between
                group.create_task(self._request(i, due_s))
        finally:
            sleeper.stop()

    async def _request(self, i: int, due_s: float) -> None:
        self.waited += self._turns.locked()
        async with self._turns:
            self._log.sent_s[i] = sent_s = self._now_s()
            if sent_s - due_s < self._longest_s:
                await self._exchange(i)
        self._log.answered_s[i] = self._now_s()
        self._tell()

    async def _exchange(self, i: int) -> None:
        """Send request `i` and log its answer; a request without one stays failed."""
        record = self._records[i]
        try:
            reply = await self._target.exchange(
                self._requests[record], self._longest_s, self._sent_unix_s(i), self._deadline_of(i)
            )
        except NoAnswer:
            return
        self._log.status[i] = status = reply.status
        if status == 200:
            self._note_answer(i, record, reply)
        elif status in (429, 503) or (status == 504 and refused_before_it_ran(reply.text)):
            self._log.outcome[i] = REFUSED
        elif status == 504:
            self._log.outcome[i] = LATE
        elif 300 <= status < 500 and status != 408:
            raise InvalidInput(
                f"the server answers status {status}: {reply.text}",
                where=self._target.where,
                remedy="check the URL and the operator's name, and that the samples are those of its profile",
            )

    def _sent_unix_s(self, i: int) -> float | None:
        if self._under_way_s is None:
            return None
        late_s = self._now_s() - float(self._log.due_s[i])
        return float(time.time() - late_s - self._under_way_s[i])

    def _deadline_of(self, i: int) -> float | None:
        if self._deadline_s is None or math.isnan(self._deadline_s[i]):
            return None
        return float(self._deadline_s[i])

    def _note_answer(self, i: int, record: int, reply: Reply) -> None:
        log = self._log
        label = self._labels[record]
        log.quality[i] = quality = quality_of(reply.answered, label)
        if quality == 0 and label is not None and not isinstance(label, dict) and not log.wrong:
            log.wrong.append(f"sample {record} is labelled {told(label)}, and {told(reply.answered)} was answered")
        log.outcome[i] = DEGRADED if reply.degraded else ANSWERED
        log.by_time[i] = reply.by_time
        log.gear[i] = UNKNOWN if reply.gear is None else reply.gear
        log.stage[i] = UNKNOWN if reply.stage is None else reply.stage
        if reply.model is not None:
            log.model[i] = number_of(reply.model, log.models, self._models)

    def _tell(self) -> None:
        self._done += 1
        if self._progress and self._now_s() >= self._next_progress_s:
            self._progress(self._done, len(self._log))
            self._next_progress_s = self._now_s() + PROGRESS_EVERY_S


def number_of(name: str, names: list[str], numbers: dict[str, int]) -> int:
    """Return the index of `name` in `names`, appending a new one; `numbers` is its cache."""
    number = numbers.get(name)
    if number is None:
        number = numbers[name] = len(names)
        names.append(name)
    return number


def first_of(errors: ExceptionGroup[Exception]) -> Exception:
    first = errors.exceptions[0]
    return first_of(first) if isinstance(first, ExceptionGroup) else first
