"""Whether several operators are served better by a plan in which all refine, or by gears as the papers have them."""

import time
from collections.abc import Callable
from dataclasses import replace

import msgspec

from gearshift.errors import Infeasible, InvalidInput
from gearshift.gear import GearPlan
from gearshift.planner.refine.choice import ALONE, ENDED_BEFORE, LEAST_BETTER, REFINES, ended_by_hand, reason_of
from gearshift.planner.several.refined import accuracy_of, plan_refined
from gearshift.planner.several.request import SeveralRequest
from gearshift.planner.space.request import Progress, silent
from gearshift.profiles.profile import PART_A, PART_B

Plan = Callable[..., GearPlan]


def plan_by_policy(planner: Plan, several: SeveralRequest, *, progress: Progress = silent) -> GearPlan:
    """The plan of `planner`, one that refines, or of both the one that is more accurate over all requests.

    Each pipeline says why it is that one. A search that is ended by hand ends the other, too: a plan that
    is found by then is returned, marked unfinished. Raises `Infeasible` without any.
    """
    if several.policy == "gears":
        return planner(several, progress=progress)
    if several.policy == "refine" or planner is plan_refined:
        return _because(plan_refined(several, progress=progress), several, f"{REFINES}, as was asked for")
    half, began_s = _with_budget(several, 0.5), time.monotonic()
    try:
        gears = planner(half, progress=progress)
    except Infeasible as error:
        why = f"{REFINES}, as there is no plan of gears: {reason_of(error)}"
        return _because(plan_refined(half, progress=progress), several, why)
    if ended_by_hand(gears, next(iter(half.requests.values())), began_s):
        return _because(gears, several, ENDED_BEFORE)
    try:
        refining = plan_refined(half, progress=progress)
    except KeyboardInterrupt:
        return _because(msgspec.structs.replace(gears, unfinished=True), several, ENDED_BEFORE)
    except (Infeasible, InvalidInput) as error:
        return _because(gears, several, f"{ALONE}, as none that refines was found: {reason_of(error)}")
    better, why = _better(refining, gears, several)
    return _because(refining, several, f"{REFINES}: {why}") if better else _because(gears, several, f"{ALONE}: {why}")


def _better(refining: GearPlan, gears: GearPlan, several: SeveralRequest) -> tuple[bool, str]:
    """By part A, and no less accurate by part B, as for one operator."""
    on_a, other_a = (accuracy_of(several, made, part=PART_A) for made in (refining, gears))
    on_b, other_b = (accuracy_of(several, made, part=PART_B) for made in (refining, gears))
    return on_a - other_a >= LEAST_BETTER and on_b >= other_b, (
        f"over all operators {100 * on_a:.2f} % are right with refining, {100 * other_a:.2f} with gears alone, "
        f"replayed with part A; {100 * on_b:.2f} and {100 * other_b:.2f} with part B"
    )


def _with_budget(several: SeveralRequest, share: float) -> SeveralRequest:
    requests = {
        name: replace(one, budget_s=None if one.budget_s is None else share * one.budget_s)
        for name, one in several.requests.items()
    }
    return replace(several, requests=requests)


def _because(made: GearPlan, several: SeveralRequest, why: str) -> GearPlan:
    pipelines = dict(made.pipelines)
    for name, request in several.requests.items():
        if (asked := pipelines[name].asked) is not None:
            asked = msgspec.structs.replace(asked, chosen_because=why, budget_s=request.budget_s)
            pipelines[name] = msgspec.structs.replace(pipelines[name], asked=asked)
    return msgspec.structs.replace(made, pipelines=pipelines)
