"""One model whose cores change while it serves, by a scaler that is asked every period.

Simulated in plain Python, because the kernel's plans have a fixed number of cores and workers.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gearshift.clock import NEVER_NS, NS_PER_S
from gearshift.policies.batching import batch_size
from gearshift.policies.deadlines import NEXT_GIVES_WAY, RUN, in_time, when_limited
from gearshift.policies.order import Urgency, queue_key
from gearshift.request import LEAST_URGENT, NO_DEADLINE_NS
from gearshift.workload import Workload

REFUSED = -1

RunTimes = Sequence[Sequence[int]]
"""Nanoseconds of a batch by cores and by size: `PerformanceModel.table_ns`."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A scaler's request: the number of workers, the cores of each, and their largest batch."""

    cores: int
    largest_batch: int
    workers: int = 1


@dataclass(frozen=True, slots=True)
class Seen:
    """The state that a scaler sees at `now_ns`.

    `waiting_ns` are the deadlines of waiting requests, earliest first; `free_ns` is when the first
    worker is free, `all_free_ns` when the last is. `arrivals_ns` and `deadlines_ns` (m,) are of
    all requests so far; `busy_share` is of the cores in the last period.
    """

    now_ns: int
    waiting_ns: Sequence[int]
    free_ns: int
    arrivals_ns: NDArray[np.int64]
    deadlines_ns: NDArray[np.int64]
    busy_share: float
    setting: Setting
    all_free_ns: int = 0

    def since(self, from_ns: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        first = int(np.searchsorted(self.arrivals_ns, from_ns))
        return self.arrivals_ns[first:], self.deadlines_ns[first:]


class Scaler(Protocol):
    """Chooses at each period what the model has from then on."""

    start_up_ns: int
    """How long an added worker takes before it serves; its cores are held meanwhile."""

    def setting(self, seen: Seen) -> Setting: ...


@dataclass(frozen=True, slots=True)
class VerticalRun:
    """The outcome of each request (n,).

    `finished_ns` is `REFUSED` for a request that could not meet its deadline. `cores` (k, 2) are
    nanoseconds and the cores held from then on; they worked for `busy_core_s` core-seconds;
    `batches` (sizes,) counts batches by size.
    """

    workload: Workload
    finished_ns: NDArray[np.int64]
    cores: NDArray[np.int64]
    batches: NDArray[np.int64]
    busy_core_s: float
    duration_s: float

    @property
    def violations(self) -> NDArray[np.bool_]:
        late = self.finished_ns > _deadlines(self.workload)
        return np.asarray(late | (self.finished_ns == REFUSED))

    @property
    def core_seconds(self) -> float:
        times = np.append(self.cores[:, 0], round(self.duration_s * NS_PER_S))
        return float((np.diff(times) * self.cores[:, 1]).sum() / NS_PER_S)


@dataclass(slots=True, eq=False)
class _Worker:
    cores: int
    ready_ns: int = 0
    done_ns: int = NEVER_NS
    batch: list[int] = field(default_factory=list)


def simulate_vertical(
    workload: Workload,
    run_ns: RunTimes,
    scaler: Scaler,
    *,
    first: Setting,
    period_s: float = 1.0,
    effect_s: float = 0.0,
    gives_way: bool = False,
) -> VerticalRun:
    """Serve `workload` (requests of one row) in virtual time by earliest deadline first.

    Nothing is random. `run_ns` is the true time of a batch, by cores and by size. Every `period_s`
    the scaler is asked; its setting takes effect `effect_s` later, for batches that start from
    then on.

    A request that cannot meet its deadline even alone is refused when it would run, and a batch is
    never larger than its most urgent request allows; with `gives_way`, as in the router, a request
    that keeps a batch small may be refused for the sake of the others. At one instant: batches
    done, then the scaler, then arrivals, as everywhere.
    """
    run = _Run(workload, run_ns, scaler, first, round(period_s * NS_PER_S), round(effect_s * NS_PER_S), gives_way)
    return run.serve()


def _deadlines(workload: Workload) -> NDArray[np.int64]:
    n = len(workload)
    return np.full(n, NO_DEADLINE_NS) if workload.deadline_ns is None else workload.deadline_ns


class _Run:
    def __init__(
        self,
        workload: Workload,
        run_ns: RunTimes,
        scaler: Scaler,
        first: Setting,
        period_ns: int,
        effect_ns: int,
        gives_way: bool,
    ) -> None:
        self._workload, self._run_ns, self._scaler = workload, run_ns, scaler
        self._period_ns, self._effect_ns, self._gives_way = period_ns, effect_ns, gives_way
        self._deadlines = _deadlines(workload)
        self._deadline_list: list[int] = self._deadlines.tolist()
        self._setting = first
        self._asked: list[tuple[int, Setting]] = []
        self._workers = [_Worker(first.cores) for _ in range(first.workers)]
        self._queue: list[tuple[Urgency, int]] = []
        self._held: list[tuple[int, int]] = [(0, first.cores * first.workers)]
        self._finished = np.full(len(workload), REFUSED, dtype=np.int64)
        self._batches = np.zeros(len(run_ns[0]), dtype=np.int64)
        self._arrived = 0
        self._busy_core_ns = self._all_busy_core_ns = 0

    def serve(self) -> VerticalRun:
        arrivals: list[int] = self._workload.arrivals_ns.tolist()
        tick_ns, n = 0, len(arrivals)
        now_ns = 0
        while self._arrived < n or self._queue or any(worker.batch for worker in self._workers):
            arrival_ns = arrivals[self._arrived] if self._arrived < n else NEVER_NS
            effect_ns = self._asked[0][0] if self._asked else NEVER_NS
            now_ns = min(tick_ns, arrival_ns, effect_ns, *(self._next_ns(w, now_ns) for w in self._workers))
            for worker in self._workers:
                if worker.done_ns <= now_ns:
                    self._finish(worker)
            if now_ns == tick_ns:
                self._ask(now_ns)
                tick_ns += self._period_ns
            while self._asked and self._asked[0][0] <= now_ns:
                self._take_effect(now_ns, self._asked.pop(0)[1])
            while self._arrived < n and arrivals[self._arrived] <= now_ns:
                self._enter(self._arrived, now_ns)
                self._arrived += 1
            for worker in self._workers:
                if not worker.batch and worker.ready_ns <= now_ns and self._queue:
                    self._start(worker, now_ns)
        end_ns = max(now_ns, round(self._workload.duration_s * NS_PER_S))
        return VerticalRun(
            self._workload,
            self._finished,
            np.array(self._held, dtype=np.int64),
            self._batches,
            self._all_busy_core_ns / NS_PER_S,
            end_ns / NS_PER_S,
        )

    def _next_ns(self, worker: _Worker, now_ns: int) -> int:
        return worker.ready_ns if worker.ready_ns > now_ns else worker.done_ns

    def _enter(self, request: int, now_ns: int) -> None:
        heapq.heappush(self._queue, (queue_key(LEAST_URGENT, self._deadline_list[request], now_ns, request), request))

    def _start(self, worker: _Worker, now_ns: int) -> None:
        run_ns = self._run_ns[worker.cores]
        worker.batch = self._fill(run_ns, now_ns)
        size = len(worker.batch)
        if size:
            worker.done_ns = now_ns + run_ns[size]
            self._busy_core_ns += worker.cores * run_ns[size]
            self._all_busy_core_ns += worker.cores * run_ns[size]
            self._batches[size] += 1

    def _fill(self, run_ns: Sequence[int], now_ns: int) -> list[int]:
        """Take a batch that keeps the deadlines in it, as `DeadlineQueues.fill` does."""
        deadlines_ns, most = self._deadline_list, self._setting.largest_batch
        batch: list[int] = []
        while self._queue and len(batch) < most:
            request, size, waiting = self._queue[0][1], len(batch), len(self._queue)
            next_ns = deadlines_ns[request]
            if not in_time(next_ns, now_ns, run_ns[1]):
                heapq.heappop(self._queue)
                continue
            tightest_ns = deadlines_ns[batch[0]] if batch else next_ns
            if in_time(tightest_ns, now_ns, run_ns[size + 1]):
                batch.append(heapq.heappop(self._queue)[1])
                continue
            whole = batch_size(size + waiting, most)
            behind_ns = run_ns[batch_size(waiting, most)]
            verdict = RUN
            if self._gives_way:
                verdict = when_limited(
                    now_ns,
                    size,
                    waiting,
                    whole,
                    run_ns[size],
                    run_ns[whole],
                    run_ns[1],
                    behind_ns,
                    tightest_ns,
                    next_ns,
                )
            if verdict == RUN:
                break
            if verdict == NEXT_GIVES_WAY:
                heapq.heappop(self._queue)
            else:
                batch = [held for held in batch if in_time(deadlines_ns[held], now_ns, run_ns[whole])]
        return batch

    def _finish(self, worker: _Worker) -> None:
        self._finished[worker.batch] = worker.done_ns
        worker.batch, worker.done_ns = [], NEVER_NS

    def _ask(self, now_ns: int) -> None:
        held_core_ns = self._held[-1][1] * self._period_ns
        setting = self._scaler.setting(
            Seen(
                now_ns,
                [key[1] for key, _ in sorted(self._queue)],
                min(w.ready_ns if not w.batch else w.done_ns for w in self._workers),
                self._workload.arrivals_ns[: self._arrived],
                self._deadlines[: self._arrived],
                min(1.0, self._busy_core_ns / held_core_ns),
                self._setting,
                max(w.ready_ns if not w.batch else w.done_ns for w in self._workers),
            )
        )
        self._busy_core_ns = 0
        if setting != self._setting:
            self._asked.append((now_ns + self._effect_ns, setting))

    def _take_effect(self, now_ns: int, setting: Setting) -> None:
        """Workers that stay change their cores at their next batch; others finish theirs."""
        while len(self._workers) > setting.workers:
            self._finish(self._workers.pop())
        while len(self._workers) < setting.workers:
            self._workers.append(_Worker(setting.cores, ready_ns=now_ns + self._scaler.start_up_ns))
        for worker in self._workers:
            worker.cores = setting.cores
        self._setting = setting
        self._held.append((now_ns, setting.cores * setting.workers))
