"""One model at all loads: dynamic batching (CascadeServe 6.2) and stand-alone engines (Ken 5.2)."""

from gearshift.gear import GearPlan
from gearshift.planner.baselines.one_gear import best_one_gear, one_gear_frontier
from gearshift.planner.space.candidates import single_models
from gearshift.planner.space.request import PlanRequest, Progress, silent

NAME = "single"


def plan(request: PlanRequest, *, progress: Progress = silent) -> GearPlan:
    return best_one_gear(request, single_models(request), planner=NAME, progress=progress)


def frontier(request: PlanRequest, *, progress: Progress = silent) -> list[GearPlan]:
    return one_gear_frontier(request, single_models(request), planner=NAME, progress=progress)
