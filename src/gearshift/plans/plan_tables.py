"""A gear plan as indices and flat arrays, from which decisions are made."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray

from gearshift.cascade import Cascade
from gearshift.clock import to_ns
from gearshift.errors import InvalidInput, require
from gearshift.gear import (
    METER_ALPHA,
    METER_BACKLOG,
    SHARE_UNIT,
    Gear,
    GearPlan,
    LoadRange,
    PipelinePlan,
    ReplicaSettings,
)
from gearshift.objective import Objective
from gearshift.plans.graph_tables import GraphTables, graph_tables

MOST_MODELS = 62
"""Visited models are bits of one int64."""

MINUTES_PER_DAY = 24 * 60

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineTables:
    """One pipeline: its rows in the arrays of `PlanTables`, its load ranges and its meter.

    Its gear g is row `first_gear + g` of arrays by gear. Its nodes are `first_node` and those after
    it, named `nodes`; `output` is the number of the one that answers. `planned_shares` (gears,) are
    the shares of time that the plan was made for; empty if unknown. `scale_minutes` is over how
    many minutes of load its factor is estimated, 0 where load is not scaled. `starvation_ns` is 0
    where nothing starves.
    """

    name: str
    number: int
    first_gear: int
    first_node: int
    nodes: tuple[str, ...]
    output: int
    range_starts: Floats
    meter: int
    alpha: float
    upshift_margin: float
    starvation_ns: int
    planned_shares: Floats
    scale_minutes: int

    @property
    def gears(self) -> int:
        return len(self.range_starts)

    def load_range(self, gear: int) -> LoadRange:
        to = float(self.range_starts[gear + 1]) if gear + 1 < self.gears else None
        return LoadRange(from_=float(self.range_starts[gear]), to=to)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTables:
    """A gear plan as flat arrays; replicas are sorted by model, nodes and gears by pipeline.

    The replicas of model m are `model_begin[m]` to `model_begin[m + 1]`. Node n in gear g of its
    pipeline has row `first_row[n] + g` of the cascades: per row and stage, row-major with
    `most_stages` columns, `stage_models` (-1 beyond the last) and `thresholds`; per row and model
    `stage_of` (-1 where the cascade lacks it); per row `stage_count`. `pipeline_of` (nodes,) is a
    node's pipeline.

    Per gear and replica: `shares` (a model's add up to `SHARE_UNIT`), `minimum_queue_length` (1
    where the share is 0), `largest_batch_size`, `longest_wait_ns`, and `cores`, empty unless cores
    change with the gear. Where several pipelines use a replica, `policies/sharing.py` says which
    settings are in force. `starvation_ns` (replicas,) is the shortest of the pipelines that use the
    replica, 0 where none has one. The replicas of device d are `on_device` from
    `on_device_begin[d]`; the devices of replica r are `spans` from `spans_begin[r]`.
    """

    pipelines: tuple[PipelineTables, ...]
    models: tuple[str, ...]
    replica_ids: tuple[str, ...]
    device_ids: tuple[str, ...]
    replica_model: Ints
    model_begin: Ints
    on_device: Ints
    on_device_begin: Ints
    spans: Ints
    spans_begin: Ints
    starvation_ns: Ints
    graph: GraphTables
    pipeline_of: Ints
    first_row: Ints
    most_stages: int
    stage_count: Ints
    stage_models: Ints
    thresholds: Floats
    stage_of: Ints
    shares: Ints
    minimum_queue_length: Ints
    largest_batch_size: Ints
    longest_wait_ns: Ints
    cores: Ints

    @property
    def pipeline(self) -> PipelineTables:
        """The only pipeline; raises `InvalidInput` for a plan of several."""
        names = [pipeline.name for pipeline in self.pipelines]
        require(len(names) == 1, f"the plan has pipelines {names}, and one is needed here", remedy="split the plan")
        return self.pipelines[0]

    def pipeline_named(self, name: str) -> PipelineTables:
        """Raises `InvalidInput` if the plan has no such pipeline."""
        names = [pipeline.name for pipeline in self.pipelines]
        require(name in names, f"the plan has no pipeline {name!r}", remedy=f"name one of {', '.join(names)}")
        return self.pipelines[names.index(name)]

    @property
    def gear_pipelines(self) -> Iterator[PipelineTables]:
        """The pipeline of each row of the arrays by gear."""
        return (pipeline for pipeline in self.pipelines for _ in range(pipeline.gears))

    def unscaled(self) -> "PlanTables":
        """The same without load scaling."""
        return replace(self, pipelines=tuple(replace(each, scale_minutes=0) for each in self.pipelines))

    def model_of(self, replica: int) -> str:
        return self.models[int(self.replica_model[replica])]

    def devices_of(self, replica: int) -> list[str]:
        begin, end = self.spans_begin[replica], self.spans_begin[replica + 1]
        return [self.device_ids[device] for device in self.spans[begin:end]]

    def cascade(self, gear: int, node: int = 0) -> Cascade:
        """The cascade of `node` in `gear` of its pipeline."""
        row = int(self.first_row[node]) + gear
        first, stages = row * self.most_stages, int(self.stage_count[row])
        models = tuple(self.models[model] for model in self.stage_models[first : first + stages])
        return Cascade(models=models, thresholds=tuple(self.thresholds[first : first + stages - 1].tolist()))

    def models_used_by(self, pipeline: int) -> frozenset[str]:
        """The models of this pipeline's cascades, and those that no pipeline uses."""
        used: list[set[str]] = [set() for _ in self.pipelines]
        for node, of in enumerate(self.pipeline_of.tolist()):
            for gear in range(self.pipelines[of].gears):
                used[of].update(self.cascade(gear, node).models)
        return frozenset(self.models).difference(*used) | used[pipeline]


