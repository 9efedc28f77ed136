"""Replay a composed query: how good each recorded request row's answer is, and how much work it is."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gearshift.planner.joint.answers import Answers, rows_of
from gearshift.planner.joint.composed import TUPLE, ComposedQuery

Floats = NDArray[np.float32]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Replayed:
    """Results of k choices on each tuple; the first axis of an array is k, or 1 where all agree.

    `quality` and `work_s` (k, tuples) are the product of the qualities of all items visited so far,
    and the sum of their work. `positive` (k, tuples) is whether the result is positive; empty
    where the query has no condition for it, or has not got to its output. `reached` has for each
    node (k, slots of the scope of its edges) whether it runs, `live` for each edge from a node
    (k, slots).
    """

    quality: Floats
    work_s: Floats
    positive: Bools
    reached: dict[str, Bools]
    live: dict[str, tuple[Bools, ...]]

    def of(self, rows: Sequence[int] | Ints) -> "Replayed":
        return Replayed(
            quality=rows_of(self.quality, rows),
            work_s=rows_of(self.work_s, rows),
            positive=rows_of(self.positive, rows),
            reached={node: rows_of(each, rows) for node, each in self.reached.items()},
            live={node: tuple(rows_of(each, rows) for each in edges) for node, edges in self.live.items()},
        )

    def anew(self) -> "Replayed":
        """The same place in the graph, with quality 1 and no work."""
        return replace(self.without_work(), quality=np.ones_like(self.quality[:1]))

    def without_work(self) -> "Replayed":
        return replace(self, work_s=np.zeros_like(self.work_s[:1]))


def beginning(query: ComposedQuery) -> Replayed:
    return Replayed(
        quality=np.ones((1, query.tuples), dtype=np.float32),
        work_s=np.zeros((1, query.tuples), dtype=np.float32),
        positive=np.empty((0, 0), dtype=np.bool_),
        reached={},
        live={},
    )


def replay(query: ComposedQuery, chosen: Mapping[str, Answers]) -> Replayed:
    """Pass every tuple through the graph; `chosen` has for each node k answers, or one for all.

    An edge is live if its condition holds for the answer of an item that was visited. A node runs
    if an edge to it is live; one that closes a fan-out also if the fan-out was reached, even
    without rows. A join of the first branch visits the same items as one of all.
    """
    return passed_on(query, query.places, chosen, beginning(query))


def passed_on(query: ComposedQuery, nodes: Iterable[str], chosen: Mapping[str, Answers], before: Replayed) -> Replayed:
    """Go on from `before`, which has passed all nodes that lead to `nodes`, through these."""
    quality, work_s, positive = before.quality, before.work_s, before.positive
    reached, live = dict(before.reached), dict(before.live)
    for node in nodes:
        given = chosen[node]
        now = replace(before, reached=reached, live=live)
        reached[node] = _reached(query, node, now)
        visited = visits(query, node, now)
        live[node] = tuple(visited & each for each in given.live)
        quality = quality * _joined(query, node, np.multiply, np.where(visited, given.quality, np.float32(1)))
        work_s = work_s + _joined(query, node, np.add, np.where(visited, given.work_s, np.float32(0)))
        if node == query.output and given.positive.size:
            positive = (visited & given.positive) ^ query.negated
    return Replayed(quality=quality, work_s=work_s, positive=positive, reached=reached, live=live)


def visits(query: ComposedQuery, node: str, replayed: Replayed) -> Bools:
    """Whether each item of a node that was reached is visited (k, slots)."""
    reached = replayed.reached[node]
    return reached[:, query.around[node]] if query.places[node].scope == node else reached


def _reached(query: ComposedQuery, node: str, replayed: Replayed) -> Bools:
    place = query.places[node]
    begins: Bools = np.full((1, query.slots(place.counted_in)), place.is_entry)
    for source, edge in place.edges:
        begins = begins | replayed.live[source][edge]
    for opener in place.closes:
        begins = begins | replayed.reached[opener]
    return begins


def _joined(query: ComposedQuery, node: str, operation: np.ufunc, values: Floats) -> Floats:
    """Join the values (k, slots) of a node's items for each tuple (k, tuples)."""
    scope = query.places[node].scope
    while scope != TUPLE:
        outer = query.places[scope].counted_in
        counts = np.bincount(query.around[scope], minlength=query.slots(outer))
        held = np.flatnonzero(counts)
        joined = np.full((len(values), len(counts)), operation.identity, dtype=np.float32)
        if len(held):
            begins = np.concatenate([[0], np.cumsum(counts[held])[:-1]])
            joined[:, held] = operation.reduceat(values, begins, axis=1)
        values, scope = joined, outer
    return values
