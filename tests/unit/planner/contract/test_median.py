"""A bound on the median, for planners that know none."""

import time
from dataclasses import replace
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from gearshift.errors import Infeasible
from gearshift.gear import GearPlan
from gearshift.objective import Objective
from gearshift.planner import planners
from gearshift.planner.contract.median import keeps_median, within_median
from gearshift.planner.space.request import PlanRequest
from tests.unit.planner import fake
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


@pytest.mark.long
def test_a_median_below_every_plan_is_infeasible_and_the_lowest_is_said() -> None:
    with pytest.raises(
        Infeasible, match=r"the median of the fastest plan found is 0\.4 ms, above the 0\.1 ms asked for"
    ):
        planners.plan("single", asked(median_s=0.0001))


def test_a_frontier_has_only_plans_within_the_median() -> None:
    every = planners.frontier("single", asked())
    bounded = planners.frontier("single", asked(median_s=0.001))
    assert 0 < len(bounded) < len(every)
    assert max(map(p50_s, bounded)) <= 0.001 < max(map(p50_s, every))
    with pytest.raises(Infeasible, match="the median of the fastest plan found is"):
        planners.frontier("single", asked(median_s=0.0001))


@pytest.mark.long
def test_the_fewest_devices_keep_the_median_too() -> None:
    free = planners.fewest("single", asked(accuracy=0.7))
    most_s = 0.8 * p50_s(free)
    bounded = planners.fewest("single", asked(accuracy=0.7, median_s=most_s))
    assert p50_s(bounded) <= most_s
    assert (len(free.hardware.devices), len(bounded.hardware.devices)) == (1, 2)


def test_a_median_in_whole_seconds_bounds_too() -> None:
    slow = fake.made(asked(), 1, latency_s=3.0)
    assert not keeps_median(slow, asked(median_s=1))


def slow_after(budgets: list[float | None], asked_for: PlanRequest, **changed: Any) -> GearPlan:
    """A plan whose median is too high; its request's budget is added to `budgets`."""
    budgets.append(asked_for.budget_s)
    return msgspec.structs.replace(fake.made(asked_for, 1, latency_s=0.02), **changed)


def test_searches_for_shorter_latencies_share_the_budget() -> None:
    budgets: list[float | None] = []
    with pytest.raises(Infeasible, match="above the 5 ms asked for"):
        within_median(lambda each: slow_after(budgets, each), replace(asked(median_s=0.005), budget_s=60.0))
    assert len(budgets) > 3
    assert all(later < earlier for earlier, later in pairwise(budgets) if earlier is not None and later is not None)
    assert None not in budgets


def test_a_spent_budget_ends_the_search_for_a_median_and_is_said() -> None:
    budgets: list[float | None] = []

    def find(each: PlanRequest) -> GearPlan:
        made, ends_s = slow_after(budgets, each), time.monotonic() + 0.002
        while time.monotonic() < ends_s:
            pass
        return made

    with pytest.raises(Infeasible, match=r"and the budget of 0\.001 s is spent; give a larger --budget-s"):
        within_median(find, replace(asked(median_s=0.005), budget_s=0.001))
    assert budgets == [0.001]


def test_an_interrupted_search_for_a_median_is_not_followed_by_another() -> None:
    budgets: list[float | None] = []
    with pytest.raises(KeyboardInterrupt):
        within_median(lambda each: slow_after(budgets, each, unfinished=True), asked(median_s=0.005))
    assert budgets == [None]


def test_an_interrupted_search_keeps_its_plan_where_that_is_within_the_median() -> None:
    made = within_median(lambda each: slow_after([], each, unfinished=True), asked(median_s=0.05))
    assert made.unfinished
