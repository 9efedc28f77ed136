import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gearshift.errors import InvalidInput
from gearshift.profiles.profile import PART_A, PART_B, split_parts

groupings = st.lists(st.integers(0, 9), min_size=2, max_size=60).filter(lambda groups: len(set(groups)) >= 2)


@given(groupings, st.integers(0, 5))
def test_samples_of_one_group_share_a_part(groups: list[int], seed: int) -> None:
    part = split_parts(np.array(groups), seed)
    assert len(set(zip(groups, part.tolist(), strict=True))) == len(set(groups))


@given(groupings, st.integers(0, 5))
def test_both_parts_hold_samples_and_differ_by_at_most_the_largest_group(groups: list[int], seed: int) -> None:
    part = split_parts(np.array(groups), seed)
    a, b = int((part == PART_A).sum()), int((part == PART_B).sum())
    assert min(a, b) >= 1
    assert abs(a - b) <= max(np.bincount(groups))


def test_ungrouped_samples_are_split_exactly_in_half() -> None:
    assert split_parts(np.arange(1000), 3).sum() == 500


def test_the_same_seed_gives_the_same_parts_and_another_seed_others() -> None:
    groups = np.arange(100)
    assert np.array_equal(split_parts(groups, 1), split_parts(groups, 1))
    assert not np.array_equal(split_parts(groups, 1), split_parts(groups, 2))


def test_part_a_is_not_always_the_first_samples() -> None:
    part = split_parts(np.arange(1000), 0)
    assert 200 < part[:500].sum() < 300


def test_neither_part_always_gets_the_largest_group() -> None:
    groups = np.array([0] * 5 + [1, 2, 3, 4])
    assert {int(split_parts(groups, seed)[0]) for seed in range(20)} == {PART_A, PART_B}


def test_groups_may_be_text() -> None:
    part = split_parts(np.array(["anna", "anna", "ben"]), 0)
    assert part[0] == part[1] != part[2]


def test_one_group_cannot_be_split() -> None:
    with pytest.raises(InvalidInput, match=r"5 samples form 1 group.*at least two groups"):
        split_parts(np.zeros(5), 0)
