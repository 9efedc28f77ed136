"""Tune how many requests a batch waits for in each load range (CascadeServe section 4.5)."""

import dataclasses
import math

from gearshift.cascade import Cascade
from gearshift.planner.published.coordination.downgrading import Failure
from gearshift.planner.published.coordination.load_balance import balance
from gearshift.planner.published.coordination.problem import Draft, Outcome, Problem
from gearshift.planner.published.coordination.queue_lengths import Tuned, tune
from gearshift.planner.space.hosts import placement_of, replica_shares, seconds_held


def tune_queues(problem: Problem, failure: Failure | None, draft: Draft) -> Outcome:
    """Raise minimum queue lengths of the first model from 1 until each range holds.

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
