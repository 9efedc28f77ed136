"""Predictions for gears beyond the top of the load ranges that a plan was asked for."""

from collections.abc import Sequence

import msgspec

from gearshift.gear import Gear, GearPlan
from gearshift.planner.evaluate.steady_state import SteadyState
from gearshift.planner.space.request import PlanRequest


def predicted_at_their_ends(plans: Sequence[GearPlan], request: PlanRequest) -> list[GearPlan]:
    """Predict gears beyond the top at their own upper ends.

    They were chosen for the load at the top, which is lower than any load that they serve. A last
    gear has no upper end.
    """
    name, made = request.profile.operator, []
    for plan in plans:
        gears, steady = plan.pipelines[name].gears, None
        if any(map(_is_beyond, gears)):
            steady = SteadyState(request.profile, plan.hardware, plan.placement, request.objective, seed=request.seed)
            steady = steady.judged_by(plan.pipelines[name].objective)
            gears = tuple(_at_its_end(gear, steady) if _is_beyond(gear) else gear for gear in gears)
        operator = msgspec.structs.replace(plan.pipelines[name], gears=gears)
        made.append(msgspec.structs.replace(plan, pipelines={name: operator}))
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
