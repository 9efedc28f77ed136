"""Drives the router: hands it the events of backend and clock, and starts its batches."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from gearshift.clock import NEVER_NS, NS_PER_S, Clock
from gearshift.observability.core_metrics import CoreMetrics
from gearshift.observability.journal import Journal
from gearshift.observability.metrics import Metrics
from gearshift.observability.tracing import RequestSpan, trace_batch
from gearshift.plans.plan_tables import PlanTables
from gearshift.policies.load import METER_WINDOW_NS
from gearshift.request import Sample
from gearshift.runtime.backends.base import Backend, Batch
from gearshift.runtime.cores.vertical import VerticalScaling
from gearshift.runtime.faults.failing import LOST
from gearshift.runtime.faults.failure_log import FailureLog
from gearshift.runtime.faults.retries import Retries
from gearshift.runtime.router.by_deadline import DeadlineRules
from gearshift.runtime.router.flows import Answered, Memory, Passing
from gearshift.runtime.router.router import Router
from gearshift.runtime.router.status import shift_facts
from gearshift.runtime.watch.adapting import Adapting
from gearshift.support.fine_timer import FineTimer


class Driver:
    """Passes the events of one service to the router, which decides, and to its watchers.

    `answered` takes each request row that ends, `item_ended` each item of a graph, whose data
    `passing` passes on; `adapting` watches, pipeline by pipeline; `spans` are
    those of traced requests, by id. `ticked` is called at the end of each window of the meter.
    """

    def __init__(
        self,
        tables: PlanTables,
        backend: Backend,
        *,
        answered: Answered,
        item_ended: Answered | None = None,
        passing: Passing | None = None,
        retries: Retries | None,
        deadlines: DeadlineRules,
        adapting: Sequence[Adapting],
        vertical: VerticalScaling | None,
        clock: Clock,
        metrics: Metrics,
        journal: Journal,
        spans: Mapping[int, RequestSpan],
        memory: Memory | None = None,
    ) -> None:
        self._tables, self.backend, self.vertical, self.adapting = tables, backend, vertical, adapting
        self._node_names = [name for pipeline in tables.pipelines for name in pipeline.nodes]
        self._named: list[dict[str, object]] = [
            {"pipeline": each.name} if len(tables.pipelines) > 1 else {} for each in tables.pipelines
        ]
        self._clock, self._metrics, self._journal, self._spans = clock, metrics, journal, spans
        replicas = range(len(tables.replica_ids))
        self._model_names = [tables.model_of(replica) for replica in replicas]
        self._device_names = [tables.devices_of(replica) for replica in replicas]
        self._deadlines = deadlines
        self._failures = FailureLog(tables.replica_ids, self._model_names, self._count_failure, journal)
        self.router = Router(
            tables,
            start=self._start_batch,
            answered=answered,
            shifted=self._shifted,
            retries=retries,
            deadlines=deadlines,
            passing=passing,
            item_ended=item_ended,
            memory=memory,
            failed=self._failures.failed,
            changed=self._failures.changed,
            weighs=True,
        )
        self._goes_on = False
        self._batch_ids = itertools.count(1)
        self._started_ns: dict[int, int] = {}
        self.replicas = ReadyReplicas(tables, metrics, journal)
        self.pulse = Pulse(clock, self._tick, self._timer)
        self.ticked: Callable[[], None] = lambda: None
        for pipeline, watch in zip(tables.pipelines, adapting, strict=True):
            watch.tell(metrics.adapting_of(pipeline.name))
        self._watching = [[watch for watch in adapting if watch.uses(replica)] for replica in replicas]
        if vertical is not None:
            vertical.tell(metrics.cores)

    def named(self, pipeline: int) -> dict[str, object]:
        """The name of a pipeline for rows of the journal, where there are several."""
        return self._named[pipeline]

    def endings(self) -> list[Awaitable[None]]:
        if self.vertical is None:
            return [self.backend.stop()]
        return [self.vertical.stop(), self.backend.stop()]

    def arm_timer(self) -> None:
        self.pulse.wake_by(self.router.next_timer_ns())
        if self.router.unfinished and not self._goes_on:
            self._goes_on = True
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        """Do a step of what an event has left; others get their turn before the next one."""
        self._goes_on = False
        self.router.more(self._clock.now_ns())
        self.arm_timer()

    def take_over_from(self, before: "Driver") -> None:
        """Report to the metrics of `before`, which reports no more, and take over its load."""
        self._metrics = before._metrics
        before.replicas.report_to(None)
        leaving = {watch.pipeline: watch for watch in before.adapting}
        for watch in self.adapting:
            if watch.pipeline in leaving:
                watch.take_over_from(leaving[watch.pipeline])
        if before.vertical is not None:
            before.vertical.tell(CoreMetrics())
        if self.vertical is not None:
            self.vertical.tell(self._metrics.cores)
            self.vertical.let_in()
        self.router.take_meter(before.router, self._clock.now_ns())
        self.arm_timer()

    # Decisions of the router -----------------------------------------------------------------------------------------

    def _start_batch(self, replica: int, samples: Sequence[Sample], reason: int) -> None:
        self._started_ns[replica] = now_ns = self._clock.now_ns()
        self.backend.run(Batch(next(self._batch_ids), replica, samples))  # first: the device is waiting
        self._metrics.batch_started(self._model_names[replica], len(samples), reason)
        self._metrics.deadlines.started(samples, now_ns)

    def _shifted(self, pipeline: int, before: int, after: int) -> None:
        facts = shift_facts(self.router.pipelines[pipeline], before, after)
        self._journal.write("shift", **self._named[pipeline], **facts)
        if self.vertical is not None:
            self.vertical.shifted(after)

    # Events of the backend -------------------------------------------------------------------------------------------

    def samples_finished(self, batch: Batch, samples: Sequence[Sample]) -> None:
        now_ns = self._clock.now_ns()
        if self._spans:
            self._trace(batch, samples, now_ns)
        self.router.stage_ended(batch.replica, samples, now_ns)
        if len(samples) < len(batch.samples):  # else `batch_finished` arms it
            self.arm_timer()

    def _trace(self, batch: Batch, samples: Sequence[Sample], now_ns: int) -> None:
        trace_batch(
            self._spans,
            samples,
            model=self._model_names[batch.replica],
            replica=self._tables.replica_ids[batch.replica],
            gears=[pipeline.gear for pipeline in self.router.pipelines],
            nodes=self._node_names,
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
        if self.vertical is not None:
            self.vertical.batch_finished(batch.replica, len(batch.samples), run_ns, now_ns)
        for watch in self._watching[batch.replica]:
            watch.batch_finished(self.router, batch.replica, len(batch.samples), run_ns, now_ns)
        self.arm_timer()

    def replicas_lost(self, replicas: Sequence[int], how: str) -> None:
        for replica in replicas:
            self._metrics.restarts.labels(self._tables.replica_ids[replica]).inc()
            self._failures.failed(replica, LOST)
            self.replicas.lost(replica, how)
        if self.vertical is not None:
            self.vertical.replicas_lost(replicas)
        self.router.replicas_lost(replicas, self._clock.now_ns())
        self.arm_timer()

    def replica_ready(self, replica: int) -> None:
        if self.replicas.came(replica):
            if self.vertical is not None:
                self.vertical.replica_ready(replica)
            self.router.replica_ready(replica, self._clock.now_ns())
            self.arm_timer()

    # Time ------------------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        self._deadlines.take_aim(idle=not any(self.router.running_lengths()))
        self.router.tick(now_ns := self._clock.now_ns())
        for watch in self.adapting:
            watch.ticked(self.router, now_ns)
        self._failures.ticked(now_ns)
        self.ticked()
        self.arm_timer()

    def degraded(self, models: AbstractSet[str]) -> list[str]:
        """Those of `models` without a replica that answers: all have lost their worker, or fail."""
        answer = self.router.failing.answer
        return [model for number, model in enumerate(self._tables.models) if model in models and not answer(number)]

    def _count_failure(self, model: str, replica: str, why: str) -> None:
        self._metrics.failures.labels(model, replica, why).inc()  # those of the service that this one takes over from

    def _timer(self) -> None:
        self.router.timer(self._clock.now_ns())
        self.arm_timer()


class Pulse:
    """Calls `tick` on a fixed grid, and `wake` at the requested time or before."""

    def __init__(self, clock: Clock, tick: Callable[[], None], wake: Callable[[], None]) -> None:
        self._clock, self._tick, self._wake = clock, tick, wake
        self._timers: tuple[FineTimer, FineTimer] | None = None
        self._armed_ns = NEVER_NS

    def start(self) -> None:
        """Open the timers; raises `OSError` if the system gives none."""
        loop = asyncio.get_running_loop()
        self._timers = FineTimer(loop, self._ticked), FineTimer(loop, self._woken)
        for timer in self._timers:
            timer.start()
        self._arm_tick()

    def stop(self) -> None:
        for timer in self._timers or ():
            timer.stop()

    def wake_by(self, at_ns: int) -> None:
        """Wake at `at_ns` or before; waking too early does no harm."""
        if self._timers is not None and at_ns < self._armed_ns:
            self._armed_ns = at_ns
            self._timers[1].set(at_ns - self._clock.now_ns())

    def _ticked(self) -> None:
        self._tick()
        self._arm_tick()

    def _arm_tick(self) -> None:
        """Set the next point of the grid; those missed while the loop was held up are skipped."""
        if self._timers is not None:
            now_ns = self._clock.now_ns()
            self._timers[0].set((now_ns // METER_WINDOW_NS + 1) * METER_WINDOW_NS - now_ns)

    def _woken(self) -> None:
        self._armed_ns = NEVER_NS
        self._wake()


class ReadyReplicas:
    """Reports each change of `numbers`, the replicas whose worker is ready.

    Metrics are those of the service in force, None for others.
    """

    def __init__(self, tables: PlanTables, metrics: Metrics | None, journal: Journal) -> None:
        self._ids, self._metrics, self._journal = tables.replica_ids, metrics, journal
        self._model_names = [tables.model_of(replica) for replica in range(len(tables.replica_ids))]
        self.numbers: set[int] = set()

    def came(self, replica: int) -> bool:
        """Note that a replica is ready; False if it was."""
        if replica in self.numbers:
            return False
        self.numbers.add(replica)
        self._count(replica)
        self._journal.write("replica_ready", replica=self._ids[replica])
        return True

    def lost(self, replica: int, how: str) -> None:
        self.numbers.discard(replica)
        self._count(replica)
        self._journal.write("replica_lost", replica=self._ids[replica], how=how)

    def report_to(self, metrics: Metrics | None) -> None:
        self._metrics = metrics
        for replica in range(len(self._ids)):
            self._count(replica)

    def _count(self, replica: int) -> None:
        if self._metrics is not None:
            model = self._model_names[replica]
            self._metrics.replicas.labels(model).set(sum(self._model_names[other] == model for other in self.numbers))
