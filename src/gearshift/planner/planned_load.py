"""The distribution of load that a plan was made for, as the server's meter would measure it."""

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from gearshift.gear import GearPlan, PlannedLoad
from gearshift.planner.space.metered import metered_loads, range_weights
from gearshift.planner.space.request import LoadDistribution, PlanRequest

DIGITS = 6


def with_planned_load(plans: Sequence[GearPlan], request: PlanRequest, *, load: LoadDistribution) -> list[GearPlan]:
    """Record it in each plan; `load` is how often its planner took load ranges to be visited."""
    loads, weights = _loads(request, load)
    name = request.profile.operator
    made = []
    for plan in plans:
        operator = plan.pipelines[name]
        starts = [gear.load_range.from_ for gear in operator.gears[1:]]
        visited = np.bincount(
            np.searchsorted(starts, loads, side="right"), weights=weights, minlength=len(operator.gears)
        )
        shares = tuple(round(float(share), DIGITS) for share in visited / weights.sum())
        planned = PlannedLoad(shares=shares, over_s=request.trace.duration_s)
        pipelines = {name: msgspec.structs.replace(operator, planned_load=planned)}
        made.append(msgspec.structs.replace(plan, pipelines=pipelines))
    return made


def _loads(request: PlanRequest, load: LoadDistribution) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Loads and the time at each: the trace's ticks, or the middles of ranges by Zipf's law."""
    if load == "zipf":
        upper_ends = request.upper_ends()
        return upper_ends - upper_ends[0] / 2, range_weights(request)
    rates, _ = metered_loads(request.trace)
    return rates, np.ones(len(rates))
