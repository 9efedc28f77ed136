"""Refuses plans with parts that this version does not serve."""

from collections.abc import Iterator
from itertools import combinations

from msgspec import UNSET

from gearshift.errors import InvalidInput
from gearshift.gear import Gear, GearPlan, PipelinePlan
from gearshift.objective import Objective


def require_served(plan: GearPlan) -> None:
    """Raise `InvalidInput` if the plan has a part that cannot be served."""
    for name, pipeline in plan.pipelines.items():
        for part in _unserved(pipeline):
            raise InvalidInput(
                f"the plan has {part}, which this version of gearshift does not serve",
                where=f"pipeline {name!r}",
                remedy="make the plan anew with `gearshift plan`, or serve it with a newer version",
            )
    for part in _unserved_together(plan):
        raise InvalidInput(
            f"the plan has {part}", remedy="make the plan anew with `gearshift plan`, or serve it with a newer version"
        )


def _unserved_together(plan: GearPlan) -> Iterator[str]:
    if len(plan.pipelines) > 1 and plan.hardware.pool_cores is not None:
        yield "several pipelines, and cores that they would share (pool_cores)"
    if len(plan.pipelines) > 1 and any(pipeline.refines for pipeline in plan.pipelines.values()):
        yield "several pipelines, and order by gain in one"
    if any(pipeline.refines for pipeline in plan.pipelines.values()):
        yield from _unrefined(plan)
    if any(replica.kv_tokens is not UNSET for replica in plan.placement.replicas):
        yield "replicas with kv_tokens, which this version of gearshift does not serve"


def _unrefined(plan: GearPlan) -> Iterator[str]:
    if plan.hardware.pool_cores is not None:
        yield "order by gain, and cores that change with the gear (pool_cores)"
    for replica in plan.placement.replicas:
        if len(replica.device_ids) > 1:
            yield f"order by gain, and replica {replica.id!r} on several devices"


def _unserved(pipeline: PipelinePlan) -> Iterator[str]:
    for name, node in pipeline.nodes.items() if len(pipeline.nodes) == 1 else ():
        if node.inputs or node.fan_out is not None or node.join != "all" or not node.required or node.fan_in:
            yield f"only node {name!r} with inputs, fan-out or a join"
    if pipeline.load_unit != "requests_per_s":
        yield f"load in {pipeline.load_unit}"
    if pipeline.refines:
        yield from _of_refinement(pipeline)
    yield from _of_objective(pipeline.objective)
    for gear in pipeline.gears:
        for part in _of_gear(gear):
            yield f"{part} in the gear for load {gear.load_range}"


def _of_objective(objective: Objective) -> Iterator[str]:
    if objective.metric not in (UNSET, "latency"):
        yield f"an objective on {objective.metric}"


def _of_refinement(pipeline: PipelinePlan) -> Iterator[str]:
    if len(pipeline.nodes) > 1:
        yield "several nodes, and order by gain"
    if any(gear.order != "gain" for gear in pipeline.gears):
        yield "gears that order by gain beside others"
    if any(gear.timed is not UNSET for gear in pipeline.gears):
        yield "order by gain, and choices by time"
    if pipeline.objective.latency_s is None:
        yield "order by gain without a latency objective"
    known = set() if pipeline.gains is UNSET else {(gain.kept, gain.later) for gain in pipeline.gains}
    used = [cascade.models for gear in pipeline.gears for cascades in gear.cascades.values() for cascade in cascades]
    for pair in sorted({pair for models in used for pair in combinations(models, 2)} - known):
        yield f"order by gain without the expected gain of model {pair[1]!r} over {pair[0]!r}"


def _of_gear(gear: Gear) -> Iterator[str]:
    if gear.timed is UNSET and any(len(cascades) > 1 for cascades in gear.cascades.values()):
        yield "several cascades of a node without their tables (timed)"
    if any(cascade.decide_at_tokens is not UNSET for cascades in gear.cascades.values() for cascade in cascades):
        yield "decide_at_tokens"
    if any(settings.most_outstanding is not UNSET for settings in gear.replicas):
        yield "most_outstanding"
