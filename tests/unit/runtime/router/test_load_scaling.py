from itertools import pairwise

import msgspec

from gearshift.gear import PlannedLoad
from gearshift.objective import Objective
from gearshift.plans.plan_tables import PlanTables, plan_tables
from gearshift.policies.load_scaling import TICKS_PER_ESTIMATE
from gearshift.runtime.router.load_scaling import LoadScaling
from tests.conformance.small import small_gear, small_plan


def tables(*, over_s: float, objective: Objective) -> PlanTables:
    """A plan for loads that are evenly below 10, 20, 40 and above."""
    placed, edges = {"a0": "d0"}, [0.0, 10.0, 20.0, 40.0, None]
    gears = [small_gear(placed, "a", load=(low or 0.0, high)) for low, high in pairwise(edges)]
    plan = small_plan(placed, *gears, planned_load=PlannedLoad(shares=(0.25,) * 4, over_s=over_s))
    operator = msgspec.structs.replace(plan.pipelines["task"], objective=objective)
    return plan_tables(msgspec.structs.replace(plan, pipelines={"task": operator}), "task")


def minute(scaling: LoadScaling, times: float) -> float:
    """The factor after a minute of loads that are so many times the planned ones."""
    for tick in range(TICKS_PER_ESTIMATE):
        scaling.ticked(times * (5.0, 14.0, 28.0, 57.0)[tick % 4])
    return scaling.factor


def test_the_factor_is_estimated_each_minute_once_the_planned_span_has_passed() -> None:
    scaling = LoadScaling(tables(over_s=180.0, objective=Objective(accuracy=0.9)))
    assert [minute(scaling, 4.0), minute(scaling, 4.0)] == [1.0, 1.0]
    assert 0.25 < minute(scaling, 4.0) < 0.36  # from 10 / 28 on all loads are in their ranges


def test_minutes_before_the_planned_span_are_forgotten() -> None:
    scaling = LoadScaling(tables(over_s=120.0, objective=Objective(accuracy=0.9)))
    factors = [minute(scaling, times) for times in (8.0, 8.0, 1.0, 1.0, 1.0)]
    assert factors[1] < 0.2
    assert factors[3] == factors[4] == 1.0


def test_a_load_as_planned_is_not_scaled() -> None:
    scaling = LoadScaling(tables(over_s=60.0, objective=Objective(accuracy=0.9)))
    assert [minute(scaling, 1.0) for _ in range(3)] == [1.0] * 3


def test_a_plan_with_a_latency_objective_is_never_scaled() -> None:
    scaling = LoadScaling(tables(over_s=60.0, objective=Objective(accuracy=0.9, latency_s=0.1)))
    assert [minute(scaling, 4.0) for _ in range(3)] == [1.0] * 3
