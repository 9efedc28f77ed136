"""Chooses the implementation of each operator of a query, and the order of its filters.

An answer to a row is right if the query keeps it as it ought to, and what it then tells is right.
The candidates are all combinations of the operators' Pareto cascades. Their accuracy is that of the
composed query on rows that all operators were recorded on; only where the operators are assumed to
err independently it is a product. For the Pareto front work is estimated from each operator's own
share of rows kept, and then judged anew on the same rows. Filters run by rising work over the share
of rows that they drop, maps last.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gearshift.bulk.choice import accuracy_bound
from gearshift.cascade import Cascade
from gearshift.errors import InvalidInput, require
from gearshift.profiles.profile import PART_A, PART_B
from gearshift.sql.steps import Floats, StepRecords

MOST_COMBINATIONS = 1_000_000

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """One operator as it will run: the share of the rows that reach it, and of those that it keeps."""

    number: int
    name: str
    is_filter: bool
    cascade: Cascade
    reached: float
    kept: float
    work_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryChoice:
    """Operators in the order in which they run, with figures per row of the relation.

    `accuracy` is that of the query's answers on rows that the choice did not see; `recorded` says
    what rows are. Where operators are taken to err independently, it is the product's. `as_given_s`
    is the work in the order in which they were given, `most_accurate_s` that of the most accurate
    implementations.
    """

    operators: tuple[Chosen, ...]
    accuracy: float
    work_s: float
    as_given_s: float
    most_accurate_s: float
    at_least: float | None
    assume_independent: bool
    recorded: str = "row r of each profile, which is taken to be the same row"

    def explain(self) -> str:
        """A line for each operator, and what the choice saves."""
        lines = [
            f"{place + 1}. {'filter' if one.is_filter else 'map'} {one.name}: {one.cascade}; "
            f"{100 * one.reached:.1f} % of the rows reach it"
            + (f", it keeps {100 * one.kept:.1f} % of these" if one.is_filter else "")
            + f"; {1e3 * one.work_s:.4g} ms a row of the relation"
            for place, one in enumerate(self.operators)
        ]
        bound = "" if self.at_least is None else f", certified {100 * self.at_least:.1f} %"
        how = ", if the operators err independently" if self.assume_independent else ""
        lines.append(f"the answer to {100 * self.accuracy:.1f} % of the rows is right{bound}{how}")
        lines.append(
            f"{1e3 * self.work_s:.4g} ms a row; {1e3 * self.as_given_s:.4g} in the order given, "
            f"{1e3 * self.most_accurate_s:.4g} with the most accurate implementations"
        )
        if len(self.operators) > 1:
            apart = "each operator for itself: how often several err on one row is not known"
            lines.append(f"judged on {apart if self.assume_independent else self.recorded}")
        return "\n".join(lines)


def optimize(
    steps: Sequence[StepRecords], accuracy: float, *, confidence: float | None = None, assume_independent: bool = False
) -> QueryChoice:
    """The cheapest implementations whose query answers are right on `accuracy` of the rows of part A.

    Unless `assume_independent`, row r of all records must be the same row. With a `confidence`,
    choices are tested on part B from the safest to the cheapest, up to the first that fails.
    Raises `InvalidInput` where nothing is accurate enough.
    """
    require(len(steps) >= 1, "the query has no operators")
    require(0 < accuracy < 1, f"accuracy is {accuracy}", remedy="give a share between 0 and 1")
    require(
        confidence is None or not assume_independent,
        "operators that are assumed independent have no certificate",
        remedy="leave confidence out, or record all operators on the same rows",
    )
    if not assume_independent:
        _require_same_rows(steps)
    combinations, front_accuracy, _ = front_of(steps, assume_independent=assume_independent)
    if assume_independent:
        good = np.flatnonzero(front_accuracy >= accuracy)
        _require_some(good, accuracy, float(front_accuracy.max()))
        return _choice(steps, combinations[good[0]], combinations[-1], None, assume_independent=True)
    judged = [Judged(steps, picks, PART_A) for picks in combinations]
    by_work = sorted((one for one in judged if one.accuracy >= accuracy), key=lambda one: (one.work_s, -one.accuracy))
    _require_some(by_work, accuracy, max(one.accuracy for one in judged))
    dearest = max(judged, key=lambda one: one.accuracy).picks
    if confidence is None:
        return _choice(steps, by_work[0].picks, dearest, None)
    picks, bound = _certified(steps, by_work, accuracy, confidence)
    return _choice(steps, picks, dearest, bound)


def front_of(
    steps: Sequence[StepRecords], part: int = PART_A, *, assume_independent: bool = False
) -> tuple[Ints, Floats, Floats]:
    """Pareto combinations (n, steps) by rising work, their accuracy, and their work as of independent operators."""
    counts = [_few(len(step.cascades), len(steps)) for step in steps]
    picks = np.array(list(itertools.product(*counts)), dtype=np.int64)
    accuracy, work_s = independent(steps, picks, part)
    if not assume_independent:
        accuracy = composed(steps, counts, part)
    order = np.lexsort((-accuracy, work_s))
    best = np.maximum.accumulate(accuracy[order])
    front = order[np.concatenate([[True], accuracy[order][1:] > best[:-1]])]
    return picks[front], accuracy[front], work_s[front]


def _few(count: int, steps: int) -> list[int]:
    """Implementations, evenly over the front, such that all combinations can be looked at."""
    most = max(2, int(MOST_COMBINATIONS ** (1 / steps)))
    return sorted({round(place) for place in np.linspace(0, count - 1, min(count, most)).tolist()})


def composed(steps: Sequence[StepRecords], counts: Sequence[Sequence[int]], part: int = PART_A) -> Floats:
    """Accuracy of all combinations of the implementations `counts`, as `itertools.product` has them.

    The query is right on a row that it ought to keep if all operators keep it and tell the right, on
    another if one of them drops it. Both are products over the operators, and their means over rows,
    for all implementations of the last operator at once, a product of matrices.
    """
    rows = steps[0].part == part
    ought = np.logical_and.reduce([step.truth[rows] for step in steps])
    kept = [step.passes[:, rows][list(few)] for step, few in zip(steps, counts, strict=True)]
    right = [
        (passes * step.quality[:, rows][list(few)])[:, ought].astype(np.float32)
        for step, few, passes in zip(steps, counts, kept, strict=True)
    ]
    wrong = [passes[:, ~ought].astype(np.float32) for passes in kept]
    dropped = np.count_nonzero(~ought) - _sums(wrong)
    return np.asarray((_sums(right) + dropped) / len(ought))


def _sums(of_steps: Sequence[NDArray[np.float32]]) -> Floats:
    """Sums over rows of the products of one row of each step (implementations, rows), for all choices."""
    first, *others = of_steps
    if not others:
        return np.asarray(first.sum(axis=1, dtype=np.float64))
    found = []
    for one in first:  # a piece at a time, as a product of all but the last step may not fit in memory
        ahead = one[None]
        for step in others[:-1]:
            ahead = (ahead[:, None] * step[None]).reshape(len(ahead) * len(step), -1)
        found.append((ahead @ others[-1].T).ravel())
    return np.concatenate(found).astype(np.float64)


def independent(steps: Sequence[StepRecords], picks: Ints, part: int = PART_A) -> tuple[Floats, Floats]:
    """Accuracy and work (n,) of combinations (n, steps), as products of each operator's own shares."""
    ought, kept, both, quality = (np.ones(len(picks)) for _ in range(4))
    work, rank, share = (np.zeros(picks.shape) for _ in range(3))
    for number, step in enumerate(steps):
        rows, pick = step.part == part, picks[:, number]
        passes = step.passes[:, rows]
        own_kept = passes.mean(axis=1)[pick]
        ought *= step.truth[rows].mean()
        kept *= own_kept
        both *= (passes & step.truth[rows]).mean(axis=1)[pick]
        quality *= step.quality[:, rows].mean(axis=1)[pick]
        work[:, number], share[:, number] = step.work_s[:, rows].mean(axis=1)[pick], own_kept
        rank[:, number] = ranks(work[:, number], own_kept) if step.is_filter else np.inf
    order = np.argsort(rank, axis=1, kind="stable")
    work, share = np.take_along_axis(work, order, axis=1), np.take_along_axis(share, order, axis=1)
    reached = np.concatenate([np.ones((len(picks), 1)), np.cumprod(share, axis=1)[:, :-1]], axis=1)
    accuracy: Floats = both * quality + 1 - ought - kept + both
    return accuracy, np.asarray((work * reached).sum(axis=1))


