"""The planners by name.

Each is a module with two functions:

    plan(request, *, progress) -> GearPlan              for the request's objective; raises `Infeasible`
    frontier(request, *, progress) -> list[GearPlan]    by rising latency, none dominated, of the objective's percentile
"""

from importlib import import_module
from typing import Any

from gearshift.errors import InvalidInput
from gearshift.gear import GearPlan
from gearshift.planner.request import PlanRequest, Progress, silent

DEFAULT = "optimal"
MODULES = {
    "frontier": "gearshift.planner.frontier",
    "optimal": "gearshift.planner.optimal",
    "single": "gearshift.planner.baselines.single",
    "model-switching": "gearshift.planner.baselines.model_switching",
    "static-cascade": "gearshift.planner.baselines.static_cascade",
    "placement-heuristic": "gearshift.planner.baselines.placement_heuristic",
}


def plan(name: str, request: PlanRequest, *, progress: Progress = silent) -> GearPlan:
    """A plan by the planner `name`; raises `InvalidInput` for an unknown one and `Infeasible` when there is no plan."""
    made: GearPlan = _module(name).plan(request, progress=progress)
    return made


def frontier(name: str, request: PlanRequest, *, progress: Progress = silent) -> list[GearPlan]:
    """All undominated plans that the planner `name` finds, by rising latency."""
    made: list[GearPlan] = _module(name).frontier(request, progress=progress)
    return made


def _module(name: str) -> Any:
    if name not in MODULES:
        raise InvalidInput(f"there is no planner {name!r}", remedy=f"name one of {', '.join(sorted(MODULES))}")
    return import_module(MODULES[name])
