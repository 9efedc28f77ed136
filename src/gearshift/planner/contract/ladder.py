"""Extend a planner for a latency objective to an accuracy, to both, and to the whole frontier."""

import dataclasses
import math
from collections.abc import Callable, Iterator

import msgspec

from gearshift.errors import Infeasible, require
from gearshift.gear import GearPlan
from gearshift.objective import Objective
from gearshift.planner.contract.so_far import OutOfTime, SoFar, all_so_far
from gearshift.planner.evaluate.assemble import replay
from gearshift.planner.evaluate.bottleneck import refusal
from gearshift.planner.evaluate.replays import seeds_for
from gearshift.planner.space.cascade_search import CandidateCascade
from gearshift.planner.space.pareto import undominated
from gearshift.planner.space.request import PlanRequest, Progress, silent
from gearshift.profiles.profile import PART_A

FRONTIER_STEP = 1.5
ACCURACY_STEP = 2.0
LATENCY_PRECISION = 0.05
LONGEST_IN_BATCHES = 8.0
"""The ladder's top, in batches of the slowest model: more latency gains hardly anything."""
SAME_ACCURACY = 1e-4

BestWithin = Callable[[PlanRequest, Progress], GearPlan]
"""The best accuracy within the request's only objective, a latency; raises `Infeasible`."""


def plan_by_ladder(
    request: PlanRequest, best_within: BestWithin, *, highest_accuracy: float, progress: Progress = silent
) -> GearPlan:
    """Plan for a latency, for an accuracy (lowest latency to 5 %), or for both.

    `highest_accuracy` is an upper bound for every plan. Accuracy is judged on part A.
    """
    require_objective(request.objective)
    accuracy, latency_s = request.objective.accuracy, request.objective.latency_s
    if accuracy is None:
        return best_within(request, progress)
    require_accuracy_within_reach(accuracy, highest_accuracy)
    if latency_s is None:
        so_far = SoFar(request, progress)
        return so_far.run(lambda: for_accuracy(_lowest_latency(request, accuracy, best_within, so_far), accuracy))
    made = best_within(within(request, latency_s), progress)
    if not made.unfinished and (best := accuracy_on_part_a(made, request)) < accuracy:
        reason = f"within {latency_s * 1e3:.4g} ms the best accuracy is {best:.4f}, not {accuracy:.4g}"
        raise refusal(request, reason, nearest_accuracy=best)
    return for_accuracy(made, accuracy)


def frontier_by_ladder(
    request: PlanRequest, best_within: BestWithin, *, most_accurate: CandidateCascade, progress: Progress
) -> list[GearPlan]:
    """Undominated plans by rising latency, one tried for every latency objective of a ladder.

    The ladder ends where the `most_accurate` candidate leaves nothing to gain.
    """
    made = all_so_far(_rungs(request, best_within, most_accurate, progress))
    progress("planned", 1.0)
    return undominated_plans(made, request)


def _rungs(
    request: PlanRequest, best_within: BestWithin, most_accurate: CandidateCascade, progress: Progress
) -> Iterator[GearPlan]:
    so_far, made = SoFar(request), 0
    latency_s, top_s = _ladder(request)
    why: Infeasible | None = None
    while latency_s < top_s * FRONTIER_STEP:
        plans = f"{made} plan{'s' * (made != 1)} so far"
        progress(f"planning for {latency_s * 1e3:.3g} ms, {plans}", min(0.99, latency_s / top_s))
        try:
            found = best_within(so_far.remaining(within(request, latency_s)), silent)
        except Infeasible as error:
            so_far.check()
            why, latency_s = error, _next_after(error, latency_s, FRONTIER_STEP)
            continue
        yield found
        made += 1
        if found.unfinished:
            raise OutOfTime
        so_far.check()
        if _has_all_of(most_accurate, found, request):
            return
        latency_s *= FRONTIER_STEP
    if not made and why is not None:
        raise why


