import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gearshift.policies.watch.class_mix import LATEST, of_another_mix

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
