from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gearshift.traces.stamps import stamp_ns


def is_time(text: str) -> bool:
    try:
        stamp_ns(text)
    except ValueError:
        return False
    return True


NINE = 1_762_160_370_000_000_000
"""2025-11-03 08:59:30 UTC."""


@pytest.mark.parametrize(
    "text",
    [
        "03/Nov/2025:09:59:30 +0100",
        "03/Nov/2025:08:59:30",
        "2025-11-03T08:59:30Z",
        "2025-11-03 09:59:30+01:00",
        "2025-11-03T08:59:30.000000000Z",
        "1762160370",
        "1762160370.000",
        "1762160370000",
        "1762160370000000",
        "1762160370000000000",
    ],
)
def test_all_forms_of_a_time(text: str) -> None:
    assert stamp_ns(text) == NINE


def test_fractions_are_exact_to_the_nanosecond() -> None:
    assert stamp_ns("2025-11-03 08:59:30.6805901") == NINE + 680_590_100
    assert stamp_ns("1762160370.123456789") == NINE + 123_456_789
    assert stamp_ns("0.010") == 10_000_000


@pytest.mark.parametrize("text", ["", "soon", "12:00", "2025-13-01T00:00:00Z", "03/Nov/2025", "-5", "nan", "1.2.3"])
def test_other_texts_are_no_times(text: str) -> None:
    assert not is_time(text)


@given(st.datetimes(min_value=datetime(1975, 1, 1), max_value=datetime(2100, 1, 1)))
def test_iso_times_come_back(time: datetime) -> None:
    since = (time.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    assert stamp_ns(time.isoformat()) == since * 1000
