from dataclasses import replace
from functools import cache

import msgspec
import pytest

from gearshift.errors import Infeasible
from gearshift.gear import GearPlan
from gearshift.planner import planners
from gearshift.planner.contract.ladder import predicted_point
from gearshift.planner.explain import explain
from gearshift.planner.refine.choice import is_better
from gearshift.planner.refine.search import Found, in_order
from gearshift.planner.refine.way import Pair, Way, pairs_of
from tests.unit.planner.refine.worlds import request


@cache
def refined() -> GearPlan:
    return planners.plan("refine", request(1))


def found(accuracy: float, share_late: float = 0.0, median_s: float = 0.01) -> Found[Pair]:
    pair = pairs_of(request(1))[0]
    return Found(of=pair, way=Way(), accuracy=accuracy, share_late=share_late, median_s=median_s)


def test_of_plans_about_as_accurate_the_one_with_the_lowest_median_comes_first() -> None:
    best, faster, worse = found(0.9, median_s=0.03), found(0.8995, median_s=0.02), found(0.88, median_s=0.001)
    assert in_order([worse, best, faster], request(1)) == [faster, best, worse]


def test_plans_that_are_late_or_above_the_median_asked_for_are_left_out() -> None:
    late, slow, fine = found(0.99, share_late=0.006), found(0.99, median_s=0.03), found(0.9)
    assert in_order([late, fine], request(1)) == [fine]
    bounded = replace(request(1), objective=msgspec.structs.replace(request(1).objective, median_s=0.02))
    assert in_order([slow, fine], bounded) == [fine]


def test_a_plan_that_refines_keeps_the_latency_and_says_how_many_rows_ran_out_of_time() -> None:
    predicted = refined().predictions["task"]
    assert predicted.share_late <= 0.05
    assert predicted.latency_s.p95 <= 0.02
    assert 0 < predicted.share_by_time < 0.5
    assert all(gear.predicted is not None for gear in refined().pipeline.gears)


def test_explain_says_the_share_by_time_and_what_each_range_gives() -> None:
    explained = explain(refined(), request(1).profile, request(1).trace)
    assert 0 < explained.replayed.share_by_time < 0.5
    assert [found.predicted for found in explained.ranges] == [gear.predicted for gear in refined().pipeline.gears]
    assert all(found.next is None for found in explained.ranges)


@pytest.mark.long
def test_refining_is_more_accurate_than_gears_within_a_tight_latency() -> None:
    ordinary = planners.plan("optimal", request(1))
    assert is_better(refined(), ordinary, request(1))
    best = planners.plan("optimal", replace(request(1), policy="best"))
    assert (best.planner, best.pipeline.refines) == ("refine", True)


@pytest.mark.long
def test_a_median_below_all_run_times_is_infeasible() -> None:
    bounded = msgspec.structs.replace(request(1).objective, median_s=1e-5)
    with pytest.raises(Infeasible, match="no plan that refines"):
        planners.plan("optimal", replace(request(1), objective=bounded, policy="refine"))
    with pytest.raises(Infeasible, match="the median of the fastest plan found is"):
        planners.plan("single", replace(request(1), objective=bounded))


@pytest.mark.long
def test_a_frontier_of_both_policies_has_no_plan_that_another_of_them_dominates() -> None:
    both = planners.frontier("single", replace(request(1), policy="best"))
    alone = planners.frontier("single", request(1))
    points = [predicted_point(made, request(1)) for made in both]
    assert any(made.pipeline.refines for made in both)
    for latency_s, accuracy in (predicted_point(made, request(1)) for made in alone):
        assert any(at_s <= latency_s and right >= accuracy for at_s, right in points)
    assert [accuracy for _, accuracy in sorted(points)] == sorted(accuracy for _, accuracy in points)
