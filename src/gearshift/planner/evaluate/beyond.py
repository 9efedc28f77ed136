"""The last steps of every plan: what was asked for, predictions beyond the top, and the planned load."""

from collections.abc import Sequence

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType
from numpy.typing import NDArray

from gearshift.gear import Gear, GearPlan
from gearshift.objective import Asked, Objective
from gearshift.planner.evaluate.assemble import with_pipeline
from gearshift.planner.evaluate.steady_state import SteadyState, steady_of
from gearshift.planner.space.beside import without_idle_models
from gearshift.planner.space.metered import metered_loads, range_weights
from gearshift.planner.space.request import LoadDistribution, PlanRequest
from gearshift.workload import PlannedLoad


def recorded(
    made: list[GearPlan],
    request: PlanRequest,
    objectives: Sequence[Objective] = (),
    *,
    load: LoadDistribution = "trace",
    because: str | UnsetType = UNSET,
) -> list[GearPlan]:
    """Remove idle models, and record the request, predictions beyond the top, and the planned load.

    `objectives` are those of a frontier's plans; `because` is why the policy gave a plan.
    """
    asked = Asked(
        objective=request.objective,
        ranges=request.ranges,
        most_candidates=request.most_candidates,
        max_qps=request.max_qps,
        least_margin=request.least_margin,
        load=request.load,
        budget_s=request.budget_s,
        policy=UNSET if request.policy == "gears" else request.policy,
        chosen_because=because,
    )
    told = []
    for plan, objective in zip(
        map(without_idle_models, made), objectives or [request.objective] * len(made), strict=True
    ):
        told.append(with_pipeline(plan, asked=msgspec.structs.replace(asked, objective=objective)))
    return with_planned_load(predicted_at_their_ends(told, request), request, load=request.load or load)


def predicted_at_their_ends(plans: Sequence[GearPlan], request: PlanRequest) -> list[GearPlan]:
    """Predict gears beyond the top at their own upper ends.

    They were chosen for the load at the top, which is lower than any load that they serve. A last
    gear has no upper end.
    """
    name, made = request.profile.operator, []
    for plan in plans:
        gears, steady = plan.pipelines[name].gears, None
        if any(map(_is_beyond, gears)):
            steady = steady_of(request, plan.hardware, plan.placement)
            steady = steady.judged_by(plan.pipelines[name].objective)
            gears = tuple(_at_its_end(gear, steady) if _is_beyond(gear) else gear for gear in gears)
        made.append(with_pipeline(plan, gears=gears))
    return made


def _is_beyond(gear: Gear) -> bool:
    known, load_range = gear.predicted, gear.load_range
    return known is not None and load_range.to is not None and load_range.from_ >= known.load_qps


def _at_its_end(gear: Gear, steady: SteadyState) -> Gear:
    known, end_qps = gear.predicted, gear.load_range.to
    assert known is not None
    assert end_qps is not None
    cell = steady.simulate(gear.cascade, end_qps, gear.replicas)
    predicted = cell.prediction(end_qps, known.accuracy, replayed_gain=known.replayed_gain)
    return msgspec.structs.replace(gear, predicted=predicted)


DIGITS = 6


def with_planned_load(plans: Sequence[GearPlan], request: PlanRequest, *, load: LoadDistribution) -> list[GearPlan]:
    """Record it in each plan; `load` is how often its planner took load ranges to be visited."""
    loads, weights = _loads(request, load)
    name = request.profile.operator
    made = []
    for plan in plans:
        pipeline = plan.pipelines[name]
        starts = [gear.load_range.from_ for gear in pipeline.gears[1:]]
        visited = np.bincount(
            np.searchsorted(starts, loads, side="right"), weights=weights, minlength=len(pipeline.gears)
        )
        shares = tuple(round(float(share), DIGITS) for share in visited / weights.sum())
        planned = PlannedLoad(shares=shares, over_s=request.trace.duration_s)
        made.append(with_pipeline(plan, planned_load=planned))
    return made


def _loads(request: PlanRequest, load: LoadDistribution) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Loads and the time at each: the trace's ticks, or the middles of ranges by Zipf's law."""
    if load == "zipf":
        upper_ends = request.upper_ends()
        return upper_ends - upper_ends[0] / 2, range_weights(request)
    rates, _ = metered_loads(request.trace)
    return rates, np.ones(len(rates))
