"""Certificates: what a query's answers are worth, with confidence.

Tuples are chosen on part A. The Pareto tuples are then tested on part B in an order that part A
has fixed, from the safest to the cheapest, each at the full level, up to the first that fails: so
the chance that one which does not keep the promise passes is that of a single test. Several
promises are each tested at the full level, as all must hold.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gearshift.planner.joint.answers import Answers
from gearshift.planner.joint.composed import ComposedQuery
from gearshift.planner.joint.front import JointFront, picked
from gearshift.planner.joint.measures import TestedMeasure
from gearshift.planner.joint.replay import replay
from gearshift.result import lower_confidence_bound, share_bound

MOST_LABELS = 1 << 40


@dataclass(frozen=True, slots=True)
class Promise:
    """A level that a measure of the query's answers must reach: accuracy, recall, precision, agreement."""

    name: str
    measure: TestedMeasure
    level: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The test of one promise on one tuple: `mean` of `trials`, and the bound that it certifies."""

    name: str
    level: float
    trials: int
    mean: float
    bound: float

    @property
    def holds(self) -> bool:
        return self.bound >= self.level


@dataclass(frozen=True, slots=True, kw_only=True)
class Certification:
    """The cheapest tuple that passed, as its place in the front; None if none did.

    `verdicts` are those on each promise, for the tuple that passed, else for the safest; `passed`
    has those of all tuples that passed, by place. `tried` counts the tuples that were tested.
    `lacking` has for each promise how many more trials the safest tuple needs to keep it, at the
    share of right ones that it has; None where none would do.
    """

    place: int | None
    verdicts: tuple[Verdict, ...]
    passed: dict[int, tuple[Verdict, ...]]
    tried: int
    lacking: dict[str, int | None]


def certify(
    query: ComposedQuery,
    candidates: Mapping[str, Answers],
    front: JointFront,
    promises: Sequence[Promise],
    confidence: float,
) -> Certification:
    """Test a front found on part A on the records of part B, which `query` and `candidates` are of.

    The front must have been ordered without looking at part B.
    """
    passed: dict[int, tuple[Verdict, ...]] = {}
    verdicts: tuple[Verdict, ...] = ()
    tried = 0
    for place in range(len(front) - 1, -1, -1):
        replayed = replay(query, picked(query, candidates, front.chosen[place : place + 1]))
        now = tuple(verdict(p.name, p.measure.trials(replayed), p.level, confidence) for p in promises)
        tried += 1
        if tried == 1:
            verdicts = now
        if not all(each.holds for each in now):
            break
        passed[place] = verdicts = now
    lacking = {} if passed else {t.name: lacking_trials(t, confidence) for t in verdicts if not t.holds}
    return Certification(
        place=min(passed, default=None), verdicts=verdicts, passed=passed, tried=tried, lacking=lacking
    )


def verdict(name: str, trials: NDArray[np.floating], level: float, confidence: float) -> Verdict:
    """Test the mean of independent trials (n,) from 0 to 1, such as expected qualities in a replay.

    Exactly (Clopper and Pearson) where each is 0 or 1, else by a bound that holds for all scores.
    """
    n = len(trials)
    mean = float(trials.mean(dtype=np.float64)) if n else 0.0
    if np.isin(trials, (0.0, 1.0)).all():
        bound = share_bound(int(np.count_nonzero(trials == 0)), n, confidence)
    else:
        bound = lower_confidence_bound(mean, n, confidence)
    return Verdict(name=name, level=level, trials=n, mean=mean, bound=bound)


def least_trials(level: float, confidence: float) -> int:
    """How many trials without a miss certify `level`: 29 for 0.9 with confidence 0.95."""
    return math.ceil(math.log1p(-confidence) / math.log(level)) if level < 1 else MOST_LABELS


def lacking_trials(test: Verdict, confidence: float) -> int | None:
    """How many more trials a failed test needs if as large a share of them is right.

    None if that share is below the level. A miss or two may be chance: with few trials, the answer
    counts on none beyond their share.
    """
    if test.trials and test.mean < test.level:
        return None
    low = max(test.trials, least_trials(test.level, confidence))
    share_wrong = 1 - test.mean if test.trials else 0.0

    def enough(n: int) -> bool:
        return share_bound(math.ceil(share_wrong * n - 1e-9), n, confidence) >= test.level

    high = low
    while not enough(high):
        low, high = high, 2 * high
        if high > MOST_LABELS:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high - test.trials
