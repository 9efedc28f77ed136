from operator import le

from hypothesis import given, settings
from hypothesis import strategies as st

from gearshift.policies.cores.scaling import (
    NO_CHOICE,
    change_holds_ns,
    cores_in_gear,
    fewest_cores,
    fewest_misses,
    fewest_one_core_workers,
    misses_by_cores,
    printed_algorithm_1,
    share_cores,
)
from tests.often import often

MOST, LARGEST = 4, 5
FAR = 1 << 60

tables = st.lists(st.integers(1, 60), min_size=(MOST + 1) * (LARGEST + 1), max_size=(MOST + 1) * (LARGEST + 1))
queues = st.lists(st.integers(0, 300), max_size=14).map(sorted)


def by_hand(deadlines: list[int], ready: int, rate: float, longest: int, run: list[int]) -> tuple[int, int]:
    """Every choice tried, cheapest first, its batches run one after the other."""
    for cores in range(1, MOST + 1):
        for batch in range(1, LARGEST + 1):
            full = run[cores * (LARGEST + 1) + batch]
            now, in_time = ready, True
            for i in range(0, len(deadlines), batch):
                together = deadlines[i : i + batch]
                now += run[cores * (LARGEST + 1) + len(together)]
                in_time = in_time and now <= min(together)
            if in_time and full <= longest and batch / full >= rate / 1e9:
                return cores, batch
    return NO_CHOICE, NO_CHOICE


@settings(derandomize=True, max_examples=often(400))
@given(queues, st.integers(0, 50), st.floats(0, 2e8), st.integers(1, 80), tables)
def test_the_choice_is_that_of_trying_all_and_running_their_batches_one_by_one(
    deadlines: list[int], ready: int, rate: float, longest: int, run: list[int]
) -> None:
    found = fewest_cores(deadlines, len(deadlines), ready, rate, longest, run, MOST, LARGEST)
    assert found == by_hand(deadlines, ready, rate, longest, run)


