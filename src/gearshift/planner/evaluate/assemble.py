"""Assemble a gear plan from its parts: steps that all planners share."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gearshift.cascade import Cascade
from gearshift.gear import Gear, GearPlan, Meter, PipelinePlan, ReplicaSettings
from gearshift.hardware import Hardware
from gearshift.objective import Objective
from gearshift.pipeline import Node
from gearshift.placement import Placement
from gearshift.planner.space.request import PlanRequest
from gearshift.profiles.profile import Profile, RunTimeCurve

STARVATION_FACTOR, LONGEST_STARVATION_S = 10, 1e5
DEFAULT_ALPHA = 8.0


def curves_of(profile: Profile, hardware: Hardware, placement: Placement) -> dict[str, RunTimeCurve]:
    """Run times by replica id on its device; raises `InvalidInput` where they were not measured."""
    kinds = {device.id: device.kind for device in hardware.devices}
    return {
        replica.id: profile.curve(
            replica.model,
            device_kind=kinds[replica.device_ids[0]],
            tensor_parallel=replica.tensor_parallel,
            cores=replica.cores,
        )
        for replica in placement.replicas
    }


def replica_settings(
    profile: Profile,
    hardware: Hardware,
    placement: Placement,
    cascade: Cascade,
    *,
    shares: Mapping[str, float],
    largest_batch_size: int,
    minimum_queue_length: Mapping[str, int] | None = None,
    longest_wait_s: Mapping[str, float] | None = None,
) -> tuple[ReplicaSettings, ...]:
    """Settings of every replica in a gear with `cascade`; the mappings are by replica id.

    Batches are limited to profiled sizes; replicas of models outside the cascade have no share.
    """
    minimum, longest_s = minimum_queue_length or {}, longest_wait_s or {}
    curves = curves_of(profile, hardware, placement)
    settings = []
    for replica in placement.replicas:
        used = replica.model in cascade.models
        largest = min(largest_batch_size, curves[replica.id].largest_batch_size)
        settings.append(
            ReplicaSettings(
                replica=replica.id,
                load_share=shares.get(replica.id, 0.0) if used else 0.0,
                minimum_queue_length=max(1, minimum.get(replica.id, 1)) if used else 1,
                largest_batch_size=largest,
                longest_wait_s=longest_s.get(replica.id, 0.0) if used else 0.0,
                cores=replica.cores,
            )
        )
    return tuple(settings)


def assemble(
    request: PlanRequest,
    placement: Placement,
    gears: Sequence[Gear],
    *,
    planner: str = "",
    alpha: float = DEFAULT_ALPHA,
    meter: Meter = "backlog",
) -> GearPlan:
    """A plan without predictions; `contract.planner.Planner` signs what it returns."""
    name = request.profile.operator
    pipeline = PipelinePlan(
        nodes={name: Node(operator=name)},
        output=name,
        objective=request.objective,
        gears=tuple(gears),
        alpha=alpha,
        meter=meter,
        starvation_s=_starvation_s(request.objective),
    )
    return GearPlan(
        planner=planner,
        seed=request.seed,
        hardware=request.hardware,
        placement=placement,
        pipelines={name: pipeline},
        profiles={name: request.profile_source},
        traces={name: request.trace_source},
    )


def with_pipeline(made: GearPlan, **changed: Any) -> GearPlan:
    """Change fields of the plan's only pipeline."""
    name, pipeline = next(iter(made.pipelines.items()))
    return msgspec.structs.replace(made, pipelines={name: msgspec.structs.replace(pipeline, **changed)})


def with_objective(made: GearPlan, objective: Objective) -> GearPlan:
    return with_pipeline(made, objective=objective, starvation_s=_starvation_s(objective))


def _starvation_s(objective: Objective) -> float | None:
    if objective.latency_s is None:
        return None
    return min(STARVATION_FACTOR * objective.latency_s, LONGEST_STARVATION_S)


def rounded_up_s(seconds: float, *, digits: int = 2) -> float:
    """Round a latency objective up to `digits` significant digits, despite rounding errors."""
    unit = 10.0 ** (math.floor(math.log10(seconds * 1e3)) - digits + 1)
    return math.ceil(seconds * 1e3 / unit * (1 + 1e-9)) * unit / 1e3
