"""Joint records as the kernel reads them, and the conditions of edges on recorded answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from gearshift.errors import require
from gearshift.gear import GearPlan, PipelinePlan
from gearshift.pipeline import NO_SCOPE, FanOut
from gearshift.plans.plan_tables import PipelineTables, PlanTables
from gearshift.profiles.conditions import holds
from gearshift.profiles.several import Profiles, profile_of
from gearshift.profiles.tuples import OUTERMOST, JointRecords
from gearshift.simulator.kernel.graph import TOO_MANY
from gearshift.simulator.kernel.queues import NONE

Ints = NDArray[np.int64]
Small = NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tuples:
    """The slots and items of recorded tuples, as in `kernel/graph.py`.

    Per tuple: `scope`, its first slot, and the end of the last's; `items_of`, how many items a
    request row of it may have. Per slot `first`, `items`, `edges`; per item `node`, `sample`,
    `inside`.
    """

    scope: Ints
    items_of: Ints
    first: Small
    items: Small
    edges: NDArray[np.int16]
    node: NDArray[np.int16]
    sample: Small
    inside: Small


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecordedRows:
    """The tuples of all pipelines that are graphs, those of pipeline p from `first_tuple[p]`.

    The condition of edge e holds for an answer by `holds[condition[e], model, record]`;
    `condition` is `NONE` where an edge is always live.
    """

    first_tuple: Ints
    tuples: Tuples
    condition: Ints
    holds: NDArray[np.bool_]


def is_graph(tables: PlanTables, pipeline: PipelineTables) -> bool:
    return len(pipeline.nodes) > 1 or bool(tables.graph.fans_out[pipeline.first_node])


def slot_in_scope(tables: PlanTables) -> Ints:
    """The slot of each node in the scope in which edges to it are counted; heads have slot 0."""
    slots = np.zeros(len(tables.pipeline_of), dtype=np.int64)
    taken: dict[tuple[int, int], int] = {}
    for node, scope in enumerate(zip(tables.pipeline_of.tolist(), tables.graph.counted_in.tolist(), strict=True)):
        slots[node] = taken[scope] = taken.get(scope, 0) + 1
    return slots


def recorded_rows(
    plan: GearPlan, tables: PlanTables, joint: Mapping[str, JointRecords], profiles: Profiles
) -> RecordedRows:
    """Resolve the joint records of pipelines, and the conditions on the answers that their rows name.

    Raises `InvalidInput` where a graph has no joint records, where they name samples that were not
    recorded, and where a tuple lacks an item.
    """
    for name, pipeline in plan.pipelines.items():
        if name in joint:
            _require_samples(pipeline, joint[name], profiles)
    return resolved(plan, tables, joint, _held(plan, tables, profiles))


def resolved(
    plan: GearPlan, tables: PlanTables, joint: Mapping[str, JointRecords], held: NDArray[np.bool_]
) -> RecordedRows:
    """As `recorded_rows`, with the conditions that are `held` (edges, models, records)."""
    made: list[Tuples] = []
    first_tuple: list[int] = []
    for pipeline, of_plan in zip(tables.pipelines, plan.pipelines.values(), strict=True):
        first_tuple.append(sum(len(tuples.items_of) for tuples in made))
        if is_graph(tables, pipeline):
            require(
                pipeline.name in joint,
                f"there are no joint records of pipeline {pipeline.name!r}, which has several nodes",
                remedy="record which samples of its operators belong together, or give assume_independent = true",
            )
            fan_outs = [node.fan_out for node in of_plan.nodes.values()]
            first_slot = sum(len(tuples.first) for tuples in made)
            first_item = sum(len(tuples.node) for tuples in made)
            made.append(_tuples(tables, pipeline, joint[pipeline.name], fan_outs, first_slot, first_item))
    conditional = [edge for edge, condition in enumerate(tables.graph.conditions) if condition is not None]
    condition = np.full(len(tables.graph.conditions), NONE, dtype=np.int64)
    condition[conditional] = np.arange(len(conditional))
    return RecordedRows(
        first_tuple=np.array(first_tuple),
        tuples=_together(made),
        condition=condition,
        holds=np.ascontiguousarray(held[conditional]),
    )


def _require_samples(pipeline: PipelinePlan, joint: JointRecords, profiles: Profiles) -> None:
    for number, name in enumerate(joint.nodes):
        operator = pipeline.nodes[name].operator
        samples = len(profile_of(operator, profiles).predictions.part)
        named = int(joint.row.max(where=joint.node == number, initial=0))
        require(
            named < samples,
            f"the joint records name sample {named} at node {name!r}, and {samples} samples of operator "
            f"{operator!r} were recorded",
            remedy="give the joint records and profiles that were made together",
        )


def _held(plan: GearPlan, tables: PlanTables, profiles: Profiles) -> NDArray[np.bool_]:
    """Whether the condition of each edge holds (edges, models, records); True without one."""
    nodes = [node for pipeline in plan.pipelines.values() for node in pipeline.nodes.values()]
    predictions = [profile_of(node.operator, profiles).predictions for node in nodes]
    records = max(len(each.part) for each in predictions)
    met = np.ones((len(tables.graph.edge_to), len(tables.models), records), dtype=np.bool_)
    for node, (begin, end) in enumerate(pairwise(tables.graph.edge_begin.tolist())):
        own = predictions[node]
        placed = [(tables.models.index(m), row) for row, m in enumerate(own.models) if m in tables.models]
        for edge in range(begin, end):
            when = tables.graph.conditions[edge]
            if when is not None:
                of_models = holds(when, own)
                for model, row in placed:
                    met[edge, model, : len(own.part)] = of_models[row]
    return met


def _together(made: Sequence[Tuples]) -> Tuples:
    columns = ("items_of", "first", "items", "edges", "node", "sample", "inside")
    ends = [tuples.scope[:-1] for tuples in made] + [made[-1].scope[-1:]]
    return Tuples(
        scope=np.concatenate(ends), **{name: np.concatenate([getattr(t, name) for t in made]) for name in columns}
    )


def _tuples(
    tables: PlanTables,
    pipeline: PipelineTables,
    joint: JointRecords,
    fan_outs: Sequence[FanOut | None],
    first_slot: int,
    first_item: int,
) -> Tuples:
    graph, slot_of = tables.graph, slot_in_scope(tables)
    nodes = np.arange(pipeline.first_node, pipeline.first_node + len(pipeline.nodes))
    numbers = {name: pipeline.first_node + i for i, name in enumerate(pipeline.nodes)}
    node = np.array([numbers[name] for name in joint.nodes])[joint.node]
    of_tuple, around = joint.tuple_of, joint.item_around
    fans_out = graph.fans_out[node]

    # Where the scope of each tuple, and of each item of a fan-out, begins.
    length = {opener: 1 + int((graph.counted_in[nodes] == opener).sum()) for opener in (NO_SCOPE, *nodes.tolist())}
    lengths = np.where(fans_out, np.array([length[n] for n in range(nodes[0], nodes[-1] + 1)])[node - nodes[0]], 0)
    before = np.concatenate([[0], np.cumsum(lengths)])
    scope = first_slot + before[joint.begin] + length[NO_SCOPE] * np.arange(len(joint.begin))
    own = first_slot + before[:-1] + length[NO_SCOPE] * (of_tuple + 1)
    outer = np.where(around == OUTERMOST, scope[of_tuple], own[around])

    # The items of each slot, one after another.
    slots = int(scope[-1]) - first_slot
    at = outer + slot_of[node] - first_slot
    order = np.argsort(at, kind="stable")
    items = np.bincount(at, minlength=slots)
    first = first_item + np.cumsum(items) - items
    heads = np.concatenate([scope[:-1], own[fans_out]]) - first_slot
    opener = np.concatenate([np.full(len(joint), NO_SCOPE), node[fans_out]])
    first[heads] = np.concatenate([np.full(len(joint), NONE), outer[fans_out]])

    edges = np.zeros(slots, dtype=np.int16)
    for name, fan_out, number in zip(pipeline.nodes, fan_outs, nodes.tolist(), strict=True):
        own_slots = heads[opener == graph.counted_in[number]] + slot_of[number]
        edges[own_slots] = graph.edges_to[number]
        if fan_out is None:
            short = own_slots[items[own_slots] != 1]
            lacking = np.searchsorted(scope - first_slot, short, side="right") - 1
            require(
                not len(short),
                f"tuple {joint.names[lacking[0]]!r} does not have one item at node {name!r} for each run of it"
                if len(short)
                else "",
                remedy="record every node of the pipeline, also where no edge would lead to it",
            )
        else:
            beyond = own_slots[items[own_slots] > fan_out.most]
            items[beyond] = fan_out.most if fan_out.beyond == "cut" else TOO_MANY
    return Tuples(
        scope=scope,
        items_of=np.diff(joint.begin),
        first=first.astype(np.int32),
        items=items.astype(np.int32),
        edges=edges,
        node=node[order].astype(np.int16),
        sample=joint.row[order].astype(np.int32),
        inside=np.where(fans_out, own, outer)[order].astype(np.int32),
    )
