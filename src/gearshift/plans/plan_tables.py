"""A gear plan as indices and flat arrays, from which decisions are made."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray

from gearshift.cascade import Cascade, TimedQuality
from gearshift.clock import NS_PER_S, to_ns
from gearshift.errors import require
from gearshift.gear import (
    METER_ALPHA,
    METER_BACKLOG,
    SHARE_UNIT,
    GearPlan,
    LoadRange,
    ReplicaSettings,
)
from gearshift.plans.graph_tables import GraphTables, graph_tables
from gearshift.plans.refine_tables import RefineTables, alike, refine_tables
from gearshift.plans.served import require_served
from gearshift.request import NO_DEADLINE_NS

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
    where nothing starves. The objective wants answers within `answer_within_ns`, `NO_DEADLINE_NS`
    without one.
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
    answer_within_ns: int
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
    pipeline has row `first_row[n] + g`, and its cascades, from cheap to dear, are choices
    `choice_begin[row]` to `choice_begin[row + 1]`; the choice of a plan with one cascade for each
    node and gear is its row. Per choice and stage, row-major with `most_stages` columns:
    `stage_models` (-1 beyond the last), `thresholds`, and `prefixes` (the models up to this stage,
    as bits); per choice and model `stage_of` (-1 where the cascade lacks it); per choice
    `stage_count`. `pipeline_of` (nodes,) is a node's pipeline.

    Where some node has several cascades, those of choice c have the table of
    `policies/replanning.py` from `table_begin[c]` to `table_begin[c + 1]`: `table_ns`, which rise,
    and `table_quality`; `margin_ns` per gear is taken off the time that is left.

    Per gear and replica: `shares` (a model's add up to `SHARE_UNIT`), `minimum_queue_length` (1
    where the share is 0), `largest_batch_size`, `longest_wait_ns`, and `cores`, empty unless cores
    change with the gear. Where several pipelines use a replica, `policies/sharing.py` says which
    settings are in force. `starvation_ns` (replicas,) is the shortest of the pipelines that use the
    replica, 0 where none has one. The replicas of device d are `on_device` from
    `on_device_begin[d]`; the devices of replica r are `spans` from `spans_begin[r]`. `alike`
    (replicas,) is the first replica of the same model on the same kind of device.
    """

    pipelines: tuple[PipelineTables, ...]
    models: tuple[str, ...]
    replica_ids: tuple[str, ...]
    device_ids: tuple[str, ...]
    replica_model: Ints
    alike: Ints
    model_begin: Ints
    on_device: Ints
    on_device_begin: Ints
    spans: Ints
    spans_begin: Ints
    starvation_ns: Ints
    graph: GraphTables
    pipeline_of: Ints
    first_row: Ints
    choice_begin: Ints
    most_stages: int
    stage_count: Ints
    stage_models: Ints
    thresholds: Floats
    prefixes: Ints
    stage_of: Ints
    table_begin: Ints
    table_ns: Ints
    table_quality: Floats
    margin_ns: Ints
    shares: Ints
    minimum_queue_length: Ints
    largest_batch_size: Ints
    longest_wait_ns: Ints
    cores: Ints
    refine: RefineTables

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

    def unscaled(self) -> "PlanTables":
        """The same without load scaling."""
        return replace(self, pipelines=tuple(replace(each, scale_minutes=0) for each in self.pipelines))

    def model_of(self, replica: int) -> str:
        return self.models[int(self.replica_model[replica])]

    def devices_of(self, replica: int) -> list[str]:
        begin, end = self.spans_begin[replica], self.spans_begin[replica + 1]
        return [self.device_ids[device] for device in self.spans[begin:end]]

    @property
    def chooses(self) -> bool:
        """Whether some node may use one of several cascades."""
        return len(self.stage_count) >= len(self.choice_begin)

    def cascades(self, gear: int, node: int = 0) -> tuple[Cascade, ...]:
        """The cascades that `node` may use in `gear` of its pipeline, from cheap to dear."""
        row = int(self.first_row[node]) + gear
        return tuple(self._cascade(choice) for choice in range(self.choice_begin[row], self.choice_begin[row + 1]))

    def cascade(self, gear: int, node: int = 0) -> Cascade:
        """The only cascade of `node` in `gear` of its pipeline, or the cheapest of several."""
        return self._cascade(int(self.choice_begin[int(self.first_row[node]) + gear]))

    def _cascade(self, choice: int) -> Cascade:
        first, stages = choice * self.most_stages, int(self.stage_count[choice])
        models = tuple(self.models[model] for model in self.stage_models[first : first + stages])
        return Cascade(models=models, thresholds=tuple(self.thresholds[first : first + stages - 1].tolist()))

    def models_used_by(self, pipeline: int) -> frozenset[str]:
        """The models of this pipeline's cascades, and those that no pipeline uses."""
        used: list[set[str]] = [set() for _ in self.pipelines]
        for node, of in enumerate(self.pipeline_of.tolist()):
            for gear in range(self.pipelines[of].gears):
                used[of].update(model for cascade in self.cascades(gear, node) for model in cascade.models)
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
        alike=alike(plan, replicas),
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
        refine=refine_tables(plan, replicas, index),
        **_cascade_rows(plan, index),
        **_timed_tables(plan),
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
            answer_within_ns=NO_DEADLINE_NS
            if pipeline.objective.latency_s is None
            else to_ns(pipeline.objective.latency_s),
            planned_shares=np.array([] if planned is None else planned.shares, dtype=np.float64),
            scale_minutes=0 if planned is None or not pipeline.scales_load else minutes_of(planned.over_s),
        )
        gears += len(pipeline.gears)
        nodes += len(pipeline.nodes)


