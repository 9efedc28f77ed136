from hypothesis import given, settings
from hypothesis import strategies as st

from gearshift.policies.order import is_starving, queue_key, replica_key
from tests.often import often

NUMBERS = st.integers(0, 3)
SAMPLES = st.tuples(NUMBERS, NUMBERS, NUMBERS, NUMBERS)


@settings(deadline=None, derandomize=True, max_examples=often(300))
@given(SAMPLES, SAMPLES)
def test_a_queue_is_ordered_by_class_then_deadline_then_entry_then_arrival(
    a: tuple[int, int, int, int], b: tuple[int, int, int, int]
) -> None:
    def comes_first() -> bool:
        for mine, other in zip(a, b, strict=True):  # class, deadline, entry into this queue, arrival
            if mine != other:
                return mine < other
        return False

    assert (queue_key(*a) < queue_key(*b)) == comes_first()


def test_a_more_urgent_class_goes_before_an_earlier_deadline() -> None:
    assert queue_key(1, 900, 5, 5) < queue_key(2, 100, 0, 0)


def test_an_earlier_deadline_goes_before_an_earlier_entry() -> None:
    assert queue_key(1, 100, 5, 5) < queue_key(1, 900, 0, 0)


def test_an_earlier_entry_goes_before_an_earlier_arrival() -> None:
    assert queue_key(1, 100, 4, 9) < queue_key(1, 100, 5, 0)


def test_between_replicas_class_then_deadline_then_time_in_this_queue_decide() -> None:
    keys = [replica_key(False, 1, 9, 9), replica_key(False, 2, 1, 9), replica_key(False, 2, 2, 1)]
    assert sorted(keys) == keys
    assert replica_key(False, 2, 2, 1) < replica_key(False, 2, 2, 2)


def test_a_starving_replica_goes_before_every_other() -> None:
    assert replica_key(True, 1000, 1 << 62, 99) < replica_key(False, 1, 0, 0)


def test_of_two_starving_replicas_the_longer_wait_goes_first_whatever_its_class() -> None:
    assert replica_key(True, 1000, 1 << 62, 5) < replica_key(True, 1, 0, 6)


def test_a_queue_starves_once_its_oldest_has_waited_the_whole_time() -> None:
    assert not is_starving(100, 149, 50)
    assert is_starving(100, 150, 50)


def test_without_a_starvation_time_nothing_starves() -> None:
    assert not is_starving(0, 1 << 62, 0)
