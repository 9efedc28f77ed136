"""Plan a pipeline of several nodes: a tuple for each load range, confirmed by replaying the trace.

The front of tuples, by work, takes the place that cascades have for one operator. A range gets the
most accurate tuple that holds at its upper end, found by bisection: tuples with more work are
mostly slower, and a range never gets one with more work than the range below it. End-to-end percentiles
come from simulation, so no latency is split over nodes. The plan is then replayed on the whole
trace; where it misses the objective, all ranges are planned for more load. Last, gears are given
several implementations where choosing among them by the time left helps (`choices.py`).
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from gearshift.errors import Infeasible, require
from gearshift.gear import Gear, GearPlan, LoadRange
from gearshift.placement import Placement
from gearshift.planner.joint.placing import place
from gearshift.planner.joint.replanning.choices import keeps, on_trace, result_of, with_choices
from gearshift.planner.joint.request import PipelineRequest
from gearshift.planner.joint.steady import Candidate, SteadyTuples, most_visits
from gearshift.planner.space.bisection import last_that_holds
from gearshift.planner.space.request import load_ranges
from gearshift.profiles.profile import PART_A, PART_B
from gearshift.result import ServingResult

MARGIN_STEP = 1.15
MOST_REPAIRS = 8

Assignment = tuple[tuple[Candidate, int], ...]
"""The tuple and the largest batch of each range."""


def plan_pipeline(request: PipelineRequest, front: Sequence[Candidate]) -> GearPlan:
    """The most accurate plan within the latency objective; `front` rises in work and in quality.

    Raises `Infeasible` where even the tuple of least work misses the objective, or where the
    accuracy that was asked for is out of reach.
    """
    require(len(front) > 0, "there are no tuples of implementations to choose from")
    placement = place(request.profiles.values(), request.hardware, most_visits(front))
    steady = SteadyTuples(request, placement)
    margin, late = request.least_margin, 1.0
    for _ in range(MOST_REPAIRS):
        assignment = assigned(steady, front, margin)
        made = _plan(steady, assignment)
        on_part_a = replayed(made, request, part=PART_A)
        late = min(late, on_part_a.share_late)
        if keeps(on_part_a, request):
            predicted = replayed(made, request, part=PART_B)
            if keeps(predicted, request):
                if request.may_choose:
                    made, predicted = _choosing(made, predicted, steady, front, assignment, margin)
                return _accurate_enough(_without_idle_models(made, request), request, predicted)
        margin *= MARGIN_STEP
    raise Infeasible(
        f"every plan has {100 * late:.3g} % late or more on the trace, with {request.latency_s * 1e3:.4g} ms allowed"
        f" for {100 * request.objective.percentile:.4g} %",
        by_load=False,
    )


def assigned(steady: SteadyTuples, front: Sequence[Candidate], margin: float) -> Assignment:
    """The tuple of each range; raises `Infeasible` that names the range, model and device where none holds."""
    chosen: list[tuple[Candidate, int]] = []
    most = len(front)
    for load_range, end_qps in zip(_ranges(steady.request), steady.request.upper_ends(), strict=True):
        load_qps, allowed = margin * end_qps, front[:most]
        last = last_that_holds(lambda i: steady.holding(allowed[i], load_qps) is not None, len(allowed))  # noqa: B023
        if last < 0:
            raise _infeasible(steady, front[0], load_range, load_qps)
        chosen.append((front[last], steady.holding(front[last], load_qps) or 1))
        most = last + 1
    return tuple(chosen)


def replayed(made: GearPlan, request: PipelineRequest, *, part: int) -> ServingResult:
    return result_of(on_trace(made, request, part=part), request)


def _choosing(
    plain: GearPlan,
    predicted: ServingResult,
    steady: SteadyTuples,
    front: Sequence[Candidate],
    assignment: Assignment,
    margin: float,
) -> tuple[GearPlan, ServingResult]:
    """The plan with choices by the time left, and what it gets on part B; the plain one where it does not help."""
    request = steady.request
    places = [front.index(candidate) for candidate, _ in assignment]
    made = with_choices(plain, steady, front, places, margin)
    confirmed = predicted if made is plain else replayed(made, request, part=PART_B)
    needed = min(request.objective.accuracy or 0.0, predicted.accuracy)
    return (made, confirmed) if keeps(confirmed, request) and confirmed.accuracy >= needed else (plain, predicted)


def _plan(steady: SteadyTuples, assignment: Assignment) -> GearPlan:
    request, gears = steady.request, list[Gear]()
    for load_range, end_qps, (candidate, largest) in zip(
        _ranges(request), request.upper_ends(), assignment, strict=True
    ):
        gear = request.gear(load_range, candidate.cascades, steady.settings(candidate, largest))
        cell = steady.cell(candidate, end_qps, largest)
        gears.append(msgspec.structs.replace(gear, predicted=cell.prediction(end_qps, candidate.quality)))
    return request.plan(steady.placement, gears)


def _without_idle_models(made: GearPlan, request: PipelineRequest) -> GearPlan:
    gears = made.pipeline.gears
    used = {m for gear in gears for cascades in gear.cascades.values() for c in cascades for m in c.models}
    kept = tuple(replica for replica in made.placement.replicas if replica.model in used)
    ids = {replica.id for replica in kept}
    fewer = [
        msgspec.structs.replace(gear, replicas=tuple(one for one in gear.replicas if one.replica in ids))
        for gear in gears
    ]
    return request.plan(Placement(replicas=kept), fewer)


def _accurate_enough(made: GearPlan, request: PipelineRequest, predicted: ServingResult) -> GearPlan:
    asked = request.objective.accuracy
    if asked is not None and predicted.accuracy < asked:
        raise Infeasible(
            f"within {request.latency_s * 1e3:.4g} ms the accuracy is {predicted.accuracy:.4f}, not {asked:.4g}",
            nearest_accuracy=int(predicted.accuracy * 1e4) / 1e4,
            by_load=False,
        )
    return msgspec.structs.replace(made, predictions={request.name: predicted})


def _infeasible(steady: SteadyTuples, cheapest: Candidate, load_range: LoadRange, load_qps: float) -> Infeasible:
    model, device = steady.bottleneck(cheapest)
    node = next(node for node, cascade in cheapest.cascades.items() if model in cascade.models)
    cells = [steady.cell(cheapest, load_qps, size) for size in steady.sizes()]
    stable_s = [cell.latency_s for cell in cells if cell.stable]
    return Infeasible(
        f"the tuple of least work misses {steady.request.latency_s * 1e3:.4g} ms at {load_qps:.4g} requests/s; "
        f"node {node!r} binds",
        load_range=str(load_range),
        bottleneck=model,
        device=device,
        nearest_latency_s=min(stable_s, default=None),
    )


def _ranges(request: PipelineRequest) -> list[LoadRange]:
    return load_ranges(np.array(request.upper_ends()))
