"""Refuses plans with parts that this version does not serve."""

from collections.abc import Iterator

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
    if any(replica.kv_tokens is not UNSET for replica in plan.placement.replicas):
        yield "replicas with kv_tokens, which this version of gearshift does not serve"


def _unserved(pipeline: PipelinePlan) -> Iterator[str]:
    for name, node in pipeline.nodes.items() if len(pipeline.nodes) == 1 else ():
        if node.inputs or node.fan_out is not None or node.join != "all" or not node.required or node.fan_in:
            yield f"only node {name!r} with inputs, fan-out or a join"
    if pipeline.load_unit != "requests_per_s":
        yield f"load in {pipeline.load_unit}"
    if pipeline.gains is not UNSET:
        yield "expected gains"
    yield from _of_objective(pipeline.objective)
    for gear in pipeline.gears:
        for part in _of_gear(gear):
            yield f"{part} in the gear for load {gear.load_range}"


def _of_objective(objective: Objective) -> Iterator[str]:
    if objective.metric not in (UNSET, "latency"):
        yield f"an objective on {objective.metric}"
    if objective.median_s is not UNSET:
        yield "an objective with median_s"


def _of_gear(gear: Gear) -> Iterator[str]:
    if gear.timed is UNSET and any(len(cascades) > 1 for cascades in gear.cascades.values()):
        yield "several cascades of a node without their tables (timed)"
    if any(cascade.decide_at_tokens is not UNSET for cascades in gear.cascades.values() for cascade in cascades):
        yield "decide_at_tokens"
    if gear.order not in (UNSET, "arrival"):
        yield f"order by {gear.order}"
    if gear.answer_by_margin_s is not UNSET:
        yield "answer_by_margin_s"
    if any(settings.most_outstanding is not UNSET for settings in gear.replicas):
        yield "most_outstanding"
