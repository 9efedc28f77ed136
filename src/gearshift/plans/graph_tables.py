"""The graphs of a plan's pipelines as flat arrays; nodes are numbered over the whole plan."""

from collections.abc import Mapping
from dataclasses import dataclass
from graphlib import TopologicalSorter

import numpy as np
from numpy.typing import NDArray

from gearshift.gear import PipelinePlan
from gearshift.pipeline import NO_SCOPE, When, scopes_of

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphTables:
    """The edges from node n are `edge_begin[n]` to `edge_begin[n + 1]`, their ends later in `order`.

    Per edge: `edge_to`, and `conditions`, None where it is always live. `order` lists all nodes,
    each after those that lead to it. The entries of pipeline p are `entries` from `entry_begin[p]`.

    Per node: `edges_to` is the number of edges to it; `opener` the fan-out node whose rows it runs
    for, itself if it fans out, `NO_SCOPE` in the outermost scope; `counted_in` the opener of the
    scope in which its edges are counted. `crosses` (edges,) marks edges that leave a scope, which
    count once for each row.
    """

    is_graph: bool
    edge_begin: Ints
    edge_to: Ints
    conditions: tuple[When | None, ...]
    crosses: Bools
    order: Ints
    entries: Ints
    entry_begin: Ints
    edges_to: Ints
    opener: Ints
    counted_in: Ints
    fans_out: Bools
    joins_first: Bools
    required: Bools


def graph_tables(pipelines: Mapping[str, PipelinePlan]) -> GraphTables:
    begin, opener, counted_in = 0, [], []
    order: list[int] = []
    edges: list[list[tuple[int, When | None]]] = []
    entries: list[list[int]] = []
    for pipeline in pipelines.values():
        number = {name: begin + i for i, name in enumerate(pipeline.nodes)}
        before: dict[str, list[str]] = {name: [] for name in pipeline.nodes}
        for edge in pipeline.edges:
            before[edge.to].append(edge.from_)
        here = [number[name] for name in TopologicalSorter(before).static_order()]
        place = {node: at for at, node in enumerate(here)}
        leaving: dict[int, list[tuple[int, When | None]]] = {node: [] for node in number.values()}
        for edge in pipeline.edges:
            leaving[number[edge.from_]].append((number[edge.to], edge.when))
        edges += [sorted(leaving[node], key=lambda each: place[each[0]]) for node in number.values()]
        scopes = scopes_of(pipeline.nodes, pipeline.edges)
        for name in pipeline.nodes:
            opener.append(number.get(scopes[name].opener, NO_SCOPE))
            counted_in.append(number.get(scopes[name].counted_in, NO_SCOPE))
        entries.append([number[name] for name in pipeline.nodes if not before[name]])
        order += here
        begin += len(pipeline.nodes)
    nodes = [node for pipeline in pipelines.values() for node in pipeline.nodes.values()]
    ends = [(source, to, when) for source, leaving_ in enumerate(edges) for to, when in leaving_]
    return GraphTables(
        is_graph=any(len(pipeline.nodes) > 1 for pipeline in pipelines.values()) or any(n.fan_out for n in nodes),
        edge_begin=np.cumsum([0, *(len(each) for each in edges)]).astype(np.int64),
        edge_to=np.array([to for _, to, _ in ends], dtype=np.int64),
        conditions=tuple(when for _, _, when in ends),
        crosses=np.array([counted_in[to] != opener[source] for source, to, _ in ends], dtype=np.bool_),
        order=np.array(order, dtype=np.int64),
        entries=np.array([node for each in entries for node in each], dtype=np.int64),
        entry_begin=np.cumsum([0, *(len(each) for each in entries)]).astype(np.int64),
        edges_to=np.bincount([to for _, to, _ in ends], minlength=len(nodes)).astype(np.int64),
        opener=np.array(opener, dtype=np.int64),
        counted_in=np.array(counted_in, dtype=np.int64),
        fans_out=np.array([node.fan_out is not None for node in nodes], dtype=np.bool_),
        joins_first=np.array([node.join == "first" for node in nodes], dtype=np.bool_),
        required=np.array([node.required for node in nodes], dtype=np.bool_),
    )
