"""A bound on the median latency, beside the one on the percentile."""

import dataclasses
import math
import time
from collections.abc import Callable

import msgspec
from msgspec import UNSET

from gearshift.errors import Infeasible
from gearshift.gear import GearPlan
from gearshift.objective import Objective
from gearshift.planner.evaluate.assemble import with_pipeline
from gearshift.planner.evaluate.bottleneck import refusal
from gearshift.planner.evaluate.confirm import with_predictions
from gearshift.planner.space.request import PlanRequest
from gearshift.support.numbers import milliseconds

STEP = 0.75
"""Each shorter latency is this share of the one before."""


def median_of(objective: Objective) -> float | None:
    return None if objective.median_s is UNSET else float(objective.median_s)


def keeps_median(made: GearPlan, request: PlanRequest) -> bool:
    """Whether the predicted median of part B is within the one asked for."""
    most_s = median_of(request.objective)
    return most_s is None or _p50_s(made) <= most_s


def within_median(find: Callable[[PlanRequest], GearPlan], request: PlanRequest) -> GearPlan:
    """The plan of `find`, or the first for a shorter latency, whose median is within the one asked for.

    A search that knows no median shortens it with the percentile: where that is within the bound, so is
    the median. All searches share the budget. Raises `Infeasible` where none is, and `KeyboardInterrupt`
    where a search was ended by hand before one was found.
    """
    ends_s = math.inf if request.budget_s is None else time.monotonic() + request.budget_s
    made = find(request)
    if keeps_median(made, request):
        return made
    least_s, latency_s = _p50_s(made), request.objective.latency_s
    most_s = median_of(request.objective) or 0.0
    early = made.unfinished
    while not early and latency_s is not None and latency_s > most_s:
        latency_s = max(most_s, STEP * latency_s)
        if (shorter := _for_latency(request, latency_s, ends_s)) is None:
            early = True
            break
        try:
            faster = find(shorter)
        except Infeasible:
            early = time.monotonic() > ends_s
            break
        least_s = min(least_s, _p50_s(faster))
        if keeps_median(faster, request):
            kept = msgspec.structs.replace(faster.pipeline.objective, latency_s=request.objective.latency_s)
            return with_predictions(with_pipeline(faster, objective=kept), request)
        early = faster.unfinished
    if early and request.budget_s is None:
        raise KeyboardInterrupt
    raise above_median(least_s, request, early=early)


def _for_latency(request: PlanRequest, latency_s: float, ends_s: float) -> PlanRequest | None:
    """The request for a shorter latency with what is left of the budget; None where nothing is."""
    objective = msgspec.structs.replace(request.objective, latency_s=latency_s)
    if request.budget_s is None:
        return dataclasses.replace(request, objective=objective)
    left_s = ends_s - time.monotonic()
    return dataclasses.replace(request, objective=objective, budget_s=left_s) if left_s > 0 else None


def frontier_within_median(made: list[GearPlan], request: PlanRequest) -> list[GearPlan]:
    """The plans of a frontier whose median is within the one asked for; raises `Infeasible` where none is."""
    kept = [plan for plan in made if keeps_median(plan, request)]
    if made and not kept:
        raise above_median(min(_p50_s(plan) for plan in made), request)
    return kept


def above_median(p50_s: float, request: PlanRequest, *, early: bool = False) -> Infeasible:
    most_s = median_of(request.objective) or 0.0
    more = f", and the budget of {request.budget_s:g} s is spent; give a larger --budget-s" if early else ""
    reason = (
        f"the median of the fastest plan found is {milliseconds(p50_s)}, above the {milliseconds(most_s)} asked for"
    )
    return refusal(request, reason + more)


def _p50_s(made: GearPlan) -> float:
    return made.predictions[made.name].latency_s.p50
