"""The differences between two plans."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from gearshift.cascade import Cascade, ExpectedGain, TimedQuality
from gearshift.gear import (
    Gear,
    GearPlan,
    GearPrediction,
    LoadRange,
    Order,
    PipelinePlan,
    RefineFor,
    ReplicaSettings,
)
from gearshift.placement import Replica
from gearshift.result import ServingResult


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A value that is `a` in the first plan and `b` in the second; None where a plan lacks it."""

    what: str
    a: Any
    b: Any


class GearSide(msgspec.Struct, frozen=True, kw_only=True):
    """One plan in a load range: its cascade, settings of replicas with a share, and prediction.

    In place of `cascade`, a graph has `cascades`, those of each node. `gains` are those that a gear
    that orders by gain reads, `timed` the tables that one reads which chooses by time.
    """

    cascade: Cascade | UnsetType = UNSET
    cascades: dict[str, tuple[Cascade, ...]] | UnsetType = UNSET
    replicas: tuple[ReplicaSettings, ...]
    order: Order | UnsetType = UNSET
    answer_by_margin_s: float | UnsetType = UNSET
    refine_for: RefineFor | UnsetType = UNSET
    gains: tuple[ExpectedGain, ...] | UnsetType = UNSET
    margin_s: float | UnsetType = UNSET
    timed: dict[str, tuple[TimedQuality, ...]] | UnsetType = UNSET
    predicted: GearPrediction | None = None


class GearChange(msgspec.Struct, frozen=True, kw_only=True):
    """A load range in which the plans differ."""

    load_range: LoadRange
    a: GearSide
    b: GearSide


class PlanDiff(msgspec.Struct, frozen=True, kw_only=True):
    """All differences; `predictions` are each plan's for its pipeline, equal or not."""

    origin: tuple[Change, ...]
    objective: tuple[Change, ...]
    hardware: tuple[Change, ...]
    placement: tuple[Change, ...]
    gears: tuple[GearChange, ...]
    predictions: tuple[ServingResult | None, ServingResult | None]
    pool_cores: tuple[int | None, int | None] = (None, None)

    @property
    def same(self) -> bool:
        """Whether the plans serve alike; origin and predictions do not count."""
        return not (self.objective or self.hardware or self.placement or self.gears)


def diff(a: GearPlan, b: GearPlan) -> PlanDiff:
    """The differences between two plans of one pipeline each, of one kind."""
    names = a.name, b.name
    pipelines = a.pipelines[names[0]], b.pipelines[names[1]]
    meter = ("load_unit", "meter", "alpha", "upshift_margin", "starvation_s", "default_priority")
    pools = a.hardware.pool_cores, b.hardware.pool_cores
    serves = [
        {name: getattr(o, name) for name in meter}
        | msgspec.to_builtins(o.objective)
        | {"operator": n, "pool_cores": pool}
        | ({"worth": 1.0 if o.worth is UNSET else o.worth} if o.refines else {})
        | (msgspec.to_builtins({"nodes": o.nodes, "edges": o.edges, "output": o.output}) if o.is_graph else {})
        for o, n, pool in zip(pipelines, names, pools, strict=True)
    ]
    return PlanDiff(
        origin=_changes(*(_origin(plan) for plan in (a, b))),
        objective=_changes(*serves),
        hardware=_changes(*({d.id: msgspec.to_builtins(d) for d in plan.hardware.devices} for plan in (a, b))),
        placement=_changes(*(_copies(plan) for plan in (a, b))),
        gears=_gear_changes(*pipelines),
        predictions=(a.predictions.get(names[0]), b.predictions.get(names[1])),
        pool_cores=pools,
    )


def _origin(plan: GearPlan) -> dict[str, Any]:
    several = len(plan.profiles) > 1
    return {
        "planner": plan.planner,
        "seed": plan.seed,
        **{f"profile of {name}" if several else "profile": source.sha256 for name, source in plan.profiles.items()},
        "trace": next(iter(plan.traces.values())).sha256,
        "unfinished": plan.unfinished,
    }


def _copies(plan: GearPlan) -> dict[str, int]:
    return dict(Counter(f"{r.model} on {' + '.join(r.device_ids)}{_room(r)}" for r in plan.placement.replicas))


def _room(replica: Replica) -> str:
    return "" if replica.kv_tokens is UNSET else f" with {replica.kv_tokens:,} tokens of context"


def _changes(a: Mapping[str, Any], b: Mapping[str, Any]) -> tuple[Change, ...]:
    return tuple(Change(what=name, a=a.get(name), b=b.get(name)) for name in {**a, **b} if a.get(name) != b.get(name))


def _gear_changes(a: PipelinePlan, b: PipelinePlan) -> tuple[GearChange, ...]:
    """Compare ranges between the boundaries of both plans; join neighbours that change alike.

    Loads in different units cannot be compared, and then nothing is.
    """
    if a.load_unit != b.load_unit:
        return ()
    starts = sorted({gear.load_range.from_ for gear in (*a.gears, *b.gears)})
    found: list[GearChange] = []
    for start, end in zip(starts, [*starts[1:], None], strict=True):
        sides = _side(a, start), _side(b, start)
        if _alike(*sides):
            continue
        change = GearChange(load_range=LoadRange(from_=start, to=end), a=sides[0], b=sides[1])
        last = found[-1] if found else None
        if last and last.load_range.to == start and all(map(_alike, (last.a, last.b), sides)):
            whole = LoadRange(from_=last.load_range.from_, to=end)
            found[-1] = msgspec.structs.replace(change, load_range=whole)
        else:
            found.append(change)
    return tuple(found)


def _side(pipeline: PipelinePlan, load_qps: float) -> GearSide:
    gear = next(g for g in reversed(pipeline.gears) if g.load_range.from_ <= load_qps)
    used = sorted((s for s in gear.replicas if s.load_share > 0), key=lambda s: s.replica)
    several = len(gear.cascades) > 1 or any(len(each) > 1 for each in gear.cascades.values())
    return GearSide(
        cascade=UNSET if several else gear.cascade,
        cascades=dict(gear.cascades) if several else UNSET,
        replicas=tuple(used),
        predicted=gear.predicted,
        **_while_waiting(gear, pipeline),
    )


def _while_waiting(gear: Gear, pipeline: PipelinePlan) -> dict[str, Any]:
    """The settings by which items wait, are refined and choose a cascade; only those that the gear reads."""
    found: dict[str, Any] = {"margin_s": gear.margin_s, "timed": gear.timed}
    if gear.order != "gain":
        return found
    return found | {
        "order": "gain",
        "answer_by_margin_s": 0.0 if gear.answer_by_margin_s is UNSET else gear.answer_by_margin_s,
        "refine_for": "gain" if gear.refine_for is UNSET else gear.refine_for,
        "gains": _read_by(gear, pipeline.gains),
    }


def _read_by(gear: Gear, gains: tuple[ExpectedGain, ...] | UnsetType) -> tuple[ExpectedGain, ...] | UnsetType:
    if gains is UNSET:
        return UNSET
    used = {model for cascades in gear.cascades.values() for cascade in cascades for model in cascade.models}
    return tuple(sorted((g for g in gains if {g.kept, g.later} <= used), key=lambda g: (g.kept, g.later)))


def _alike(one: GearSide, other: GearSide) -> bool:
    return msgspec.structs.replace(one, predicted=other.predicted) == other
