"""Measures of a query's results, as means over its tuples, so that they can be searched and tested."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gearshift.errors import require
from gearshift.planner.joint.answers import Answers, true_answers
from gearshift.planner.joint.composed import ComposedQuery
from gearshift.planner.joint.replay import Floats, Replayed, replay


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
