"""A router driven event by event, with what it started and answered."""

import itertools
from typing import Any

from gearshift.decisions import LogRow
from gearshift.gear import GearPlan
from gearshift.plans.plan_tables import PlanTables, plan_tables
from gearshift.request import Request, Sample
from gearshift.runtime.faults.retries import Retries
from gearshift.runtime.router.by_deadline import DeadlineRules
from gearshift.runtime.router.flows import Passing
from gearshift.runtime.router.router import Router
from tests.conformance.plans import MS


class Driven:
    """The router of a plan, whose batches run until they are finished; times are milliseconds."""

    def __init__(
        self,
        plan: GearPlan,
        retries: Retries | None = None,
        deadlines: DeadlineRules | None = None,
        passing: Passing | None = None,
    ) -> None:
        self.tables: PlanTables = plan_tables(plan)
        self.deadlines = deadlines
        self.started: list[tuple[str, list[int]]] = []
        self.answered: list[int] = []
        self.running: dict[str, list[Sample]] = {}
        self.log: list[LogRow] = []
        self.ended: list[tuple[str, int]] = []
        self.router = Router(
            self.tables,
            start=self._start,
            answered=self._take,
            retries=retries,
            deadlines=deadlines,
            passing=passing,
            item_ended=self._item_ended,
            log=self.log.append,
            numbers=itertools.count(100),
        )

    def _start(self, replica: int, samples: list[Sample], reason: int) -> None:
        name = self.tables.replica_ids[replica]
        self.started.append((name, [one.sequence for one in samples]))
        self.running[name] = samples

    def _take(self, sample: Sample) -> None:
        self.answered.append(sample.sequence)

    def _item_ended(self, item: Sample) -> None:
        self.ended.append((self.name(item.node), item.sequence))

    def name(self, node: int) -> str:
        return [name for pipeline in self.tables.pipelines for name in pipeline.nodes][node]

    def index(self, replica: str) -> int:
        return self.tables.replica_ids.index(replica)

    def arrive(self, *sequences: int, ms: float = 0, **request: Any) -> list[Sample]:
        """One request."""
        pipeline = self.tables.pipelines[request.get("pipeline", 0)].name
        of = Request(id=sequences[0], operator=pipeline, arrived_ns=int(ms * MS), rows=len(sequences), **request)
        samples = [Sample(of, row, sequence) for row, sequence in enumerate(sequences)]
        self.router.arrive(samples, int(ms * MS))
        return samples

    def finish(self, replica: str, ms: float, certainty: float = 1.0) -> None:
        samples = self.running.pop(replica)
        for one in samples:
            one.certainty = certainty
        self.router.stage_ended(self.index(replica), samples, int(ms * MS))
        self.router.executor_free(self.index(replica), int(ms * MS))

    def lose(self, *replicas: str, ms: float) -> None:
        for replica in replicas:
            self.running.pop(replica, None)
        self.router.replicas_lost([self.index(replica) for replica in replicas], int(ms * MS))

    def ready(self, replica: str, ms: float) -> None:
        self.router.replica_ready(self.index(replica), int(ms * MS))