def ranks(work_s: Floats, kept: Floats) -> Floats:
    """Work over the share of rows that a filter drops; the lowest goes first."""
    dropped = 1 - kept
    return np.divide(work_s, dropped, out=np.full_like(work_s, 1e300), where=dropped > 0)


class Judged:
    """A combination on recorded rows of a part, which all operators have in common."""

    def __init__(
        self, steps: Sequence[StepRecords], picks: Sequence[int] | Ints, part: int, order: Sequence[int] | None = None
    ) -> None:
        self.picks = [int(pick) for pick in picks]
        rows = steps[0].part == part
        self._steps = steps
        self._passes = [step.passes[pick, rows] for step, pick in zip(steps, self.picks, strict=True)]
        self._work_s = [step.work_s[pick, rows] for step, pick in zip(steps, self.picks, strict=True)]
        kept = np.logical_and.reduce(self._passes)
        ought = np.logical_and.reduce([step.truth[rows] for step in steps])
        told = np.prod([step.quality[pick, rows] for step, pick in zip(steps, self.picks, strict=True)], axis=0)
        self.quality = np.where(kept & ought, told, (kept == ought).astype(np.float64))
        self.accuracy = float(self.quality.mean())
        self.order = self._cheap_order() if order is None else list(order)
        self.reached, self.kept, self.spent_s = self._run(self.order)
        self.work_s = sum(self.spent_s)

    def in_order(self, order: Sequence[int]) -> float:
        """The work per row in another order."""
        return sum(self._run(order)[2])

    def _cheap_order(self) -> list[int]:
        """Filters one by one, each the one of lowest rank on the rows that are left; then maps."""
        alive = np.ones(len(self.quality), dtype=bool)
        left = [number for number, step in enumerate(self._steps) if step.is_filter]
        order: list[int] = []
        while left:
            if not alive.any():
                alive[:] = True
            work = np.array([self._work_s[number][alive].mean() for number in left])
            kept = np.array([self._passes[number][alive].mean() for number in left])
            order.append(left.pop(int(np.argmin(ranks(work, kept)))))
            alive &= self._passes[order[-1]]
        return order + [number for number, step in enumerate(self._steps) if not step.is_filter]

    def _run(self, order: Sequence[int]) -> tuple[list[float], list[float], list[float]]:
        alive = np.ones(len(self.quality), dtype=bool)
        reached, kept, spent_s = [], [], []
        for number in order:
            reached.append(float(alive.mean()))
            kept.append(float(self._passes[number][alive].mean()) if alive.any() else 0.0)
            spent_s.append(float(np.where(alive, self._work_s[number], 0).mean()))
            alive &= self._passes[number]
        return reached, kept, spent_s


