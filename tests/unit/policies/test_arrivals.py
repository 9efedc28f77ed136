import pytest
from hypothesis import given
from hypothesis import strategies as st

from gearshift.policies.arrivals import given_up


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
