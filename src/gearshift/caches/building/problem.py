"""The input of composition, and the latency and accuracy of a choice of learned caches."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from gearshift.errors import require

ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Problem:
    """Variants of learned caches by layer, and the constraints of a choice (Gati A.1).

    `layer_s` (layers,) is the time of each layer. Per variant, sorted by layer: the `layer` after
    which it looks, counted from 0, `hit_rate`, `accuracy` of its hits relative to the base model,
    `lookup_s`, `memory_bytes`.

    With `beside`, one lookup at a time runs beside the base model; otherwise every lookup delays
    the rows that miss, all together by at most `delay_budget_s` (ours, not the paper's).

    `hits` and `right` (variants, samples) say which validation samples each variant hits, and
    answers as the base model does; `level` (variants,) is the accuracy of hits that each was set
    for, on its selector's own samples.
    """

    layer_s: NDArray[np.float64]
    layer: NDArray[np.int64]
    hit_rate: NDArray[np.float64]
    accuracy: NDArray[np.float64]
    lookup_s: NDArray[np.float64]
    memory_bytes: NDArray[np.float64]
    target: float = 0.97
    memory_budget_bytes: float = np.inf
    delay_budget_s: float = np.inf
    beside: bool = False
    hits: NDArray[np.bool_] | None = None
    right: NDArray[np.bool_] | None = None
    level: NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        require(0 < self.target <= 1, f"the accuracy target is {self.target:g}", remedy="give a share above 0, up to 1")
        require(
            bool(np.all(np.diff(self.layer) >= 0)) and not np.any(self.layer >= len(self.layer_s)),
            "variants are not sorted by layers that there are",
        )

    def __len__(self) -> int:
        return len(self.layer)

    @property
    def base_s(self) -> float:
        return float(self.layer_s.sum())

    @property
    def reached_s(self) -> NDArray[np.float64]:
        """When each variant's hidden output is ready (variants,)."""
        return np.asarray(np.cumsum(self.layer_s)[self.layer], dtype=np.float64)

    @property
    def saved(self) -> NDArray[np.float64]:
        """Share of the model's time that remains after each variant's hidden output (variants,)."""
        return np.asarray(1 - self.reached_s / self.base_s)

    @property
    def largest_loss(self) -> float:
        return 1 - self.target + ROUNDING

    @property
    def most_wrong(self) -> int:
        return int(self.largest_loss * self.samples)

    @property
    def samples(self) -> int:
        return 0 if self.hits is None else self.hits.shape[1]

    def may_follow(self) -> NDArray[np.bool_]:
        """Whether a lookup (rows) has ended when another (columns) begins (Eq. 9)."""
        later = self.layer[:, None] < self.layer[None, :]
        if not self.beside:
            return later
        reached = self.reached_s
        return np.asarray(later & ((reached + self.lookup_s)[:, None] <= reached[None, :] * (1 + ROUNDING)))

    def may_end(self) -> NDArray[np.bool_]:
        """Whether each variant's lookup ends before the model does (Eq. 9)."""
        if not self.beside:
            return np.ones(len(self), dtype=np.bool_)
        return np.asarray(self.reached_s + self.lookup_s <= self.base_s * (1 + ROUNDING))

    def within_budgets(self, chosen: Sequence[int], more: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether `chosen` with each of `more` keeps the memory (Eq. 8) and delay budgets."""
        memory = self.memory_bytes[list(chosen)].sum() + self.memory_bytes[more]
        within = memory <= self.memory_budget_bytes * (1 + ROUNDING)
        if self.beside:
            return np.asarray(within)
        delay_s = self.lookup_s[list(chosen)].sum() + self.lookup_s[more]
        return np.asarray(within & (delay_s <= self.delay_budget_s * (1 + ROUNDING)))

    def fits(self, chosen: Sequence[int]) -> bool:
        """Whether `chosen`, in layer order, is within budgets without overlaps (Eq. 8 and 9)."""
        if chosen and not self.within_budgets(chosen[:-1], np.array(chosen[-1:]))[0]:
            return False
        follow = self.may_follow()
        pairs = pairwise(chosen)
        return all(bool(follow[a, b]) for a, b in pairs) and (not chosen or bool(self.may_end()[chosen[-1]]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Expected latency in seconds and accuracy relative to the base model."""

    latency_s: float
    accuracy: float


def nested_outcome(problem: Problem, chosen: Sequence[int]) -> Outcome:
    """Evaluate `chosen`, assuming that later caches hit all that earlier ones hit (Eq. 7 and 10).

    The effective hit rate is what a cache hits beyond the best before it (instead of Eq. 5).
    """
    reached, base_s = problem.reached_s, problem.base_s
    hit = lost = latency_s = looked_s = 0.0
    for v in chosen:
        effective = max(0.0, float(problem.hit_rate[v]) - hit)
        if problem.beside:
            latency_s += effective * float(reached[v] + problem.lookup_s[v])
        else:
            looked_s += float(problem.lookup_s[v])
            latency_s += effective * (float(reached[v]) + looked_s)
        lost += effective * (1 - float(problem.accuracy[v]))
        hit += effective
    return Outcome(latency_s=latency_s + (1 - hit) * (base_s + looked_s), accuracy=1 - lost)


def joint_outcome(problem: Problem, chosen: Sequence[int]) -> Outcome:
    latency_s = float(latencies_of(problem, chosen).mean())
    return Outcome(latency_s=latency_s, accuracy=1 - wrong_of(problem, chosen) / problem.samples)


def latencies_of(problem: Problem, chosen: Sequence[int]) -> NDArray[np.float64]:
    exits, lookup_s = exits_of(problem, chosen), problem.lookup_s[list(chosen)]
    at = np.append(problem.reached_s[list(chosen)], problem.base_s)
    at += np.append(lookup_s, 0.0) if problem.beside else np.append(np.cumsum(lookup_s), lookup_s.sum())
    return np.asarray(at[exits])


def exits_of(problem: Problem, chosen: Sequence[int]) -> NDArray[np.int64]:
    """Exit of each validation sample (samples,): an index into `chosen`, or its length."""
    assert problem.hits is not None
    stacked = np.vstack([problem.hits[list(chosen)], np.ones((1, problem.samples), dtype=np.bool_)])
    return np.asarray(stacked.argmax(axis=0))


def wrong_of(problem: Problem, chosen: Sequence[int]) -> int:
    return int(np.count_nonzero(answered_wrongly(problem, chosen)))


def answered_wrongly(problem: Problem, chosen: Sequence[int]) -> NDArray[np.bool_]:
    assert problem.right is not None
    exits = exits_of(problem, chosen)
    right = np.vstack([problem.right[list(chosen)], np.ones((1, problem.samples), dtype=np.bool_)])
    return np.asarray(~right[exits, np.arange(problem.samples)])
