from collections.abc import Iterable, Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gearshift.gear import METER_ALPHA, METER_BACKLOG
from gearshift.policies.gear_shift import UPSHIFT_TICKS, gear_asked_for, gear_in_force, metered_load

STARTS = [0.0, 10.0, 20.0, 30.0]
LOADS = st.floats(0, 60)
GEARS = st.integers(0, 3)
QUEUES = st.integers(0, 40)


def shifted(
    meter: int, *, gear: int = 0, rate: float = 0.0, waiting: int = 0, longest: int = 0, alpha: float = 1.0
) -> int:
    """The gear after a tick, without hysteresis."""
    load = metered_load(meter, rate, 1.0, waiting, alpha)
    asked = gear_asked_for(meter, gear, load, longest, alpha, STARTS, len(STARTS))
    got, eased_ticks = gear_in_force(gear, asked, 0, load, STARTS, 0.0)
    assert (got, eased_ticks) == (asked, 0)
    return got


def gears_over(loads: Iterable[float], *, gear: int, margin: float) -> list[int]:
    """The gears in force after ticks with these loads."""
    eased_ticks, gears = 0, []
    for load in loads:
        asked = gear_asked_for(METER_BACKLOG, gear, load, 0, 1.0, STARTS, len(STARTS))
        gear, eased_ticks = gear_in_force(gear, asked, eased_ticks, load, STARTS, margin)
        gears.append(gear)
    return gears


def test_a_factor_scales_the_rate_and_never_what_waits() -> None:
    assert metered_load(METER_BACKLOG, 40.0, 0.5, 2, 8.0) == 20.0
    assert metered_load(METER_BACKLOG, 40.0, 0.5, 3, 8.0) == 24.0
    assert metered_load(METER_ALPHA, 40.0, 0.25, 99, 8.0) == 10.0


def changes(gears: Sequence[int]) -> int:
    return sum(before != after for before, after in pairwise(gears))


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
    assert gear_asked_for(METER_BACKLOG, 0, 1e6, 0, 8.0, [0.0], 1) == 0
    assert gear_in_force(0, 0, 0, 1e6, [0.0], 0.1) == (0, 0)


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


@given(LOADS, GEARS, st.integers(0, UPSHIFT_TICKS - 1), st.floats(0, 1))
@settings(deadline=None, derandomize=True)
def test_a_downshift_is_made_at_once(load: float, gear: int, eased_ticks: int, margin: float) -> None:
    asked = gear_asked_for(METER_BACKLOG, gear, load, 0, 1.0, STARTS, len(STARTS))
    if asked >= gear:
        assert gear_in_force(gear, asked, eased_ticks, load, STARTS, margin) == (asked, 0)


def test_a_load_that_wobbles_around_an_edge_shifts_at_most_twice_in_eleven_ticks() -> None:
    wobble = [20.5, 19.5] * 200
    assert changes(gears_over(wobble, gear=1, margin=0.0)) == 399
    assert changes(gears_over(wobble, gear=1, margin=0.1)) == 0
    slow = ([20.5] + [19.5] * UPSHIFT_TICKS) * 20
    assert changes(gears_over(slow, gear=1, margin=0.1)) == 2 * 20 - 1


@given(st.lists(st.sampled_from([18.0, 18.5, 19.5, 20.0, 21.0]), min_size=11, max_size=200))
@settings(deadline=None, derandomize=True)
def test_no_load_within_the_margin_shifts_more_than_twice_in_eleven_ticks(loads: list[float]) -> None:
    gears = [1, *gears_over(loads, gear=1, margin=0.1)]
    for begin in range(len(gears) - UPSHIFT_TICKS - 1):
        assert changes(gears[begin : begin + UPSHIFT_TICKS + 2]) <= 2


def test_an_upshift_is_made_at_once_when_the_load_falls_below_the_range_by_more_than_the_margin() -> None:
    assert gears_over([17.9], gear=2, margin=0.1) == [1]
    assert gears_over([0.0], gear=3, margin=1 - 1e-9) == [0]


@given(GEARS, st.floats(0, 1), LOADS)
@settings(deadline=None, derandomize=True)
def test_a_steady_load_has_its_own_gear_within_a_second(gear: int, margin: float, load: float) -> None:
    own = sum(start <= load for start in STARTS) - 1
    assert gears_over([load] * UPSHIFT_TICKS, gear=gear, margin=margin)[-1] == own


def test_one_tick_that_asks_for_the_gear_in_force_begins_the_wait_anew() -> None:
    loads = [19.0] * (UPSHIFT_TICKS - 1) + [20.0] + [19.0] * UPSHIFT_TICKS
    assert gears_over(loads, gear=2, margin=0.1) == [2] * (2 * UPSHIFT_TICKS - 1) + [1]


def test_a_wait_ends_with_the_shift_that_it_was_for() -> None:
    loads = [19.0] * UPSHIFT_TICKS + [9.5] * UPSHIFT_TICKS
    assert gears_over(loads, gear=2, margin=0.1) == [2] * 9 + [1] * 10 + [0]
