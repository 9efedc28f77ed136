"""Ranges that the trace never visits get the best cascade that holds there."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from gearshift.gear import GearPlan
from gearshift.objective import Objective, Scope
from gearshift.planner.contract.planner import SoFar
from gearshift.planner.evaluate.steady_state import SteadyState
from gearshift.planner.search import optimal_frontier, plan_search
from gearshift.planner.search.optimal import PLANNER
from gearshift.planner.search.plan_search import PlanSearch
from gearshift.planner.space.metered import shares_of_ranges
from gearshift.planner.space.request import PlanRequest, safe_margin
from tests.unit.planner.little import bursty_trace, little_request, single_plan
from tests.worlds import synthetic_profile

frontier, plan = PLANNER.frontier, PLANNER.plan

PROFILE = synthetic_profile(models=3, samples=600, fastest_s=0.001)
SURGE = bursty_trace(low_qps=1.0, burst_qps=900.0, every=50, length=10)


def surged(objective: Objective, *, devices: int = 1) -> PlanRequest:
    """Hardly any load, and then a thousand times as much within a second."""
    return little_request(profile=PROFILE, ranges=8, trace=SURGE, objective=objective, devices=devices)


def falls_short(made: GearPlan, request: PlanRequest) -> list[float]:
    """Upper ends of ranges without a visit where a more accurate candidate holds."""
    steady = SteadyState(request.profile, request.hardware, made.placement, request.objective, seed=request.seed)
    candidates = PlanSearch(SoFar(request)).space.candidates(request, made.placement.models)
    ends = request.upper_ends()
    gears = made.pipelines[request.profile.operator].gears
    short = []
    for end, share in zip(ends[:-1].tolist(), shares_of_ranges(request.trace, ends), strict=False):
        gear = next(g for g in gears if g.load_range.to is None or g.load_range.to >= end)
        narrow = gear.load_range.to is not None and gear.load_range.to < end + ends[0]
        held_qps = safe_margin(request) * float(gear.load_range.to if narrow and gear.load_range.to else end)
        best = max(c.accuracy for c in candidates if steady.holds(c.cascade, held_qps))
        if share == 0 and gear.predicted is not None and gear.predicted.accuracy < best:
            short.append(end)
    return short


@pytest.mark.parametrize("scope", ["every-range", pytest.param("trace", marks=pytest.mark.long)])
def test_between_a_low_load_and_a_surge_every_range_has_the_best_that_holds(
    scope: Scope, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "gearshift.planner.search.plan_search.MOST_CELLS", 0
    )  # published planners have ranges of their own
    request = surged(Objective(latency_s=0.03, scope=scope))
    assert 0 in shares_of_ranges(request.trace, request.upper_ends())[:-1]
    assert falls_short(plan(request), request) == []


@pytest.mark.long
def test_so_have_all_plans_of_a_frontier_where_confirming_them_is_affordable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimal_frontier, "OBJECTIVES", 3)
    monkeypatch.setattr(optimal_frontier, "AROUND_REPLAYS", 0)
    request = surged(Objective())
    plans = frontier(request)
    own = [dataclasses.replace(request, objective=made.pipelines["task"].objective) for made in plans]
    assert [falls_short(made, each) for made, each in zip(plans, own, strict=True)] == [[]] * len(plans)
    monkeypatch.setattr(optimal_frontier, "CONFIRMED_REQUESTS", 0)
    found = [single_plan("m0")]
    assert optimal_frontier.with_better_where_unvisited(PlanSearch(SoFar(request)), found, confirmed=1) == found


# What it may cost -----------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_only_the_plan_that_is_handed_out_is_made_better(monkeypatch: pytest.MonkeyPatch) -> None:
    improved: list[int] = []
    really = plan_search.with_best_where_unvisited

    def counted(made: GearPlan, *of: Any) -> Iterator[GearPlan]:
        improved.append(len(made.hardware.devices))
        return really(made, *of)

    monkeypatch.setattr(plan_search, "with_best_where_unvisited", counted)
    plan(dataclasses.replace(surged(Objective(latency_s=0.03, accuracy=0.7), devices=2), ranges=2))
    assert improved == [2]


def test_a_confirmed_plan_stays_as_it_is_and_finished_where_no_time_is_left() -> None:
    request = surged(Objective(latency_s=0.03))
    search = PlanSearch(SoFar(request))
    made = msgspec.structs.replace(single_plan("m0"), unfinished=False)
    search.so_far.end()
    assert search.better_where_unvisited(made, request) is made
