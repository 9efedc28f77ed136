"""The planners by name.

Each is a module with two functions:

    plan(request, *, progress) -> GearPlan              raises `Infeasible`
    frontier(request, *, progress) -> list[GearPlan]    undominated, by rising latency

A planner is imported when it is first used: naming one or serving a plan loads no simulator.
"""

import dataclasses
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import msgspec

from gearshift.errors import InvalidInput
from gearshift.gear import GearPlan
from gearshift.objective import Asked, Objective
from gearshift.planner.space.request import PlanRequest, Progress, silent

DEFAULT = "optimal"
MODULES = {
    "coordinate": "gearshift.planner.published.coordinate",
    "frontier": "gearshift.planner.published.frontier",
    "optimal": "gearshift.planner.search.optimal",
    "single": "gearshift.planner.baselines.single",
    "model-switching": "gearshift.planner.baselines.model_switching",
    "static-cascade": "gearshift.planner.baselines.static_cascade",
    "placement-heuristic": "gearshift.planner.baselines.placement_heuristic",
}


def plan(name: str, request: PlanRequest, *, progress: Progress = silent) -> GearPlan:
    """Plan with planner `name`; raises `InvalidInput` for an unknown one, and `Infeasible`."""
    require_possible(request)
    made: GearPlan = _module(name).plan(request, progress=progress)
    return _asked(name, [made], request)[0]


def frontier(name: str, request: PlanRequest, *, progress: Progress = silent) -> list[GearPlan]:
    """All undominated plans that the planner `name` finds, by rising latency."""
    require_possible(request)
    made: list[GearPlan] = _module(name).frontier(request, progress=progress)
    return _asked(name, made, request, [each.pipelines[request.profile.operator].objective for each in made])


def fewest(name: str, request: PlanRequest, *, progress: Progress = silent) -> GearPlan:
    """The plan on the fewest devices like the first that meets both latency and accuracy."""
    objective = request.objective
    if objective.latency_s is None or objective.accuracy is None:
        raise InvalidInput("the fewest devices need two objectives", remedy="give a latency and an accuracy")
    require_possible(request)
    search = import_module("gearshift.planner.fewest")
    if name == DEFAULT or objective.confidence is not None:  # these test plans on part B
        hardware = search.devices_like(request.hardware, search.MOST_DEVICES)
        return plan(name, dataclasses.replace(request, hardware=hardware), progress=progress)
    made: GearPlan = search.fewest_devices(
        name, request, accuracy=objective.accuracy, latency_s=objective.latency_s, progress=progress
    )
    return _asked(name, [made], request)[0]


def on_cores(request: PlanRequest, *, progress: Progress = silent) -> GearPlan:
    """The plan on the fewest core-seconds, for hardware whose `pool_cores` models share."""
    require_possible(request)
    search = import_module("gearshift.planner.cores.cores")
    return _asked(search.PLANNER, [search.plan(request, progress=progress)], request)[0]


def require_possible(request: PlanRequest) -> None:
    """Raise `Infeasible` where that is known without a search."""
    bottleneck = import_module("gearshift.planner.evaluate.bottleneck")
    bottleneck.require_router(request)
    bottleneck.require_latency(request)
    if request.hardware.pool_cores is None:  # else the search confirms an accuracy itself
        import_module("gearshift.planner.space.reach").require_accuracy(request)


def require_planner(name: str) -> None:
    if name not in MODULES:
        raise InvalidInput(f"there is no planner {name!r}", remedy=f"name one of {', '.join(sorted(MODULES))}")


def _asked(
    planner: str, made: list[GearPlan], request: PlanRequest, objectives: Sequence[Objective] = ()
) -> list[GearPlan]:
    """Remove idle models, and record the request and the planned load.

    `objectives` are those of a frontier's plans.
    """
    from gearshift.planner.beyond import predicted_at_their_ends
    from gearshift.planner.evaluate.assemble import without_idle_models
    from gearshift.planner.planned_load import with_planned_load

    name = request.profile.operator
    asked = Asked(
        objective=request.objective,
        ranges=request.ranges,
        most_candidates=request.most_candidates,
        max_qps=request.max_qps,
        least_margin=request.least_margin,
        load=request.load,
        budget_s=request.budget_s,
    )
    told = []
    for plan, objective in zip(
        map(without_idle_models, made), objectives or [request.objective] * len(made), strict=True
    ):
        operator = msgspec.structs.replace(
            plan.pipelines[name], asked=msgspec.structs.replace(asked, objective=objective)
        )
        told.append(msgspec.structs.replace(plan, pipelines={name: operator}))
    return with_planned_load(predicted_at_their_ends(told, request), request, planner)


def _module(name: str) -> Any:
    require_planner(name)
    return import_module(MODULES[name])
