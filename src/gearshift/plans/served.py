"""Refuses plans with parts that this version does not serve."""

from collections.abc import Iterator
from itertools import combinations

from msgspec import UNSET

from gearshift.errors import InvalidInput, require
from gearshift.gear import Gear, GearPlan, PipelinePlan
from gearshift.objective import Objective

REMEDY = "make the plan anew with `gearshift plan`, or serve it with a newer version"


def is_language_plan(plan: GearPlan) -> bool:
    """Whether the plan is of language models, whose load is outstanding work."""
    return any(pipeline.load_unit != "requests_per_s" for pipeline in plan.pipelines.values())


def require_served(plan: GearPlan) -> None:
    """Raise `InvalidInput` if the plan is of language models, or has a part that cannot be served."""
    units = sorted({pipeline.load_unit for pipeline in plan.pipelines.values()})
    require(
        not is_language_plan(plan),
        f"the plan is of language models (load in {', '.join(units)}), and one of other models is needed here",
        remedy="use it where engines are simulated or served, as by `gearshift serve`",
    )
    for name, pipeline in plan.pipelines.items():
        for part in _unserved(pipeline):
            _refuse(part, name)
    for part in _unserved_together(plan):
        raise InvalidInput(f"the plan has {part}", remedy=REMEDY)


def require_language_plan(plan: GearPlan) -> None:
    """Raise `InvalidInput` if the plan is not of language models, or has a part that engines do not serve."""
    require(
        len(plan.pipelines) == 1 and not next(iter(plan.pipelines.values())).is_graph,
        "the plan has several pipelines or nodes, and language models are served from one of one node",
        remedy="give language models a plan of their own",
    )
    require(
        is_language_plan(plan),
        "the plan's load is in requests_per_s, and language models are served by outstanding work",
        remedy="make it with `gearshift plan` from a profile of language models",
    )
    for name, pipeline in plan.pipelines.items():
        for part in _unserved_by_engines(plan, pipeline):
            _refuse(part, name)


def _refuse(part: str, name: str) -> None:
    raise InvalidInput(
        f"the plan has {part}, which this version of gearshift does not serve",
        where=f"pipeline {name!r}",
        remedy=REMEDY,
    )


def _unserved_by_engines(plan: GearPlan, pipeline: PipelinePlan) -> Iterator[str]:
    yield from _of_only_node(pipeline)
    if plan.hardware.pool_cores is not None:
        yield "engines with cores that they would share (pool_cores)"
    if pipeline.gains is not UNSET:
        yield "expected gains"
    if pipeline.objective.median_s is not UNSET:
        yield "an objective with median_s"
    for gear in pipeline.gears:
        for part in _of_order(gear):
            yield f"{part} in the gear for load {gear.load_range}"
        if any(len(cascades) > 1 for cascades in gear.cascades.values()):
            yield f"several cascades of a node in the gear for load {gear.load_range}"


def _unserved_together(plan: GearPlan) -> Iterator[str]:
    if len(plan.pipelines) > 1 and plan.hardware.pool_cores is not None:
        yield "several pipelines, and cores that they would share (pool_cores)"
    by_gain = [name for name, pipeline in plan.pipelines.items() if pipeline.refines]
    if by_gain:
        yield from _unrefined(plan)
    by_arrival = [name for name in plan.pipelines if name not in by_gain]
    if by_gain and by_arrival:
        yield (
            f"order by gain in pipeline {by_gain[0]!r} and by arrival in {by_arrival[0]!r}: by gain, alike replicas "
            "share their queues, and by arrival each has its own"
        )
    if any(replica.kv_tokens is not UNSET for replica in plan.placement.replicas):
        yield "replicas with kv_tokens, which this version of gearshift does not serve"


def _unrefined(plan: GearPlan) -> Iterator[str]:
    if plan.hardware.pool_cores is not None:
        yield "order by gain, and cores that change with the gear (pool_cores)"
    for replica in plan.placement.replicas:
        if len(replica.device_ids) > 1:
            yield f"order by gain, and replica {replica.id!r} on several devices"


def _of_only_node(pipeline: PipelinePlan) -> Iterator[str]:
    for name, node in pipeline.nodes.items() if len(pipeline.nodes) == 1 else ():
        if node.inputs or node.fan_out is not None or node.join != "all" or not node.required or node.fan_in:
            yield f"only node {name!r} with inputs, fan-out or a join"


def _unserved(pipeline: PipelinePlan) -> Iterator[str]:
    yield from _of_only_node(pipeline)
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


def _of_order(gear: Gear) -> Iterator[str]:
    if gear.order not in (UNSET, "arrival"):
        yield f"order by {gear.order}"
    if gear.answer_by_margin_s is not UNSET:
        yield "answer_by_margin_s"
