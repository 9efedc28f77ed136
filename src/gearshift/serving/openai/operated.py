"""A service of language models as operators see it: what `Control` asks of a service."""

from collections.abc import Mapping, Sequence
from typing import Any

from gearshift.clock import NS_PER_S
from gearshift.errors import InvalidInput, require
from gearshift.gear import GearPlan, LoadRange
from gearshift.runtime.engines.language_service import LanguageService
from gearshift.runtime.engines.replicas.engine_replica import EngineReplica
from gearshift.runtime.router.status import (
    PipelineStatus,
    ReplicaStatus,
    ServedPlan,
    State,
    Status,
    with_only_pipeline,
)


class OperatedLanguage:
    """`service` with its plan and engines."""

    def __init__(self, service: LanguageService, plan: GearPlan, engines: Sequence[EngineReplica]) -> None:
        self._service, self._plan, self._engines = service, plan, engines
        self.name = service.tables.pipeline
        self.pipelines: Mapping[str, Any] = {self.name: self}

    @property
    def accepting(self) -> bool:
        return self._service.accepting

    @property
    def ready(self) -> bool:
        return self._service.ready

    @property
    def degraded(self) -> list[str]:
        return self._service.degraded

    def refuse_new(self) -> None:
        self._service.refuse_new()

    def undo_drain(self) -> None:
        self._service.undo_drain()

    def pin_gear(self, gear: int, pipeline: str | None = None) -> None:
        """Keep `gear` in force until `free_gear`; raises `InvalidInput` without it."""
        self._require(pipeline)
        last = len(self._plan.pipeline.gears) - 1
        require(0 <= gear <= last, f"there is no gear {gear}", remedy=f"pin one from 0 to {last}")
        self._service.pin(gear)

    def free_gear(self, pipeline: str | None = None) -> None:
        self._require(pipeline)
        self._service.pin(None)

    def _require(self, pipeline: str | None) -> None:
        if pipeline not in (None, self.name):
            raise InvalidInput(f"there is no pipeline {pipeline!r}", remedy=f"name {self.name}")

    def status(self, plan: ServedPlan) -> Status:
        service, placed = self._service, {replica.id: replica for replica in self._plan.placement.replicas}
        tables, router = service.tables, service.router
        state: State = "serving" if service.accepting else "draining" if service.started else "starting"
        return with_only_pipeline(
            Status(
                plan=plan,
                state=state,
                uptime_s=service.now_ns() / NS_PER_S,
                replicas=[
                    ReplicaStatus(
                        id=id,
                        model=placed[id].model,
                        devices=list(placed[id].device_ids),
                        ready=service.replica_ready(number),
                        failing=router.available.ejections.is_failing(number),
                        waiting=len(router.queues[int(tables.replica_model[number])]),
                        running=router.outstanding[number],
                    )
                    for number, id in enumerate(tables.replicas)
                ],
                waiting=service.waiting,
                open_requests=service.open_requests,
                held_bytes=service.held.all_held_bytes,
                most_held_bytes=service.held.most_bytes,
                pipelines=[self._pipeline()],
                degraded_models=self.degraded,
            )
        )

    def _pipeline(self) -> PipelineStatus:
        service, pipeline = self._service, self._plan.pipeline
        gear = pipeline.gears[service.gear]
        return PipelineStatus(
            name=self.name,
            load=service.load,
            load_unit=pipeline.load_unit,
            rate_qps=service.rate_qps,
            gear=service.gear,
            last_gear=len(pipeline.gears) - 1,
            pinned=service.pinned,
            load_range=LoadRange(from_=gear.load_range.from_, to=gear.load_range.to),
            cascades=gear.cascades,
            waiting=service.waiting,
            most_waiting=service.room.most_requests,
            open_requests=service.open_requests,
            drifting_models=service.drifting_models,
        )