def _cascade_rows(plan: GearPlan, index: Mapping[str, int]) -> dict[str, Any]:
    """The cascades of all nodes in all gears, a node's one after another."""
    of_nodes = [
        [gear.cascades[node] for gear in pipeline.gears]
        for pipeline in plan.pipelines.values()
        for node in pipeline.nodes
    ]
    rows = [allowed for of_node in of_nodes for allowed in of_node]
    cascades = [cascade for allowed in rows for cascade in allowed]
    most_stages = max(len(cascade.models) for cascade in cascades)
    stage_models = np.full((len(cascades), most_stages), -1)
    prefixes = np.zeros((len(cascades), most_stages), dtype=np.int64)
    thresholds = np.zeros((len(cascades), most_stages))
    stage_of = np.full((len(cascades), len(index)), -1)
    for choice, cascade in enumerate(cascades):
        visited = 0
        for stage, model in enumerate(cascade.models):
            visited |= 1 << index[model]
            stage_models[choice, stage] = index[model]
            prefixes[choice, stage] = visited
            stage_of[choice, index[model]] = stage
        thresholds[choice, : len(cascade.thresholds)] = cascade.thresholds
    return {
        "first_row": _begins(of_nodes)[:-1],
        "choice_begin": _begins(rows),
        "most_stages": most_stages,
        "stage_count": np.array([len(cascade.models) for cascade in cascades], dtype=np.int64),
        "stage_models": stage_models.ravel().astype(np.int64),
        "thresholds": thresholds.ravel(),
        "prefixes": prefixes.ravel(),
        "stage_of": stage_of.ravel().astype(np.int64),
    }


def _timed_tables(plan: GearPlan) -> dict[str, Any]:
    """The tables of all cascades, empty for a gear that has none."""
    gears = [gear for pipeline in plan.pipelines.values() for gear in pipeline.gears]
    none = TimedQuality(remaining_ms=(0,), quality=(0.0,))
    tables = [
        table
        for pipeline in plan.pipelines.values()
        for node in pipeline.nodes
        for gear in pipeline.gears
        for table in ([none] * len(gear.cascades[node]) if gear.timed is UNSET else gear.timed[node])
    ]
    return {
        "table_begin": _begins([table.remaining_ms for table in tables]),
        "table_ns": np.array([ms for table in tables for ms in table.remaining_ms], dtype=np.int64)
        * (NS_PER_S // 1000),
        "table_quality": np.array([quality for table in tables for quality in table.quality], dtype=np.float64),
        "margin_ns": np.array([0 if g.margin_s is UNSET else to_ns(g.margin_s) for g in gears], dtype=np.int64),
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


def _begins(lists: Sequence[Sequence[object]]) -> Ints:
    return np.concatenate([[0], np.cumsum([len(items) for items in lists])]).astype(np.int64)
