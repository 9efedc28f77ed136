"""The expected quality of a request by the time that is left for it: the tables of replanning.

Made backwards through the graph, by dynamic programming over whole milliseconds. A row's quality
is the product of the qualities of all its items, and 0 if the output is late, so a node's table is
its own quality times that of what is left after it:

    begun(n, i, t) = sum over outcomes of i:  share x quality x after(n, t - run time)
    best(n, t)     = max over i of begun(n, i, t)
    after(n, t)    = sum over branches of n:
                         share x product over m in the branch: best(m, t) ^ (rows / parts)

A branch is a set of edges that are live together. `parts` is how many live edges m waits for: each
counts for its part, so that what comes after a join counts once. Waits in queues are no part of it:
`policies/replanning.py` takes them off.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from graphlib import TopologicalSorter

import numpy as np
from numpy.typing import NDArray

from gearshift.cascade import Cascade, TimedQuality
from gearshift.pipeline import Edge, Node, scopes_of
from gearshift.planner.joint.composed import Answers, ComposedQuery, Doubles, answers, composed_query
from gearshift.planner.joint.replay import Replayed, replay, visits
from gearshift.planner.joint.request import PipelineRequest
from gearshift.profiles.profile import PART_A

Floats = NDArray[np.float64]

LONGEST_MS = 60_000
"""The longest tables: with more time left, the last entry counts."""


@dataclass(frozen=True, slots=True)
class Outcomes:
    """How an implementation may end: run times (k,) in whole ms, their shares, and mean quality."""

    run_ms: NDArray[np.int64]
    share: Floats
    quality: Floats

    @property
    def longest_ms(self) -> int:
        return int(self.run_ms.max())


def outcomes(run_s: Floats, quality: Floats) -> Outcomes:
    """The outcomes of recorded items, from their run times (n,) in seconds and qualities (n,).

    Run times are rounded up to whole milliseconds, so that no table promises too much.
    """
    run_ms, place, count = np.unique(
        np.ceil(run_s * 1e3 - 1e-9).astype(np.int64), return_inverse=True, return_counts=True
    )
    return Outcomes(run_ms, count / len(run_s), np.bincount(place, weights=quality) / count)


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A pipeline's graph, the outcomes of each node's implementations, and how items flow.

    `branches` are the sets of nodes to which a node's edges are live together, and the share of its
    items for which they are; all edges where a node is missing. `rows` is the mean number of rows
    of a fan-out.
    """

    nodes: Mapping[str, Node]
    edges: Sequence[Edge]
    outcomes: Mapping[str, Sequence[Outcomes]]
    branches: Mapping[str, Mapping[frozenset[str], float]] = field(default_factory=dict)
    rows: Mapping[str, float] = field(default_factory=dict)

    def branches_of(self, node: str) -> Mapping[frozenset[str], float]:
        return self.branches.get(node) or {frozenset(edge.to for edge in self.edges if edge.from_ == node): 1.0}


def timed_quality(query: Query) -> dict[str, tuple[TimedQuality, ...]]:
    """The table of each implementation of each node."""
    begun = _begun(query)
    return {
        node: tuple(
            _compressed(curve, each.longest_ms) for curve, each in zip(curves, query.outcomes[node], strict=True)
        )
        for node, curves in begun.items()
    }


def best_quality(query: Query, within_ms: int) -> float:
    """The expected quality of a request that begins with this much time and never waits."""
    begun, parts = _begun(query), _parts(query)
    at = min(within_ms, len(next(iter(begun.values()))[0]) - 1)
    entries = set(query.nodes) - {edge.to for edge in query.edges}
    best = {name: max(float(curve[at]) for curve in begun[name]) for name in entries}
    return float(np.prod([best[name] ** (query.rows.get(name, 1.0) / parts.get(name, 1.0)) for name in entries]))


def _begun(query: Query) -> dict[str, list[Floats]]:
    before: dict[str, list[str]] = {name: [] for name in query.nodes}
    for edge in query.edges:
        before[edge.to].append(edge.from_)
    order = list(TopologicalSorter(before).static_order())
    longest: dict[str, int] = {}
    for name in order:
        own = max(each.longest_ms for each in query.outcomes[name])
        longest[name] = own + max((longest[source] for source in before[name]), default=0)
    times = min(LONGEST_MS, max(longest.values())) + 1
    parts, begun, best = _parts(query), dict[str, list[Floats]](), dict[str, Floats]()
    for name in reversed(order):
        after = np.zeros(times)
        for branch, share in query.branches_of(name).items():
            together = np.full(times, share)
            for to in branch:
                together *= best[to] ** (query.rows.get(to, 1.0) / parts[to])
            after += together
        begun[name] = [_delayed(each, after) for each in query.outcomes[name]]
        best[name] = np.max(begun[name], axis=0)
    return begun


def _delayed(implementation: Outcomes, after: Floats) -> Floats:
    begun = np.zeros_like(after)
    for run_ms, share, quality in zip(
        implementation.run_ms.tolist(), implementation.share, implementation.quality, strict=True
    ):
        if run_ms < len(after):
            begun[run_ms:] += share * quality * after[: len(after) - run_ms]
    return begun


def _parts(query: Query) -> dict[str, float]:
    """How many live edges each node waits for when it runs, on average, rows of fan-outs included."""
    scopes = scopes_of(query.nodes, query.edges)
    parts: dict[str, float] = dict.fromkeys(query.nodes, 0.0)
    for edge in query.edges:
        live = sum(share for branch, share in query.branches_of(edge.from_).items() if edge.to in branch)
        opener = scopes[edge.from_].opener
        parts[edge.to] += live * (query.rows.get(opener, 1.0) if opener != scopes[edge.to].counted_in else 1.0)
    return {name: max(1.0, count) for name, count in parts.items()}


def _compressed(curve: Floats, longest_ms: int) -> TimedQuality:
    """The entries at which the quality changes; one of quality 0 where it never rises."""
    changes = np.flatnonzero(np.diff(curve, prepend=0.0) > 1e-12)
    kept = changes if len(changes) else np.array([longest_ms])
    return TimedQuality(
        remaining_ms=tuple(kept.tolist()), quality=tuple(curve[np.minimum(kept, len(curve) - 1)].tolist())
    )


# Recorded run times and answers of part A, from which the tables of replanning are made.

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
