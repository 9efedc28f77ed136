"""Pipelines that stay as they are while one is planned among them (Ken, section 3)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import numpy as np

from gearshift.gear import Gear, GearPlan, LoadRange, PipelinePlan, ReplicaSettings
from gearshift.placement import Placement, Replica
from gearshift.profiles.profile import Profile
from gearshift.workload import Trace

BUSY_PERCENTILE = 0.95
"""Steady load of one pipeline meets the others at this percentile of their traces' load."""
LEAST_FREE = 0.05
"""A device counts as free for at least this share, however busy the others keep it."""


class WorkLimit(NamedTuple):
    """The most work per request of a cascade in ranges from a load on."""

    from_qps: float
    work_s: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Beside:
    """The other pipelines of a plan, by name, and their replicas; none of them is changed.

    `together` is the profile of all operators, with that which is planned (`profiles/several.py`).
    In steady load they have `loads_qps`, at which they keep each device `busy` for a share of time.
    Those in `kept` must keep their objectives; the others are guesses that need not. `limit` is on
    the pipeline that is planned: what it uses at its own busy load is not left for the others.
    """

    plan: GearPlan
    profiles: Mapping[str, Profile]
    traces: Mapping[str, Trace]
    together: Profile
    loads_qps: Mapping[str, float]
    busy: Mapping[str, float]
    kept: frozenset[str]
    limit: WorkLimit | None = None

    def free(self, replica: Replica) -> float:
        """The share of time for which the replica's devices are free, at least `LEAST_FREE`."""
        return max(LEAST_FREE, min(1 - self.busy.get(device, 0.0) for device in replica.device_ids))

    def too_much(self, work_s: float, load_qps: float) -> bool:
        return self.limit is not None and load_qps >= self.limit.from_qps and work_s > self.limit.work_s

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.plan.pipelines)


def busy_qps(trace: Trace) -> float:
    """The 95th percentile of the trace's load per second, at least its mean."""
    return max(trace.mean_qps, float(np.quantile(trace.counts_per_second(), BUSY_PERCENTILE)))


def joined(made: GearPlan, others: GearPlan) -> GearPlan:
    """One plan of the pipelines of both, those of `made` first, over the replicas of both.

    Replicas that both have are the same. The hardware is that of `made`.
    """
    known = {replica.id for replica in made.placement.replicas}
    added = [replica for replica in others.placement.replicas if replica.id not in known]
    return msgspec.structs.replace(
        made,
        placement=Placement(replicas=(*made.placement.replicas, *added)),
        pipelines=_with_idle(made, added) | _with_idle(others, _lacking(made, others)),
        profiles=made.profiles | others.profiles,
        traces=made.traces | others.traces,
        predictions=made.predictions | others.predictions,
        unfinished=made.unfinished or others.unfinished,
    )


def _lacking(made: GearPlan, others: GearPlan) -> list[Replica]:
    known = {replica.id for replica in others.placement.replicas}
    return [replica for replica in made.placement.replicas if replica.id not in known]


def _with_idle(plan: GearPlan, replicas: Sequence[Replica]) -> dict[str, PipelinePlan]:
    idle = tuple(ReplicaSettings(replica=each.id, load_share=0.0, cores=each.cores) for each in replicas)
    return with_settings(plan.pipelines, lambda settings: (*settings, *idle)) if idle else plan.pipelines


def with_settings(
    pipelines: Mapping[str, PipelinePlan],
    change: Callable[[tuple[ReplicaSettings, ...]], tuple[ReplicaSettings, ...]],
) -> dict[str, PipelinePlan]:
    """The pipelines with changed settings of replicas in each gear; gears that share them still do."""
    known: dict[int, tuple[ReplicaSettings, ...]] = {}

    def changed(gear: Gear) -> Gear:
        if id(gear.replicas) not in known:
            known[id(gear.replicas)] = change(gear.replicas)
        return msgspec.structs.replace(gear, replicas=known[id(gear.replicas)])

    return {
        name: msgspec.structs.replace(pipeline, gears=tuple(map(changed, pipeline.gears)))
        for name, pipeline in pipelines.items()
    }


def keeping(plan: GearPlan, kept: Callable[[Replica], bool]) -> GearPlan:
    """The plan with some of its replicas."""
    placement = Placement(replicas=tuple(filter(kept, plan.placement.replicas)))
    ids = {replica.id for replica in placement.replicas}
    pipelines = with_settings(plan.pipelines, lambda settings: tuple(one for one in settings if one.replica in ids))
    return msgspec.structs.replace(plan, placement=placement, pipelines=pipelines)


def without_idle_models(plan: GearPlan) -> GearPlan:
    used = {model for pipeline in plan.pipelines.values() for model in models_of(pipeline)}
    return plan if used.issuperset(plan.placement.models) else keeping(plan, lambda replica: replica.model in used)


def part_of(plan: GearPlan, names: Sequence[str]) -> GearPlan:
    """The plan of some of its pipelines, with the replicas of models that they use."""
    pipelines = {name: plan.pipelines[name] for name in names}
    operators = {node.operator for pipeline in pipelines.values() for node in pipeline.nodes.values()}
    part = msgspec.structs.replace(
        plan,
        pipelines=pipelines,
        profiles={name: source for name, source in plan.profiles.items() if name in operators},
        traces={name: plan.traces[name] for name in names},
        predictions={name: result for name, result in plan.predictions.items() if name in names},
    )
    return without_idle_models(part)


def models_of(pipeline: PipelinePlan) -> set[str]:
    return {m for gear in pipeline.gears for of in gear.cascades.values() for c in of for m in c.models}


def in_steady_load(pipeline: PipelinePlan, load_qps: float) -> PipelinePlan:
    """The pipeline with the gear of a load alone."""
    ends = [gear.load_range.to for gear in pipeline.gears]
    gear = next(g for g, to in zip(pipeline.gears, ends, strict=True) if to is None or load_qps < to)
    return at_all_loads(pipeline, gear)


def at_all_loads(pipeline: PipelinePlan, gear: Gear) -> PipelinePlan:
    """The pipeline with this gear alone."""
    alone = msgspec.structs.replace(gear, load_range=LoadRange(from_=0.0))
    return msgspec.structs.replace(pipeline, gears=(alone,), planned_load=None)
