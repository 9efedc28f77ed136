import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gearshift.errors import InvalidInput
from gearshift.planner.space.pareto import hypervolume
from tests.often import often

E = math.e
POINT = st.tuples(st.floats(0.01, 20.0), st.floats(0.0, 1.0))
POINTS = st.lists(POINT, max_size=8)
REFERENCE = (10.0, 0.5)


@pytest.mark.parametrize(
    ("points", "area"),
    [
        ([], 0.0),
        ([(1.0, 0.9)], 0.4),
        ([(1.0, 0.9), (1.0, 0.9)], 0.4),
        ([(1.0, 0.9), (1.5, 0.8)], 0.4),
        ([(1.0, 0.7), (1 / E, 0.6)], 0.2 + 0.1),
        ([(E, 0.9)], 0.0),
        ([(1.0, 0.5)], 0.0),
        ([(10.0, 0.9), (1.0, 0.4)], 0.0),
    ],
)
def test_areas_worked_out_by_hand(points: list[tuple[float, float]], area: float) -> None:
    assert hypervolume(points, reference=(E, 0.5)) == pytest.approx(area)


@given(points=POINTS)
@settings(max_examples=often(50), deadline=None)
def test_it_is_the_share_of_random_points_that_are_dominated(points: list[tuple[float, float]]) -> None:
    generator = np.random.default_rng(0)
    logs = generator.uniform(math.log(0.01), math.log(10.0), 40_000)
    accuracies = generator.uniform(0.5, 1.0, 40_000)
    dominated = np.zeros(40_000, dtype=bool)
    for latency_s, accuracy in points:
        dominated |= (math.log(latency_s) <= logs) & (accuracy >= accuracies)
    box = math.log(10.0 / 0.01) * 0.5
    assert hypervolume(points, reference=REFERENCE) == pytest.approx(float(dominated.mean()) * box, abs=0.012 * box)


@given(points=POINTS, more=POINT)
def test_another_plan_never_lowers_it_and_order_plays_no_part(
    points: list[tuple[float, float]], more: tuple[float, float]
) -> None:
    area = hypervolume(points, reference=REFERENCE)
    assert hypervolume([*points, more], reference=REFERENCE) >= area - 1e-12
    assert hypervolume(points[::-1], reference=REFERENCE) == pytest.approx(area)


def test_latencies_must_be_positive() -> None:
    with pytest.raises(InvalidInput, match="not positive"):
        hypervolume([(0.0, 0.9)], reference=REFERENCE)
