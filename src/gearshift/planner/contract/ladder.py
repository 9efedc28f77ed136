"""Make a planner of a search for a latency: for an accuracy, for both, and for the whole frontier."""

import dataclasses
import math
from collections.abc import Callable, Iterator

import msgspec

from gearshift.errors import Infeasible, require
from gearshift.gear import GearPlan
from gearshift.objective import Objective
from gearshift.planner.contract.planner import Planner
from gearshift.planner.contract.so_far import OutOfTime, SoFar, all_so_far
from gearshift.planner.evaluate.assemble import with_pipeline
from gearshift.planner.evaluate.bottleneck import refusal
from gearshift.planner.evaluate.confirm import replay, seeds_for
from gearshift.planner.space.bisection import narrowed
from gearshift.planner.space.cascade_search import CandidateCascade
from gearshift.planner.space.pareto import undominated
from gearshift.planner.space.request import PlanRequest
from gearshift.profiles.profile import PART_A
from gearshift.support.numbers import milliseconds, plain

FRONTIER_STEP = 1.5
ACCURACY_STEP = 2.0
LATENCY_PRECISION = 0.05
LONGEST_IN_BATCHES = 8.0
"""The ladder's top, in batches of the slowest model: more latency gains hardly anything."""
SAME_ACCURACY = 1e-4


@dataclasses.dataclass(frozen=True, slots=True)
class WithinLatency:
    """A search on one request's devices.

    `best_within` finds the best accuracy within the latency of `SoFar.request`, its only
    objective. No plan is more accurate than `most_accurate`.
    """

    best_within: Callable[[SoFar], GearPlan]
    most_accurate: CandidateCascade


def planner(name: str, prepare: Callable[[PlanRequest], WithinLatency], *, single_models: bool = False) -> Planner:
    """The planner that searches with what `prepare` gives for a request."""
    return Planner(
        name=name,
        best_within=lambda so_far: best_by_ladder(so_far, prepare(so_far.request)),
        undominated=lambda so_far: frontier_by_ladder(so_far, prepare(so_far.request)),
        single_models=single_models,
    )


def best_by_ladder(so_far: SoFar, search: WithinLatency) -> GearPlan:
    """Plan for a latency, for an accuracy (lowest latency to 5 %), or for both.

    Accuracy is judged on part A.
    """
    request = so_far.request
    require_objective(request.objective)
    accuracy, latency_s = request.objective.accuracy, request.objective.latency_s
    if accuracy is None:
        return search.best_within(so_far)
    require_accuracy_within_reach(accuracy, search.most_accurate.accuracy)
    if latency_s is None:
        return for_accuracy(lowest_latency(so_far, accuracy, search.best_within), accuracy)
    made = SoFar(so_far.remaining(within(request, latency_s)), so_far.report).run(search.best_within)
    if not made.unfinished and (best := accuracy_on_part_a(made, request)) < accuracy:
        reason = f"within {plain(latency_s * 1e3)} ms the best accuracy is {best:.4f}, not {accuracy:.4g}"
        raise refusal(request, reason, nearest_accuracy=best)
    return for_accuracy(made, accuracy)


def frontier_by_ladder(so_far: SoFar, search: WithinLatency) -> list[GearPlan]:
    """Undominated plans by rising latency, one tried for every latency objective of a ladder.

    The ladder ends where the most accurate candidate leaves nothing to gain.
    """
    made = all_so_far(_rungs(so_far, search))
    so_far.report("planned", 1.0)
    return undominated_plans(made, so_far.request)


def _rungs(so_far: SoFar, search: WithinLatency) -> Iterator[GearPlan]:
    request, made = so_far.request, 0
    latency_s, top_s = _ladder(request)
    why: Infeasible | None = None
    while latency_s < top_s * FRONTIER_STEP:
        plans = f"{made} plan{'s' * (made != 1)} so far"
        so_far.report(f"planning for {milliseconds(latency_s)}, {plans}", min(0.99, latency_s / top_s))
        try:
            found = SoFar(so_far.remaining(within(request, latency_s))).run(search.best_within)
        except Infeasible as error:
            so_far.check()
            why, latency_s = error, _next_after(error, latency_s, FRONTIER_STEP)
            continue
        yield found
        made += 1
        if found.unfinished:
            raise OutOfTime
        so_far.check()
        if _has_all_of(search.most_accurate, found, request):
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
    return with_pipeline(made, objective=msgspec.structs.replace(made.pipeline.objective, accuracy=accuracy))


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


def lowest_latency(so_far: SoFar, accuracy: float, best_within: Callable[[SoFar], GearPlan]) -> GearPlan:
    """The plan at the lowest latency, to 5 %, that has the accuracy on part A; raises `Infeasible` without one."""
    request = so_far.request

    def accurate(latency_s: float) -> GearPlan | None:
        so_far.check()
        so_far.tell(f"planning for {milliseconds(latency_s)}", 0.5)
        made = SoFar(so_far.remaining(within(request, latency_s))).run(best_within)
        if made.unfinished:
            so_far.end_with(made)
        so_far.check()
        reached = accuracy_on_part_a(made, request)
        if reached >= accuracy:
            so_far.keep(for_accuracy(made, accuracy), reached)
        return made if reached >= accuracy else None

    low, top_s = _ladder(request)
    high, found = low, None
    why = refusal(request, f"no plan within {plain(top_s * 1e3)} ms has an accuracy of {accuracy:.4g}")
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

    def feasible(latency_s: float) -> GearPlan | None:
        try:
            return accurate(latency_s)
        except Infeasible:
            return None

    return narrowed(
        feasible, found, fails=low, at_most=high, precision=LATENCY_PRECISION, middle=lambda a, b: (a * b) ** 0.5
    )


def _ladder(request: PlanRequest) -> tuple[float, float]:
    curves = request.profile.whole_curves
    return min(c.median_s[0] for c in curves), LONGEST_IN_BATCHES * max(c.median_s[-1] for c in curves)


def _next_after(error: Infeasible, latency_s: float, step: float) -> float:
    if error.nearest_latency_s is None:
        raise error
    return max(latency_s * step, error.nearest_latency_s)
