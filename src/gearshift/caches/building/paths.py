"""Longest paths under two budgets: labels per node, pruned by dominance and Lagrangian bounds."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

HALVINGS = 14
MOST_BOUNDS = 8
BEAM = 8
"""Labels per node that a first search keeps; the full search must beat its path."""
EXACT = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Graph:
    """Nodes in groups that a path visits in order, at most one of each.

    Row n of the edges is the start.

    `gain` and `lost` (n + 1, n) belong to edges, `memory` (n,) to nodes; a gain of minus infinity
    is no edge. A path may be empty, or end at a node of `ends`. The budgets bound its total loss
    and memory.
    """

    group: NDArray[np.int64]
    gain: Array
    lost: Array
    memory: Array
    ends: NDArray[np.bool_]
    lost_budget: float
    memory_budget: float


@dataclass(frozen=True, slots=True, eq=False)
class _Bound:
    """Upper bound of the gain after each node (n,), at these prices of loss and memory."""

    lost_price: float
    memory_price: float
    to_go: Array


def longest_path(graph: Graph, known: tuple[int, ...] = ()) -> tuple[int, ...]:
    """Return the path of most gain within the budgets; `known` is a path to start from."""
    best_path, best = known, path_gain(graph, known)
    best_path, best = max([(best_path, best), ((), 0.0)], key=lambda pair: pair[1])
    bounds: list[_Bound] = []
    for bound, path in _priced(graph):
        bounds.append(bound)
        gain = path_gain(graph, path)
        if within(graph, path) and gain > best:
            best_path, best = path, gain
    bounds = bounds[:1] + bounds[1:][-MOST_BOUNDS:]
    for most in (BEAM, None):
        best_path, best = _search(graph, bounds, best_path, best, most)
    return best_path


def _search(
    graph: Graph, bounds: list[_Bound], best_path: tuple[int, ...], best: float, most: int | None
) -> tuple[tuple[int, ...], float]:
    n = len(graph.group)
    labels = _Labels(n)
    for w in range(n):
        values = labels.values + graph.gain[labels.nodes, w]
        losts = labels.losts + graph.lost[labels.nodes, w]
        memories = labels.memories + graph.memory[w]
        reach = np.flatnonzero(
            np.isfinite(values) & (losts <= graph.lost_budget) & (memories <= graph.memory_budget * (1 + EXACT))
        )
        if graph.ends[w] and len(reach):
            top = int(reach[np.argmax(values[reach])])
            if values[top] > best:
                best, best_path = float(values[top]), (*labels.path(top), w)
        hopes = np.min(
            [values[reach] + _hope(graph, bound, w, losts[reach], memories[reach]) for bound in bounds], axis=0
        )
        hopeful = hopes > best + EXACT * abs(best)
        reach, hopes = reach[hopeful], hopes[hopeful]
        if most is not None:
            reach = reach[np.argsort(-hopes, kind="stable")[:most]]
        kept = reach[undominated(values[reach], losts[reach], memories[reach])]
        labels.add(w, values[kept], losts[kept], memories[kept], kept)
    return best_path, best


def path_gain(graph: Graph, path: tuple[int, ...]) -> float:
    return float(sum(graph.gain[a, b] for a, b in _edges(graph, path)))


def within(graph: Graph, path: tuple[int, ...]) -> bool:
    lost = sum(graph.lost[a, b] for a, b in _edges(graph, path))
    return bool(lost <= graph.lost_budget and graph.memory[list(path)].sum() <= graph.memory_budget * (1 + EXACT))


def undominated(values: Array, losts: Array, memories: Array) -> NDArray[np.int64]:
    """Indices of labels that no other matches in gain, loss and memory; one of equal ones."""
    order = np.lexsort((memories, losts, -values))
    if len(order) == 0 or memories.min() == memories.max() or losts.min() == losts.max():
        weight = losts[order] if len(order) and memories.min() == memories.max() else memories[order]
        before = np.append(np.inf, np.minimum.accumulate(weight)[:-1]) if len(order) else weight
        return np.asarray(order[weight < before])
    kept: list[int] = []
    lost, memory = losts[order], memories[order]
    alive = np.ones(len(order), dtype=np.bool_)
    for i in range(len(order)):
        if alive[i]:
            kept.append(int(order[i]))
            alive[i + 1 :] &= (lost[i + 1 :] < lost[i]) | (memory[i + 1 :] < memory[i])
    return np.array(kept, dtype=np.int64)


class _Labels:
    def __init__(self, start: int) -> None:
        self.nodes = np.array([start])
        self.values, self.losts, self.memories = np.zeros(1), np.zeros(1), np.zeros(1)
        self._parents = np.array([-1])

    def add(self, node: int, values: Array, losts: Array, memories: Array, parents: NDArray[np.int64]) -> None:
        self.nodes = np.append(self.nodes, np.full(len(values), node))
        self.values, self.losts = np.append(self.values, values), np.append(self.losts, losts)
        self.memories, self._parents = np.append(self.memories, memories), np.append(self._parents, parents)

    def path(self, label: int) -> tuple[int, ...]:
        nodes = []
        while self._parents[label] >= 0:
            nodes.append(int(self.nodes[label]))
            label = int(self._parents[label])
        return tuple(reversed(nodes))


def _edges(graph: Graph, path: tuple[int, ...]) -> list[tuple[int, int]]:
    return list(pairwise((len(graph.group), *path)))


def _hope(graph: Graph, bound: _Bound, node: int, losts: Array, memories: Array) -> Array:
    hope: Array = bound.to_go[node] + bound.lost_price * (graph.lost_budget - losts)
    if bound.memory_price > 0:
        hope = hope + bound.memory_price * (graph.memory_budget - memories)
    return hope


def _priced(graph: Graph) -> list[tuple[_Bound, tuple[int, ...]]]:
    """Bounds at prices that approach the tightest bound at the start, and the best path at each."""
    found: list[tuple[_Bound, tuple[int, ...]]] = []

    def path_at(lost_price: float, memory_price: float) -> tuple[int, ...]:
        found.append(_relaxed(graph, lost_price, memory_price))
        return found[-1][1]

    def loses_little(path: tuple[int, ...]) -> bool:
        return bool(sum(graph.lost[a, b] for a, b in _edges(graph, path)) <= graph.lost_budget)

    def fits(path: tuple[int, ...]) -> bool:
        return bool(graph.memory[list(path)].sum() <= graph.memory_budget)

    lost_price = _least_price(lambda price: loses_little(path_at(price, 0.0)))
    if np.isfinite(graph.memory_budget):
        for _ in range(2):
            memory_price = _least_price(partial(lambda lost, price: fits(path_at(lost, price)), lost_price))
            lost_price = _least_price(partial(lambda memory, price: loses_little(path_at(price, memory)), memory_price))
    return found


def _least_price(within_at: Callable[[float], bool]) -> float:
    if within_at(0.0):
        return 0.0
    low, high = 0.0, 1e-12
    while not within_at(high) and high < 1e18:
        low, high = high, high * 16
    for _ in range(HALVINGS):
        middle = (low + high) / 2 if low == 0 else float(np.sqrt(low * high))
        low, high = (low, middle) if within_at(middle) else (middle, high)
    return high


def _relaxed(graph: Graph, lost_price: float, memory_price: float) -> tuple[_Bound, tuple[int, ...]]:
    """Best paths at these prices without budgets: the bound per node, the path from the start."""
    n = len(graph.group)
    to_go = np.append(np.where(graph.ends, 0.0, -np.inf), 0.0)
    follow = np.full(n + 1, -1)
    edges = graph.gain - lost_price * graph.lost - memory_price * graph.memory
    begins = [*np.flatnonzero(np.diff(graph.group, prepend=-1)).tolist(), n]
    rows = list(pairwise(begins))
    for a, b in [(n, n + 1), *rows][::-1] if n else []:
        later = 0 if a == n else b
        if later >= n:
            continue
        hopes = edges[a:b, later:] + to_go[None, later:n]
        top = hopes.argmax(axis=1)
        most = hopes[np.arange(b - a), top]
        better = most > to_go[a:b]
        to_go[a:b] = np.where(better, most, to_go[a:b])
        follow[a:b] = np.where(better, top + later, -1)
    path, node = [], n
    while n and follow[node] >= 0:
        node = int(follow[node])
        path.append(node)
    return _Bound(lost_price, memory_price, to_go), tuple(path)
