"""Composition by joint hits, recorded on validation samples, instead of nested hits."""

import heapq
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from gearshift.caches.building.problem import Problem, joint_outcome, wrong_of

MOST_NODES = 4000
SAME = 1e-12
PRICES = (0.0, 0.25, 1.0, 4.0)
"""Prices of a wrong answer in the bounds, in runs of the base model."""


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
