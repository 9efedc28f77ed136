import numpy as np

from gearshift.policies.cores.scaling import NO_CHOICE, fewest_cores_in_turns, misses_in_turns

FAST, SLOW = [0, 2, 3, 4, 5], [0, 10, 12, 14, 16]
LATE = 1 << 60


def misses(fast: list[int], slow: list[int], ready: int = 0) -> int:
    return misses_in_turns([fast, slow], ready, [FAST, SLOW], [4, 4], 100)


def test_nobody_waits_and_nobody_misses() -> None:
    assert misses([], []) == 0


def test_queues_take_turns_by_their_most_urgent() -> None:
    assert misses([2, 20], [20]) == 0  # one fast until 2, the other until 4, slow until 14
    assert misses([12], [12]) == 0
    assert misses([11], [11]) == 1


def test_batches_are_as_large_as_their_most_urgent_allows() -> None:
    assert misses([3, 5, 5], []) == 0  # 2 until 3, 1 until 5
    assert misses([2, 3, 4], []) == 1  # one until 2, and then the second cannot make it any more


def test_who_cannot_make_it_holds_nobody_up() -> None:
    assert misses([1, 10], [5, 14], ready=0) == 2
    assert misses_in_turns([[1, 1, 1]], 0, [FAST], [4], 2) == 2


def tables(cores: int = 6) -> list[list[list[int]]]:
    return [[[0] * 5, *([-(-ns * 12 // c) for ns in times] for c in range(1, cores + 1))] for times in (FAST, SLOW)]


def test_the_fewest_cores_keep_all_deadlines_and_one_fewer_does_not() -> None:
    generator = np.random.default_rng(4)
    found = set()
    for _ in range(200):
        due = [sorted(generator.integers(15, 300, n).tolist()) for n in generator.integers(0, 8, 2)]
        cores = fewest_cores_in_turns(due, 0, [0.0, 0.0], LATE, tables())
        missed = [
            misses_in_turns(due, 0, [table[c] for table in tables()], [4, 4], 100) for c in range(1, (cores or 7))
        ]
        assert all(missed)
        if cores != NO_CHOICE:
            assert misses_in_turns(due, 0, [table[cores] for table in tables()], [4, 4], 100) == 0
        found.add(cores)
    assert found >= {NO_CHOICE, 1, 2, 3, 4}


def test_the_rates_of_all_replicas_count_together_with_batches_no_longer_than_allowed() -> None:
    fast, slow = 4e9 / 60, 4e9 / 192  # what one core bears of each alone, in batches of 4
    assert fewest_cores_in_turns([[], []], 0, [fast, 0.0], LATE, tables()) == 1
    assert fewest_cores_in_turns([[], []], 0, [fast, slow], LATE, tables()) == 2
    assert fewest_cores_in_turns([[], []], 0, [0.0, 0.0], 24, tables()) == 5  # slow takes 120 for one on one core
    assert fewest_cores_in_turns([[], []], 0, [0.0, 0.0], 19, tables()) == NO_CHOICE
