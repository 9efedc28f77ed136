"""Composition: which variants of learned caches at which layers (Gati section 4, appendix A.1)."""

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gearshift.caches.building.paths import Graph, longest_path
from gearshift.caches.building.problem import Outcome, Problem, joint_outcome, nested_outcome, wrong_of

ALPHAS = tuple(k / 10 for k in range(11))
MOST_NODES = 4000
SAME = 1e-12
PRICES = (0.0, 0.25, 1.0, 4.0)
"""Prices of a wrong answer in the bounds, in runs of the base model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Composition:
    """A choice of variants in the order of layers, by one method, with its outcomes.

    `expected` assumes nested hits; `measured` counts joint hits on validation samples, if
    recorded. `gap_s` bounds how much lower the latency that the method minimises could be.
    """

    method: str
    chosen: tuple[int, ...]
    expected: Outcome
    measured: Outcome | None = None
    memory_bytes: int
    gap_s: float = 0.0
    alpha: float | None = None


def relaxation(problem: Problem) -> Composition:
    """Gati's relaxation (Eq. 1-3 under 8, 9 and 11), with the alpha of least latency (Eq. 10)."""
    allowed = _filtered(problem)
    gain = problem.base_s / (problem.reached_s + problem.lookup_s)
    found = []
    for alpha in ALPHAS:
        score = alpha * problem.hit_rate + (1 - alpha) * gain
        graph = _graph(problem, np.tile(np.where(allowed, score, -np.inf), (len(problem) + 1, 1)), lost=None)
        found.append(composed("relaxation", problem, longest_path(graph), alpha=alpha))
    return min(found, key=lambda one: one.expected.latency_s)


def greedy(problem: Problem, by: str) -> Composition:
    """The greedy baselines of Gati (A.2.1): by `latency gain` or `hit rate`, while all fits."""
    gain = problem.base_s / (problem.reached_s + problem.lookup_s)
    order = np.argsort(-(problem.hit_rate if by == "hit rate" else gain), kind="stable")
    allowed, chosen = _filtered(problem), tuple[int, ...]()
    for v in order.tolist():
        more = tuple(sorted((*chosen, v)))
        once = len(set(problem.layer[list(more)].tolist())) == len(more)
        if allowed[v] and once and problem.fits(more):
            chosen = more
    return composed(f"greedy by {by}", problem, chosen)


def exact(problem: Problem, known: Sequence[int] = ()) -> Composition:
    """The least expected latency under the constraints (Eq. 10 under 7-9), with nested hits.

    A cache that hits no more than an earlier one adds nothing, so hit rates rise along the best
    choice, and the gain of a cache depends only on the one before: a longest path in which
    accuracy lost and memory have budgets.
    """
    before = np.append(problem.hit_rate, 0.0)[:, None]
    more = problem.hit_rate[None, :] - before
    left_s = problem.base_s - problem.reached_s
    gain = more * (left_s - problem.lookup_s) if problem.beside else more * left_s - (1 - before) * problem.lookup_s
    graph = _graph(problem, np.where(more > 0, gain, -np.inf), lost=np.maximum(more, 0.0) * (1 - problem.accuracy))
    rising = [v for i, v in enumerate(known) if problem.hit_rate[v] > problem.hit_rate[list(known[:i])].max(initial=0)]
    return composed("exact", problem, longest_path(graph, tuple(rising)))


def joint(problem: Problem, known: Sequence[tuple[int, ...]] = (), *, most_nodes: int = MOST_NODES) -> Composition:
    """The least mean latency on validation samples by joint hits; no worse than any of `known`."""
    chosen, gap_s = compose_jointly(problem, known, most_nodes=most_nodes)
    return composed("joint", problem, chosen, gap_s=gap_s)


def compose_all(problem: Problem, *, most_nodes: int = MOST_NODES) -> tuple[Composition, ...]:
    """Return every method's choice; use the last, which is by joint hits if these are recorded."""
    others = (relaxation(problem), greedy(problem, "latency gain"), greedy(problem, "hit rate"))
    best = min(others, key=lambda one: one.expected.latency_s)
    found = (*others, exact(problem, best.chosen))
    if problem.hits is None:
        return found
    return (*found, joint(problem, [one.chosen for one in found], most_nodes=most_nodes))


def _filtered(problem: Problem) -> NDArray[np.bool_]:
    """Variants whose hits are accurate enough (Eq. 11), and that hit at all."""
    return np.asarray((problem.accuracy >= problem.target) & (problem.hit_rate > 0))


def _graph(problem: Problem, gain: NDArray[np.float64], *, lost: NDArray[np.float64] | None) -> Graph:
    follow = np.vstack([problem.may_follow(), np.ones((1, len(problem)), dtype=np.bool_)])
    return Graph(
        group=problem.layer,
        gain=np.where(follow, gain, -np.inf),
        lost=np.zeros_like(gain) if lost is None else lost,
        memory=problem.memory_bytes,
        ends=problem.may_end(),
        lost_budget=problem.largest_loss,
        memory_budget=problem.memory_budget_bytes,
    )


def composed(
    method: str, problem: Problem, chosen: tuple[int, ...], *, gap_s: float = 0.0, alpha: float | None = None
) -> Composition:
    return Composition(
        method=method,
        chosen=chosen,
        expected=nested_outcome(problem, chosen),
        measured=None if problem.hits is None else joint_outcome(problem, chosen),
        memory_bytes=int(problem.memory_bytes[list(chosen)].sum()),
        gap_s=gap_s,
        alpha=alpha,
    )


