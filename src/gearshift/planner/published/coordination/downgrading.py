"""Workload adaption: assign cascades to load ranges, and correct that as errors come back.

CascadeServe, section 4.3.
"""

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gearshift.planner.space.cascade_search import CandidateCascade

CHEAPEST = 0
ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class TooSlow:
    """Ranges whose load or latency the devices cannot hold, each with its bottleneck model."""

    bottlenecks: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class NoRoom:
    """Memory cannot hold these models together.

    `ranges` are those whose load does not allow fewer replicas.
    """

    models: tuple[str, ...]
    ranges: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NotAccurate:
    """The highest accuracy that the open cascades reach."""

    accuracy: float


Failure = TooSlow | NoRoom | NotAccurate


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """The candidates still open in each range (ranges,), by number; they come by rising work.

    `weights` (ranges,) are the shares of time in each range. Without `least_accuracy` every range
    has its most accurate open candidate, and the cheapest stays open; with it, ranges rise from
    their cheapest.
    """

    candidates: Sequence[CandidateCascade]
    weights: Sequence[float]
    least_accuracy: float | None
    open: tuple[frozenset[int], ...]

    def assigned(self) -> tuple[CandidateCascade, ...] | NotAccurate:
        """A candidate per range: the best one that the objective allows (section 4.3)."""
        if self.least_accuracy is None:
            return tuple(self.candidates[max(numbers)] for numbers in self.open)
        return self._risen(self.least_accuracy)

    def best_accuracy(self) -> float:
        return self._accuracy([max(numbers) for numbers in self.open])

    def downgraded(self, failing: Collection[int]) -> "Choices | None":
        assigned = self.assigned()
        if isinstance(assigned, NotAccurate):
            return None
        work_s = [candidate.work_s for candidate in self.candidates]
        lower = {k for k in failing if any(work_s[c] < assigned[k].work_s for c in self.open[k])}
        return self._kept(lambda k, c: k not in lower or work_s[c] < assigned[k].work_s) if lower else None

    def without(self, model: str) -> "Choices | None":
        return self._kept(lambda k, c: model not in self.candidates[c].cascade.models or self._stays(c))

    def best_without_one(self, models: Collection[str], failing: Collection[int] = ()) -> "Choices | None":
        """Drop a model, or downgrade failing ranges, at the least loss of accuracy."""
        remedies = [self.without(model) for model in sorted(models)]
        if failing:
            remedies.append(self.downgraded(failing))
        changed = [remedy for remedy in remedies if remedy is not None and remedy.open != self.open]
        return max(changed, key=lambda remedy: remedy.best_accuracy(), default=None)

    def _stays(self, number: int) -> bool:
        return number == CHEAPEST and self.least_accuracy is None

    def _kept(self, keep: Callable[[int, int], bool]) -> "Choices | None":
        kept = tuple(frozenset(c for c in numbers if keep(k, c)) for k, numbers in enumerate(self.open))
        return dataclasses.replace(self, open=kept) if all(kept) else None

    def _accuracy(self, numbers: Sequence[int]) -> float:
        return float(np.dot(self.weights, [self.candidates[c].accuracy for c in numbers]))

    def _risen(self, least_accuracy: float) -> tuple[CandidateCascade, ...] | NotAccurate:
        """From the cheapest, raise the range that gains most weighted accuracy."""
        ladders = [sorted(numbers) for numbers in self.open]
        steps = [0] * len(ladders)
        while True:
            numbers = [ladder[step] for ladder, step in zip(ladders, steps, strict=True)]
            accuracy = self._accuracy(numbers)
            if accuracy >= least_accuracy - ROUNDING:
                return tuple(self.candidates[c] for c in numbers)
            rising = [k for k, ladder in enumerate(ladders) if steps[k] + 1 < len(ladder)]
            if not rising:
                return NotAccurate(accuracy)
            steps[max(rising, key=lambda k: self._gain(k, numbers[k], ladders[k][steps[k] + 1]))] += 1

    def _gain(self, k: int, number: int, higher: int) -> float:
        return self.weights[k] * (self.candidates[higher].accuracy - self.candidates[number].accuracy)
