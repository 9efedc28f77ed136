import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gearshift.reporting.drawing.scales import exact, linear, logarithmic, named, scaled

SOME = st.lists(st.floats(min_value=1e-6, max_value=1e9), min_size=1, max_size=20)


@given(SOME, st.booleans())
def test_all_values_and_ticks_are_on_the_axis_and_ticks_are_few(values: list[float], zero: bool) -> None:
    for scale in (linear(values, zero=zero), logarithmic(values), scaled(values)):
        places = scale.at(values)
        assert ((places >= 0) & (places <= 1)).all()
        assert np.all(np.diff(scale.at([tick for tick, _ in scale.ticks])) > 0)
        assert len(scale.ticks) <= 11
        order = np.argsort(values)
        assert np.all(np.diff(places[order]) >= 0)


def test_an_axis_is_of_factors_only_where_values_differ_much() -> None:
    assert not scaled([1, 19]).log
    assert scaled([1, 21]).log
    assert not scaled([0, 1000]).log


def test_an_exact_axis_has_round_ticks_between_its_ends() -> None:
    scale = exact(0, 179)
    assert (scale.low, scale.high) == (0, 179)
    assert [text for _, text in scale.ticks] == ["0", "50", "100", "150"]


def test_names_stand_in_the_middle_of_their_steps() -> None:
    assert [named(["a", "b"]).place(value) for value, _ in named(["a", "b"]).ticks] == [0.25, 0.75]


def test_an_axis_of_alike_shares_ends_at_the_whole_and_tells_its_steps_exactly() -> None:
    scale = linear([99.8, 99.8], zero=False, most=4, end=100)
    assert scale.high == pytest.approx(100)
    for at, text in linear([99.3, 100.3], zero=False, most=4).ticks:
        assert float(text) == pytest.approx(at)
