"""Parts of a plan that the file can hold, and that this version does not serve yet."""

from collections.abc import Iterator

from msgspec import UNSET

from gearshift.errors import InvalidInput
from gearshift.gear import Gear, GearPlan, PipelinePlan
from gearshift.objective import Objective


def require_served(plan: GearPlan, pipeline: str) -> None:
    """Raise `InvalidInput` if `pipeline`, or the plan's placement, has a part that cannot be served."""
    for part in _unserved(plan, plan.pipelines[pipeline]):
        raise InvalidInput(
            f"the plan has {part}, which this version of gearshift does not serve",
            where=f"pipeline {pipeline!r}",
            remedy="make the plan anew with `gearshift plan`, or serve it with a newer version",
        )


def _unserved(plan: GearPlan, pipeline: PipelinePlan) -> Iterator[str]:
    if len(pipeline.nodes) > 1:
        yield f"a pipeline of {len(pipeline.nodes)} nodes"
    for name, node in pipeline.nodes.items():
        if node.inputs or node.fan_out is not None or node.join != "all" or not node.required:
            yield f"node {name!r} with inputs, fan-out or a join"
    if pipeline.load_unit in ("queued_tokens", "drain_s"):
        yield f"load in {pipeline.load_unit}"
    if pipeline.gains is not UNSET:
        yield "expected gains"
    yield from _of_objective(pipeline.objective)
    for gear in pipeline.gears:
        for part in _of_gear(gear):
            yield f"{part} in the gear for load {gear.load_range}"
    if any(replica.kv_tokens is not UNSET for replica in plan.placement.replicas):
        yield "replicas with kv_tokens"


def _of_objective(objective: Objective) -> Iterator[str]:
    if objective.metric not in (UNSET, "latency"):
        yield f"an objective on {objective.metric}"
    for name in ("median_s", "recall", "precision"):
        if getattr(objective, name) is not UNSET:
            yield f"an objective with {name}"


def _of_gear(gear: Gear) -> Iterator[str]:
    if any(len(cascades) > 1 for cascades in gear.cascades.values()):
        yield "several cascades"
    if any(cascade.decide_at_tokens is not UNSET for cascades in gear.cascades.values() for cascade in cascades):
        yield "decide_at_tokens"
    if gear.order not in (UNSET, "arrival"):
        yield f"order by {gear.order}"
    for name in ("answer_by_margin_s", "margin_s", "timed"):
        if getattr(gear, name) is not UNSET:
            yield name
    if any(settings.most_outstanding is not UNSET for settings in gear.replicas):
        yield "most_outstanding"
