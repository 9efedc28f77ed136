import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gearshift.support.numbers import digits, milliseconds, money, percent


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_a_number_never_has_an_exponent(value: float) -> None:
    for told in (digits(value), milliseconds(value)):
        assert "e-" not in told
        assert "e+" not in told


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (4.067e-8, "0.0407 µs"),
        (4.067e-5, "40.7 µs"),
        (0.0123, "12.3 ms"),
        (0.2, "200 ms"),
        (12.5, "12.5 s"),
        (0, "0 ms"),
    ],
)
def test_a_time_has_the_unit_that_fits(seconds: float, told: str) -> None:
    assert milliseconds(seconds) == told


def test_latency_without_end_is_told_in_words() -> None:
    assert milliseconds(math.inf) == "without end"


def test_a_share_that_is_nearly_none_is_not_told_as_none() -> None:
    assert [percent(share) for share in (0, 0.0004, 0.904, 0.9999, 1)] == [
        "0.0 %", "0.04 %", "90.4 %", "99.99 %", "100.0 %"
    ]  # fmt: skip


def test_small_amounts_keep_three_digits() -> None:
    assert [money(amount) for amount in (0, 0.0816, 0.5, 7.066, 1234.5)] == [
        "0.00",
        "0.0816",
        "0.50",
        "7.07",
        "1,234.50",
    ]
