"""Whether several operators are served better by a plan in which all refine, or by gears as the papers have them."""

from dataclasses import replace
from functools import partial

import msgspec

from gearshift.gear import GearPlan
from gearshift.planner.contract.planner import Planner
from gearshift.planner.refine.choice import LEAST_BETTER, chosen, ways_of
from gearshift.planner.several.refined import PLANNER, accuracy_of
from gearshift.planner.several.request import SeveralRequest
from gearshift.planner.space.request import Progress, silent
from gearshift.profiles.profile import PART_A, PART_B


def plan_several_by_policy(
    planner: Planner[SeveralRequest], several: SeveralRequest, *, progress: Progress = silent
) -> GearPlan:
    """The plan of `planner`, one that refines, or of both the one that is more accurate over all requests.

    Each pipeline says why it is that one. Raises `Infeasible` without any.
    """
    if several.policy == "gears":
        return planner.plan(several, progress=progress)
    ways = ways_of(planner, PLANNER, several.policy)
    part = _with_budget(several, 1 / len(ways))
    finds = {way.name: partial(way.plan, part, progress=progress) for way in ways}
    made, why = chosen(finds, part.budget_s, lambda refining, gears: _better(refining, gears, several))
    return _because(made, several, why)


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
