"""Plans of one gear: the same cascade at all loads, its models on every device where they fit."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from gearshift.errors import Infeasible
from gearshift.gear import Gear, GearPlan, LoadRange
from gearshift.planner.assemble import assemble, replay, with_predictions
from gearshift.planner.baselines.ladder import (
    require_accuracy_within_reach,
    require_objective,
    undominated_plans,
    within,
)
from gearshift.planner.bottleneck import busiest_device, refusal
from gearshift.planner.cascade_search import CandidateCascade
from gearshift.planner.confirm import SEEDS, Confirmation
from gearshift.planner.pareto import undominated
from gearshift.planner.placement_everywhere import place_everywhere
from gearshift.planner.request import PlanRequest, Progress
from gearshift.planner.steady_state import Cell, SteadyState
from gearshift.profiles.profile import PART_A, PART_B

SLACK = 1.05
"""The nearest feasible objective is so many times what was simulated."""


@dataclass(frozen=True, slots=True)
class _OneGear:
    """A candidate's plan, without predictions, and its steady state at the top of the load ranges."""

    candidate: CandidateCascade
    plan: GearPlan
    at_top: Cell


def best_one_gear(
    request: PlanRequest, candidates: Sequence[CandidateCascade], *, planner: str, progress: Progress
) -> GearPlan:
    """Of `candidates` (by rising work) the most accurate within the latency, else the fastest of enough accuracy.

    Chosen on part A.  Raises `Infeasible` when none meets the objective.
    """
    objective = request.objective
    require_objective(objective)
    if objective.accuracy is not None:
        require_accuracy_within_reach(request, objective.accuracy, max(c.accuracy for c in candidates))
        candidates = [c for c in candidates if c.accuracy >= objective.accuracy]
    gears = _gears(request, candidates, planner)
    if objective.latency_s is None:
        return with_predictions(_fastest(request, gears, progress).plan, request)
    for tried, gear in enumerate(sorted(gears, key=lambda g: -g.candidate.accuracy)):
        progress("replaying the trace", tried / len(gears))
        if _carries(request, gear) and (confirmed := _confirmed(request, gear.plan)) is not None:
            progress("confirmed", 1.0)
            return confirmed
    raise _infeasible(request, gears[0])


def one_gear_frontier(
    request: PlanRequest, candidates: Sequence[CandidateCascade], *, planner: str, progress: Progress
) -> list[GearPlan]:
    """Undominated plans of one gear by rising latency, at most one for each of `candidates` (by rising work)."""
    request = within(request, None)
    gears = _gears(request, candidates, planner)
    carrying = _carrying(request, gears)
    points = []
    for done, gear in enumerate(carrying):
        progress("replaying the trace", done / len(carrying))
        points.append((_latency_s(_replay(request, gear.plan, seeds=1)), gear.candidate.accuracy))
    made = [with_predictions(carrying[i].plan, request) for i in undominated(points)]
    progress("planned", 1.0)
    return undominated_plans(made, request)


def _gears(request: PlanRequest, candidates: Sequence[CandidateCascade], planner: str) -> list[_OneGear]:
    """The plans of those candidates whose models can all be placed."""
    made = [_one_gear(request, candidate, planner) for candidate in candidates]
    gears = [gear for gear in made if gear is not None]
    if not gears:
        raise refusal(request, "the devices have too little memory for the models of any candidate")
    return gears


def _one_gear(request: PlanRequest, candidate: CandidateCascade, planner: str) -> _OneGear | None:
    cascade = candidate.cascade
    placement = place_everywhere(request.profile, request.hardware, models=cascade.models)
    if set(placement.models) != set(cascade.models):
        return None
    steady = SteadyState(request.profile, request.hardware, placement, request.objective, seed=request.seed)
    top_qps = float(request.upper_ends()[-1])
    size, cell = steady.best(cascade, top_qps)
    gear = Gear(
        load_range=LoadRange(from_=0.0),
        cascade=cascade,
        replicas=steady.settings(cascade, size),
        predicted=cell.prediction(top_qps, candidate.accuracy),
    )
    return _OneGear(candidate, assemble(request, placement, [gear], planner=planner), cell)


def _carries(request: PlanRequest, gear: _OneGear) -> bool:
    """Whether steady load at the top of the ranges is carried within the objective, where the scope asks for it."""
    cell = gear.at_top
    return request.objective.scope == "trace" or (cell.stable and cell.latency_s <= request.latency_s)


def _carrying(request: PlanRequest, gears: Sequence[_OneGear]) -> list[_OneGear]:
    carrying = [gear for gear in gears if _carries(request, gear)]
    if not carrying:
        raise _infeasible(request, gears[0])
    return carrying


def _fastest(request: PlanRequest, gears: Sequence[_OneGear], progress: Progress) -> _OneGear:
    """The gear with the least latency on the trace; of equal ones the most accurate."""
    points = []
    carrying = _carrying(request, gears)
    for done, gear in enumerate(carrying):
        progress("replaying the trace", done / len(carrying))
        points.append((_latency_s(_replay(request, gear.plan, seeds=1)), gear.candidate.accuracy))
    progress("chosen", 1.0)
    return carrying[undominated(points)[0]]


def _confirmed(request: PlanRequest, made: GearPlan) -> GearPlan | None:
    """The plan with its predictions, when it holds on all seeds, on part A and then on part B."""
    for seeds in (1, SEEDS):
        if not _holds(request, _replay(request, made, seeds=seeds)):
            return None
    predicted = replay(made, request, part=PART_B)
    if not _holds(request, predicted):
        return None
    return msgspec.structs.replace(made, predictions={request.profile.operator: predicted.result})


def _holds(request: PlanRequest, found: Confirmation) -> bool:
    return found.share_late_bound() <= 1 - request.objective.percentile


def _replay(request: PlanRequest, made: GearPlan, *, seeds: int) -> Confirmation:
    return replay(made, request, part=PART_A, seeds=seeds)


def _latency_s(found: Confirmation) -> float:
    return float(found.latency_s.mean())


def _infeasible(request: PlanRequest, cheapest: _OneGear) -> Infeasible:
    """Why even the candidate of the least work fails, and the nearest latency objective at which it does not."""
    candidate, cell = cheapest.candidate, cheapest.at_top
    top_qps = float(request.upper_ends()[-1])
    models = " > ".join(candidate.cascade.models)
    count = len(request.hardware.devices)
    devices = f"{count} device{'s' * (count > 1)}"
    device = busiest_device(
        request, candidate.cascade.models[-1], placement=cheapest.plan.placement, cascade=candidate.cascade
    )
    if request.objective.scope == "every-range" and not cell.stable:
        needed = max(count + 1, math.ceil(candidate.work_s * top_qps / 0.9))
        return Infeasible(
            f"{devices} cannot carry {top_qps:.4g} requests/s with {models} alone, about {needed} could",
            load_range=str(LoadRange(from_=0.0)),
            bottleneck=candidate.cascade.models[-1],
            device=device,
        )
    replays = [replay(cheapest.plan, request, part=part) for part in (PART_A, PART_B)]
    simulated_s = [float(r.latency_s.max() + r.latency_s.std()) for r in replays]
    if request.objective.scope == "every-range":
        simulated_s.append(cell.latency_s)
    return Infeasible(
        f"no candidate at all loads keeps {request.objective.percentile:.4g} of requests within "
        f"{request.latency_s * 1e3:.4g} ms on {devices}",
        load_range=str(LoadRange(from_=0.0)),
        bottleneck=candidate.cascade.models[-1],
        device=device,
        nearest_latency_s=SLACK * max(*simulated_s, request.latency_s),
    )
