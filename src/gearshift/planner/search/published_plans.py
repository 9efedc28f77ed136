"""Plans of published planners as candidates: none of them is better than ours."""

import dataclasses
from contextlib import suppress

from gearshift.errors import Infeasible
from gearshift.gear import GearPlan
from gearshift.planner.contract.ladder import accuracy_on_part_a
from gearshift.planner.contract.so_far import OutOfTime, SoFar
from gearshift.planner.evaluate.spike_recovery import confirmed_to_recover
from gearshift.planner.evaluate.steady_state import SteadyState
from gearshift.planner.published import coordinate, frontier
from gearshift.planner.space.request import PlanRequest, least_margin

MOST_CELLS, MOST_REQUESTS = 64, 20_000
"""Published planners' plans are tried up to this many devices times load ranges. On a trace of
more requests, only `coordinate` is tried, on the request's own hardware: it replays the trace no
more than once for each seed."""


def best_of_published(request: PlanRequest, above: float, so_far: SoFar) -> GearPlan | None:
    """A published planner's plan if it is quick to make and, confirmed, more accurate than `above`.

    With scope `every-range` it must also hold every range with our margin.
    """
    devices, short = len(request.hardware.devices), len(request.trace) <= MOST_REQUESTS
    if devices * request.ranges > MOST_CELLS or not (short or request.hardware == so_far.request.hardware):
        return None
    every_range = request.objective.scope == "every-range"
    margin = least_margin(request) if every_range else request.least_margin
    asked = dataclasses.replace(request, least_margin=margin)
    best: GearPlan | None = None
    for planner in (coordinate.PLANNER, frontier.PLANNER) if short else (coordinate.PLANNER,):
        with suppress(Infeasible):
            offered = planner.plan(so_far.remaining(asked))
            if offered.unfinished:
                raise OutOfTime
            accuracy = accuracy_on_part_a(offered, request)
            if accuracy > above and (not every_range or holds_every_range(offered, request)):
                made = confirmed_to_recover(offered, request, on_time=so_far.check)
                best, above = (best, above) if made is None else (made, accuracy)
    return best


def holds_every_range(made: GearPlan, request: PlanRequest) -> bool:
    """Whether each gear meets the objective on part A in steady state, as our own must.

    The load is the upper end of its range, or the highest planned one, times the request's least
    margin.
    """
    (operator,) = made.pipelines.values()
    steady = SteadyState(request.profile, made.hardware, made.placement, request.objective, seed=request.seed)
    highest_qps = float(request.upper_ends()[-1])
    ends_qps = (min(gear.load_range.to or highest_qps, highest_qps) for gear in operator.gears)
    return all(
        steady.meets(steady.simulate(gear.cascade, least_margin(request) * end_qps, gear.replicas))
        for gear, end_qps in zip(operator.gears, ends_qps, strict=True)
    )
