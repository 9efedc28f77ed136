"""The frontier's search around the plans that nothing beats."""

import dataclasses
import functools
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gearshift.errors import Infeasible
from gearshift.gear import GearPlan
from gearshift.objective import Objective, Scope
from gearshift.planner.evaluate.confirm import replay
from gearshift.planner.evaluate.spike_recovery import recovers
from gearshift.planner.search import optimal_frontier
from gearshift.planner.search.optimal import PLANNER
from gearshift.planner.search.optimal_frontier import covering, in_widest_hole
from gearshift.planner.search.plan_search import PlanSearch
from gearshift.planner.space.pareto import hypervolume, undominated
from gearshift.planner.space.request import PlanRequest
from gearshift.profiles.profile import PART_A, PART_B
from tests.unit.planner.little import little_request, little_trace

frontier = PLANNER.frontier

SHORT = little_trace(low_qps=60, high_qps=360)


def asked(scope: Scope) -> PlanRequest:
    return little_request(objective=Objective(scope=scope), trace=SHORT)


@functools.cache
def front_of(scope: Scope) -> tuple[GearPlan, ...]:
    return tuple(frontier(asked(scope)))


def points_of(plans: Sequence[GearPlan]) -> list[tuple[float, float]]:
    return [(made.predictions["task"].latency_s.p95, made.predictions["task"].accuracy) for made in plans]


def on_part_a(plans: list[GearPlan], request: PlanRequest) -> float:
    runs = [replay(made, request, part=PART_A, seeds=1) for made in plans]
    return hypervolume([(float(r.latency_s[0]), r.result.accuracy) for r in runs], reference=(1.0, 0.5))


@pytest.mark.long
@pytest.mark.parametrize("scope", ["every-range", pytest.param("trace", marks=pytest.mark.long)])
def test_every_plan_holds_the_objective_it_names_on_all_seeds_and_both_parts(scope: Scope) -> None:
    for made in front_of(scope):
        objective = made.pipelines["task"].objective
        request = dataclasses.replace(asked(scope), objective=objective)
        runs = [replay(made, request, part=part) for part in (PART_A, PART_B)]
        assert all(run.share_late_bound() <= 0.05 for run in runs)
        assert made.predictions["task"].share_late == pytest.approx(runs[1].result.share_late, abs=1e-3)
        assert recovers(made, request)


@pytest.mark.long
def test_of_scope_every_range_each_gear_holds_the_objective_in_steady_state() -> None:
    for made in front_of("every-range"):
        operator = made.pipelines["task"]
        for gear in operator.gears:
            assert gear.predicted is not None
            assert gear.predicted.latency_p95_s <= operator.objective.latency_s


@pytest.mark.long
def test_searching_around_the_front_covers_more(monkeypatch: pytest.MonkeyPatch) -> None:
    request = asked("trace")
    more = on_part_a(frontier(request), request)
    monkeypatch.setattr(optimal_frontier, "AROUND_REPLAYS", 0)
    assert more > on_part_a(frontier(request), request)


@pytest.mark.long
def test_where_work_rises_with_load_the_gain_is_recorded() -> None:
    rising = 0  # beside those that rise in ranges which the trace never visits, where nothing is gained
    for made in front_of("trace"):
        accuracies = [gear.predicted.accuracy for gear in made.pipelines["task"].gears if gear.predicted]
        gains = [gear.predicted.replayed_gain for gear in made.pipelines["task"].gears if gear.predicted]
        assert all(gain is None or gain > 0 for gain in gains)
        if any(a < b for a, b in pairwise(accuracies)):
            rising += any(gains)
    assert rising


@pytest.mark.long
def test_ctrl_c_keeps_the_front_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(optimal_frontier._Front, "search_around", interrupted)
    plans = frontier(asked("trace"))
    assert len(plans) > 2
    assert all(made.unfinished for made in plans)
    assert points_of(plans) == sorted(points_of(plans))


def test_where_the_quick_search_finds_nothing_the_whole_one_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    on_best_placement = PlanSearch.on_best_placement

    def refusing(self: PlanSearch, request: PlanRequest, use: Any, *, quick: bool = False) -> Any:
        if quick:
            raise Infeasible("nothing in a hurry")
        return on_best_placement(self, request, use)

    monkeypatch.setattr(PlanSearch, "on_best_placement", refusing)
    (only,) = frontier(asked("every-range"))
    assert not only.unfinished
    assert only.predictions["task"].share_late <= 0.05


# Covering a front -----------------------------------------------------------------------------------------------------

FRONTS = st.lists(st.tuples(st.integers(1, 1000), st.integers(0, 100)), min_size=1, max_size=20).map(
    lambda drawn: [(a / 10, b / 100) for a, b in (sorted(set(drawn))[i] for i in undominated(sorted(set(drawn))))]
)


@settings(deadline=None, derandomize=True)
@given(FRONTS, st.integers(2, 8))
def test_the_points_that_cover_a_front_are_as_many_as_asked_with_both_ends(
    points: list[tuple[float, float]], most: int
) -> None:
    chosen = covering(points, most)
    assert chosen == sorted(set(chosen))
    assert len(chosen) == min(most, len(points))
    assert {0, len(points) - 1} <= set(chosen)


@settings(deadline=None, derandomize=True)
@given(FRONTS.filter(lambda points: len(points) > 3))
def test_the_first_point_between_the_ends_is_the_one_that_covers_most(points: list[tuple[float, float]]) -> None:
    reference = points[-1][0], points[0][1] - 1e-6

    def covered(middle: int) -> float:
        return hypervolume([points[0], points[middle], points[-1]], reference=(reference[0] + 1e-9, reference[1]))

    (middle,) = set(covering(points, 3)) - {0, len(points) - 1}
    assert covered(middle) == pytest.approx(max(covered(i) for i in range(1, len(points) - 1)))


def test_an_empty_front_has_nothing_to_cover() -> None:
    assert covering([], 8) == []


# Holes ----------------------------------------------------------------------------------------------------------------


def test_a_hole_is_filled_from_its_middle_and_the_widest_that_can_be_comes_first() -> None:
    kept = [0.70, 0.72, 0.78, 0.90]
    assert in_widest_hole(kept, [0.71, 0.75, 0.80, 0.85, 0.89]) == 3
    assert in_widest_hole(kept, [0.71, 0.74, 0.76]) == 1  # nothing is offered in the widest
    assert in_widest_hole(kept, [0.71, 0.70, 0.90]) is None
    assert in_widest_hole([], [0.8]) is None


@pytest.mark.long
def test_where_plans_of_the_front_are_not_confirmed_others_take_their_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimal_frontier, "CONFIRMED_PLANS", (2, 2))  # the ends alone

    def widest() -> float:
        accuracies = sorted(accuracy for _, accuracy in points_of(frontier(asked("every-range"))))
        return max(b - a for a, b in pairwise(accuracies)) / (accuracies[-1] - accuracies[0])

    assert widest() < 0.5
    monkeypatch.setattr(
        optimal_frontier, "CONFIRMED_REQUESTS", 2 * optimal_frontier.REPLAYS_TO_CONFIRM * len(SHORT)
    )  # the ends' own
    assert widest() > 0.9
