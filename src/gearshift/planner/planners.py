"""The planners by name, and what every one of them is asked for.

The module of a planner has it as `PLANNER`, a `contract.planner.Planner`. It is imported when the
planner is first used: naming one or serving a plan loads no simulator.
"""

import dataclasses
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from msgspec import UNSET, UnsetType

from gearshift.errors import InvalidInput, require
from gearshift.gear import GearPlan
from gearshift.objective import Objective
from gearshift.planner.space.request import LoadDistribution, PlanRequest, Progress, silent

if TYPE_CHECKING:
    from gearshift.planner.contract.planner import Planner

DEFAULT = "optimal"
MODULES = {
    "coordinate": "gearshift.planner.published.coordinate",
    "frontier": "gearshift.planner.published.frontier",
    "optimal": "gearshift.planner.search.optimal",
    "refine": "gearshift.planner.refine.search",
    "single": "gearshift.planner.baselines.single",
    "model-switching": "gearshift.planner.baselines.model_switching",
    "static-cascade": "gearshift.planner.baselines.static_cascade",
    "placement-heuristic": "gearshift.planner.baselines.placement_heuristic",
}
OF_GRAPHS = ("joint", "greedy", "apart")
"""Planners of a pipeline of several nodes (`comparing/graphs.py`); the first is the default."""

OF_SEVERAL = ("optimal", "apart", "coordinate", "frontier", "refine")
"""Planners of several operators on the same devices (`comparing/several.py`); the first is the default."""


def named(name: str) -> "Planner":
    require_planner(name)
    planner: Planner = import_module(MODULES[name]).PLANNER
    return planner


def plan(name: str, request: PlanRequest, *, progress: Progress = silent) -> GearPlan:
    """Plan with planner `name`; raises `InvalidInput` for an unknown one, and `Infeasible`."""
    from gearshift.planner.contract.median import within_median

    planner = named(name)
    because: str | UnsetType = UNSET
    require_possible(request)
    if request.policy == "gears":
        made = within_median(lambda asked: planner.plan(asked, progress=progress), request)
    else:
        from gearshift.planner.refine.choice import plan_by_policy

        made, because = plan_by_policy(planner, request, progress=progress)
    return _recorded([made], request, load=planner.load, because=because)[0]


def frontier(name: str, request: PlanRequest, *, progress: Progress = silent) -> list[GearPlan]:
    """All undominated plans that the planner `name` finds, and those that refine by the policy, by rising latency."""
    from gearshift.planner.contract.median import frontier_within_median

    planner = named(name)
    require_possible(request)
    if request.policy == "gears":
        made = frontier_within_median(planner.frontier(request, progress=progress), request)
    else:
        from gearshift.planner.refine.choice import frontier_by_policy

        made = frontier_by_policy(planner, request, progress=progress)
    objectives = [each.pipelines[request.profile.operator].objective for each in made]
    return _recorded(made, request, objectives, load=planner.load)


def fewest(name: str, request: PlanRequest, *, progress: Progress = silent) -> GearPlan:
    """The plan on the fewest devices like the first that meets both latency and accuracy."""
    from gearshift.planner.fewest import MOST_DEVICES, devices_like, fewest_devices

    planner, objective = named(name), request.objective
    if request.policy != "gears":
        from gearshift.planner.refine.choice import fewest_by_policy

        return fewest_by_policy(name, request, lambda one, asked: fewest(one, asked, progress=progress))
    if objective.latency_s is None or objective.accuracy is None:
        raise InvalidInput("the fewest devices need two objectives", remedy="give a latency and an accuracy")
    if planner.counts_devices or objective.confidence is not None:  # which is tested on part B
        hardware = devices_like(request.hardware, MOST_DEVICES)
        return plan(name, dataclasses.replace(request, hardware=hardware), progress=progress)
    require_possible(request)
    made = fewest_devices(planner, request, progress=progress)
    return _recorded([made], request, load=planner.load)[0]


def on_cores(request: PlanRequest, *, progress: Progress = silent) -> GearPlan:
    """The plan on the fewest core-seconds, for hardware whose `pool_cores` models share."""
    from gearshift.planner.cores import cores

    for what, given in (("a policy", request.policy != "gears"), ("a median", request.objective.median_s is not UNSET)):
        require(
            not given,
            f"{what} and cores are both given, and plans of cores know neither refining nor a median",
            remedy="leave one of them out, or give devices",
        )
    require_possible(request)
    return _recorded([cores.plan(request, progress=progress)], request)[0]


def require_possible(request: PlanRequest) -> None:
    """Raise `Infeasible` where that is known without a search."""
    from gearshift.planner.evaluate.bottleneck import require_accuracy, require_latency, require_router

    require_router(request)
    require_latency(request)
    if request.hardware.pool_cores is None:  # else the search confirms an accuracy itself
        require_accuracy(request)


def require_planner(name: str) -> None:
    if name not in MODULES:
        raise InvalidInput(f"there is no planner {name!r}", remedy=f"name one of {', '.join(sorted(MODULES))}")


def _recorded(
    made: list[GearPlan],
    request: PlanRequest,
    objectives: Sequence[Objective] = (),
    *,
    load: LoadDistribution = "trace",
    because: str | UnsetType = UNSET,
) -> list[GearPlan]:
    from gearshift.planner.beyond import recorded

    return recorded(made, request, objectives, load=load, because=because)


def require_graph_planner(name: str) -> None:
    if name not in OF_GRAPHS:
        raise InvalidInput(
            f"planner {name!r} plans no pipeline of several nodes", remedy=f"name one of {', '.join(OF_GRAPHS)}"
        )


def require_planner_of_several(name: str) -> None:
    if name not in OF_SEVERAL:
        raise InvalidInput(
            f"planner {name!r} does not plan several operators", remedy=f"name one of {', '.join(OF_SEVERAL)}"
        )
