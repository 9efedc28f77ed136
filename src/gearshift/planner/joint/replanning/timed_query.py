"""Recorded run times and answers of part A, from which the tables of replanning are made."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from gearshift.cascade import Cascade
from gearshift.planner.joint.answers import Answers, Doubles, answers
from gearshift.planner.joint.composed import ComposedQuery, composed_query
from gearshift.planner.joint.replanning.timed_quality import Outcomes, Query, outcomes
from gearshift.planner.joint.replay import Replayed, replay, visits
from gearshift.planner.joint.request import PipelineRequest
from gearshift.profiles.profile import PART_A

Bools = NDArray[np.bool_]

SECONDS_DIGITS = 6
"""Run times are summed as float32, and must not seem a microsecond, and so a millisecond, longer."""


def timed_query(
    request: PipelineRequest, cascades: Mapping[str, Sequence[Cascade]], run_s: Mapping[str, float | Doubles]
) -> Query:
    """The outcomes of each node's `cascades`, on items that are visited with the most accurate ones.

    `run_s` is how long one item of a model runs alone; with learned caches, each recorded sample's.
    """
    predictions = {operator: profile.predictions for operator, profile in request.profiles.items()}
    query = composed_query(request.nodes, request.edges, request.output, request.records, predictions, part=PART_A)
    found = {node: answers(query, node, cascades[node], run_s) for node in query.places}
    best = {node: each.of([int(each.quality.mean(axis=1).argmax())]) for node, each in found.items()}
    replayed = replay(query, best)
    visited = {node: _visited(query, node, replayed) for node in query.places}
    return Query(
        nodes=request.nodes,
        edges=request.edges,
        outcomes={node: _outcomes(each, visited[node]) for node, each in found.items()},
        branches={node: _branches(request, node, each, visited[node]) for node, each in best.items()},
        rows={
            node: _rows(query, node, replayed, visited[node]) for node in request.nodes if request.nodes[node].fan_out
        },
    )


def allowing(query: Query, allowed: Mapping[str, Sequence[int]]) -> Query:
    """The same query with some of each node's implementations, in that order."""
    return replace(query, outcomes={node: [query.outcomes[node][i] for i in allowed[node]] for node in query.nodes})


def _visited(query: ComposedQuery, node: str, replayed: Replayed) -> Bools:
    """The slots (slots,) at which the node is visited; all where it never is."""
    visited: Bools = np.broadcast_to(visits(query, node, replayed), (1, query.slots(query.places[node].scope)))[0]
    return visited if visited.any() else np.ones_like(visited)


def _outcomes(found: Answers, visited: Bools) -> list[Outcomes]:
    run_s = found.work_s[:, visited].astype(np.float64).round(SECONDS_DIGITS)
    return [outcomes(*each) for each in zip(run_s, found.quality[:, visited].astype(np.float64), strict=True)]


def _branches(request: PipelineRequest, node: str, best: Answers, visited: Bools) -> dict[frozenset[str], float]:
    """The sets of nodes to which the node's edges are live together, and how often they are."""
    to = [edge.to for edge in request.edges if edge.from_ == node]
    if not to:
        return {}
    live = np.array([np.broadcast_to(each, (1, len(visited)))[0] for each in best.live])
    counted = Counter(map(tuple, live[:, visited].T.tolist()))
    return {
        frozenset(name for name, taken in zip(to, branch, strict=True) if taken): count / counted.total()
        for branch, count in counted.items()
    }


def _rows(query: ComposedQuery, node: str, replayed: Replayed, visited: Bools) -> float:
    """The mean number of a fan-out's rows, over where it is reached."""
    slots = query.slots(query.places[node].counted_in)
    reached = int(np.broadcast_to(replayed.reached[node], (1, slots)).sum())
    return int(visited.sum()) / max(1, reached)