def _has_all_of(most_accurate: CandidateCascade, made: GearPlan, request: PlanRequest) -> bool:
    """Whether the plan uses the most accurate candidate, and is as accurate.

    A replay draws its samples: by chance a plan without that candidate may look as accurate.
    """
    gears = made.pipelines[request.profile.operator].gears
    if all(gear.cascade.models != most_accurate.cascade.models for gear in gears):
        return False
    return accuracy_on_part_a(made, request) >= most_accurate.accuracy - SAME_ACCURACY


def undominated_plans(made: list[GearPlan], request: PlanRequest) -> list[GearPlan]:
    return [made[i] for i in undominated([predicted_point(p, request) for p in made])]


def predicted_point(made: GearPlan, request: PlanRequest) -> tuple[float, float]:
    """Latency in seconds at the percentile (or the next higher recorded), and accuracy."""
    result = made.predictions[request.profile.operator]
    return result.latency_s.at(request.objective.percentile), result.accuracy


def accuracy_on_part_a(made: GearPlan, request: PlanRequest) -> float:
    return replay(made, request, part=PART_A, seeds=seeds_for(request.trace)).result.accuracy


def within(request: PlanRequest, latency_s: float | None) -> PlanRequest:
    objective = msgspec.structs.replace(request.objective, latency_s=latency_s, accuracy=None)
    return dataclasses.replace(request, objective=objective)


def for_accuracy(made: GearPlan, accuracy: float) -> GearPlan:
    pipelines = {
        name: msgspec.structs.replace(
            operator, objective=msgspec.structs.replace(operator.objective, accuracy=accuracy)
        )
        for name, operator in made.pipelines.items()
    }
    return msgspec.structs.replace(made, pipelines=pipelines)


def require_objective(objective: Objective) -> None:
    require(
        objective.latency_s is not None or objective.accuracy is not None,
        "there is neither a latency nor an accuracy objective",
        remedy="give a latency, an accuracy, or both",
    )
    require(
        objective.confidence is None,
        f"the objective has a confidence of {objective.confidence}, which the baselines do not take",
        remedy="leave it out, or take the planner optimal",
    )


def require_accuracy_within_reach(accuracy: float, highest: float) -> None:
    if highest < accuracy:
        reason = f"no candidate has an accuracy of {accuracy:.4g}, on any devices; the best has {highest:.4f}"
        raise Infeasible(reason, nearest_accuracy=math.floor(highest * 1e4) / 1e4 or None, by_load=False)


def _lowest_latency(request: PlanRequest, accuracy: float, best_within: BestWithin, so_far: SoFar) -> GearPlan:
    def accurate(latency_s: float) -> GearPlan | None:
        so_far.check()
        so_far.tell(f"planning for {latency_s * 1e3:.3g} ms", 0.5)
        made = best_within(so_far.remaining(within(request, latency_s)), silent)
        if made.unfinished:
            so_far.plan = so_far.plan or made
            raise OutOfTime
        so_far.check()
        reached = accuracy_on_part_a(made, request)
        if reached >= accuracy:
            so_far.keep(for_accuracy(made, accuracy), reached)
        return made if reached >= accuracy else None

    low, top_s = _ladder(request)
    high, found = low, None
    why = refusal(request, f"no plan within {top_s * 1e3:.4g} ms has an accuracy of {accuracy:.4g}")
    while found is None:
        if high >= top_s * ACCURACY_STEP:
            raise why
        try:
            found = accurate(high)
        except Infeasible as error:
            so_far.check()
            low, high = high, _next_after(error, high, ACCURACY_STEP)
        else:
            if found is None:
                low, high = high, high * ACCURACY_STEP
    while high > low * (1 + LATENCY_PRECISION):
        middle = (low * high) ** 0.5
        try:
            tried = accurate(middle)
        except Infeasible:
            tried = None
        low, high, found = (middle, high, found) if tried is None else (low, middle, tried)
    return found


def _ladder(request: PlanRequest) -> tuple[float, float]:
    curves = request.profile.whole_curves
    return min(c.median_s[0] for c in curves), LONGEST_IN_BATCHES * max(c.median_s[-1] for c in curves)


def _next_after(error: Infeasible, latency_s: float, step: float) -> float:
    if error.nearest_latency_s is None:
        raise error
    return max(latency_s * step, error.nearest_latency_s)
