"""Place models on devices (CascadeServe section 4.4)."""

import dataclasses
from collections.abc import Mapping

from gearshift.planner.published.coordination.downgrading import Failure, NoRoom, TooSlow
from gearshift.planner.published.coordination.load_balance import balance
from gearshift.planner.published.coordination.problem import Draft, Outcome, Problem
from gearshift.planner.published.coordination.pruning import DoesNotFit, prune
from gearshift.planner.space.hosts import count_of, seconds_held


def place_models(problem: Problem, failure: Failure | None, draft: Draft) -> Outcome:
    """Prune replicas until all fit; after an error, with one more replica of a bottleneck."""
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
