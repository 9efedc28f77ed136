"""The one table of planners, and what every one of them is asked for.

A planner is a `contract.planner.Planner`. Its module is imported when it is first used: naming one or
serving a plan loads no simulator.
"""

import dataclasses
from collections.abc import Sequence
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, UnsetType

from gearshift.errors import InvalidInput, require
from gearshift.gear import GearPlan
from gearshift.objective import Objective
from gearshift.planner.space.request import Kind, LoadDistribution, PlanRequest, Progress, Request, Shape, silent

if TYPE_CHECKING:
    from gearshift.planner.contract.planner import Planner

DEFAULT = "optimal"
HERE = "gearshift.planner"
PLANNERS: dict[tuple[Kind, Shape], dict[str, str]] = {
    ("rows", "one"): {
        "coordinate": f"{HERE}.published.coordinate",
        "frontier": f"{HERE}.published.frontier",
        "optimal": f"{HERE}.search.optimal",
        "refine": f"{HERE}.refine.search",
        "single": f"{HERE}.baselines.one_gear:SINGLE",
        "model-switching": f"{HERE}.baselines.restricted:MODEL_SWITCHING",
        "static-cascade": f"{HERE}.baselines.one_gear:STATIC_CASCADE",
        "placement-heuristic": f"{HERE}.baselines.restricted:PLACEMENT_HEURISTIC",
    },
    ("rows", "several"): {
        "optimal": f"{HERE}.several.plan",
        "apart": f"{HERE}.several.plan:APART",
        "coordinate": f"{HERE}.several.plan:COORDINATE",
        "frontier": f"{HERE}.several.plan:FRONTIER",
        "refine": f"{HERE}.several.refined",
    },
    ("rows", "graph"): {
        "joint": f"{HERE}.joint.replanning.search",
        "greedy": f"{HERE}.baselines.of_graphs:GREEDY",
        "apart": f"{HERE}.baselines.of_graphs:APART",
    },
    ("tokens", "one"): {
        "optimal": f"{HERE}.language.planners:OPTIMAL",
        "frontier": f"{HERE}.language.planners:FRONTIER",
        "single": f"{HERE}.language.planners:SINGLE",
        "model-switching": f"{HERE}.language.planners:MODEL_SWITCHING",
        "static-cascade": f"{HERE}.language.planners:STATIC_CASCADE",
    },
}
"""By engine kind, shape and name, the module that has the planner as `PLANNER`, or as the name behind a colon.

Of several operators `coordinate` and `frontier`, and of graphs `apart`, may miss objectives.
"""

REFUSED: dict[tuple[Kind, Shape], str] = {
    ("rows", "one"): "there is no planner {!r}",
    ("rows", "several"): "planner {!r} does not plan several operators",
    ("rows", "graph"): "planner {!r} plans no pipeline of several nodes",
    ("tokens", "one"): "there is no planner {!r} of language models",
}


def for_(kind: Kind = "rows", shape: Shape = "one") -> dict[str, str]:
    """The planners of a kind and shape, by name."""
    return PLANNERS[kind, shape]


def default_for(kind: Kind = "rows", shape: Shape = "one") -> str:
    return DEFAULT if DEFAULT in for_(kind, shape) else next(iter(for_(kind, shape)))


def require_planner(name: str, kind: Kind = "rows", shape: Shape = "one") -> None:
    known = for_(kind, shape)
    require(name in known, REFUSED[kind, shape].format(name), remedy=f"name one of {', '.join(known)}")


def named(name: str, kind: Kind = "rows", shape: Shape = "one") -> "Planner[Any]":
    """The planner of that name; raises `InvalidInput` where there is none of this kind and shape."""
    require_planner(name, kind, shape)
    place = for_(kind, shape)[name]
    planner: Planner[Any] = resolve_name(place if ":" in place else f"{place}:PLANNER")
    return planner


def plan(name: str, request: Request, *, progress: Progress = silent) -> GearPlan:
    """Plan with planner `name` of the request's kind; raises `InvalidInput` for an unknown one, and `Infeasible`."""
    planner = named(name, *request.planned_by)
    if not isinstance(request, PlanRequest):
        from gearshift.planner.several.refined import plan_several_by_policy
        from gearshift.planner.several.request import SeveralRequest

        if isinstance(request, SeveralRequest):
            return plan_several_by_policy(planner, request, progress=progress)
        return planner.plan(request, progress=progress)
    from gearshift.planner.contract.median import within_median

    because: str | UnsetType = UNSET
    require_possible(request)
    if request.policy == "gears":
        made = within_median(lambda asked: planner.plan(asked, progress=progress), request)
    else:
        from gearshift.planner.refine.choice import plan_by_policy

        made, because = plan_by_policy(planner, request, progress=progress)
    return _recorded([made], request, load=planner.load, because=because)[0]


def frontier(name: str, request: Request, *, progress: Progress = silent) -> list[GearPlan]:
    """All undominated plans that the planner `name` finds, and those that refine by the policy, by rising latency."""
    planner = named(name, *request.planned_by)
    if not isinstance(request, PlanRequest):
        return planner.frontier(request, progress=progress)
    from gearshift.planner.contract.median import frontier_within_median

    require_possible(request)
    if request.policy == "gears":
        made = frontier_within_median(planner.frontier(request, progress=progress), request)
    else:
        from gearshift.planner.refine.choice import frontier_by_policy

        made = frontier_by_policy(planner, request, progress=progress)
    objectives = [each.pipelines[request.profile.operator].objective for each in made]
    return _recorded(made, request, objectives, load=planner.load)


def fewest(name: str, request: Request, *, most: int | None = None, progress: Progress = silent) -> GearPlan:
    """The plan on the fewest devices like the first, up to `most`, that meets both latency and accuracy."""
    from gearshift.planner.contract.ladder import MOST_DEVICES, devices_like, fewest_devices

    planner, objective, most = named(name, *request.planned_by), request.objective, most or MOST_DEVICES
    if isinstance(request, PlanRequest) and request.policy != "gears":
        from gearshift.planner.refine.choice import fewest_by_policy

        return fewest_by_policy(planner, request, lambda one, asked: fewest(one, asked, progress=progress))
    if objective.latency_s is None or objective.accuracy is None:
        raise InvalidInput("the fewest devices need two objectives", remedy="give a latency and an accuracy")
    if planner.counts_devices or objective.confidence is not None:  # which is tested on part B
        hardware = devices_like(request.hardware, most)
        return plan(name, dataclasses.replace(request, hardware=hardware), progress=progress)
    if not isinstance(request, PlanRequest):
        return fewest_devices(planner, request, most=most, progress=progress)
    require_possible(request)
    made = fewest_devices(planner, request, most=most, progress=progress)
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


def _recorded(
    made: list[GearPlan],
    request: PlanRequest,
    objectives: Sequence[Objective] = (),
    *,
    load: LoadDistribution = "trace",
    because: str | UnsetType = UNSET,
) -> list[GearPlan]:
    from gearshift.planner.evaluate.beyond import recorded

    return recorded(made, request, objectives, load=load, because=because)
