"""One cascade at all loads, chosen by replaying the trace itself.

AlpaServe+ (Ken 5.2), "no switching" (Ken 5.7).
"""

import dataclasses

import msgspec

from gearshift.gear import GearPlan
from gearshift.planner.baselines.one_gear import best_one_gear, one_gear_frontier
from gearshift.planner.space.candidates import cascade_front
from gearshift.planner.space.request import PlanRequest, Progress, silent

NAME = "static-cascade"


def plan(request: PlanRequest, *, progress: Progress = silent) -> GearPlan:
    return best_one_gear(_knowing_the_trace(request), cascade_front(request), planner=NAME, progress=progress)


def frontier(request: PlanRequest, *, progress: Progress = silent) -> list[GearPlan]:
    return one_gear_frontier(_knowing_the_trace(request), cascade_front(request), planner=NAME, progress=progress)


def _knowing_the_trace(request: PlanRequest) -> PlanRequest:
    """Use scope `trace`: a planner that knows the future need not carry more."""
    return dataclasses.replace(request, objective=msgspec.structs.replace(request.objective, scope="trace"))
