"""The arrays of graphs as a run begins."""

from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from gearshift.plans.plan_tables import PlanTables
from gearshift.simulator.kernel.graph import Graph
from gearshift.simulator.kernel.queues import NONE
from gearshift.simulator.kernel.recorded_rows import RecordedRows, is_graph, slot_in_scope
from gearshift.workload import Workload

Ints = NDArray[np.int64]


def recorded_tuples(tables: PlanTables, workload: Workload, recorded: RecordedRows) -> Ints:
    """The number of the tuple of each request row, `NONE` for pipelines of one node."""
    of_graph = np.array([is_graph(tables, pipeline) for pipeline in tables.pipelines])
    pipeline = np.zeros(len(workload), dtype=np.int8) if workload.pipeline is None else workload.pipeline
    numbers = recorded.first_tuple[pipeline] + workload.record
    return np.where(of_graph[pipeline], numbers, NONE)


def most_items(tuples: Ints, recorded: RecordedRows) -> int:
    """How many items the request rows of these tuples may have together; at least 1."""
    return max(1, int(recorded.tuples.items_of[tuples[tuples != NONE]].sum()))


def make_graph(tables: PlanTables, tuples: Ints, of: RecordedRows) -> Graph:
    """The graphs of a run, whose request rows have these `tuples`."""
    graph, rows = tables.graph, len(tuples)
    items = rows + most_items(tuples, of)
    slots = np.diff(of.tuples.scope)
    in_graph = tuples != NONE
    blocks = np.zeros(rows, dtype=np.int64)
    blocks[in_graph] = slots[tuples[in_graph]]
    base = np.cumsum(blocks) - blocks
    base[in_graph] -= of.tuples.scope[tuples[in_graph]]
    run_slots = int(blocks.sum())
    place = np.empty(len(graph.order), dtype=np.int64)
    place[graph.order] = np.arange(len(graph.order))
    closers = _closers(tables)
    nodes = [len(pipeline.nodes) for pipeline in tables.pipelines]
    return Graph(
        edge_begin=graph.edge_begin,
        edge_to=graph.edge_to,
        crosses=graph.crosses,
        condition=of.condition,
        holds=of.holds,
        order=graph.order,
        order_begin=np.array([0, *accumulate(nodes)]),
        place=place,
        slot=slot_in_scope(tables),
        closers=np.array([node for each in closers for node in each], dtype=np.int64),
        closers_begin=np.array([0, *accumulate(map(len, closers))]),
        joins=np.array([_joins(tables, node) for node in range(len(nodes_of(tables)))]),
        joins_first=graph.joins_first,
        fans_out=graph.fans_out,
        required=graph.required,
        output=np.array([pipeline.output for pipeline in tables.pipelines]),
        is_graph=np.array([is_graph(tables, pipeline) for pipeline in tables.pipelines]),
        first_tuple=of.first_tuple,
        scope=of.tuples.scope,
        first=of.tuples.first,
        items=of.tuples.items,
        edges=of.tuples.edges,
        node=of.tuples.node,
        sample=of.tuples.sample,
        inside=of.tuples.inside,
        base=base,
        last=np.full(rows, NONE, dtype=np.int32),
        is_degraded=np.zeros(rows, dtype=np.int8),
        open_edges=np.zeros(run_slots, dtype=np.int32),
        live_edges=np.zeros(run_slots, dtype=np.int32),
        has_begun=np.zeros(run_slots, dtype=np.int8),
        recorded=np.zeros(items, dtype=np.int32),
        following=np.zeros(items, dtype=np.int32),
        touched=np.full(len(graph.order), NONE),
    )


def nodes_of(tables: PlanTables) -> range:
    return range(len(tables.pipeline_of))


def _closers(tables: PlanTables) -> list[list[int]]:
    """By fan-out, the nodes that close it, once for each edge to them from its rows."""
    graph, closers = tables.graph, [list[int]() for _ in nodes_of(tables)]
    for source, (begin, end) in enumerate(pairwise(graph.edge_begin.tolist())):
        for edge in range(begin, end):
            if graph.crosses[edge]:
                closers[graph.opener[source]].append(int(graph.edge_to[edge]))
    return closers


def _joins(tables: PlanTables, node: int) -> bool:
    graph = tables.graph
    return bool(graph.edges_to[node] > 1 or graph.crosses[graph.edge_to == node].any())
