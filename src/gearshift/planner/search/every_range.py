"""Check that a plan, of any planner, holds each of its load ranges."""

from gearshift.gear import GearPlan
from gearshift.planner.evaluate.steady_state import SteadyState
from gearshift.planner.space.request import PlanRequest, least_margin


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
