"""Plans of one gear: the same cascade at all loads, its models on every device where they fit.

`single` has one model: dynamic batching (CascadeServe 6.2) and stand-alone engines (Ken 5.2).
`static-cascade` has a cascade that is chosen by replaying the trace itself: AlpaServe+ (Ken 5.2),
"no switching" (Ken 5.7).
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import msgspec

from gearshift.errors import Infeasible
from gearshift.gear import GearPlan, LoadRange
from gearshift.planner.contract.ladder import require_accuracy_within_reach, undominated_plans
from gearshift.planner.contract.planner import CUT_SHORT, OutOfTime, Planner, SoFar, all_so_far, unfinished
from gearshift.planner.evaluate.assemble import assemble
from gearshift.planner.evaluate.bottleneck import busiest_device, refusal
from gearshift.planner.evaluate.cells import Cell
from gearshift.planner.evaluate.confirm import Confirmation, confirmed, replay, with_predictions
from gearshift.planner.evaluate.steady_state import SteadyState
from gearshift.planner.space.cascade_search import CandidateCascade, cascade_front, single_models
from gearshift.planner.space.hosts import place_everywhere
from gearshift.planner.space.pareto import undominated
from gearshift.planner.space.request import PlanRequest
from gearshift.profiles.profile import PART_A, PART_B
from gearshift.support.numbers import plain

SLACK = 1.05
"""The nearest feasible objective is the simulated latency times this."""


@dataclass(frozen=True, slots=True)
class _OneGear:
    """A candidate's plan without predictions, and its cell at the top load times the margin."""

    candidate: CandidateCascade
    plan: GearPlan
    at_top: Cell


def planner(
    name: str,
    candidates: Callable[[PlanRequest], Sequence[CandidateCascade]],
    *,
    knows_the_trace: bool = False,
    of_single_models: bool = False,
) -> Planner[PlanRequest]:
    """The planner of plans of one gear, with one of a request's `candidates`, which come by rising work.

    One that `knows_the_trace` keeps scope `trace`: it need not carry more.
    """

    def asked(so_far: SoFar) -> PlanRequest:
        objective = so_far.request.objective
        scope = "trace" if knows_the_trace else objective.scope
        return replace(so_far.request, objective=msgspec.structs.replace(objective, scope=scope))

    return Planner(
        name=name,
        best_within=lambda so_far: _best(so_far, asked(so_far), candidates(so_far.request)),
        undominated=lambda so_far: _undominated(so_far, asked(so_far), candidates(so_far.request)),
        single_models=of_single_models,
    )


def _best(so_far: SoFar, request: PlanRequest, candidates: Sequence[CandidateCascade]) -> GearPlan:
    """The most accurate candidate within the latency, or the fastest that is accurate enough.

    Candidates are compared on part A. Raises `Infeasible` when none meets the objective.
    """
    objective = request.objective
    if objective.accuracy is not None:
        require_accuracy_within_reach(objective.accuracy, max(c.accuracy for c in candidates))
        candidates = [c for c in candidates if c.accuracy >= objective.accuracy]
    find = _fastest if objective.latency_s is None else _most_accurate
    made = find(so_far, request, candidates)
    so_far.tell("planned", 1.0)
    return made


def _undominated(so_far: SoFar, request: PlanRequest, candidates: Sequence[CandidateCascade]) -> list[GearPlan]:
    request = request.within(None)
    made = all_so_far(_undominated_on_part_a(so_far, request, candidates))
    so_far.report("planned", 1.0)
    return undominated_plans(made, request)


def _most_accurate(so_far: SoFar, request: PlanRequest, candidates: Sequence[CandidateCascade]) -> GearPlan:
    """Try from the most accurate down. Until a plan holds, the cheapest is the best so far."""
    cheapest = next(_gears(request, candidates))
    so_far.keep(cheapest.plan, cheapest.candidate.accuracy)
    gears = _gears(request, sorted(candidates, key=lambda c: -c.accuracy))
    for tried, gear in enumerate(gears):
        so_far.check()
        so_far.tell("replaying the trace", tried / len(candidates))
        if not _carries(request, gear) or not _replay(request, gear, so_far).holds(request.objective.percentile):
            continue
        so_far.keep(gear.plan, gear.candidate.accuracy)
        if (found := confirmed(gear.plan, request, on_time=so_far.check)) is not None:
            return found
        so_far.keep(cheapest.plan, cheapest.candidate.accuracy)
    so_far.plan = None
    raise _infeasible(request, cheapest, so_far)


