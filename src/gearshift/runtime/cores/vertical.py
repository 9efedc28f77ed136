"""Changes the cores of serving replicas in place, once a period, in a separate thread."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from gearshift.clock import NS_PER_S, Clock, to_ns
from gearshift.errors import GearshiftError
from gearshift.observability.core_metrics import CoreMetrics
from gearshift.observability.journal import Journal
from gearshift.policies.cores.demand import MachineDemand, SharedCores
from gearshift.request import Sample
from gearshift.runtime.actuators.base import Actuator, Effect
from gearshift.runtime.router.by_deadline import DeadlineQueues


class Scaler:
    """Has an actuator give a worker cores; `worker` names it in the journal.

    `cores` are those in force; somebody else may change them, which the next `give` notices.
    """

    def __init__(self, worker: str, actuator: Actuator, *, cores: int, journal: Journal) -> None:
        self.worker, self.cores = worker, float(cores)
        self._actuator, self._journal = actuator, journal
        self._written: tuple[float, float, str] | None = None

    def give(self, cores: int) -> Effect | None:
        """None if `cores` are in force; missing ones are requested again, but journaled once."""
        in_force = self._actuator.in_force()
        if cores == in_force == self.cores:
            return None
        before = self.cores if cores == in_force else in_force  # a worker told ahead may have them
        effect = self._actuator.apply(cores)
        self.cores = effect.cores
        change = cores, effect.cores, effect.problem
        if change != self._written if effect.problem else effect.cores != before:
            self._written = change
            self._journal.write(
                "cores",
                replica=self.worker,
                before=before,
                asked=cores,
                cores=effect.cores,
                took_s=round(effect.took_s, 6),
                problem=effect.problem,
            )
        return effect

    def act_through(self, actuator: Actuator) -> None:
        self._actuator = actuator


def give_all(scalers: Sequence[Scaler], shares: Sequence[int]) -> list[Effect | None]:
    """Give all their cores, shrinking ones first, so that no core is given twice."""
    effects: list[Effect | None] = [None] * len(scalers)
    for i in sorted(range(len(scalers)), key=lambda i: shares[i] - scalers[i].cores):
        effects[i] = scalers[i].give(shares[i])
    return effects


NOWHERE = -1, -1
LATEST_BATCHES = 64
"""The batches that are known when a change has taken effect."""

Span = tuple[int, int]
"""When a batch started and ended."""

log = logging.getLogger(__name__)

Actuate = Callable[[int], Actuator]
"""Makes the actuator for a replica's present worker."""

TellWorker = Callable[[int, int], None]
"""Tells a replica's worker its new number of cores."""


@dataclass(frozen=True, slots=True, eq=False)
class ScaledReplica:
    """A replica and its median run times (cores + 1, sizes + 1), by which deadlines decide."""

    replica: int
    id: str
    run_ns: list[list[int]]


@dataclass(frozen=True, slots=True, eq=False)
class ScaledWorker:
    """A worker whose cores change, its replicas, which take turns, and its cores at the start."""

    replicas: tuple[ScaledReplica, ...]
    cores: int

    @property
    def id(self) -> str:
        return "+".join(one.id for one in self.replicas)

    @property
    def lead(self) -> int:
        return self.replicas[0].replica

    @property
    def most(self) -> int:
        return len(self.replicas[0].run_ns) - 1


