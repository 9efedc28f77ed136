"""Composition: which variants of learned caches at which layers (Gati section 4, appendix A.1)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gearshift.caches.building.joint import MOST_NODES, compose_jointly
from gearshift.caches.building.paths import Graph, longest_path
from gearshift.caches.building.problem import Outcome, Problem, joint_outcome, nested_outcome

ALPHAS = tuple(k / 10 for k in range(11))


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
