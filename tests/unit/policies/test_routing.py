from hypothesis import given, settings
from hypothesis import strategies as st

from gearshift.gear import SHARE_UNIT
from gearshift.plans.plan_tables import whole_shares
from gearshift.policies.routing import carry_turns, choose_replica
from tests.often import often

RANDOM = settings(deadline=None, derandomize=True, max_examples=often(200))


class Ring:
    """The turns of one model's replicas, with nothing but what the policy keeps."""

    def __init__(self, weights: list[int]) -> None:
        self.last = [-1]
        self.following, self.due, self.stride = ([0] * len(weights) for _ in range(3))
        self.shift(weights)

    def shift(self, weights: list[int]) -> None:
        shares = whole_shares(weights) if any(weights) else [0] * len(weights)
        carry_turns(shares, 0, 0, 0, len(shares), self.last, self.following, self.due, self.stride)

    def take(self, count: int) -> list[int]:
        return [choose_replica(0, self.last, self.following, self.due, self.stride) for _ in range(count)]

    def in_order(self) -> list[int]:
        if self.last[0] < 0:
            return []
        members = [self.following[self.last[0]]]
        while members[-1] != self.last[0]:
            members.append(self.following[members[-1]])
        return members


def weights(most: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.sampled_from([0, 1, 1, 2, 3, 7, 20]), min_size=1, max_size=most).filter(any)


def of_same_length(most: int) -> st.SearchStrategy[list[list[int]]]:
    """Weights of several gears."""

    def gears(replicas: int) -> st.SearchStrategy[list[list[int]]]:
        one = st.lists(st.sampled_from([0, 0, 1, 1, 2, 3, 7, 20]), min_size=replicas, max_size=replicas)
        return st.lists(one, min_size=1, max_size=6)

    return st.integers(1, most).flatmap(gears)


def test_equal_shares_take_turns_from_the_first() -> None:
    assert Ring([1, 1, 1, 1]).take(8) == [0, 1, 2, 3, 0, 1, 2, 3]


def test_shares_of_five_one_one_are_spread() -> None:
    assert Ring([5, 1, 1]).take(14) == [0, 0, 1, 0, 0, 2, 0] * 2


def test_a_large_share_among_many_small_ones_comes_every_second_time() -> None:
    """Without the spread of the first turns it would come 49 times on end, and then the others."""
    taken = Ring([49] + [1] * 49).take(98)
    assert [n for n, replica in enumerate(taken) if replica == 0] == list(range(0, 98, 2))


@RANDOM
@given(weights(16))
def test_after_a_whole_round_each_replica_has_its_share(parts: list[int]) -> None:
    """To one: shares are whole parts of 2^20, so that two that are due together may change places."""
    taken = Ring(parts).take(sum(parts))
    for replica, part in enumerate(parts):
        assert abs(taken.count(replica) - part) <= 1


@settings(deadline=None, derandomize=True, max_examples=often(5))
@given(weights(16))
def test_over_very_many_samples_each_replica_has_its_share(parts: list[int]) -> None:
    whole = SHARE_UNIT // sum(parts) * sum(parts)
    taken = Ring(parts).take(whole)
    for replica, part in enumerate(parts):
        assert abs(taken.count(replica) - whole * part // sum(parts)) <= 2


@RANDOM
@given(weights(16))
def test_no_replica_is_ever_three_samples_from_its_share(parts: list[int]) -> None:
    """Its own turns are exact to one; the others', all early or all late at once, add a part of theirs to that."""
    whole = sum(parts)
    taken = Ring(parts).take(2 * whole)
    counts = [0] * len(parts)
    for n, replica in enumerate(taken, 1):
        counts[replica] += 1
        for count, part in zip(counts, parts, strict=True):
            assert abs(count - n * part / whole) < 3


@RANDOM
@given(of_same_length(8), st.lists(st.integers(0, 12), min_size=6, max_size=6))
def test_whatever_the_shifts_a_replica_stays_near_its_shares(gears: list[list[int]], counts: list[int]) -> None:
    """Between two shifts its own turns are exact to one; all others together can be off by one each, and it shares
    in that by its part."""
    ring = Ring(gears[0])
    for parts, count in zip(gears, counts, strict=False):
        ring.shift(parts)
        taken = ring.take(count)
        if any(parts):
            for replica, part in enumerate(parts):
                share = part / sum(parts)
                assert abs(taken.count(replica) - count * share) <= 1 + len(parts) * share


@RANDOM
@given(of_same_length(8), st.lists(st.integers(0, 12), min_size=6, max_size=6))
def test_the_ring_holds_just_the_replicas_with_a_share_by_when_they_are_due(
    gears: list[list[int]], counts: list[int]
) -> None:
    ring = Ring(gears[0])
    for parts, count in zip(gears, counts, strict=False):
        ring.shift(parts)
        ring.take(count)
        members = ring.in_order()
        assert sorted(members) == [replica for replica, part in enumerate(parts) if part > 0]
        due = [ring.due[replica] for replica in members]
        assert due == sorted(due)
        assert all(ring.due[replica] <= due[0] + ring.stride[replica] for replica in members)


def test_a_replica_without_share_is_never_chosen() -> None:
    assert set(Ring([0, 1, 0]).take(10)) == {1}


def test_where_no_replica_has_a_share_none_is_chosen() -> None:
    ring = Ring([0, 0])
    assert ring.take(2) == [-1, -1]
    assert ring.due == [0, 0]


def test_replicas_of_other_models_are_left_alone() -> None:
    last, following, due, stride = [-1, -1], [0] * 4, [0] * 4, [0] * 4
    shares = [SHARE_UNIT // 2] * 4
    for model in (0, 1):
        carry_turns(shares, 0, model, 2 * model, 2 * model + 2, last, following, due, stride)
    assert [choose_replica(1, last, following, due, stride) for _ in range(3)] == [2, 3, 2]
    assert choose_replica(0, last, following, due, stride) == 0


def test_shares_are_those_of_the_gear_asked_for() -> None:
    shares = [SHARE_UNIT, 0, 0, SHARE_UNIT]  # two gears of two replicas
    last, following, due, stride = [-1], [0] * 2, [0] * 2, [0] * 2
    for base, replica in ((0, 0), (2, 1), (0, 0)):
        carry_turns(shares, base, 0, 0, 2, last, following, due, stride)
        assert choose_replica(0, last, following, due, stride) == replica


def test_a_shift_between_equal_shares_does_not_disturb_the_turns() -> None:
    ring = Ring([1, 1, 1])
    taken = []
    for _ in range(100):
        taken += ring.take(1)
        ring.shift([1, 1, 1])
    assert taken == ([0, 1, 2] * 34)[:100]


def test_a_small_share_is_served_in_its_time_though_the_gear_shifts_after_every_sample() -> None:
    ring = Ring([9, 1])
    taken = []
    for step in range(1000):
        taken += ring.take(1)
        ring.shift([19, 1] if step % 2 else [9, 1])
    assert abs(taken.count(1) - 75) <= 1


def test_a_share_that_grows_is_served_sooner_and_not_after_the_old_wait() -> None:
    ring = Ring([999, 1])
    assert 1 not in ring.take(400)
    ring.shift([1, 1])
    assert sorted(ring.take(2)) == [0, 1]


def test_a_replica_that_is_back_does_not_take_what_it_missed() -> None:
    ring = Ring([1, 1, 1])
    ring.shift([1, 0, 1])
    assert set(ring.take(50)) == {0, 2}
    ring.shift([1, 1, 1])
    assert ring.take(30).count(1) in (10, 11)
