"""Why there is no plan, in words for the user."""

import math

import numpy as np

from gearshift.errors import Infeasible
from gearshift.planner.assemble import rounded_up_s
from gearshift.planner.coordination.problem import Draft, Problem
from gearshift.planner.downgrading import Failure, TooSlow
from gearshift.planner.request import load_ranges

STABLE_UTILISATION = 0.9


def infeasible(problem: Problem, failure: Failure | None, draft: Draft) -> Infeasible:
    """What the last error means: too little accuracy, too much latency, or too much load."""
    objective = problem.request.objective
    if draft.choices is not None or not isinstance(failure, TooSlow):
        asked = objective.accuracy or 0.0
        reached = draft.choices.best_accuracy() if draft.choices else problem.candidates[-1].accuracy
        known = f", the most accurate has about {reached:.4g}" if reached < asked else ""
        return _refusal(
            problem,
            f"no plan on {_devices(problem)} has a time-weighted accuracy of {asked:.4g}{known}",
            *_worst_range(problem, draft),
        )
    k, model = max(failure.bottlenecks.items())
    if draft.gears and all(tuned.cell.stable for tuned in draft.gears):
        return _refusal(
            problem,
            f"no cascade keeps {objective.percentile:.4g} of requests within "
            f"{problem.request.latency_s * 1e3:.4g} ms on {_devices(problem)}",
            k,
            model,
            nearest_s=rounded_up_s(max(tuned.cell.latency_s for tuned in draft.gears), digits=3),
        )
    count = len(problem.request.hardware.devices)
    needed = math.ceil(problem.utilisation(k, draft) * count / STABLE_UTILISATION)
    return _refusal(
        problem,
        f"{_devices(problem)} cannot carry {problem.loads_qps[k]:.4g} requests/s with the cheapest cascade, "
        f"about {max(needed, count + 1)} could",
        k,
        model,
    )


def out_of_time(problem: Problem, draft: Draft | None = None) -> Infeasible:
    """That the budget was too small."""
    reason = f"no plan was found within {problem.request.budget_s:g} s"
    return _refusal(problem, reason, *_worst_range(problem, draft or problem.initial))


def _refusal(problem: Problem, reason: str, k: int, model: str, nearest_s: float | None = None) -> Infeasible:
    load_range = load_ranges(problem.request.upper_ends())[k]
    return Infeasible(reason, load_range=str(load_range), bottleneck=model, nearest_latency_s=nearest_s)


def _devices(problem: Problem) -> str:
    count = len(problem.request.hardware.devices)
    return f"{count} device{'s' * (count > 1)}"


def _worst_range(problem: Problem, draft: Draft) -> tuple[int, str]:
    """The range that lost most weighted accuracy to errors, and its bottleneck."""
    top = problem.candidates[-1]
    lost = np.zeros(len(problem.weights))
    if draft.choices is not None:
        left = [draft.choices.candidates[max(numbers)].accuracy for numbers in draft.choices.open]
        lost = problem.weights * (top.accuracy - np.array(left))
    k = int(np.argmax(lost))
    return k, problem.bottlenecks.get(k, top.cascade.models[-1])
