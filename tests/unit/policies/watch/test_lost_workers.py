import math

import pytest

from gearshift.policies.watch.lost_workers import (
    DEGRADE,
    FAIL,
    HANG_FACTOR,
    POISONOUS,
    REFUSE,
    RUN_AGAIN,
    TOO_LATE,
    WAIT,
    after_loss,
    half,
    hangs_after_ns,
    retry_until_ns,
    without_replica,
)
from gearshift.request import NO_DEADLINE_NS


@pytest.mark.parametrize(
    ("attempt", "companions", "verdict"),
    [(1, 0, RUN_AGAIN), (1, 7, RUN_AGAIN), (2, 1, RUN_AGAIN), (2, 0, POISONOUS), (5, 0, POISONOUS), (5, 3, RUN_AGAIN)],
)
def test_only_who_was_alone_on_its_second_lost_worker_or_a_later_one_is_poisonous(attempt, companions, verdict):
    assert after_loss(attempt, companions, now_ns=10, run_by_ns=10) == verdict


def test_a_sample_whose_time_is_over_does_not_run_again():
    assert after_loss(1, 3, now_ns=11, run_by_ns=10) == TOO_LATE


def test_poison_is_told_from_lateness_also_when_the_time_is_over():
    assert after_loss(2, 0, now_ns=11, run_by_ns=10) == POISONOUS


def deaths(batch: int, killers: set[int]) -> tuple[int, set[int]]:
    """Workers that end until all `killers` of a batch stand alone, and who was found."""
    ended, found = 0, set()
    groups = [(1, list(range(batch)))]
    while groups:
        attempt, group = groups.pop(0)
        if not killers & set(group):
            continue
        ended += 1
        if after_loss(attempt, len(group) - 1, 0, 0) == POISONOUS:
            found |= set(group)
            continue
        first = half(len(group))
        groups += [(attempt + 1, part) for part in (group[:first], group[first:]) if part]
    return ended, found


@pytest.mark.parametrize("batch", [1, 2, 3, 5, 8, 13, 32, 100])
def test_one_killer_ends_at_most_one_worker_more_than_halvings(batch):
    bound = max(2, 1 + math.ceil(math.log2(batch)))
    for killer in range(batch):
        ended, found = deaths(batch, {killer})
        assert found == {killer}
        assert ended <= bound


def test_several_killers_are_all_found_and_nobody_else():
    assert deaths(32, {0, 1, 17, 31})[1] == {0, 1, 17, 31}


@pytest.mark.parametrize(
    ("deadline_ns", "run_ns", "latest"), [(NO_DEADLINE_NS, 5, 130), (100, 5, 95), (1000, 5, 130), (100, 0, 100)]
)
def test_another_run_starts_in_time_for_the_deadline_and_within_the_time_for_retrying(deadline_ns, run_ns, latest):
    assert retry_until_ns(30, 100, deadline_ns, run_ns) == latest


def test_a_lost_stage_degrades_or_refuses_at_once_as_the_operator_wants():
    assert without_replica(True, False, now_ns=0, run_by_ns=10) == DEGRADE
    assert without_replica(True, True, now_ns=0, run_by_ns=10) == REFUSE


def test_a_sample_without_an_answer_waits_for_as_long_as_it_may():
    assert without_replica(False, True, now_ns=10, run_by_ns=10) == WAIT
    assert without_replica(False, False, now_ns=11, run_by_ns=10) == FAIL


def test_a_batch_hangs_after_a_multiple_of_its_profiled_time_but_not_before_the_shortest():
    assert hangs_after_ns(7, 100) == HANG_FACTOR * 7
    assert hangs_after_ns(1, 100) == 100
