import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gearshift.policies.replanning import NO_CHOICE, best_choice, wait_ns

SMALL, MIDDLE, LARGE = 0b001, 0b010, 0b100
TABLES = [([10], [0.8]), ([10, 30], [0.8, 0.9]), ([20, 60], [0.7, 0.95])]
PREFIXES = [SMALL, 0, SMALL, SMALL | MIDDLE, SMALL, SMALL | LARGE]


def choice(left_ns: int, waits_ns: list[int], visited: int = 0, stage: int = 0) -> int:
    begin = np.cumsum([0, *(len(times) for times, _ in TABLES)])
    times = np.concatenate([times for times, _ in TABLES])
    quality = np.concatenate([quality for _, quality in TABLES])
    return best_choice(0, 3, left_ns, waits_ns, visited, stage, PREFIXES, 2, begin, times, quality)


def test_more_time_buys_a_better_implementation() -> None:
    assert [choice(left, [0, 0, 0]) for left in (10, 30, 59, 60)] == [0, 1, 1, 2]


def test_at_equal_quality_the_cheaper_one_is_taken() -> None:
    assert choice(15, [0, 0, 0]) == 0
    assert choice(5, [0, 0, 0]) == 0  # none is in time


def test_a_wait_is_time_that_is_gone() -> None:
    assert choice(60, [0, 0, 1]) == 1
    assert choice(60, [0, 31, 31]) == 0


def test_only_implementations_that_begin_with_the_visited_models_go_on() -> None:
    assert choice(60, [0, 0, 0], visited=SMALL, stage=1) == 2
    assert choice(60, [0, 0, 0], visited=SMALL | MIDDLE, stage=2) == 1
    assert choice(60, [0, 0, 0], visited=MIDDLE, stage=1) == NO_CHOICE


def test_a_queue_runs_in_batches_and_the_item_joins_the_last() -> None:
    run_ns = [0, 10, 12, 14]
    assert wait_ns(7, 3, run_ns, own=False) == 14 + 14 + 10
    assert wait_ns(7, 3, run_ns, own=True) == 14 + 14 + 12 - 10
    assert wait_ns(0, 1, run_ns, own=True) == 0


@given(st.integers(0, 50), st.integers(1, 3))
def test_a_longer_queue_never_waits_less(waiting: int, largest: int) -> None:
    run_ns = [0, 10, 12, 14]
    assert wait_ns(waiting + largest, largest, run_ns, own=True) > wait_ns(waiting, largest, run_ns, own=True)
