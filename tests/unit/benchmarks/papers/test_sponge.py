from xml.etree import ElementTree

import numpy as np
import pytest

from benchmarks.papers.sponge import Cell, above, at_least_as_good, least_cores, lower_hull, scaled
from benchmarks.papers.sponge_figure import LEFT, Line, figure
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


def test_a_figure_has_a_bar_for_each_second_with_violations_and_a_step_for_each_change() -> None:
    lines = [Line(f"scaler {i}", np.array([0, 5, 0, 20]), np.array([[0.0, 16.0], [2.0, 8.0]])) for i in range(5)]
    drawn = ElementTree.fromstring(figure("a & b", lines, most_violations=20, most_cores=16))
    steps = [element.get("d", "") for element in drawn if element.tag.endswith("path")]
    assert len([one for one in steps if one.count("M") == 2 and "v-8.5" in one and "v-34.0" in one]) == 5
    assert len([one for one in steps if one.startswith(f"M{LEFT}.0 ") and one.count("V") == 1]) == 5