def _certified(
    steps: Sequence[StepRecords], by_work: Sequence[Judged], accuracy: float, confidence: float
) -> tuple[list[int], float]:
    found: tuple[list[int], float] | None = None
    for one in sorted(by_work, key=lambda one: (-one.accuracy, one.work_s)):
        tested = Judged(steps, one.picks, PART_B)
        bound = accuracy_bound(tested.quality, confidence)
        if bound < accuracy:
            if found is None:
                raise InvalidInput(
                    f"accuracy {accuracy:.4g} of the query cannot be certified at confidence {confidence:.4g}: "
                    f"{len(tested.quality)} rows of part B show at least {bound:.4g}",
                    remedy="ask for less, or profile all operators on more rows",
                )
            break
        found = one.picks, bound
    assert found is not None
    return found


def _choice(
    steps: Sequence[StepRecords],
    picks: Sequence[int] | Ints,
    dearest: Sequence[int] | Ints,
    at_least: float | None,
    *,
    assume_independent: bool = False,
) -> QueryChoice:
    if assume_independent:
        return _independent_choice(steps, picks, dearest)
    order = Judged(steps, picks, PART_A).order
    run = Judged(steps, picks, PART_B, order)
    return QueryChoice(
        operators=_operators(steps, run.picks, order, run.reached, run.kept, run.spent_s),
        accuracy=run.accuracy,
        work_s=run.work_s,
        as_given_s=run.in_order(range(len(steps))),
        most_accurate_s=Judged(steps, dearest, PART_B).work_s,
        at_least=at_least,
        assume_independent=False,
    )


