"""Search cascades, and assign one to each load range (CascadeServe sections 4.2 and 4.3)."""

import dataclasses
from collections.abc import Sequence

from gearshift.planner.published.coordination.downgrading import (
    CHEAPEST,
    Choices,
    Failure,
    NoRoom,
    NotAccurate,
    TooSlow,
)
from gearshift.planner.published.coordination.problem import Draft, Outcome, Problem
from gearshift.planner.space.cascade_search import CandidateCascade, evaluate_cascade
from gearshift.profiles.profile import PART_A


def search_cascades(problem: Problem, failure: Failure | None, draft: Draft) -> Outcome:
    """Section 4.2: the front of accuracy and work on the placement; an error here is final."""
    if failure is not None:
        return failure, draft
    return None, dataclasses.replace(draft, offered=problem.cascades(draft.placed))


def assign_cascades(problem: Problem, failure: Failure | None, draft: Draft) -> Outcome:
    """Section 4.3: the best assignment that the objective allows; downgraded after an error."""
    if failure is None and draft.choices is not None:
        return None, dataclasses.replace(draft, assigned=_swapped(problem, draft))
    choices: Choices | None = draft.choices or _all_choices(problem, draft.offered)
    if draft.choices is not None and failure is not None:
        choices = _corrected(draft.choices, failure, draft)
    if choices is None:
        return failure, draft
    assigned = choices.assigned()
    if isinstance(assigned, NotAccurate):
        return assigned, dataclasses.replace(draft, choices=choices)
    closed = 1 - sum(map(len, choices.open)) / (len(choices.open) * len(choices.candidates))
    problem.progress("assigning cascades", 0.9 * closed)
    return None, dataclasses.replace(draft, choices=choices, assigned=assigned)


def _all_choices(problem: Problem, candidates: Sequence[CandidateCascade]) -> Choices:
    """All open; but under a latency objective the last, endless range keeps the cheapest."""
    numbers = [frozenset(range(len(candidates)))] * len(problem.weights)
    least_accuracy = problem.request.objective.accuracy
    if least_accuracy is None and len(numbers) > 1:
        numbers[-1] = frozenset({CHEAPEST})
    return Choices(
        candidates=candidates, weights=problem.weights.tolist(), least_accuracy=least_accuracy, open=tuple(numbers)
    )


def _corrected(choices: Choices, failure: Failure, draft: Draft) -> Choices | None:
    match failure:
        case TooSlow(bottlenecks):
            used = {model for candidate in draft.assigned for model in candidate.cascade.models}
            others = used - {m for k in bottlenecks for m in draft.assigned[k].cascade.models}
            return choices.downgraded(bottlenecks) or choices.best_without_one(others)
        case NoRoom(models, ranges):
            return choices.best_without_one(models, ranges)
        case NotAccurate():
            return None


def _swapped(problem: Problem, draft: Draft) -> tuple[CandidateCascade, ...]:
    """Replace cascades where another is better in accuracy or work and no worse in either."""
    work_s = problem.work_s(draft.placed)

    def swapped(now: CandidateCascade) -> CandidateCascade:
        now = evaluate_cascade(now.cascade, problem.request.profile.predictions, work_s, part=PART_A)
        better = [
            new
            for new in draft.offered
            if (new.accuracy >= now.accuracy and new.work_s < now.work_s)
            or (new.accuracy > now.accuracy and new.work_s <= now.work_s)
        ]
        return max(better, key=lambda new: (new.accuracy, -new.work_s), default=now)

    return tuple(swapped(candidate) for candidate in draft.assigned)
