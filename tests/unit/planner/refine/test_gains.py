import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.shared.worlds import five_models
from gearshift.cascade import ExpectedGain
from gearshift.planner.refine.way import expected_gains, falling_steps, gain_at
from gearshift.profiles.profile import PART_A

POINTS = st.lists(st.tuples(st.sampled_from([0.1, 0.2, 0.3, 0.4]), st.sampled_from([-1.0, 0.0, 1.0])), min_size=1)


def test_neighbours_out_of_order_are_pooled() -> None:
    points, gains = falling_steps(np.array([0.1, 0.2, 0.3, 0.4]), np.array([1.0, 0.0, 0.5, -0.5]))
    assert points == [0.1, 0.2, 0.4]
    assert gains == pytest.approx([1.0, 0.25, -0.5])


@given(POINTS)
def test_steps_fall_and_keep_the_mean(rows: list[tuple[float, float]]) -> None:
    certainty, gain = (np.array(each) for each in zip(*rows, strict=True))
    points, gains = falling_steps(certainty, gain)
    assert np.all(np.diff(points) > 0)
    assert np.all(np.diff(gains) < 1e-12)
    table = ExpectedGain(kept="a", later="b", certainty=tuple(points), gain=tuple(gains))
    assert gain_at(table, certainty).mean() == pytest.approx(gain.mean(), abs=1e-9)


def test_expected_gains_are_those_of_part_a_on_average() -> None:
    records = five_models(samples=400).predictions
    part = records.indices(PART_A)
    tables = {(each.kept, each.later): each for each in expected_gains(records, ("m0", "m3"))}
    assert tables.keys() == {("m0", "m3"), ("m3", "m0")}
    gain = (records.quality[3, part] - records.quality[0, part]).mean()
    assert gain_at(tables["m0", "m3"], records.certainty[0, part]).mean() == pytest.approx(gain)
