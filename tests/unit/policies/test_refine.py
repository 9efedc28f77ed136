from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gearshift.policies.refine import (
    LEVELS,
    REFINE,
    SCREEN,
    URGENT,
    answers_overrun,
    expected_gain,
    may_finish,
    overrun_ns,
    refine_batch_size,
    refine_key,
    refine_until_ns,
    release_at_ns,
    screen_batch_size,
    screen_or_refine,
)

POINTS, GAINS = [9.0, 0.1, 0.4, 0.7, 9.0], [-9.0, 0.5, 0.2, -0.1, -9.0]
TIMES = st.lists(st.integers(1, 50), min_size=8, max_size=8)


@pytest.mark.parametrize(
    ("certainty", "gain"), [(0.0, 0.5), (0.1, 0.5), (0.39, 0.5), (0.4, 0.2), (0.7, -0.1), (1.0, -0.1)]
)
def test_the_gain_is_that_of_the_last_step_reached_within_the_table(certainty: float, gain: float) -> None:
    assert expected_gain(certainty, 1, 4, POINTS, GAINS) == gain
    assert expected_gain(certainty, 1, 4, np.array(POINTS), np.array(GAINS)) == gain


def test_the_greatest_gain_has_the_highest_level_and_no_gain_the_lowest() -> None:
    assert [refine_key(gain, 0.4) for gain in (-0.1, 0.0, 0.001, 0.2, 0.399, 0.4, 0.5)] == [
        *(0, 0, 0),
        LEVELS // 2,
        *(LEVELS - 1,) * 3,
    ]
    assert refine_key(0.1, 0.0) == 0


@given(st.lists(st.floats(-1, 1), min_size=2), st.floats(0.01, 1))
def test_levels_rise_with_gain(gains: list[float], greatest: float) -> None:
    levels = [refine_key(gain, greatest) for gain in sorted(gains)]
    assert all(a <= b for a, b in pairwise(levels))
    assert levels[0] >= 0
    assert levels[-1] < LEVELS


def test_time_to_refine_ends_at_the_earlier_of_objective_and_deadline() -> None:
    assert refine_until_ns(100, 10, 95) == 90
    assert refine_until_ns(100, 10, 80) == 80


def test_a_row_is_released_at_the_first_instant_at_which_it_could_not_finish() -> None:
    at_ns = release_at_ns(100, 30)
    assert may_finish(100, at_ns - 1, 30)
    assert not may_finish(100, at_ns, 30)


def test_a_row_that_runs_is_answered_as_it_is_when_its_time_ended_and_its_batch_takes_a_quarter_longer() -> None:
    overrun = overrun_ns(1000, 80)
    assert [answers_overrun(1080, overrun, now_ns) for now_ns in (1080, 1099, 1100)] == [False, False, True]
    assert [answers_overrun(2000, overrun, now_ns) for now_ns in (1100, 1999, 2000)] == [False, False, True]


@given(TIMES, st.integers(1, 12), st.integers(1, 7))
def test_no_size_screens_a_row_in_less_time(times: list[int], waiting: int, most: int) -> None:
    size = screen_batch_size(waiting, most, times)
    allowed = range(1, min(waiting, most) + 1)
    assert size in allowed
    assert times[size] / size <= min(times[other] / other for other in allowed) + 1e-12


def test_at_a_tie_the_larger_batch_screens() -> None:
    assert screen_batch_size(9, 4, [0, 5, 10, 15, 20]) == 4


def worth(rows: list[tuple[int, int]], size: int, times: list[int], for_gain: bool) -> float | None:
    """The gain, or the rows, per time of the best batch of this size; None if there is none."""
    can = [level for left, level in rows if left >= times[size]][:size]
    return None if len(can) < size else sum(2 * level + 1 if for_gain else 1 for level in can) / times[size]


@given(TIMES, st.lists(st.tuples(st.integers(0, 60), st.integers(0, LEVELS - 1)), max_size=14), st.booleans())
def test_no_size_of_rows_that_can_all_finish_refines_for_more(
    times: list[int], rows: list[tuple[int, int]], for_gain: bool
) -> None:
    rows.sort(key=lambda row: (-row[1], row[0]))
    left, levels = [row[0] for row in rows], [row[1] for row in rows]
    size = refine_batch_size(len(rows), 7, times, left, levels, for_gain)
    assert size == refine_batch_size(len(rows), 7, np.array(times), np.array(left), np.array(levels), for_gain)
    worths = {other: worth(rows, other, times, for_gain) for other in range(1, min(len(rows), 7) + 1)}
    possible = {other: found for other, found in worths.items() if found is not None}
    if not possible:
        assert size == 0
    else:
        assert possible[size] == pytest.approx(max(possible.values()))


def test_a_batch_for_gain_leaves_out_rows_that_gain_little() -> None:
    times, left = [0, 10, 15, 22], [100] * 3
    assert refine_batch_size(3, 3, times, left, [60, 58, 0], True) == 2
    assert refine_batch_size(3, 3, times, left, [60, 58, 0], False) == 3


def test_rows_without_time_for_a_large_batch_do_not_shrink_it_where_others_have() -> None:
    times = [0, 10, 11, 12, 13]
    assert refine_batch_size(5, 4, times, [10, 50, 50, 50, 50], [63, 5, 5, 5, 5], False) == 4


def goes(*, refines: bool = True, screened_last: bool = True, full: bool = False, until_ns: int = 1000) -> int:
    """What a device does at 0 that would screen urgent rows in 10, those that wait longest in 15, and refine in 20."""
    return screen_or_refine(refines, screened_last, full, until_ns, 0, 10, 15, 20)


def test_a_device_screens_and_refines_in_turn() -> None:
    assert goes(screened_last=False) == SCREEN
    assert goes() == REFINE
    assert goes(refines=False) == SCREEN


def test_a_full_batch_is_screened_before_anything_is_refined() -> None:
    assert goes(full=True) == SCREEN


def test_a_row_is_screened_first_where_that_and_only_that_keeps_it_in_time() -> None:
    assert goes(until_ns=29) == URGENT
    assert goes(until_ns=30) == REFINE  # in time after the refinement, too
    assert goes(until_ns=9) == REFINE  # late in any case
    assert goes(until_ns=24, full=True) == URGENT
    assert goes(until_ns=25, full=True) == SCREEN  # in time behind the rows that have waited longest