def plan_tables(plan: GearPlan) -> PlanTables:
    """Resolve all pipelines' gears; raises `InvalidInput` for what this version does not serve."""
    require_served(plan)
    models = plan.placement.models
    require(
        len(models) <= MOST_MODELS, f"the plan has {len(models)} models, at most {MOST_MODELS} can be served together"
    )
    index = {model: m for m, model in enumerate(models)}
    replicas = sorted(plan.placement.replicas, key=lambda r: (index[r.model], r.id))
    device_ids = tuple(device.id for device in plan.hardware.devices)
    device_index = {device_id: d for d, device_id in enumerate(device_ids)}
    spans = [sorted(device_index[d] for d in replica.device_ids) for replica in replicas]
    on_device: list[list[int]] = [[] for _ in device_ids]
    for r, devices in enumerate(spans):
        for d in devices:
            on_device[d].append(r)
    model_of_replica = np.array([index[r.model] for r in replicas], dtype=np.int64)
    model_begin = np.searchsorted(model_of_replica, np.arange(len(models) + 1)).astype(np.int64)
    replica_ids = tuple(replica.id for replica in replicas)
    pipelines = tuple(_pipelines(plan))
    gears = [gear for pipeline in plan.pipelines.values() for gear in pipeline.gears]
    distinct = {id(gear.replicas): gear.replicas for gear in gears}  # many gears may share their settings
    rows = {key: _settings_rows(settings, replica_ids, model_begin.tolist()) for key, settings in distinct.items()}
    shares, minimum, largest, longest_wait_ns, cores = np.stack([rows[id(gear.replicas)] for gear in gears], axis=1)
    return PlanTables(
        pipelines=pipelines,
        models=models,
        replica_ids=replica_ids,
        device_ids=device_ids,
        replica_model=model_of_replica,
        model_begin=model_begin,
        on_device=_flat(on_device),
        on_device_begin=_begins(on_device),
        spans=_flat(spans),
        spans_begin=_begins(spans),
        starvation_ns=_starvation_ns(plan, pipelines, model_of_replica, index),
        graph=graph_tables(plan.pipelines),
        pipeline_of=np.array([p.number for p in pipelines for _ in p.nodes], dtype=np.int64),
        shares=shares.ravel(),
        minimum_queue_length=minimum.ravel(),
        largest_batch_size=largest.ravel(),
        longest_wait_ns=longest_wait_ns.ravel(),
        cores=cores.ravel() if plan.hardware.pool_cores is not None else np.zeros(0, dtype=np.int64),
        **_cascade_rows(plan, index),
    )


def _pipelines(plan: GearPlan) -> Iterator[PipelineTables]:
    gears = nodes = 0
    for number, (name, pipeline) in enumerate(plan.pipelines.items()):
        planned = pipeline.planned_load
        yield PipelineTables(
            name=name,
            number=number,
            first_gear=gears,
            first_node=nodes,
            nodes=tuple(pipeline.nodes),
            output=nodes + list(pipeline.nodes).index(pipeline.output),
            range_starts=np.array([gear.load_range.from_ for gear in pipeline.gears], dtype=np.float64),
            meter=METER_ALPHA if pipeline.meter == "alpha" else METER_BACKLOG,
            alpha=pipeline.alpha,
            upshift_margin=pipeline.upshift_margin,
            starvation_ns=0 if pipeline.starvation_s is None else to_ns(pipeline.starvation_s),
            planned_shares=np.array([] if planned is None else planned.shares, dtype=np.float64),
            scale_minutes=0 if planned is None or not pipeline.scales_load else minutes_of(planned.over_s),
        )
        gears += len(pipeline.gears)
        nodes += len(pipeline.nodes)


