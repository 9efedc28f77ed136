"""A bound on the median, for planners that know none."""

from dataclasses import replace
from typing import Any

import pytest

from gearshift.errors import Infeasible
from gearshift.gear import GearPlan
from gearshift.objective import Objective
from gearshift.planner import planners
from gearshift.planner.space.request import PlanRequest
from tests.unit.planner.refine.worlds import request


def asked(count: int = 1, **objective: Any) -> PlanRequest:
    return replace(request(count), objective=Objective(**{"latency_s": 0.02} | objective))


def p50_s(made: GearPlan) -> float:
    return made.predictions["task"].latency_s.p50


def test_gears_with_a_lower_median_are_those_for_a_shorter_latency() -> None:
    free, bounded = planners.plan("single", asked()), planners.plan("single", asked(median_s=0.001))
    assert p50_s(bounded) <= 0.001 < p50_s(free)
    assert bounded.pipeline.objective == asked(median_s=0.001).objective
    assert bounded.predictions["task"].accuracy < free.predictions["task"].accuracy


def test_a_median_that_the_plan_keeps_changes_nothing() -> None:
    free, bounded = planners.plan("single", asked()), planners.plan("single", asked(median_s=0.002))
    assert bounded.pipeline.gears == free.pipeline.gears


def test_a_median_below_every_plan_is_infeasible_and_the_lowest_is_said() -> None:
    with pytest.raises(Infeasible, match=r"the median of the fastest plan found is 0\.4 ms, above the 0\.1 asked for"):
        planners.plan("single", asked(median_s=0.0001))


def test_a_frontier_has_only_plans_within_the_median() -> None:
    every = planners.frontier("single", asked())
    bounded = planners.frontier("single", asked(median_s=0.001))
    assert 0 < len(bounded) < len(every)
    assert max(map(p50_s, bounded)) <= 0.001 < max(map(p50_s, every))
    with pytest.raises(Infeasible, match="the median of the fastest plan found is"):
        planners.frontier("single", asked(median_s=0.0001))


def test_the_fewest_devices_keep_the_median_too() -> None:
    free = planners.fewest("single", asked(accuracy=0.7))
    most_s = 0.8 * p50_s(free)
    bounded = planners.fewest("single", asked(accuracy=0.7, median_s=most_s))
    assert p50_s(bounded) <= most_s
    assert (len(free.hardware.devices), len(bounded.hardware.devices)) == (1, 2)
