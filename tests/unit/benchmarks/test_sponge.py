import numpy as np
import pytest
from sponge import Cell, above, at_least_as_good, least_cores, lower_hull, scaled

from gearshift.workload import Workload


def test_the_lower_hull_is_what_mixing_two_points_reaches() -> None:
    points = [(16.0, 0.0), (1.0, 0.8), (8.0, 0.5), (4.0, 0.3), (12.0, 0.4)]
    assert lower_hull(points) == [(1.0, 0.8), (4.0, 0.3), (16.0, 0.0)]


def test_more_cores_with_more_violations_are_no_part_of_a_curve() -> None:
    assert at_least_as_good([(3.0, 0.1), (1.0, 0.5), (2.0, 0.6)]) == [(1.0, 0.5), (3.0, 0.1)]


def test_points_below_a_curve_are_named_and_those_left_of_it_are_not_compared() -> None:
    curve = [(2.0, 0.4), (4.0, 0.0)]
    assert above(curve, [(1.0, 0.1), (3.0, 0.1), (3.0, 0.3), (5.0, 0.0)]) == [(3.0, 0.1)]


def test_no_fewer_cores_than_capacity_needs() -> None:
    seconds = np.zeros((17, 17))
    seconds[1:, 1:] = 0.1 / np.arange(1, 17)[:, None]  # a batch of 16 on c cores: 160 c requests a second
    workload = Workload(
        arrivals_ns=np.array([0]), record=np.array([0], dtype=np.int32), duration_s=1.0, deadline_ns=np.array([10**9])
    )
    cell = Cell("", workload, 800, 1.0, scaled(seconds, 1.0))
    assert least_cores(cell) == pytest.approx(0.997 * 5)
