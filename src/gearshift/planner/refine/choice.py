"""Whether a request is served better by a plan that refines, or by gears as the papers have them."""

from collections.abc import Callable
from dataclasses import replace

from gearshift.errors import Infeasible
from gearshift.gear import GearPlan
from gearshift.objective import Objective
from gearshift.planner.contract.ladder import accuracy_on_part_a, undominated_plans
from gearshift.planner.contract.planner import Planner
from gearshift.planner.evaluate.bottleneck import refusal
from gearshift.planner.refine.search import PLANNER
from gearshift.planner.space.request import PlanRequest, Progress

LEAST_BETTER = 5e-4
"""The accuracy that a plan that refines must gain over the ordinary one to be chosen."""


def plan_by_policy(planner: Planner, request: PlanRequest, *, progress: Progress) -> GearPlan:
    """The plan of `planner`, one that refines, or the better of the two; raises `Infeasible` without any."""
    ways = {"gears": [planner], "refine": [PLANNER], "best": [planner, PLANNER]}[request.policy]
    made: list[GearPlan] = []
    refused: list[Infeasible] = []
    for way in ways:
        try:
            made.append(_within_median(way.plan(request, progress=progress), request))
        except Infeasible as error:
            refused.append(error)
    if not made:
        raise refused[0]
    ordinary, other = made[0], made[-1]
    return other if is_better(other, ordinary, request) else ordinary


def frontier_by_policy(planner: Planner, request: PlanRequest, *, progress: Progress) -> list[GearPlan]:
    """The undominated plans of `planner`, of those that refine, or of both together, by rising latency."""
    made: list[GearPlan] = []
    refused: list[Infeasible] = []
    for way in {"refine": [PLANNER], "best": [planner, PLANNER]}[request.policy]:
        try:
            made += way.frontier(request, progress=progress)
        except Infeasible as error:
            refused.append(error)
    if not made:
        raise refused[0]
    return undominated_plans(made, request)


def fewest_by_policy(name: str, request: PlanRequest, fewest: Callable[[str, PlanRequest], GearPlan]) -> GearPlan:
    """The plan on the fewest devices by planner `name`, of one that refines, or the better of the two."""
    asked = replace(request, policy="gears")
    made: list[GearPlan] = []
    refused: list[Infeasible] = []
    for each in {"refine": [PLANNER.name], "best": [name, PLANNER.name]}[request.policy]:
        try:
            made.append(fewest(each, asked))
        except Infeasible as error:
            refused.append(error)
    if not made:
        raise refused[0]
    ordinary, other = made[0], made[-1]
    more = _devices(other) - _devices(ordinary)
    if more:
        return other if more < 0 else ordinary
    return other if is_better(other, ordinary, request) else ordinary


def is_better(refined: GearPlan, ordinary: GearPlan, request: PlanRequest) -> bool:
    """By part A: more accurate within a latency; faster where only an accuracy is asked for."""
    if request.objective.latency_s is None:
        return _at(refined, request) < _at(ordinary, request)
    better = accuracy_on_part_a(refined, request) - accuracy_on_part_a(ordinary, request)
    return better >= LEAST_BETTER


def _devices(made: GearPlan) -> int:
    return len({device for replica in made.placement.replicas for device in replica.device_ids})


def _at(made: GearPlan, request: PlanRequest) -> float:
    return made.predictions[request.profile.operator].latency_s.at(request.objective.percentile)


def _within_median(made: GearPlan, request: PlanRequest) -> GearPlan:
    most_s = median_of(request.objective)
    p50_s = made.predictions[request.profile.operator].latency_s.p50
    if most_s is not None and p50_s > most_s:
        reason = f"the median of the best plan is {p50_s * 1e3:.3g} ms, above {most_s * 1e3:.4g} ms"
        raise refusal(request, reason)
    return made


def median_of(objective: Objective) -> float | None:
    return objective.median_s if isinstance(objective.median_s, float) else None
