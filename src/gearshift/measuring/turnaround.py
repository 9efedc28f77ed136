"""Times the service's work from a batch's end to the next start, while the device idles."""

from typing import Self

import numpy as np

from gearshift.cascade import Cascade
from gearshift.gear import Gear, GearPlan, LoadRange, PipelinePlan, ReplicaSettings, SourceFile, alone
from gearshift.hardware import identical_devices
from gearshift.objective import Objective
from gearshift.observability.metrics import Metrics
from gearshift.pipeline import Node
from gearshift.placement import Placement, Replica
from gearshift.plans.plan_tables import plan_tables
from gearshift.runtime.backends.base import Batch, BatchEvents
from gearshift.runtime.service.served_pipeline import PipelineOptions
from gearshift.runtime.service.service import Service

OPERATOR, MODEL = "beside", "only"
LABEL = np.zeros(1, dtype=np.int64)


class Turnaround:
    """A service of one replica with a filled queue, to time what the end of a batch costs it."""

    def __init__(self, largest_batch_size: int) -> None:
        plan, self._backend = plan_of_one_model(largest_batch_size), OneBatch()
        room = max(10_000, 2 * largest_batch_size)
        options = {OPERATOR: PipelineOptions(most_waiting_requests=room)}
        self._service = Service(plan_tables(plan), self._backend, pipelines=options, metrics=Metrics())

    async def __aenter__(self) -> Self:
        await self._service.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._service.stop()

    @property
    def running(self) -> int:
        batch = self._backend.running
        return 0 if batch is None else len(batch.samples)

    def hold(self, batch_size: int) -> None:
        while self.running:
            self.turn()
        self._arrive(1)  # runs at once, alone
        self._arrive(batch_size)
        self.turn()
        self._arrive(batch_size)

    def turn(self) -> None:
        self._backend.finish()

    def _arrive(self, count: int) -> None:
        for _ in range(count):
            self._service.pipeline.submit({"number": LABEL}, lambda answer: None)


class OneBatch:
    """A backend of one replica that runs a batch until `finish`, and answers all samples alike."""

    running: Batch | None = None

    async def start(self, events: BatchEvents) -> None:
        self._events = events
        events.replica_ready(0)

    def run(self, batch: Batch) -> None:
        self.running = batch

    def finish(self) -> None:
        batch, self.running = self.running, None
        if batch is not None:
            for sample in batch.samples:
                sample.certainty, sample.result = 1.0, {"label": LABEL}
            self._events.samples_finished(batch, batch.samples)
            self._events.batch_finished(batch)

    async def stop(self) -> None:
        """Do nothing."""


def plan_of_one_model(largest_batch_size: int) -> GearPlan:
    hardware = identical_devices(1)
    settings = ReplicaSettings(replica=MODEL, load_share=1.0, largest_batch_size=largest_batch_size)
    gear = Gear(
        load_range=LoadRange(from_=0.0), cascades=alone(OPERATOR, Cascade(models=(MODEL,))), replicas=(settings,)
    )
    nowhere = SourceFile(path="", sha256="")
    return GearPlan(
        planner="none",
        hardware=hardware,
        placement=Placement(replicas=(Replica(id=MODEL, model=MODEL, device_ids=(hardware.devices[0].id,)),)),
        pipelines={
            OPERATOR: PipelinePlan(
                nodes={OPERATOR: Node(operator=OPERATOR)}, output=OPERATOR, objective=Objective(), gears=(gear,)
            )
        },
        profiles={OPERATOR: nowhere},
        traces={OPERATOR: nowhere},
    )
