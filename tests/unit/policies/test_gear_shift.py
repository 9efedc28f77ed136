import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gearshift.gear import METER_ALPHA, METER_BACKLOG
from gearshift.policies.gear_shift import gear_in_force

STARTS = [0.0, 10.0, 20.0, 30.0]
LOADS = st.floats(0, 60)
GEARS = st.integers(0, 3)
QUEUES = st.integers(0, 40)


def shifted(
    meter: int, *, gear: int = 0, rate: float = 0.0, waiting: int = 0, longest: int = 0, alpha: float = 1.0
) -> int:
    return gear_in_force(meter, gear, rate, waiting, longest, alpha, STARTS, len(STARTS))


@pytest.mark.parametrize("meter", [METER_BACKLOG, METER_ALPHA])
@pytest.mark.parametrize(
    ("rate", "gear"), [(0.0, 0), (9.999, 0), (10.0, 1), (19.9, 1), (20.0, 2), (29.0, 2), (30.0, 3), (1e9, 3)]
)
def test_a_load_range_holds_its_lower_end_and_not_its_upper(meter: int, rate: float, gear: int) -> None:
    assert shifted(meter, rate=rate) == gear


@given(LOADS, GEARS)
@settings(deadline=None, derandomize=True)
def test_the_gear_is_the_last_whose_range_begins_at_or_below_the_load(rate: float, gear: int) -> None:
    assert shifted(METER_BACKLOG, gear=gear, rate=rate) == sum(start <= rate for start in STARTS) - 1


def test_one_gear_is_in_force_at_every_load() -> None:
    assert gear_in_force(METER_BACKLOG, 0, 1e6, 10**6, 0, 8.0, [0.0], 1) == 0


@given(LOADS, QUEUES, GEARS)
@settings(deadline=None, derandomize=True)
def test_the_backlog_meter_looks_up_the_larger_of_rate_and_alpha_times_all_that_waits(
    rate: float, waiting: int, gear: int
) -> None:
    got = shifted(METER_BACKLOG, gear=gear, rate=rate, waiting=waiting, alpha=0.5)
    assert got == shifted(METER_BACKLOG, gear=gear, rate=max(rate, 0.5 * waiting))


def test_the_backlog_meter_does_not_look_at_the_first_stage_alone() -> None:
    assert shifted(METER_BACKLOG, gear=3, rate=5.0, longest=1000) == 0


def test_the_alpha_meter_does_not_look_at_all_that_waits() -> None:
    assert shifted(METER_ALPHA, rate=5.0, waiting=1000) == 0


def test_the_alpha_meter_refuses_an_upshift_while_the_first_stage_queues() -> None:
    assert shifted(METER_ALPHA, gear=3, rate=5.0, longest=6) == 3


def test_the_alpha_meter_allows_an_upshift_once_alpha_times_the_queue_is_no_more_than_the_load() -> None:
    assert shifted(METER_ALPHA, gear=3, rate=6.0, longest=6) == 0


@given(LOADS, QUEUES, GEARS)
@settings(deadline=None, derandomize=True)
def test_the_alpha_meter_never_refuses_a_downshift(rate: float, longest: int, gear: int) -> None:
    free = shifted(METER_ALPHA, gear=gear, rate=rate)
    got = shifted(METER_ALPHA, gear=gear, rate=rate, longest=longest, alpha=8.0)
    assert got == (gear if free < gear and rate < 8.0 * longest else free)
    assert got >= free


def test_without_alpha_what_waits_does_not_count() -> None:
    assert shifted(METER_BACKLOG, rate=5.0, waiting=10**6, alpha=0.0) == 0
    assert shifted(METER_ALPHA, gear=3, rate=5.0, longest=10**6, alpha=0.0) == 0
