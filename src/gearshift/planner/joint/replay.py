"""Replay a composed query: how good each recorded request row's answer is and how much work, and measures of that."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gearshift.errors import require
from gearshift.planner.joint.composed import TUPLE, Answers, ComposedQuery, rows_of, true_answers

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


# Measures of a query's results, as means over its tuples, so that they can be searched and tested.


class Measure(Protocol):
    """A score of k choices, made of means over the tuples of one or several counts."""

    @property
    def by_quality(self) -> Sequence[bool]:
        """For each count, whether it is proportional to the quality of each answer."""

    def counts(self, replayed: Replayed) -> Sequence[Floats]:
        """The counts (k, tuples), each from 0 to 1."""

    def score(self, means: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
        """The score (k,) from the counts' means, each of that shape."""


class TestedMeasure(Measure, Protocol):
    """A measure that is the mean of independent trials, so that it can be certified."""

    def trials(self, replayed: Replayed) -> Floats:
        """The trials (n,) of the first choice, each from 0 to 1, whose mean is the score."""


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The mean over tuples of the product of all qualities."""

    by_quality: Sequence[bool] = (True,)

    def counts(self, replayed: Replayed) -> Sequence[Floats]:
        return [replayed.quality]

    def score(self, means: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
        return means[0]

    def trials(self, replayed: Replayed) -> Floats:
        return np.asarray(replayed.quality[0])


ACCURACY = Accuracy()


@dataclass(frozen=True, slots=True, eq=False)
class Agreement:
    """The share of tuples whose result is that of a reference: positive or not (tuples,)."""

    reference: NDArray[np.bool_]
    by_quality: Sequence[bool] = (False,)

    def counts(self, replayed: Replayed) -> Sequence[Floats]:
        return [(replayed.positive == self.reference).astype(np.float32)]

    def score(self, means: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
        return means[0]

    def trials(self, replayed: Replayed) -> Floats:
        return np.asarray(replayed.positive[0] == self.reference, dtype=np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class Recall:
    """The share of the tuples that are positive in truth (tuples,) whose result is positive."""

    truth: NDArray[np.bool_]
    by_quality: Sequence[bool] = (False,)

    def counts(self, replayed: Replayed) -> Sequence[Floats]:
        return [(replayed.positive & self.truth).astype(np.float32)]

    def score(self, means: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
        share = float(self.truth.mean())
        return means[0] / share if share else np.ones_like(means[0])

    def trials(self, replayed: Replayed) -> Floats:
        return np.broadcast_to(replayed.positive[0], self.truth.shape)[self.truth].astype(np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class Precision:
    """The share of the tuples with a positive result that are positive in truth (tuples,)."""

    truth: NDArray[np.bool_]
    by_quality: Sequence[bool] = (False, False)

    def counts(self, replayed: Replayed) -> Sequence[Floats]:
        both = (replayed.positive & self.truth).astype(np.float32)
        return [both, replayed.positive.astype(np.float32)]

    def score(self, means: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
        right, positive = means
        return np.divide(right, positive, out=np.ones_like(right), where=positive > 0)

    def trials(self, replayed: Replayed) -> Floats:
        positive = np.broadcast_to(replayed.positive[0], self.truth.shape)
        return np.asarray(self.truth[positive], dtype=np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class Together:
    """Several measures and the level of each: the score is the smallest margin over a level."""

    measures: Sequence[Measure]
    levels: Sequence[float]

    @property
    def by_quality(self) -> Sequence[bool]:
        return [each for measure in self.measures for each in measure.by_quality]

    def counts(self, replayed: Replayed) -> Sequence[Floats]:
        return [count for measure in self.measures for count in measure.counts(replayed)]

    def score(self, means: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
        left = iter(means)
        scores = [m.score([next(left) for _ in m.by_quality]) for m in self.measures]
        margins = [score - level for score, level in zip(scores, self.levels, strict=True)]
        return np.asarray(np.min(margins, axis=0))


def results_of(query: ComposedQuery, chosen: Mapping[str, Answers]) -> NDArray[np.bool_]:
    """Whether the result of each tuple (tuples,) is positive under one choice."""
    require(query.positive is not None, "the query has no condition for a positive result", remedy="give one")
    return np.asarray(np.broadcast_to(replay(query, chosen).positive, (1, query.tuples))[0])


def truth_of(query: ComposedQuery) -> NDArray[np.bool_]:
    """Whether the result of each tuple (tuples,) is positive if every answer is the label."""
    return results_of(query, {node: true_answers(query, node) for node in query.places})