def _cascade_rows(plan: GearPlan, index: Mapping[str, int]) -> dict[str, Any]:
    """The cascades of all nodes in all gears, a node's one after another."""
    of_nodes = [
        [gear.cascades[node][0] for gear in pipeline.gears]
        for pipeline in plan.pipelines.values()
        for node in pipeline.nodes
    ]
    cascades = [cascade for of_node in of_nodes for cascade in of_node]
    most_stages = max(len(cascade.models) for cascade in cascades)
    stage_models = np.full((len(cascades), most_stages), -1)
    thresholds = np.zeros((len(cascades), most_stages))
    stage_of = np.full((len(cascades), len(index)), -1)
    for row, cascade in enumerate(cascades):
        for stage, model in enumerate(cascade.models):
            stage_models[row, stage] = index[model]
            stage_of[row, index[model]] = stage
        thresholds[row, : len(cascade.thresholds)] = cascade.thresholds
    return {
        "first_row": np.cumsum([0, *(len(of_node) for of_node in of_nodes)])[:-1].astype(np.int64),
        "most_stages": most_stages,
        "stage_count": np.array([len(cascade.models) for cascade in cascades], dtype=np.int64),
        "stage_models": stage_models.ravel().astype(np.int64),
        "thresholds": thresholds.ravel(),
        "stage_of": stage_of.ravel().astype(np.int64),
    }


def _starvation_ns(
    plan: GearPlan, pipelines: Sequence[PipelineTables], replica_model: Ints, index: Mapping[str, int]
) -> Ints:
    shortest_ns = np.zeros(len(index), dtype=np.int64)
    for tables, pipeline in zip(pipelines, plan.pipelines.values(), strict=True):
        cascades = [c for gear in pipeline.gears for of_node in gear.cascades.values() for c in of_node]
        for m in {index[model] for cascade in cascades for model in cascade.models}:
            known = [ns for ns in (int(shortest_ns[m]), tables.starvation_ns) if ns]
            shortest_ns[m] = min(known, default=0)
    of_replicas: Ints = shortest_ns[replica_model]
    return of_replicas


def minutes_of(seconds: float) -> int:
    return min(max(1, math.ceil(seconds / 60)), MINUTES_PER_DAY)


def whole_shares(weights: Sequence[float]) -> list[int]:
    """Whole numbers in proportion to `weights` that sum to `SHARE_UNIT` (largest remainders)."""
    total = sum(weights)
    exact = [w / total * SHARE_UNIT for w in weights]
    shares = [int(e) for e in exact]
    by_remainder = sorted(range(len(exact)), key=lambda i: (shares[i] - exact[i], i))
    for i in by_remainder[: SHARE_UNIT - sum(shares)]:
        shares[i] += 1
    return shares


def _settings_rows(settings: Sequence[ReplicaSettings], replica_ids: Sequence[str], model_begin: Sequence[int]) -> Ints:
    """Settings (5, replicas) of one gear.

    Rows are shares, minimum queue lengths, largest batches, longest waits and cores. Replicas are
    sorted by model; those of a model outside the cascade have no share.
    """
    by_id = {s.replica: s for s in settings}
    row = [by_id[replica_id] for replica_id in replica_ids]
    shares: list[int] = []
    for begin, end in pairwise(model_begin):
        weights = [s.load_share for s in row[begin:end]]
        shares += whole_shares(weights) if sum(weights) > 0 else [0] * len(weights)
    minimum = [s.minimum_queue_length if s.load_share > 0 else 1 for s in row]
    largest, longest_ns = [s.largest_batch_size for s in row], [to_ns(s.longest_wait_s) for s in row]
    return np.array([shares, minimum, largest, longest_ns, [s.cores for s in row]], dtype=np.int64)


def rows_of(flat: list[int], begins: list[int]) -> list[list[int]]:
    return [flat[begin:end] for begin, end in pairwise(begins)]


def _flat(lists: list[list[int]]) -> Ints:
    return np.array([item for items in lists for item in items], dtype=np.int64)


def _begins(lists: list[list[int]]) -> Ints:
    return np.concatenate([[0], np.cumsum([len(items) for items in lists])]).astype(np.int64)


def require_served(plan: GearPlan) -> None:
    """Raise `InvalidInput` if the plan has a part that cannot be served."""
    for name, pipeline in plan.pipelines.items():
        for part in _unserved(name, pipeline):
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


def _unserved(served: str, pipeline: PipelinePlan) -> Iterator[str]:
    for name, node in pipeline.nodes.items() if len(pipeline.nodes) == 1 else ():
        if not name == node.operator == served:
            yield f"node {name!r} of operator {node.operator!r}, in place of the pipeline's name for both"
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
