from collections.abc import Sequence
from itertools import combinations_with_replacement

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gearshift.cascade import Cascade
from gearshift.planner.search.capacities import best_monotone_assignment
from gearshift.planner.space.cascade_search import CandidateCascade
from tests.often import often

Instance = tuple[list[CandidateCascade], list[int], list[int]]


def candidates(eighths: Sequence[int]) -> list[CandidateCascade]:
    """By rising work; accuracies in eighths, so that sums are exact."""
    return [
        CandidateCascade(cascade=Cascade(models=(f"m{i}",)), accuracy=e / 8, work_s=float(i + 1), reach=(1.0,))
        for i, e in enumerate(eighths)
    ]


@st.composite
def instances(draw: st.DrawFn) -> Instance:
    n, ranges = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    accuracies = draw(st.lists(st.integers(0, 8), min_size=n, max_size=n))
    highest = [ranges - 1, *draw(st.lists(st.integers(-1, ranges - 1), min_size=n - 1, max_size=n - 1))]
    weights = draw(st.lists(st.integers(0, 4), min_size=ranges, max_size=ranges))
    return candidates(accuracies), highest, weights


def total(chosen: Sequence[CandidateCascade], assignment: Sequence[int], weights: Sequence[int]) -> float:
    return sum(w * chosen[c].accuracy for w, c in zip(weights, assignment, strict=True))


def allowed(instance: Instance) -> list[tuple[int, ...]]:
    """Every assignment whose work does not rise with load and whose candidates hold."""
    chosen, highest, weights = instance
    falling = combinations_with_replacement(range(len(chosen) - 1, -1, -1), len(weights))
    return [a for a in falling if all(k <= highest[c] for k, c in enumerate(a))]


def assigned(instance: Instance) -> tuple[int, ...]:
    chosen, highest, weights = instance
    return tuple(best_monotone_assignment(chosen, highest, np.array(weights, dtype=float)))


@settings(deadline=None, derandomize=True, max_examples=often(300))
@given(instances())
def test_no_assignment_that_is_allowed_is_better(instance: Instance) -> None:
    best = max(total(instance[0], a, instance[2]) for a in allowed(instance))
    assert total(instance[0], assigned(instance), instance[2]) == best


@settings(deadline=None, derandomize=True, max_examples=often(300))
@given(instances())
def test_the_assignment_is_allowed(instance: Instance) -> None:
    assert assigned(instance) in allowed(instance)


@settings(deadline=None, derandomize=True, max_examples=often(300))
@given(instances())
def test_of_equally_good_assignments_the_one_of_least_work_from_the_lowest_range_is_taken(instance: Instance) -> None:
    best = max(total(instance[0], a, instance[2]) for a in allowed(instance))
    assert assigned(instance) == min(a for a in allowed(instance) if total(instance[0], a, instance[2]) == best)


def test_a_dearer_cascade_is_given_up_where_it_would_make_a_busier_range_dearer_still() -> None:
    # The dearest holds in range 0 alone; range 1 must then have it or something cheaper.
    assert assigned((candidates([4, 6, 8]), [2, 1, 0], [1, 5, 1])) == (2, 1, 0)


def test_a_candidate_that_holds_nowhere_is_never_assigned() -> None:
    assert assigned((candidates([4, 8]), [1, -1], [1, 1])) == (0, 0)


@pytest.mark.parametrize("ranges", [1, 2, 7])
def test_a_lone_candidate_serves_every_range(ranges: int) -> None:
    assert assigned((candidates([3]), [ranges - 1], [1] * ranges)) == (0,) * ranges
