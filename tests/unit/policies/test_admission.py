import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gearshift.policies.admission import LONGEST_RETRY_S, admits, fair_share, given_up, retry_after_s

COUNTS = st.integers(0, 20)


def test_a_request_is_admitted_up_to_the_bound() -> None:
    assert admits(7, 0, 3, 0, 10, 0)
    assert not admits(8, 0, 3, 0, 10, 0)


def test_bytes_have_a_bound_of_their_own() -> None:
    assert admits(1, 60, 1, 40, 10, 100)
    assert not admits(1, 61, 1, 40, 10, 100)


def test_a_request_is_admitted_whole_or_not_at_all() -> None:
    assert not admits(9, 0, 2, 0, 10, 0)


def test_an_idle_system_admits_no_request_larger_than_the_bounds() -> None:
    assert admits(0, 0, 10, 100, 10, 100)
    assert not admits(0, 0, 11, 0, 10, 100)
    assert not admits(0, 0, 1, 101, 10, 100)


def test_at_most_half_of_what_may_wait_counts_of_one_client() -> None:
    assert [fair_share(most) for most in (1, 2, 9, 10)] == [1, 1, 4, 5]


@settings(deadline=None, derandomize=True)
@given(COUNTS, COUNTS, COUNTS, COUNTS)
def test_whoever_is_refused_would_be_refused_behind_a_longer_queue(
    waiting: int, rows: int, most: int, longer: int
) -> None:
    if not admits(waiting, 0, rows, 0, most, 0):
        assert not admits(waiting + longer, 0, rows, 0, most, 0)


def test_who_is_refused_is_told_when_so_many_will_have_left_that_there_is_room() -> None:
    assert retry_after_s(100, 0, 1, 0, 100, 0, 10.0) == 1
    assert retry_after_s(100, 0, 50, 0, 100, 0, 10.0) == 5
    assert retry_after_s(100, 0, 51, 0, 100, 0, 10.0) == 6
    assert retry_after_s(100, 0, 100, 0, 100, 0, 1e-9) == LONGEST_RETRY_S


def test_bytes_leave_with_what_waits() -> None:
    assert retry_after_s(100, 1000, 1, 300, 200, 1000, 10.0) == 3
    assert retry_after_s(100, 1000, 1, 9000, 200, 1000, 10.0) == 10
    assert retry_after_s(0, 0, 1, 9000, 200, 1000, 10.0) == 1


@pytest.mark.parametrize(
    ("held_bytes", "place"),
    [
        ([], None),
        ([90], None),  # alone it may always come
        ([0, 90, 0], None),
        ([30, 30], None),
        ([40, 40, 0], 1),
        ([50, 40, 5], 1),  # the youngest of those above their share, not the youngest
        ([5, 50, 5, 40, 5], 3),
    ],
)
def test_the_youngest_of_those_that_take_more_than_their_share_gives_up(held_bytes, place):
    assert given_up(held_bytes, 60) == place


@given(st.lists(st.integers(0, 100), max_size=20), st.integers(1, 1000))
def test_whoever_takes_its_share_or_less_goes_on(held_bytes, most_bytes):
    place = given_up(held_bytes, most_bytes)
    if place is not None:
        assert held_bytes[place] > most_bytes // sum(held > 0 for held in held_bytes)
    elif sum(held > 0 for held in held_bytes) > 1:
        assert sum(held_bytes) <= most_bytes