def _independent_choice(
    steps: Sequence[StepRecords], picks: Sequence[int] | Ints, dearest: Sequence[int] | Ints
) -> QueryChoice:
    both = np.array([[int(pick) for pick in picks], [int(pick) for pick in dearest]])
    accuracy, work_s = independent(steps, both, PART_B)
    rows = [step.part == PART_B for step in steps]
    own_s = [float(s.work_s[int(p), r].mean()) for s, p, r in zip(steps, picks, rows, strict=True)]
    kept = [float(s.passes[int(p), r].mean()) for s, p, r in zip(steps, picks, rows, strict=True)]
    rank = [float(ranks(np.array([w]), np.array([k]))[0]) for w, k in zip(own_s, kept, strict=True)]
    order = sorted(range(len(steps)), key=lambda n: (not steps[n].is_filter, rank[n] if steps[n].is_filter else n))

    def run(order: Sequence[int]) -> tuple[list[float], list[float]]:
        reached = np.cumprod([1.0, *(kept[number] for number in order)])[:-1].tolist()
        return reached, [share * own_s[number] for share, number in zip(reached, order, strict=True)]

    reached, spent_s = run(order)
    return QueryChoice(
        operators=_operators(steps, both[0].tolist(), order, reached, [kept[number] for number in order], spent_s),
        accuracy=float(accuracy[0]),
        work_s=float(work_s[0]),
        as_given_s=sum(run(range(len(steps)))[1]),
        most_accurate_s=float(work_s[1]),
        at_least=None,
        assume_independent=True,
    )


def _operators(
    steps: Sequence[StepRecords],
    picks: Sequence[int],
    order: Sequence[int],
    reached: Sequence[float],
    kept: Sequence[float],
    spent_s: Sequence[float],
) -> tuple[Chosen, ...]:
    return tuple(
        Chosen(
            number=number,
            name=steps[number].name,
            is_filter=steps[number].is_filter,
            cascade=steps[number].cascades[picks[number]],
            reached=reached[place],
            kept=kept[place],
            work_s=spent_s[place],
        )
        for place, number in enumerate(order)
    )


def _require_same_rows(steps: Sequence[StepRecords]) -> None:
    for step in steps[1:]:
        require(
            np.array_equal(step.part, steps[0].part),
            f"operators {steps[0].name!r} and {step.name!r} were not recorded on the same rows, so how often both err "
            "is unknown",
            remedy="profile all operators on the same samples, or assume that they err independently "
            "(assume_independent=True, without a certificate)",
        )


def _require_some(found: Sequence[object] | Ints, accuracy: float, best: float) -> None:
    require(
        len(found) > 0,
        f"no implementations give the query accuracy {accuracy:.4g}: the best have {best:.4g}",
        remedy="ask for less, or profile better models",
    )
