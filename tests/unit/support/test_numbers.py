import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gearshift.support.numbers import Pace, digits, milliseconds, money, percent


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


@pytest.mark.parametrize(
    ("elapsed_s", "from_share", "share", "told"),
    [
        (24.0, 0.01, 0.25, " (about 75 s left)"),
        (10.0, 0.05, 0.25, " (about 38 s left)"),
        (30.0, 0.01, 0.05, ""),
        (30.0, 0.3, 0.31, ""),
        (30.0, 0.01, 0.99, ""),
        (30.0, 0.01, 1.0, ""),
        (30.0, 0.5, 0.4, ""),
    ],
)
def test_the_time_left_is_said_where_it_is_known(elapsed_s: float, from_share: float, share: float, told: str) -> None:
    pace = Pace()
    pace.left_in_words(100.0, from_share)
    assert pace.left_in_words(100.0 + elapsed_s, share) == told
