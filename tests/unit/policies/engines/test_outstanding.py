from hypothesis import given
from hypothesis import strategies as st

from gearshift.policies.engines.outstanding import (
    LOAD_DRAIN_S,
    LOAD_OUTSTANDING_REQUESTS,
    LOAD_QUEUED_TOKENS,
    expected_output_tokens,
    model_drain_ns,
    outstanding_load,
    replica_with_room,
)


def with_room(outstanding: list[int], work_ns: list[int], shares: list[int], most: int = 4) -> int:
    n = len(outstanding)
    return replica_with_room(0, n, 0, outstanding, work_ns, [most] * n, shares, [False] * n)


def test_the_least_work_for_a_share_is_next() -> None:
    assert with_room([1, 1], [300, 200], [1, 1]) == 1
    assert with_room([1, 1], [300, 200], [2, 1]) == 0
    assert with_room([0, 0], [0, 0], [1, 1]) == 0


def test_a_full_replica_or_one_without_share_gets_nothing() -> None:
    assert with_room([4, 1], [0, 900], [1, 1]) == 1
    assert with_room([4, 1], [0, 900], [1, 0]) == -1
    assert with_room([4, 4], [0, 0], [1, 1]) == -1


def test_without_any_share_all_replicas_take_what_waits() -> None:
    assert with_room([1, 1], [300, 200], [0, 0]) == 1


def test_a_lost_replica_gets_nothing() -> None:
    assert replica_with_room(0, 2, 0, [0, 0], [0, 5], [9, 9], [1, 1], [True, False]) == 1


def test_drain_is_spread_over_replicas_with_a_share() -> None:
    assert model_drain_ns(0, 2, 0, 400, [100, 300], [1, 1]) == 400
    assert model_drain_ns(0, 2, 0, 0, [100, 900], [1, 1]) == 900
    assert model_drain_ns(0, 2, 0, 400, [100, 300], [0, 1]) == 800


@given(st.integers(1, 5000), st.integers(1, 100))
def test_answers_are_expected_by_the_bin_of_the_prompt(prompt: int, most: int) -> None:
    edges, expected = [0, 10, 100, 1000], [99, 7, 8, 9]
    right = 7 if prompt <= 10 else 8 if prompt <= 100 else 9
    assert expected_output_tokens(prompt, most, edges, expected, 1, 4) == min(most, right)


def test_each_load_unit_has_its_measure() -> None:
    assert outstanding_load(LOAD_OUTSTANDING_REQUESTS, 3, 70, 5_000_000_000) == 3
    assert outstanding_load(LOAD_QUEUED_TOKENS, 3, 70, 5_000_000_000) == 70
    assert outstanding_load(LOAD_DRAIN_S, 3, 70, 5_000_000_000) == 5
