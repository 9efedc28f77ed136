"""Ranges that the trace never visits get the best cascade that holds there."""

import pytest

from gearshift.gear import GearPlan
from gearshift.objective import Objective, Scope
from gearshift.planner.metered import shares_of_ranges
from gearshift.planner.optimal import plan
from gearshift.planner.plan_search import PlanSearch
from gearshift.planner.request import PlanRequest, safe_margin, silent
from gearshift.planner.steady_state import SteadyState
from tests.unit.planner.little import bursty_trace, little_request
from tests.worlds import synthetic_profile

PROFILE = synthetic_profile(models=3, samples=600, fastest_s=0.001)
SURGE = bursty_trace(low_qps=1.0, burst_qps=900.0, every=50, length=10)


def surged(scope: Scope) -> PlanRequest:
    """Hardly any load, and then a thousand times as much within a second."""
    return little_request(profile=PROFILE, ranges=8, trace=SURGE, objective=Objective(latency_s=0.03, scope=scope))


def falls_short(made: GearPlan, request: PlanRequest) -> list[float]:
    """Upper ends of ranges without a visit where a more accurate candidate holds."""
    steady = SteadyState(request.profile, request.hardware, made.placement, request.objective, seed=request.seed)
    candidates = PlanSearch(request, silent).candidates(request, made.placement.models)
    ends = request.upper_ends()
    gears = made.operators[request.profile.operator].gears
    short = []
    for end, share in zip(ends[:-1].tolist(), shares_of_ranges(request.trace, ends), strict=False):
        gear = next(g for g in gears if g.load_range.to is None or g.load_range.to >= end)
        narrow = gear.load_range.to is not None and gear.load_range.to < end + ends[0]
        held_qps = safe_margin(request) * float(gear.load_range.to if narrow and gear.load_range.to else end)
        best = max(c.accuracy for c in candidates if steady.holds(c.cascade, held_qps))
        if share == 0 and gear.predicted is not None and gear.predicted.accuracy < best:
            short.append(end)
    return short


@pytest.mark.parametrize("scope", ["every-range", "trace"])
def test_between_a_low_load_and_a_surge_every_range_has_the_best_that_holds(
    scope: Scope, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gearshift.planner.plan_search.MOST_CELLS", 0)  # published planners have ranges of their own
    request = surged(scope)
    assert 0 in shares_of_ranges(request.trace, request.upper_ends())[:-1]
    assert falls_short(plan(request), request) == []
