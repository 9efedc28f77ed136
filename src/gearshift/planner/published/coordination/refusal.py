"""Errors that tell the user why there is no plan."""

import math

import numpy as np

from gearshift.errors import Infeasible
from gearshift.planner.evaluate.assemble import rounded_up_s
from gearshift.planner.evaluate.bottleneck import refusal
from gearshift.planner.published.coordination.downgrading import Failure, TooSlow
from gearshift.planner.published.coordination.problem import Draft, Problem
from gearshift.planner.space.hosts import placement_of
from gearshift.support.numbers import plain

STABLE_UTILISATION = 0.9


def infeasible(problem: Problem, failure: Failure | None, draft: Draft) -> Infeasible:
    objective = problem.request.objective
    if draft.choices is not None or not isinstance(failure, TooSlow):
        asked = objective.accuracy or 0.0
        reached = draft.choices.best_accuracy() if draft.choices else problem.candidates[-1].accuracy
        known = f", the most accurate has about {reached:.4g}" if reached < asked else ""
        return _refusal(
            problem,
            f"no plan on {_devices(problem)} has a time-weighted accuracy of {asked:.4g}{known}",
            draft,
            *_worst_range(problem, draft),
            nearest_accuracy=reached if known else None,
        )
    k, model = max(failure.bottlenecks.items())
    if draft.gears and all(tuned.cell.stable for tuned in draft.gears):
        return _refusal(
            problem,
            f"no cascade keeps {objective.percentile:.4g} of requests within "
            f"{plain(problem.request.latency_s * 1e3)} ms on {_devices(problem)}",
            draft,
            k,
            model,
            nearest_latency_s=rounded_up_s(max(tuned.cell.latency_s for tuned in draft.gears), digits=3),
        )
    count = len(problem.request.hardware.devices)
    needed = math.ceil(problem.utilisation(k, draft) * count / STABLE_UTILISATION)
    return _refusal(
        problem,
        f"{_devices(problem)} cannot carry {plain(problem.loads_qps[k])} requests/s with the cheapest cascade, "
        f"about {max(needed, count + 1)} could",
        draft,
        k,
        model,
    )


def out_of_time(problem: Problem, draft: Draft | None = None) -> Infeasible:
    reason = f"no plan was found within {problem.request.budget_s:g} s"
    draft = draft or problem.initial
    return _refusal(problem, reason, draft, *_worst_range(problem, draft))


def _refusal(problem: Problem, reason: str, draft: Draft, k: int, model: str, **nearest: float | None) -> Infeasible:
    placement = placement_of(problem.hosts, draft.placed)
    cascade = draft.assigned[k].cascade if draft.assigned and model in draft.assigned[k].cascade.models else None
    return refusal(problem.request, reason, k=k, model=model, placement=placement, cascade=cascade, **nearest)


def _devices(problem: Problem) -> str:
    count = len(problem.request.hardware.devices)
    return f"{count} device{'s' * (count > 1)}"


def _worst_range(problem: Problem, draft: Draft) -> tuple[int, str]:
    top = problem.candidates[-1]
    lost = np.zeros(len(problem.weights))
    if draft.choices is not None:
        left = [draft.choices.candidates[max(numbers)].accuracy for numbers in draft.choices.open]
        lost = problem.weights * (top.accuracy - np.array(left))
    k = int(np.argmax(lost))
    return k, problem.bottlenecks.get(k, top.cascade.models[-1])
