"""The service: the router, a backend and the clock on one event loop; it answers requests."""

import itertools
from collections.abc import Mapping

from gearshift.clock import NS_PER_S, Clock, WallClock
from gearshift.errors import InvalidInput, require
from gearshift.observability.journal import Journal
from gearshift.observability.metrics import Metrics
from gearshift.observability.tracing import RequestSpan
from gearshift.plans.plan_tables import PlanTables
from gearshift.request import Sample
from gearshift.runtime.backends.base import Backend, all_ended
from gearshift.runtime.cores.vertical import VerticalScaling
from gearshift.runtime.faults.retries import Retries
from gearshift.runtime.router.by_deadline import DeadlineRules
from gearshift.runtime.router.flows import Passing
from gearshift.runtime.router.status import ServedPlan, State, Status, status_of
from gearshift.runtime.service.admission import Accepting
from gearshift.runtime.service.between import BetweenNodes
from gearshift.runtime.service.driver import Driver
from gearshift.runtime.service.room import HeldBytes
from gearshift.runtime.service.served_pipeline import PipelineOptions, ServedPipeline, Shared
from gearshift.runtime.watch.adapting import Adapting

NO_OPTIONS = PipelineOptions()


class Service:
    """Serves the pipelines of a plan; every accepted request gets exactly one answer.

    `pipelines` are the options of each, by default those of `PipelineOptions`; the service has a
    `ServedPipeline` of each name, which takes the requests. `passing` makes the inputs of the nodes
    of graphs. `most_waiting_bytes` bounds the bytes
    of all requests together that are being read or not answered yet, with what they make between
    nodes. `retries` decides what
    happens to samples that were on a lost worker. `deadlines` decides what clients' deadlines do
    apart from ordering queues; without it late answers are wanted. `vertical` changes the cores of
    replicas.
    """

    def __init__(
        self,
        tables: PlanTables,
        backend: Backend,
        *,
        pipelines: Mapping[str, PipelineOptions] | None = None,
        passing: Passing | None = None,
        most_waiting_bytes: int = 256 << 20,
        retries: Retries | None = None,
        deadlines: DeadlineRules | None = None,
        vertical: VerticalScaling | None = None,
        clock: Clock | None = None,
        metrics: Metrics | None = None,
        journal: Journal | None = None,
    ) -> None:
        self._tables = tables
        self._clock = clock or WallClock()
        self._journal = journal or Journal()
        names = [each.name for each in tables.pipelines]
        options = [(pipelines or {}).get(name, NO_OPTIONS) for name in names]
        adapting = [each.adapting or Adapting(tables, number) for number, each in enumerate(options)]
        deadlines, metrics = deadlines or DeadlineRules(tables, late="answer"), metrics or Metrics(names)
        spans: dict[int, RequestSpan] = {}
        self.held = HeldBytes(most_waiting_bytes)
        self.driver = Driver(
            tables,
            backend,
            answered=self._answered,
            item_ended=self._item_ended,
            passing=passing,
            retries=retries,
            deadlines=deadlines,
            adapting=adapting,
            vertical=vertical,
            clock=self._clock,
            metrics=metrics,
            journal=self._journal,
            spans=spans,
            memory=BetweenNodes(self.held),
        )
        self.router = self.driver.router
        self._accepting = Accepting(self._journal, lambda: self.open_requests)
        self._shared = Shared(
            tables=tables,
            driver=self.driver,
            held=self.held,
            deadlines=deadlines,
            clock=self._clock,
            metrics=metrics,
            journal=self._journal,
            spans=spans,
            request_ids=itertools.count(1),
            sequence=itertools.count(),
            accepting=self._accepting,
        )
        self._of = [
            ServedPipeline(each, self._shared, option, watch)
            for each, option, watch in zip(tables.pipelines, options, adapting, strict=True)
        ]
        self.pipelines = {pipeline.name: pipeline for pipeline in self._of}

    @property
    def pipeline(self) -> ServedPipeline:
        """The only pipeline; raises `InvalidInput` for a plan of several."""
        return self._of[self._tables.pipeline.number]

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
        self._report()
        self._accepting.start(len(self._tables.replica_ids))

    async def drain(self, longest_s: float) -> bool:
        """Refuse new requests and answer the rest; False if some failed after `longest_s`."""
        none_open = [pipeline.open_requests.none_open for pipeline in self._of]
        return await self._accepting.drain(longest_s, none_open, self._fail_open)

    def _fail_open(self) -> None:
        for pipeline in self._of:
            pipeline.fail_open()

    async def stop(self) -> None:
        """End at once: unanswered requests fail, and nothing is left running."""
        self._accepting.end()
        fault: BaseException | None = None
        for pipeline in self._of:
            try:
                pipeline.fail_open()
            except BaseException as error:  # noqa: BLE001  raised below, once nothing is left running
                fault = fault or error
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
        return self._accepting.now

    @property
    def waiting(self) -> int:
        return self.router.waiting

    @property
    def open_requests(self) -> int:
        """Accepted requests that are not answered yet, of all pipelines."""
        return sum(len(pipeline.open_requests.by_id) for pipeline in self._of)

    @property
    def ready(self) -> bool:
        """Whether new requests of every pipeline are accepted and answered, perhaps by fewer models than planned."""
        return all(pipeline.ready for pipeline in self._of)

    @property
    def degraded(self) -> list[str]:
        """The models without a replica that answers."""
        return sorted({model for pipeline in self._of for model in pipeline.degraded})

    def now_ns(self) -> int:
        return self._clock.now_ns()

    # Operators -------------------------------------------------------------------------------------------------------

    def status(self, plan: ServedPlan) -> Status:
        stopped: State = "draining" if self._accepting.started else "starting"
        return status_of(
            plan,
            self._tables,
            self.router,
            state="serving" if self.accepting else stopped,
            uptime_s=self._clock.now_ns() / NS_PER_S,
            ready=self.driver.replicas.numbers,
            degraded=self.degraded,
            held_bytes=self.held.all_held_bytes,
            most_held_bytes=self.held.most_bytes,
            pipelines=[pipeline.status() for pipeline in self._of],
        )

    def pin_gear(self, gear: int, pipeline: str | None = None) -> None:
        """Keep `gear` of a pipeline in force until `free_gear`; raises `InvalidInput` without it.

        Without a name, that of the only pipeline.
        """
        number = self._number_of(pipeline)
        last = self._tables.pipelines[number].gears - 1
        require(0 <= gear <= last, f"there is no gear {gear}", remedy=f"pin one from 0 to {last}")
        self._journal.write("pin", **self.driver.named(number), gear=gear)
        self.router.pin(gear, self._clock.now_ns(), number)
        self.driver.arm_timer()

    def free_gear(self, pipeline: str | None = None) -> None:
        number = self._number_of(pipeline)
        self._journal.write("free", **self.driver.named(number), gear=self.router.pipelines[number].gear)
        self.router.pipelines[number].pinned = False

    def _number_of(self, pipeline: str | None) -> int:
        if pipeline is None:
            return self._tables.pipeline.number
        if pipeline not in self.pipelines:
            raise InvalidInput(
                f"there is no pipeline {pipeline!r}", remedy=f"name one of {', '.join(sorted(self.pipelines))}"
            )
        return self.pipelines[pipeline].number

    def refuse_new(self) -> None:
        self._accepting.refuse_new()

    def undo_drain(self) -> None:
        self._accepting.undo_drain()

    def take_over_from(self, before: "Service") -> None:
        """Take over the metrics and the metered load of `before`; both need the same clock."""
        self._shared.metrics = before._shared.metrics
        self.driver.take_over_from(before.driver)
        self._report()

    def _report(self) -> None:
        for pipeline in self._of:
            pipeline.report_to(self._shared.metrics)
        self.driver.replicas.report_to(self._shared.metrics)

    def _answered(self, sample: Sample) -> None:
        self._of[sample.request.pipeline].answered(sample)

    def _item_ended(self, item: Sample) -> None:
        self._of[item.request.pipeline].item_ended(item)
