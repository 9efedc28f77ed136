"""The joint front: all tuples of implementations that no other beats in work and score.

Nodes join one after another, in topological order. A tuple of the first nodes is replayed on the
joint records with references for the nodes that follow: the cheapest implementations, the dearest,
and the best. It is kept if no other beats it with the same reference, or while tuples are few.

For a node that runs once for each request row, the means over request rows of all pairs (tuple so
far, implementation) are matrix products: a mean is linear in the answer of one node, once the edges
that it makes live are fixed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gearshift.planner.joint.composed import TUPLE, Answers, ComposedQuery
from gearshift.planner.joint.replay import ACCURACY, Floats, Measure, Replayed, beginning, passed_on, replay
from gearshift.planner.space.pareto import front_indices

Ints = NDArray[np.int64]
Doubles = NDArray[np.float64]

DIGITS, WORK_DIGITS = 6, 12
"""Sums in another order differ after these digits; tuples that are equal must not look better."""
FEW = 512
"""So few tuples of the first nodes are all kept: the front of two operators is exact."""
MOST_CELLS = 1 << 24
"""Tuples are replayed in chunks of this many numbers per array."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JointFront:
    """Tuples by rising work: `chosen` (n, nodes) has an implementation for each of `nodes`.

    `work_s` (n,) is the mean work of a request row, `score` (n,) the measure on the same records.
    """

    nodes: tuple[str, ...]
    chosen: Ints
    work_s: Doubles
    score: Doubles

    def __len__(self) -> int:
        return len(self.work_s)


def joint_front(query: ComposedQuery, candidates: Mapping[str, Answers], measure: Measure = ACCURACY) -> JointFront:
    """All Pareto tuples by mean work and `measure`, accuracy by default.

    `candidates` are each node's implementations. Exact for two nodes of up to 512 implementations;
    with more, tuples that are worse on their first nodes are not looked at further.
    """
    nodes = tuple(query.places)
    chosen: Ints = np.zeros((1, 0), dtype=np.int64)
    so_far = _SoFar(beginning(query), np.zeros(1))
    for done, node in enumerate(nodes):
        pairs = len(chosen) * len(candidates[node])
        kept = [np.arange(pairs)]
        if pairs > FEW or done == len(nodes) - 1:
            kept = []
            for rest in _references(query, candidates, nodes[done + 1 :]):
                work_s, score = _pairs(query, node, candidates[node], so_far, rest, measure)
                kept.append(front_indices(work_s.ravel(), score.ravel()))
        before, here = np.divmod(np.unique(np.concatenate(kept)), len(candidates[node]))
        chosen = np.column_stack([chosen[before], here])
        so_far = so_far.extended(query, node, candidates[node], before, here)
    work_s, score = judged(query, candidates, chosen, measure)
    front = front_indices(work_s, score)
    return JointFront(nodes=nodes, chosen=chosen[front], work_s=work_s[front], score=score[front])


def judged(
    query: ComposedQuery, candidates: Mapping[str, Answers], chosen: Ints, measure: Measure
) -> tuple[Doubles, Doubles]:
    """Mean work and score (n,) of tuples (n, nodes) on the query's records."""
    work_s, means = [], []
    for rows in chunks(query, len(chosen)):
        replayed = replay(query, picked(query, candidates, chosen[rows]))
        work_s.append(_mean(replayed.work_s, len(rows)))
        means.append([_mean(each, len(rows)) for each in measure.counts(replayed)])
    score = measure.score([np.concatenate(each) for each in zip(*means, strict=True)])
    return np.concatenate(work_s).round(WORK_DIGITS), score.round(DIGITS)


def picked(query: ComposedQuery, candidates: Mapping[str, Answers], chosen: Ints) -> dict[str, Answers]:
    """The answers of tuples (n, nodes), by node."""
    return {node: candidates[node].of(chosen[:, i]) for i, node in enumerate(query.places)}


