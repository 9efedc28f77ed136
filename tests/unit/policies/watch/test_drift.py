import math
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gearshift.policies.watch.drift import (
    ERROR_OF_CHANCE,
    LATEST,
    OVER,
    SPANS_PER_EPISODE,
    STRONG,
    episode,
    load_distance,
    load_drifts,
    of_another_mix,
    run_times_are_wrong,
)
from tests.often import often

SHARES = [0.5, 0.3, 0.2]


@pytest.mark.parametrize(
    ("ticks", "distance"),
    [([50, 30, 20], 0.0), ([0, 0, 100], 0.8), ([100, 0, 0], 0.5), ([50, 0, 50], 0.3), ([0, 0, 0], 0.0)],
)
def test_the_distance_is_the_most_time_beyond_a_ranges_beginning(ticks: list[int], distance: float) -> None:
    assert load_distance(ticks, SHARES) == pytest.approx(distance)


@given(st.lists(st.integers(0, 1000), min_size=3, max_size=3))
@settings(max_examples=often(100), deadline=None, derandomize=True)
def test_a_distance_is_from_0_to_1_and_0_for_the_planned_shares_alone(ticks: list[int]) -> None:
    distance = load_distance(ticks, SHARES)
    assert 0 <= distance <= 1
    if sum(ticks) and distance < 1e-9:
        assert list(accumulate(ticks)) == pytest.approx([sum(ticks) * share for share in (0.5, 0.8, 1.0)], abs=1e-5)


def test_a_few_windows_prove_nothing_and_many_prove_a_strong_difference() -> None:
    assert not load_drifts(False, 0.9, 0.0)
    assert not load_drifts(False, 0.9, 29.0)
    assert load_drifts(False, 0.9, 31.0)
    assert not load_drifts(False, STRONG, 1e9)
    assert load_drifts(False, STRONG + 0.001, 1e9)


def test_a_drift_does_not_flap_between_where_it_begins_and_where_it_ends() -> None:
    drifting, changes = False, 0
    for distance in [0.15, 0.25] * 20 + [0.15] * 20:
        before, drifting = drifting, load_drifts(drifting, distance, 1e6)
        changes += before != drifting
    assert (drifting, changes) == (True, 1)
    assert not load_drifts(True, OVER - 0.001, 1e6)


def test_chance_alone_hardly_ever_gets_halfway_to_a_drift() -> None:
    generator = np.random.default_rng(1)
    for windows in (50, 200, 1000):
        chance = math.sqrt(math.log(2 / ERROR_OF_CHANCE) / windows)
        far = [load_distance(ticks, SHARES) for ticks in generator.multinomial(windows, SHARES, 500).tolist()]
        assert max(far) < chance


@pytest.mark.parametrize(
    ("observed_ms", "wrong"), [(100, False), (119, False), (121, True), (81, False), (79, True), (0, True)]
)
def test_run_times_are_wrong_beyond_a_fifth(observed_ms: int, wrong: bool) -> None:
    assert run_times_are_wrong(observed_ms * 1_000_000, 100_000_000, 10) == wrong


def test_a_clocks_noise_on_tiny_batches_is_no_wrong_run_time() -> None:
    assert not run_times_are_wrong(1000 * 390_000, 1000 * 200_000, 1000)
    assert run_times_are_wrong(1000 * 410_000, 1000 * 200_000, 1000)


def test_an_episode_begins_and_ends_after_a_minute_without_a_break() -> None:
    said = [True] * 5 + [False] + [True] * 6 + [False] * 5 + [True] + [False] * 6
    drifting, against, seen = False, 0, []
    for wrong in said:
        drifting, against = episode(drifting, against, wrong)
        seen.append(drifting)
    assert SPANS_PER_EPISODE == 6
    assert seen == [False] * 11 + [True] * 12 + [False]


ANEW = [0.5] * 10
KNOWN = [10.5] * 10


def drawn(weights: list[float], n: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).choice(len(weights), n, p=np.array(weights) / sum(weights)).tolist()


def mostly(label: int) -> list[float]:
    return [0.84 if i == label else 0.16 / 9 for i in range(10)]


def first_found(labels: list[int], before: list[float]) -> tuple[int, int]:
    """After how many labels another mix is found, and how many of the latest are of it; zeros where never."""
    for n in range(1, len(labels) + 1):
        if latest := of_another_mix(labels[:n], before, ANEW):
            return n, latest
    return 0, 0


def test_a_class_that_begins_to_dominate_is_found_by_a_dozen_answers() -> None:
    found = [first_found(drawn(mostly(3), 60, seed), KNOWN) for seed in range(40)]
    assert all(0 < latest <= n for n, latest in found)
    assert np.median([n for n, _ in found]) <= 12
    assert max(n for n, _ in found) <= 40


def test_another_dominant_class_is_found_by_the_answers_since_then() -> None:
    before = drawn(mostly(3), 60, 1)
    assert first_found(before, [one + 60 * share for one, share in zip(ANEW, mostly(3), strict=True)]) == (0, 0)
    n, latest = first_found([*before, *[7] * 20], ANEW)
    assert 60 < n <= 70
    assert latest <= 12


def test_while_all_goes_on_there_is_hardly_an_alarm() -> None:
    for weights in ([1.0] * 10, mostly(2)):
        known = [0.5 + 50 * share / sum(weights) for share in weights]
        alarms = [first_found(drawn(weights, 160, seed), known)[0] > 0 for seed in range(20)]
        assert sum(alarms) <= 3


@given(
    labels=st.lists(st.integers(0, 2), max_size=200),
    before=st.lists(st.floats(0.01, 100), min_size=3, max_size=3),
)
def test_so_many_are_of_another_mix_as_there_are_or_none(labels: list[int], before: list[float]) -> None:
    assert of_another_mix(labels, before, [1.0] * 3) in (0, *(n for n in LATEST if n <= len(labels)))


def test_odds_are_those_of_the_sequences() -> None:
    """Five answers of a class that came once in 100, and once in five of a mix of which nothing is known."""
    before, anew = [99.0, 1.0], [0.8, 0.2]
    goes_on = np.prod([(1 + i) / (100 + i) for i in range(5)])
    begins = np.prod([(0.2 + i) / (1 + i) for i in range(5)])
    assert begins / goes_on > 1000
    assert of_another_mix([1] * 5, before, anew) == 5
    assert of_another_mix([1] * 5, [9.0, 1.0], anew) == 0
    assert np.prod([(1 + i) / (10 + i) for i in range(5)]) * 1000 > begins


@pytest.mark.parametrize("labels", [[], [0], [0, 0, 0, 0]])
def test_fewer_than_five_say_nothing(labels: list[int]) -> None:
    assert of_another_mix(labels, [0.01, 100.0], [0.5, 0.5]) == 0
