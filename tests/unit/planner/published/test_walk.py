import functools
from dataclasses import replace
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gearshift.hardware import identical_devices
from gearshift.planner.contract.planner import SoFar
from gearshift.planner.published.walk import Walk, lowered
from tests.unit.planner.little import PROFILE, little_request, little_trace


@pytest.mark.parametrize(
    ("assignment", "load_range", "then"),
    [
        ((3, 3, 3), 0, (2, 2, 2)),
        ((3, 3, 3), 1, (3, 2, 2)),
        ((3, 3, 3), 2, (3, 3, 2)),
        ((5, 2, 0), 0, (4, 2, 0)),
        ((2, 2, 1), 0, (1, 1, 1)),
        ((1, 0), 0, (0, 0)),
    ],
)
def test_a_step_takes_the_next_cheaper_cascade_and_nothing_dearer_at_higher_load(
    assignment: tuple[int, ...], load_range: int, then: tuple[int, ...]
) -> None:
    assert lowered(assignment, load_range) == then


@settings(deadline=None, derandomize=True)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=9), st.data())
def test_no_step_makes_a_higher_range_dearer_than_a_lower_one(cascades: list[int], data: st.DataObject) -> None:
    assignment = tuple(sorted(cascades, reverse=True))
    k = data.draw(st.integers(0, len(assignment) - 1))
    then = lowered(assignment, k)
    assert list(then) == sorted(then, reverse=True)
    assert then[:k] == assignment[:k]
    assert all(new <= old for new, old in zip(then, assignment, strict=True))


@functools.cache
def walked() -> Walk:
    walk = Walk(SoFar(little_request()))
    walk.run()
    return walk


def test_the_walk_goes_from_an_assignment_that_can_be_carried_down_to_the_cheapest() -> None:
    cheapest, *steps = (tried.candidate.assignment for tried in walked().visited)
    assert cheapest == steps[-1] == (0, 0, 0, 0)
    for before, after in pairwise(steps):
        assert all(new <= old for new, old in zip(after, before, strict=True))
        assert after != before
    assert all(list(assignment) == sorted(assignment, reverse=True) for assignment in steps)


def test_each_step_has_the_most_accuracy_per_latency_of_what_was_tried() -> None:
    """Of the lowered assignments on the placement that was chosen, with the same largest batch."""
    walk = walked()
    for before, after in pairwise(walk.visited[1:]):
        for k in before.entered:
            if before.candidate.assignment[k] > 0:
                lower = lowered(before.candidate.assignment, k)
                on = before.candidate.placement
                if walk.plans.models(lower) <= set(on.models):
                    other = type(before.candidate)(lower, on, before.candidate.largest_batch_size)
                    if walk.plans.known(other):
                        assert after.score >= walk.plans.tried(other).score


def test_what_was_tried_once_is_not_simulated_again() -> None:
    walk = walked()
    assert all(walk.plans.known(tried.candidate) for tried in walk.visited)
    assert walk.plans.tried(walk.visited[-1].candidate) is walk.visited[-1]


def test_every_plan_visited_can_be_carried() -> None:
    assert all(tried.overloaded is None for tried in walked().visited)


def test_a_dear_model_gives_way_where_its_place_is_needed_for_the_cheapest_at_high_load() -> None:
    """The largest model fills a device, and the highest load needs the smallest on both; the middle one has room."""
    sizes = {"m0": 1 << 30, "m1": 1 << 30, "m2": 2 << 30}
    curves = tuple(msgspec.structs.replace(curve, memory_bytes=sizes[curve.model]) for curve in PROFILE.curves)
    request = little_request(
        profile=replace(PROFILE, curves=curves),
        trace=little_trace(low_qps=200.0, high_qps=2_000.0),
        hardware=identical_devices(2, memory_bytes=2 << 30),
    )
    walk = Walk(SoFar(request))
    walk.run()
    cheapest, dearest, *_ = walk.visited
    assert dearest.candidate.assignment[0] > 0
    assert dearest.accuracy > cheapest.accuracy + 0.01
    assert [r.model for r in dearest.candidate.placement.replicas] == ["m0", "m0", "m1"]
