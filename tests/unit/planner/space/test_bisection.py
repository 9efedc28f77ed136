import pytest
from hypothesis import given
from hypothesis import strategies as st

from gearshift.planner.space.bisection import BEYOND, first_found, last_that_holds, least_that, narrowed


@pytest.mark.parametrize("begins", range(1, 18))
def test_the_least_number_is_that_of_trying_one_after_the_other(begins: int) -> None:
    assert least_that(lambda n: n >= begins, fails=0, at_most=17) == begins


@pytest.mark.parametrize("begins", range(3, 18))
def test_what_is_found_is_that_of_the_least_number(begins: int) -> None:
    asked: list[int] = []
    found = first_found(lambda n: asked.append(n) or (n if n >= begins else None), first=3, last=17)
    assert found == begins
    assert len(asked) == len(set(asked))


def test_where_the_last_number_has_nothing_there_is_nothing() -> None:
    asked: list[int] = []
    assert first_found(asked.append, first=1, last=6) is None
    assert asked == [1, 2, 4, 6]


def test_a_number_is_found_to_the_precision_asked_for() -> None:
    found = narrowed(
        lambda x: x if x >= 3.3 else None,
        10.0,
        fails=1.0,
        at_most=10.0,
        precision=0.01,
        middle=lambda a, b: (a + b) / 2,
    )
    assert 3.3 <= found <= 3.3 * 1.01


@given(st.lists(st.booleans(), min_size=1, max_size=40))
def test_the_last_that_is_found_holds_and_is_the_last_where_holding_ends_once(held):
    asked = []

    def holds(place: int) -> bool:
        asked.append(place)
        return held[place]

    found = last_that_holds(holds, len(held))
    assert found == -1 or held[found]
    assert len(asked) <= 2 + len(held).bit_length() + len(BEYOND)
    if sorted(held, reverse=True) == held:
        assert found == sum(held) - 1


def test_where_holding_begins_again_a_little_further_on_it_is_found():
    held = [True] * 10 + [False] * 3 + [True] * 4 + [False] * 30
    assert last_that_holds(held.__getitem__, len(held)) == 16