def _fastest(so_far: SoFar, request: PlanRequest, candidates: Sequence[CandidateCascade]) -> GearPlan:
    least = math.inf, 0.0
    for tried, gear in enumerate(_carrying(request, candidates)):
        candidate = gear.candidate
        if so_far.plan is None:
            so_far.keep(gear.plan, candidate.accuracy)
        so_far.tell("replaying the trace", tried / len(candidates))
        point = _latency_s(_replay(request, gear, so_far)), -candidate.accuracy
        if point < least:
            least = point
            so_far.keep(gear.plan, candidate.accuracy)
    return with_predictions(so_far.best(), request, on_time=so_far.check)


def _undominated_on_part_a(
    so_far: SoFar, request: PlanRequest, candidates: Sequence[CandidateCascade]
) -> Iterator[GearPlan]:
    made = 0
    points: list[tuple[float, float]] = []
    for tried, gear in enumerate(_carrying(request, candidates)):
        plans = f"{made} plan{'s' * (made != 1)} so far"
        so_far.report(f"replaying the trace, {plans}", tried / len(candidates))
        try:
            points.append((_latency_s(_replay(request, gear, so_far)), gear.candidate.accuracy))
            if tried in undominated(points):
                yield with_predictions(gear.plan, request, on_time=so_far.check)
                made += 1
        except CUT_SHORT:
            if not made:
                yield unfinished(gear.plan, request)
            raise


def _gears(request: PlanRequest, candidates: Sequence[CandidateCascade]) -> Iterator[_OneGear]:
    nothing = True
    for candidate in candidates:
        if (gear := _one_gear(request, candidate)) is not None:
            nothing = False
            yield gear
    if nothing:
        raise refusal(request, "the devices have too little memory for the models of any candidate")


def _one_gear(request: PlanRequest, candidate: CandidateCascade) -> _OneGear | None:
    cascade = candidate.cascade
    placement = place_everywhere(request.profile, request.hardware, models=cascade.models)
    if set(placement.models) != set(cascade.models):
        return None
    steady = SteadyState(
        request.profile, request.hardware, placement, request.objective, seed=request.seed, waits=False
    )
    top_qps = float(request.upper_ends()[-1])
    batching, cell = steady.best(cascade, (request.least_margin or 1.0) * top_qps)
    predicted = steady.cell(cascade, top_qps, batching).prediction(top_qps, candidate.accuracy)
    gear = steady.gear(LoadRange(from_=0.0), cascade, batching, predicted)
    return _OneGear(candidate, assemble(request, placement, [gear]), cell)


def _carries(request: PlanRequest, gear: _OneGear) -> bool:
    cell = gear.at_top
    return request.objective.scope == "trace" or (cell.stable and cell.latency_s <= request.latency_s)


def _carrying(request: PlanRequest, candidates: Sequence[CandidateCascade]) -> Iterator[_OneGear]:
    cheapest, nothing = None, True
    for gear in _gears(request, candidates):
        cheapest = cheapest or gear
        if _carries(request, gear):
            nothing = False
            yield gear
    if nothing and cheapest is not None:
        raise _infeasible(request, cheapest, SoFar(request))


def _replay(request: PlanRequest, gear: _OneGear, so_far: SoFar) -> Confirmation:
    return replay(gear.plan, request, part=PART_A, seeds=1, on_time=so_far.check)


def _latency_s(found: Confirmation) -> float:
    return float(found.latency_s.mean())


def _infeasible(request: PlanRequest, cheapest: _OneGear, so_far: SoFar) -> Infeasible:
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
            f"{devices} cannot carry {plain(top_qps)} requests/s with {models} alone, about {needed} could",
            load_range=str(LoadRange(from_=0.0)),
            bottleneck=candidate.cascade.models[-1],
            device=device,
        )
    nearest_s = None
    with suppress(OutOfTime):
        replays = [replay(cheapest.plan, request, part=part, on_time=so_far.check) for part in (PART_A, PART_B)]
        simulated_s = [float(r.latency_s.max() + r.latency_s.std()) for r in replays]
        if request.objective.scope == "every-range":
            simulated_s.append(cell.latency_s)
        nearest_s = SLACK * max(*simulated_s, request.latency_s)
    return Infeasible(
        f"no candidate at all loads keeps {request.objective.percentile:.4g} of requests within "
        f"{plain(request.latency_s * 1e3)} ms on {devices}",
        load_range=str(LoadRange(from_=0.0)),
        bottleneck=candidate.cascade.models[-1],
        device=device,
        nearest_latency_s=nearest_s,
    )


SINGLE = planner("single", single_models, of_single_models=True)
STATIC_CASCADE = planner("static-cascade", cascade_front, knows_the_trace=True)