class VerticalScaling:
    """Divides cores among workers every period, by the router's queues and arrivals.

    `shared` sets the rules; its replicas are those of `scaled`, worker by worker. With `in_gear`
    (gears, scaled), cores are also divided at every shift: each worker has at least the cores of
    the gear in force, and exactly these with scaler `static`. Changes run in a separate thread, as
    some take long. The router computes with the cores in force; for a worker that is to lose
    cores, with the new number at once. `tell_worker(replica, cores)` is called in the event that
    decides, before any batch that the event starts.
    """

    def __init__(
        self,
        scaled: Sequence[ScaledWorker],
        actuate: Actuate,
        *,
        shared: SharedCores,
        clock: Clock,
        journal: Journal,
        in_gear: Sequence[Sequence[int]] = (),
        tell_worker: TellWorker = lambda replica, cores: None,
        close: Callable[[], None] = lambda: None,
    ) -> None:
        self._scaled, self._actuate, self._scaling = tuple(scaled), actuate, shared.scaling
        self._demand = MachineDemand(shared)
        self._clock, self._journal, self._tell_worker, self._close = clock, journal, tell_worker, close
        self._metrics = CoreMetrics()
        self._place = {
            replica.replica: (i, k) for i, one in enumerate(self._scaled) for k, replica in enumerate(one.replicas)
        }
        self._numbers = {replica: number for number, replica in enumerate(self._place)}
        self._in_gear = in_gear
        self._changes = 0
        self._least = in_gear[0] if in_gear else ()
        self._asked = [one.cores for one in self._scaled]
        self._in_force = [*self._asked]
        self._changed_ns = [0] * len(self._scaled)
        self._batches: list[deque[Span]] = [deque(maxlen=LATEST_BATCHES) for _ in self._scaled]
        self._scalers: list[Scaler] = []
        self._queues: DeadlineQueues | None = None
        self._changed: Callable[[], None] = lambda: None
        self._thread: ThreadPoolExecutor | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._lost: set[int] = set()
        self._fault = ""
        self._without: dict[int, str] = {}
        """Returned workers without an actuator, and the reason."""

    def tell(self, metrics: CoreMetrics) -> None:
        self._metrics = metrics
        metrics.cores.clear()
        for one, cores in zip(self._scaled, self._in_force, strict=True):
            metrics.cores.labels(one.id).set(cores)
            for result in ("whole", "short"):
                metrics.changes.labels(one.id, result)

    async def start(self, queues: DeadlineQueues, changed: Callable[[], None]) -> None:
        self._queues, self._changed = queues, changed
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="cores")
        journal = _FromThread(self._journal, asyncio.get_running_loop())
        self._scalers = [
            Scaler(one.id, self._actuate(one.lead), cores=one.cores, journal=journal) for one in self._scaled
        ]
        first = self._least if self._in_gear else self._asked
        begins_with = {one.id: cores for one, cores in zip(self._scaled, first, strict=True)}
        self._journal.write("scaler", scaler=self._scaling.scaler, cores=begins_with)
        for i, cores in enumerate(self._in_force):
            self._reckon_with(i, cores)
        await self._give(first)
        queues.told = self._came
        self.let_in()
        self._begin(self._scale())

    def let_in(self) -> None:
        """Start to measure the arrival rate now, because all requests come here from now on."""
        self._demand.let_in(self._clock.now_ns())

    def shifted(self, gear: int) -> None:
        """Give the cores for the new gear; the router computes with lost cores at once."""
        if not self._in_gear or self._thread is None:
            return
        self._least = self._in_gear[gear]
        self._begin(self._give(self._wanted()))

    def batch_finished(self, replica: int, size: int, took_ns: int, now_ns: int) -> None:
        i, k = self._place.get(replica, NOWHERE)
        if i < 0:
            return
        self._batches[i].append((now_ns - took_ns, now_ns))
        one, cores = self._scaled[i].replicas[k], self._in_force[i]
        if 0 < took_ns <= now_ns - self._changed_ns[i] and size < len(one.run_ns[cores]):
            error = abs(took_ns / one.run_ns[cores][size] - 1)
            self._metrics.error.labels(one.id, str(cores)).observe(error)

    def replicas_lost(self, replicas: Sequence[int]) -> None:
        self._lost.update(replicas)
        for replica in replicas:
            self._without.pop(self._place.get(replica, NOWHERE)[0], None)

    def replica_ready(self, replica: int) -> None:
        i, k = self._place.get(replica, NOWHERE)
        if k == 0 and self._scalers:
            self._take_on(i)
            if i not in self._without:
                self._begin(self._give(self._wanted()))

    async def stop(self) -> None:
        """End; cores stay as they are."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._thread is not None:
            await asyncio.get_running_loop().run_in_executor(None, partial(self._thread.shutdown, cancel_futures=True))
        self._close()

    # Steps; `i` is the number of the worker --------------------------------------------------------------------------

    def _take_on(self, i: int) -> None:
        one = self._scaled[i]
        try:
            self._scalers[i].act_through(self._actuate(one.lead))
        except GearshiftError as error:
            if self._without.get(i) != str(error):
                log.warning("the cores of %s stay as they are, and are asked for every period: %s", one.id, error)
                now = self._in_force[i]
                self._journal.write(
                    "cores", replica=one.id, before=now, asked=now, cores=None, took_s=0.0, problem=str(error)
                )
            self._without[i] = str(error)
            return
        self._without.pop(i, None)
        self._lost.discard(one.lead)

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._tell_fault(error)

    def _tell_fault(self, error: BaseException) -> None:
        if repr(error) != self._fault:
            self._fault = repr(error)
            log.error("cores could not be changed, and serving goes on with those there are: %r", error)

    def _came(self, replica: int, sample: Sample) -> None:
        if replica in self._numbers:
            self._demand.arrived(self._numbers[replica], self._clock.now_ns(), sample.request.late_after_ns)

    async def _scale(self) -> None:
        """Run every period, on a fixed grid; periods that a change takes up are skipped."""
        period_ns = to_ns(self._scaling.period_s)
        while True:
            now_ns = self._clock.now_ns()
            await asyncio.sleep(((now_ns // period_ns + 1) * period_ns - now_ns) / NS_PER_S)
            try:
                for i in [*self._without]:
                    self._take_on(i)
                await self._give(self._wanted())
            except Exception as error:  # noqa: BLE001  whatever it is, the next period tries again
                self._tell_fault(error)

    def _wanted(self) -> list[int]:
        queues, now_ns = self._queues, self._clock.now_ns()
        assert queues is not None
        waiting = [queues.waiting(replica, now_ns) for replica in self._numbers]
        return self._demand.shares(waiting, now_ns, in_gear=self._least, asked=self._asked)

    def _give(self, shares: Sequence[int]) -> Coroutine[None, None, None]:
        """Tell workers at once; the returned coroutine carries the change out."""
        self._asked = [*shares]
        self._changes += 1
        for one, before, cores in zip(self._scaled, self._in_force, shares, strict=True):
            if cores != before and one.lead not in self._lost:
                self._tell_worker(one.lead, cores)
        self._reckon_with_fewer(shares)
        return self._carry_out(shares, self._changes)

    async def _carry_out(self, shares: Sequence[int], number: int) -> None:
        assert self._thread is not None
        here = [i for i, one in enumerate(self._scaled) if one.lead not in self._lost]
        scalers, wanted = [self._scalers[i] for i in here], [shares[i] for i in here]
        effects = await asyncio.get_running_loop().run_in_executor(self._thread, give_all, scalers, wanted)
        for i, effect in zip(here, effects, strict=True):
            cores = int(self._scalers[i].cores)
            if number == self._changes or cores < self._in_force[i]:  # a later change may take cores away
                self._reckon_with(i, cores)
            if effect is not None:
                self._tell_effect(i, effect)

    def _reckon_with_fewer(self, shares: Sequence[int]) -> None:
        for i, cores in enumerate(shares):
            if cores < self._in_force[i] and self._scaled[i].lead not in self._lost:
                self._reckon_with(i, cores)

    def _reckon_with(self, i: int, cores: int) -> None:
        one, now_ns = self._scaled[i], self._clock.now_ns()
        cores = min(max(1, cores), one.most)
        if cores != self._in_force[i]:
            self._in_force[i], self._changed_ns[i] = cores, now_ns
        if self._queues is not None:
            for replica in one.replicas:
                self._queues.take_run_times(replica.replica, replica.run_ns[cores], now_ns)
            self._changed()
        self._metrics.cores.labels(one.id).set(cores)

    def _tell_effect(self, i: int, effect: Effect) -> None:
        self._metrics.changes.labels(self._scaled[i].id, "short" if effect.problem else "whole").inc()
        self._metrics.effect.observe(effect_s(effect, self._batches[i]))


def effect_s(effect: Effect, batches: Sequence[Span]) -> float:
    """Seconds until a change took effect, less those of the batch running at the request."""
    running = [ended for begun, ended in batches if begun <= effect.asked_ns < ended]
    from_ns = min(max(running, default=effect.asked_ns), effect.effective_ns)
    return (effect.effective_ns - from_ns) / NS_PER_S


class _FromThread(Journal):
    def __init__(self, journal: Journal, loop: asyncio.AbstractEventLoop) -> None:
        self._journal, self._loop = journal, loop

    def write(self, event: str, **facts: object) -> None:
        self._loop.call_soon_threadsafe(partial(self._journal.write, event, **facts))