@settings(derandomize=True, max_examples=often(400))
@given(queues, st.integers(0, 50), st.floats(0, 2e8), st.integers(1, 80), tables)
def test_one_core_workers_are_those_of_trying_all_numbers_of_them_in_turns(
    deadlines: list[int], ready: int, rate: float, longest: int, run: list[int]
) -> None:
    def suffice(workers: int, batch: int) -> bool:
        took = run[LARGEST + 1 + batch]
        done = [ready + took * (i // workers + 1) for i in range(-(-len(deadlines) // batch))]
        return took <= longest and workers * batch / took >= rate / 1e9 and all(map(le, done, deadlines[::batch]))

    tried = (k for k in range(1, MOST + 1) if any(suffice(k, batch) for batch in range(1, LARGEST + 1)))
    found = fewest_one_core_workers(deadlines, len(deadlines), ready, rate, longest, run, MOST, LARGEST)
    assert found == next(tried, NO_CHOICE)


def linear(per_sample: int, per_batch: int) -> list[int]:
    return [(per_sample * b + per_batch) // max(c, 1) for c in range(MOST + 1) for b in range(LARGEST + 1)]


def test_fewer_cores_go_before_smaller_batches() -> None:
    run = linear(0, 12)
    assert fewest_cores([12, 12, 12], 3, 0, 0.0, FAR, run, MOST, LARGEST) == (1, 3)
    assert fewest_cores([12, 24, 36], 3, 0, 0.0, FAR, run, MOST, LARGEST) == (1, 1)


def test_a_request_done_at_its_deadline_is_in_time_but_not_in_the_printed_algorithm() -> None:
    run = linear(0, 12)
    assert fewest_cores([12], 1, 0, 0.0, FAR, run, MOST, LARGEST) == (1, 1)
    assert printed_algorithm_1(1, 12, 0, run, MOST, LARGEST) == (2, 1)


def test_the_rate_needs_cores_though_nobody_waits() -> None:
    run = linear(0, 12_000_000)
    assert fewest_cores([], 0, 0, 400.0, FAR, run, MOST, LARGEST) == (1, 5)
    assert fewest_cores([], 0, 0, 500.0, FAR, run, MOST, LARGEST) == (2, 3)
    assert printed_algorithm_1(0, 10**9, 0, run, MOST, LARGEST) == (1, 1)


def test_the_printed_algorithm_charges_everyone_the_slowest_communication() -> None:
    run = linear(0, 12)
    assert fewest_cores([100, 100], 2, 0, 0.0, FAR, run, MOST, LARGEST) == (1, 1)
    assert printed_algorithm_1(2, 100, 50, run, MOST, LARGEST) == (1, 1)
    assert printed_algorithm_1(2, 100, 90, run, MOST, LARGEST) == (2, 2)
    assert printed_algorithm_1(2, 100, 99, run, MOST, LARGEST) == (NO_CHOICE, NO_CHOICE)


def test_misses_are_those_of_the_best_batch_size_once_the_hopeless_are_refused() -> None:
    run = linear(0, 12)
    assert fewest_misses([5, 12, 12, 24], 4, 0, run, 1, LARGEST) == 1
    assert fewest_misses([12] * 6, 6, 0, run, 1, LARGEST) == 1
    assert fewest_misses([12] * 6, 6, 0, run, 2, LARGEST) == 0
    assert fewest_misses([5] * 3, 3, 10, run, 4, LARGEST) == 3


def one_by_one(deadlines: list[int], ready: int, run: list[int], cores: int, batch: int) -> int:
    """Misses of batches of this size, each request looked at."""
    ns = run[cores * (LARGEST + 1) + batch]
    done, taken, misses = ready + ns, 0, 0
    for due in deadlines:
        if due < done:
            misses += 1
        else:
            taken += 1
            if taken == batch:
                done, taken = done + ns, 0
    return misses


@settings(derandomize=True, max_examples=often(300))
@given(queues, st.integers(0, 50), tables, st.integers(1, MOST))
def test_misses_are_those_of_looking_at_every_request(due: list[int], ready: int, run: list[int], cores: int) -> None:
    best = min(one_by_one(due, ready, run, cores, batch) for batch in range(1, LARGEST + 1))
    assert fewest_misses(due, len(due), ready, run, cores, LARGEST) == best


def test_misses_on_more_cores_are_not_looked_for_where_there_are_none() -> None:
    asked: list[int] = []

    def missed(cores: int) -> int:
        asked.append(cores)
        return max(0, 4 - 2 * cores)

    assert misses_by_cores(9, 5, missed) == [9, 2, 0, 0, 0, 0]
    assert asked == [1, 2]
    assert misses_by_cores(0, 2, missed) == [0, 0, 0]


def everyones_shares(misses: list[list[int]], cores: int) -> list[tuple[int, ...]]:
    if not misses:
        return [()]
    return [
        (c, *others)
        for c in range(1, len(misses[0]))
        if c <= cores
        for others in everyones_shares(misses[1:], cores - c)
    ]


@settings(derandomize=True, max_examples=often(200))
@given(
    st.lists(st.tuples(st.lists(st.integers(0, 9), min_size=2, max_size=6), st.booleans()), min_size=1, max_size=4),
    st.integers(5, 9),
)
def test_shared_cores_miss_the_fewest_and_are_the_fewest_of_all_ways_to_share(
    rows: list[tuple[list[int], bool]], cores: int
) -> None:
    misses = [row for row, _ in rows]
    least = [1] * len(rows)
    for i, (row, more) in enumerate(rows):
        least[i] += more and len(row) > 2 and sum(least) < cores

    def cost(shares: tuple[int, ...]) -> tuple[int, int]:
        return sum(row[c] for row, c in zip(misses, shares, strict=True)), sum(shares)

    ways = [way for way in everyones_shares(misses, cores) if all(map(le, least, way))]
    found = tuple(share_cores(misses, cores, least))
    assert found in ways
    assert cost(found) == min(map(cost, ways))


def test_cores_stand_gear_by_gear() -> None:
    cores = [1, 3, 2, 2]
    assert [cores_in_gear(cores, gear, 2, replica) for gear in (0, 1) for replica in (0, 1)] == cores


def test_fewer_cores_hold_at_once_and_more_when_they_are_there() -> None:
    assert change_holds_ns(100, 3, 2, 10) == 100
    assert change_holds_ns(100, 3, 3, 10) == 100
    assert change_holds_ns(100, 3, 4, 10) == 110
    assert change_holds_ns(100, 3, 4, 0) == 100