def compose_jointly(
    problem: Problem, known: Iterable[tuple[int, ...]] = (), *, most_nodes: int = MOST_NODES
) -> tuple[tuple[int, ...], float]:
    """Return the choice of least mean latency on validation samples, and its gap in seconds.

    Branch and bound, from the best of `known` improved by single changes; the most hopeful choices
    go first. The gap bounds how much lower latency could be; it is 0 if `most_nodes` branches
    prove the choice optimal.
    """
    search = _Search(problem)
    best = search.improved(min(filter(search.allows, ((), *known)), key=search.latency_s))
    best_s = search.latency_s(best)
    waiting: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    for _ in range(most_nodes):
        if not waiting or waiting[0][0] >= best_s * (1 - SAME):
            return search.without_idle(best), 0.0
        _, choice = heapq.heappop(waiting)
        for hope_s, child, latency_s in search.children(choice):
            if latency_s < best_s:
                best, best_s = child, latency_s
            if hope_s < best_s * (1 - SAME):
                heapq.heappush(waiting, (hope_s, child))
    return search.without_idle(best), max(0.0, best_s - waiting[0][0]) if waiting else 0.0


class _Search:
    """Tables that the branches share; times are summed over all samples."""

    def __init__(self, problem: Problem) -> None:
        assert problem.hits is not None
        assert problem.right is not None
        self.problem = problem
        self.hits = problem.hits
        self.wrong = problem.hits & ~problem.right
        self.most_wrong = problem.most_wrong
        self.follow, self.end = problem.may_follow(), problem.may_end()
        self.base_s = problem.base_s
        self.saved_s = self.base_s - problem.reached_s - (problem.lookup_s if problem.beside else 0)
        self.prices = [price * problem.base_s for price in PRICES]
        self.best_after = [self._best_after(price) for price in self.prices]

    def _best_after(self, price: float) -> NDArray[np.float64]:
        """Most that a sample may still save after each layer (layers, samples), at this price."""
        p = self.problem
        own = p.base_s - p.reached_s - p.lookup_s
        best = np.zeros((len(p.layer_s) + 1, p.samples))
        for v in reversed(range(len(p))):
            worth = np.where(self.hits[v], own[v] - price * self.wrong[v], 0.0)
            layer = int(p.layer[v])
            # Row l: best of the caches after layer l; then shifted to those from l + 1 on.
            best[layer] = np.maximum(best[layer], worth)
        down = np.maximum.accumulate(best[::-1], axis=0)[::-1]
        return np.asarray(np.maximum(np.vstack([down[1:], np.zeros((1, p.samples))]), 0.0))

    def allows(self, choice: tuple[int, ...]) -> bool:
        return self.problem.fits(choice) and wrong_of(self.problem, choice) <= self.most_wrong

    def latency_s(self, choice: tuple[int, ...]) -> float:
        return joint_outcome(self.problem, choice).latency_s

    def improved(self, choice: tuple[int, ...]) -> tuple[int, ...]:
        best_s = self.latency_s(choice)
        while True:
            layers = self.problem.layer[list(choice)]
            tries = [tuple(v for v in choice if v != out) for out in choice]
            for v in range(len(self.problem)):
                rest = tuple(u for u, layer in zip(choice, layers, strict=True) if layer != self.problem.layer[v])
                tries.append(tuple(sorted((*rest, v))))
            timed = [(self.latency_s(one), one) for one in tries if one != choice and self.allows(one)]
            if not timed or min(timed)[0] >= best_s * (1 - SAME):
                return self.without_idle(choice)
            best_s, choice = min(timed)

    def without_idle(self, choice: tuple[int, ...]) -> tuple[int, ...]:
        best_s = self.latency_s(choice)
        for v in reversed(choice):
            rest = tuple(u for u in choice if u != v)
            if self.allows(rest) and self.latency_s(rest) <= best_s * (1 + SAME):
                choice = rest
        return choice

    def children(self, choice: tuple[int, ...]) -> list[tuple[float, tuple[int, ...], float]]:
        """Return choices with one more cache at the end: latency bound, choice, latency."""
        p = self.problem
        allowed = self.follow[choice[-1]] if choice else np.ones(len(p), dtype=np.bool_)
        next_ = np.flatnonzero(allowed & p.within_budgets(choice, np.arange(len(p))))
        if len(next_) == 0:
            return []
        alive = ~self.hits[list(choice)].any(axis=0)
        saved = (self.base_s - self.latency_s(choice)) * p.samples if choice else 0.0
        wrong = wrong_of(p, choice)
        hits = self.hits[next_] & alive
        wrongs = wrong + (self.wrong[next_] & alive).sum(axis=1)
        saves = saved + hits.sum(axis=1) * self.saved_s[next_]
        if not p.beside:
            saves -= alive.sum() * p.lookup_s[next_]
        rest = (alive & ~hits).astype(np.float64)
        hopes = np.min(
            [
                saves
                + np.einsum("vs,vs->v", self.best_after[k][p.layer[next_]], rest)
                + price * (self.most_wrong - wrongs)
                for k, price in enumerate(self.prices)
            ],
            axis=0,
        )
        found = []
        for i, v in enumerate(next_.tolist()):
            if wrongs[i] <= self.most_wrong:
                latency_s = self.base_s - saves[i] / p.samples if self.end[v] else np.inf
                hope_s = self.base_s - float(hopes[i]) / p.samples
                found.append((hope_s, (*choice, v), float(latency_s)))
        return found
