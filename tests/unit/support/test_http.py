import time
from email.utils import formatdate

import pytest

from gearshift.support.http import asked_pause_s


@pytest.mark.parametrize(("header", "seconds"), [("0", 0.0), ("7", 7.0), ("9" * 400, 999_999_999_999_999.0)])
def test_seconds_are_taken(header, seconds):
    assert asked_pause_s(header) == seconds


def test_a_date_to_come_is_taken():
    assert asked_pause_s(formatdate(time.time() + 100, usegmt=True)) == pytest.approx(100, abs=2)


@pytest.mark.parametrize("header", ["", "-1", "1.5", "soon", "\u0661", formatdate(0, usegmt=True), "Mon, 99 Jan"])
def test_what_is_neither_or_over_says_nothing(header):
    assert asked_pause_s(header) is None
