"""A service of language models as operators see and steer it: what `Control` asks of a service."""

from collections.abc import Mapping

from gearshift.clock import NS_PER_S
from gearshift.errors import InvalidInput, require
from gearshift.gear import GearPlan, LoadRange
from gearshift.runtime.engines.language_service import LanguageService
from gearshift.runtime.router.status import (
    PipelineStatus,
    ReplicaStatus,
    ServedPlan,
    State,
    Status,
    with_only_pipeline,
)


class OperatedLanguage(LanguageService):
    plan: GearPlan
    """Set by who makes it."""

    @property
    def name(self) -> str:
        return self.tables.pipeline

    @property
    def pipelines(self) -> Mapping[str, "OperatedLanguage"]:
        return {self.name: self}

    def pin_gear(self, gear: int, pipeline: str | None = None) -> None:
        """Keep `gear` in force until `free_gear`; raises `InvalidInput` without it."""
        self._require(pipeline)
        last = len(self.plan.pipeline.gears) - 1
        require(0 <= gear <= last, f"there is no gear {gear}", remedy=f"pin one from 0 to {last}")
        self.pin(gear)

    def free_gear(self, pipeline: str | None = None) -> None:
        self._require(pipeline)
        self.pin(None)

    def _require(self, pipeline: str | None) -> None:
        if pipeline not in (None, self.name):
            raise InvalidInput(f"there is no pipeline {pipeline!r}", remedy=f"name {self.name}")

    def status(self, plan: ServedPlan) -> Status:
        return status_of(self, self.plan, plan)


def status_of(service: LanguageService, plan: GearPlan, served: ServedPlan) -> Status:
    placed, pipeline = {replica.id: replica for replica in plan.placement.replicas}, plan.pipeline
    tables, router, gear = service.tables, service.router, plan.pipeline.gears[service.gear]
    state: State = "serving" if service.accepting else "draining" if service.started else "starting"
    return with_only_pipeline(
        Status(
            plan=served,
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
            degraded_models=service.degraded,
            pipelines=[
                PipelineStatus(
                    name=tables.pipeline,
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
            ],
        )
    )
