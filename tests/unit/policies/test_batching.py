from hypothesis import given, settings
from hypothesis import strategies as st

from gearshift.policies.batching import FULL, LONGEST_WAIT, NOT_YET, batch_size, start_reason


def test_an_empty_queue_never_starts() -> None:
    assert start_reason(0, 0, 10**12, 1, 0) == NOT_YET


def test_the_minimum_queue_length_starts_at_once() -> None:
    assert start_reason(4, 100, 100, 4, 1000) == FULL
    assert start_reason(5, 100, 100, 4, 1000) == FULL


def test_a_shorter_queue_waits() -> None:
    assert start_reason(3, 100, 100, 4, 1000) == NOT_YET


def test_the_longest_wait_starts_exactly_when_it_ends() -> None:
    assert start_reason(3, 100, 1099, 4, 1000) == NOT_YET
    assert start_reason(3, 100, 1100, 4, 1000) == LONGEST_WAIT


def test_a_full_queue_that_has_waited_longest_starts_because_it_is_full() -> None:
    assert start_reason(4, 0, 10**12, 4, 1000) == FULL


def test_without_a_longest_wait_one_sample_starts_at_once() -> None:
    assert start_reason(1, 100, 100, 4, 0) == LONGEST_WAIT


@settings(deadline=None, derandomize=True)
@given(st.integers(1, 100), st.integers(1, 100))
def test_a_batch_takes_what_is_queued_up_to_the_largest(queued: int, largest: int) -> None:
    assert batch_size(queued, largest) == min(queued, largest)