def chunks(query: ComposedQuery, n: int) -> Iterator[Ints]:
    """Indices up to `n`, so many at a time that arrays of them by slot stay in bounds."""
    most_slots = max(query.slots(place.scope) for place in query.places.values())
    size = max(1, MOST_CELLS // max(most_slots, query.tuples))
    return (np.arange(begin, min(begin + size, n)) for begin in range(0, n, size))


@dataclass(frozen=True, slots=True, eq=False)
class _SoFar:
    """Tuples of the first nodes, as replayed, and their mean work (n,)."""

    replayed: Replayed
    work_s: Doubles

    def extended(self, query: ComposedQuery, node: str, given: Answers, before: Ints, here: Ints) -> "_SoFar":
        passed = passed_on(query, [node], {node: given.of(here)}, self.replayed.of(before).without_work())
        return _SoFar(passed, self.work_s[before] + _mean(passed.work_s, len(before)))


def _references(
    query: ComposedQuery, candidates: Mapping[str, Answers], nodes: Sequence[str]
) -> list[dict[str, Answers]]:
    """For each node the cheapest, the dearest and the best implementation."""
    means = [(candidates[node].work_s.mean(axis=1), candidates[node].quality.mean(axis=1)) for node in nodes]
    found = {
        tuple(int(work.argmin()) for work, _ in means),
        tuple(int(work.argmax()) for work, _ in means),
        tuple(int(quality.argmax()) for _, quality in means),
    }
    return [{node: candidates[node].of([i]) for node, i in zip(nodes, each, strict=True)} for each in sorted(found)]


def _pairs(
    query: ComposedQuery,
    node: str,
    given: Answers,
    so_far: _SoFar,
    rest: Mapping[str, Answers],
    measure: Measure,
) -> tuple[Doubles, Doubles]:
    """Mean work and score (tuples so far, implementations of `node`), with `rest` behind them."""
    pairs = _products if query.places[node].scope == TUPLE else _one_by_one
    work_s, means = pairs(query, node, given, so_far, rest, measure)
    shape = (len(so_far.work_s), len(given))
    score = measure.score([np.broadcast_to(each, shape) for each in means])
    return (work_s + so_far.work_s[:, None]).round(WORK_DIGITS), score.round(DIGITS)


def _products(
    query: ComposedQuery, node: str, given: Answers, so_far: _SoFar, rest: Mapping[str, Answers], measure: Measure
) -> tuple[Doubles, list[Doubles]]:
    """Work and counts of all pairs, where the node runs once for each tuple.

    The answer of the node matters by its quality and work, and by its outcome: which edges it
    makes live, and whether its result is positive. For each outcome in turn the tuples so far pass
    on as if all answers had it; a mask (implementations, tuples) says whose answers do.
    """
    bits = (*given.live, *([given.positive] if given.positive.size else []))
    outcome = np.zeros((1, 1), dtype=np.int64)
    for place, bit in enumerate(bits):
        outcome = outcome | (bit.astype(np.int64) << place)
    ones = np.ones((1, query.tuples), dtype=np.float32)
    work_s: Doubles = np.zeros((1, len(given)))
    sums: list[Doubles] = []
    for each in np.unique(outcome).tolist():
        forced = [np.full((1, query.tuples), bool(each >> place & 1)) for place in range(len(bits))]
        live, positive = forced[: len(given.live)], forced[len(given.live) :]
        as_if = Answers(quality=ones, work_s=0 * ones, live=tuple(live), positive=(positive or [given.positive])[0])
        after = passed_on(query, [node, *rest], {node: as_if, **rest}, so_far.replayed.anew())
        visited = after.reached[node]
        counts = measure.counts(replace(after, quality=so_far.replayed.quality * after.quality))
        has_it = np.broadcast_to(outcome == each, given.quality.shape)
        weights = (has_it * np.float32(1), has_it * given.quality)
        work_s = work_s + _product((visited * after.work_s).astype(np.float64), has_it.astype(np.float64))
        new = [_product(visited * count, weights[by]) for by, count in zip(measure.by_quality, counts, strict=True)]
        sums = [a + b for a, b in zip(sums, new, strict=True)] if sums else new
    missed = ~visited
    work_s = work_s + _product(visited.astype(np.float64), given.work_s.astype(np.float64))
    work_s = work_s + (missed * after.work_s).sum(axis=1, dtype=np.float64)[:, None]
    sums = [a + (missed * b).sum(axis=1, dtype=np.float64)[:, None] for a, b in zip(sums, counts, strict=True)]
    return work_s / query.tuples, [each / query.tuples for each in sums]


def _one_by_one(
    query: ComposedQuery, node: str, given: Answers, so_far: _SoFar, rest: Mapping[str, Answers], measure: Measure
) -> tuple[Doubles, list[Doubles]]:
    """Work and counts of all pairs, where one tuple has several items of the node."""
    work_s, means = [], []
    for i in range(len(given)):
        after = passed_on(query, [node, *rest], {node: given.of([i]), **rest}, so_far.replayed.anew())
        counts = measure.counts(replace(after, quality=so_far.replayed.quality * after.quality))
        work_s.append(_mean(after.work_s, len(so_far.work_s)))
        means.append([_mean(each, len(so_far.work_s)) for each in counts])
    return np.stack(work_s, axis=1), [np.stack(each, axis=1) for each in zip(*means, strict=True)]


def _product(a: NDArray[np.floating], b: NDArray[np.floating]) -> Doubles:
    return np.asarray(a @ b.T, dtype=np.float64)


def _mean(values: Floats, k: int) -> Doubles:
    """The mean over tuples (k,) of values (k, tuples) or (1, tuples)."""
    return np.broadcast_to(values.mean(axis=1, dtype=np.float64), (k,))
