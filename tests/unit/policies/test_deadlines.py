from hypothesis import given, settings
from hypothesis import strategies as st

from gearshift.decisions import Ending
from gearshift.policies.deadlines import (
    HOLDERS_GIVE_WAY,
    LEAST_OVERSHOOTS,
    NEXT_GIVES_WAY,
    RUN,
    aimed_ns,
    gives_up_ns,
    goes_first,
    in_time,
    margin_ns,
    start_by_ns,
    when_limited,
    why_dropped,
)
from gearshift.request import NO_DEADLINE_NS

MS = 1_000_000

TIMES = st.integers(0, 10**12)


def run_ns(size: int, first: int = 4, each: int = 1) -> int:
    return first + each * size


def limited(size: int, waiting: int, tightest: int, following: int, *, most: int = 16, first: int = 4) -> int:
    whole = min(most, size + waiting)
    times = (run_ns(n, first) for n in (size, whole, 1, min(most, waiting)))
    return when_limited(0, size, waiting, whole, *times, tightest, following)


@settings(deadline=None, derandomize=True)
@given(TIMES, TIMES)
def test_a_sample_is_given_up_at_the_first_instant_at_which_it_would_end_too_late(deadline_ns: int, run: int) -> None:
    at_ns = gives_up_ns(deadline_ns, run)
    assert in_time(deadline_ns, at_ns - 1, run)
    assert not in_time(deadline_ns, at_ns, run)


def test_a_dropped_sample_has_expired_only_after_its_deadline() -> None:
    assert why_dropped(100, 100) == Ending.INFEASIBLE
    assert why_dropped(100, 101) == Ending.EXPIRED_IN_QUEUE


def test_a_batch_that_is_not_full_starts_when_it_would_just_end_by_the_deadline_or_has_waited_long_enough() -> None:
    assert start_by_ns(50 * MS, 100 * MS, 30 * MS) == 50 * MS
    assert start_by_ns(90 * MS, 100 * MS, 30 * MS) == 69 * MS


def test_a_small_batch_starts_where_those_behind_it_can_wait() -> None:
    assert limited(1, 20, tightest=5, following=5 + 20) == RUN


def test_samples_that_hold_a_batch_back_give_way_where_those_behind_cannot_wait() -> None:
    assert limited(1, 20, tightest=5, following=5 + 19) == HOLDERS_GIVE_WAY


def test_none_gives_way_for_fewer_than_it_is_itself() -> None:
    assert limited(2, 2, tightest=6, following=7) == RUN
    assert limited(2, 3, tightest=6, following=7) == HOLDERS_GIVE_WAY


def test_none_gives_way_where_batches_gain_nothing() -> None:
    assert limited(1, 20, tightest=1, following=2, first=0) == RUN


def test_a_next_sample_that_would_be_lost_anyway_gives_way_to_those_behind() -> None:
    assert limited(1, 20, tightest=100, following=5) == NEXT_GIVES_WAY
    assert limited(1, 20, tightest=100, following=5 + 5) == RUN


def test_all_that_wait_without_an_answer_count_in_whole_batches_by_the_earliest_deadline() -> None:
    assert not goes_first(100, 50, 8, 4, 20, 190)
    assert goes_first(100, 50, 8, 4, 20, 189)
    assert goes_first(100, 50, 9, 4, 20, 190)
    assert not goes_first(100, 50, 1000, 4, 20, NO_DEADLINE_NS)


def test_the_margin_would_have_brought_nearly_all_recent_answers_in_time() -> None:
    overshoots = [5 * MS] * 95 + [90 * MS] * 5
    assert margin_ns(overshoots, 2 * MS) == 7 * MS
    assert margin_ns([*overshoots, 90 * MS], 0) == 90 * MS


def test_batches_that_end_sooner_than_expected_leave_time_for_the_way_and_few_say_nothing() -> None:
    assert margin_ns([-MS] * LEAST_OVERSHOOTS, 3 * MS) == 2 * MS
    assert margin_ns([-9 * MS] * LEAST_OVERSHOOTS, 3 * MS) == 0
    assert margin_ns([90 * MS] * (LEAST_OVERSHOOTS - 1), 3 * MS) == 3 * MS


def test_what_has_no_deadline_aims_at_none() -> None:
    assert aimed_ns(NO_DEADLINE_NS, 5) == NO_DEADLINE_NS
    assert aimed_ns(100, 5) == 95
    assert aimed_ns(100, 0) == 100
