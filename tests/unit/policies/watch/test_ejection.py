from hypothesis import given
from hypothesis import strategies as st

from gearshift.policies.watch.ejection import (
    FIRST_PAUSE_NS,
    MAX_PAUSE_NS,
    is_failing,
    may_retry,
    pause_ns,
    share_when_slow,
)


def test_five_failures_in_a_row_take_a_replica_out_even_as_the_last_of_its_model() -> None:
    assert not is_failing(4, 4, 4, others_in=True)
    assert is_failing(5, 5, 5, others_in=False)


def test_half_of_ten_tries_take_a_replica_out_unless_it_is_the_last() -> None:
    assert is_failing(1, 10, 5, others_in=True)
    assert not is_failing(1, 10, 5, others_in=False)
    assert not is_failing(1, 9, 8, others_in=True)
    assert not is_failing(1, 11, 5, others_in=True)


def test_pauses_double_from_a_second_to_a_minute() -> None:
    pauses, pause = [], 0
    for _ in range(9):
        pause = pause_ns(pause, 0)
        pauses.append(pause // FIRST_PAUSE_NS)
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_a_replica_that_answered_for_long_begins_with_the_first_pause_again() -> None:
    assert pause_ns(MAX_PAUSE_NS, MAX_PAUSE_NS) == MAX_PAUSE_NS
    assert pause_ns(MAX_PAUSE_NS, MAX_PAUSE_NS + 1) == FIRST_PAUSE_NS


def test_a_fifth_of_the_requests_may_be_repeated_and_always_ten() -> None:
    assert [may_retry(9, 0, 0), may_retry(10, 0, 0)] == [True, False]
    assert [may_retry(19, 100, 0), may_retry(20, 100, 0)] == [True, False]
    assert may_retry(20, 100, 21)


@given(share=st.integers(1, 10**6), pace=st.floats(0.1, 100), best=st.floats(0.1, 100))
def test_a_slow_replica_gets_less_but_never_nothing(share: int, pace: float, best: float) -> None:
    got = share_when_slow(share, pace, best)
    assert 1 <= got <= share
    assert (got == share) or pace > 3 * best
    assert share_when_slow(0, pace, best) == 0
