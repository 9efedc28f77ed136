"""The four steps of CascadeServe's planner: sections 4.2 to 4.5."""

import dataclasses
import math
from collections.abc import Mapping, Sequence

from gearshift.cascade import Cascade
from gearshift.planner.published.coordination.downgrading import (
    CHEAPEST,
    Choices,
    Failure,
    NoRoom,
    NotAccurate,
    TooSlow,
)
from gearshift.planner.published.coordination.load_balance import DoesNotFit, Tuned, balance, prune, tune
from gearshift.planner.published.coordination.problem import Draft, Outcome, Problem
from gearshift.planner.space.cascade_search import CandidateCascade, evaluate_cascade
from gearshift.planner.space.hosts import count_of, placement_of, replica_shares, seconds_held
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


def place_models(problem: Problem, failure: Failure | None, draft: Draft) -> Outcome:
    """Section 4.4: prune replicas until all fit; after an error, with one more replica of a bottleneck."""
    if isinstance(failure, TooSlow):
        return _with_one_more_replica(problem, failure, draft)
    outcome = placed(problem, draft, draft.at_least)
    if isinstance(outcome[0], NoRoom) and draft.at_least:
        outcome = placed(problem, draft, {})
    return outcome


def placed(problem: Problem, draft: Draft, at_least: Mapping[str, int]) -> Outcome:
    """Prune models to memory.

    Among ranges with the same cascade the highest stands for all, as loads are proportional.
    """
    demands = [problem.demand(k, draft) for k in range(len(draft.assigned))]
    everywhere = seconds_held(problem.hosts, problem.initial.placed)
    overloaded = [k for k, demand in enumerate(demands) if balance(demand, everywhere) is None]
    if overloaded:
        draft = dataclasses.replace(draft, placed=problem.initial.placed)
        return problem.too_slow(overloaded, draft), draft
    highest = sorted({candidate.cascade: k for k, candidate in enumerate(draft.assigned)}.values())
    key = (tuple(candidate.cascade for candidate in draft.assigned), tuple(sorted(at_least.items())))
    if key not in problem.pruned:
        problem.on_time()
        problem.pruned[key] = prune(problem.hosts, [demands[k] for k in highest], at_least=at_least)
    pruned = problem.pruned[key]
    if isinstance(pruned, DoesNotFit):
        return NoRoom(pruned.models, tuple(highest[d] for d in pruned.demands)), draft
    return None, dataclasses.replace(draft, placed=pruned, at_least=at_least)


def _with_one_more_replica(problem: Problem, failure: TooSlow, draft: Draft) -> Outcome:
    for k, model in failure.bottlenecks.items():
        now, possible = count_of(draft.placed, model), sum(model in host.seconds for host in problem.hosts)
        if now == possible:
            continue
        left, changed = placed(problem, draft, {**draft.at_least, model: now + 1})
        if left is None and problem.utilisation(k, changed) < problem.utilisation(k, draft) * (1 - 1e-6):
            return None, changed
    return failure, draft


def tune_queues(problem: Problem, failure: Failure | None, draft: Draft) -> Outcome:
    """Section 4.5: raise minimum queue lengths of the first model from 1 until each range holds.

    A cascade that fails in a range, or at almost no load, is not simulated in higher ranges.
    """
    gears: dict[int, Tuned] = {}
    failed: set[Cascade] = set()
    for k, candidate in enumerate(draft.assigned):
        if candidate.cascade not in failed and tuned_range(problem, k, draft, problem.idle_qps).holds:
            gears[k] = tuned_range(problem, k, draft)
        if k not in gears or not gears[k].holds:
            failed.add(candidate.cascade)
    failing = [k for k in range(len(draft.assigned)) if k not in gears or not gears[k].holds]
    if failing:
        return problem.too_slow(failing, draft), draft
    return None, dataclasses.replace(draft, gears=tuple(gears.values()))


def tuned_range(problem: Problem, k: int, draft: Draft, load_qps: float | None = None) -> Tuned:
    placement = placement_of(problem.hosts, draft.placed)
    cascade = draft.assigned[k].cascade
    load_qps = float(problem.loads_qps[k]) if load_qps is None else load_qps
    key = (placement, cascade, load_qps)
    if key not in problem.tuned:
        problem.on_time()
        found = balance(problem.demand(k, draft), seconds_held(problem.hosts, draft.placed), most_utilisation=math.inf)
        shares = {} if found is None else replica_shares(problem.hosts, found.shares)
        longest = 1 if load_qps == problem.idle_qps else None
        problem.tuned[key] = tune(problem.steady(placement), cascade, load_qps, shares, longest=longest)
    return problem.tuned[key]
