import numpy as np
import pytest

from gearshift.policies.watch.audit import (
    ABOVE,
    AUDITED,
    BELOW,
    INSIDE,
    LEARNT,
    LEAST_OF_WHOLE,
    LEAST_TO_END,
    alarm_after,
    cache_breaches,
    disagreement_interval,
    drawn,
    has_slack,
    rest_until_ns,
    selected,
)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 1.0])
def test_the_share_that_is_selected_is_the_one_asked_for(share: float) -> None:
    chosen = sum(selected(number, 0, 7, share) for number in range(20_000))
    assert chosen / 20_000 == pytest.approx(share, abs=4 * (share * (1 - share) / 20_000) ** 0.5)


def test_who_is_selected_depends_on_the_seed_and_the_row_and_is_the_same_each_time() -> None:
    def chosen(seed: int, row: int) -> list[int]:
        return [number for number in range(2000) if selected(number, row, seed, 0.05)]

    assert chosen(1, 0) == chosen(1, 0)
    different = {tuple(chosen(seed, row)) for seed in range(4) for row in range(4)}
    assert len(different) == 16


def test_who_is_selected_has_no_rhythm() -> None:
    chosen = np.array([selected(number, 0, 0, 0.1) for number in range(60_000)])
    for period in (2, 3, 7, 10, 16, 100, 128):
        counts = chosen[: 60_000 // period * period].reshape(-1, period).sum(axis=0)
        expected = counts.mean()
        assert ((counts - expected) ** 2 / expected).sum() < period + 5 * (2 * period) ** 0.5 + 5


def test_an_audit_waits_for_slack() -> None:
    assert has_slack(0, 10.0, 20.0, 100, 100)
    assert not has_slack(1, 10.0, 20.0, 100, 0)
    assert not has_slack(0, 20.1, 20.0, 100, 0)
    assert not has_slack(0, 10.0, 20.0, 100, 101)
    assert rest_until_ns(5, 1_000) == 50_005


@pytest.mark.parametrize(("disagreed", "audited"), [(0, 0), (0, 10), (10, 10), (3, 50), (200, 4000)])
def test_an_interval_holds_what_was_seen_and_lies_between_0_and_1(disagreed: int, audited: int) -> None:
    low, high = disagreement_interval(disagreed, audited)
    assert 0 <= low <= disagreed / max(1, audited) <= high <= 1
    if 0 < disagreed < audited:
        assert low > 0
        assert high < 1


def test_more_audits_narrow_the_interval() -> None:
    widths = [high - low for low, high in (disagreement_interval(n // 10, n) for n in (10, 100, 1000, 8000))]
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] < 0.035


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5])
def test_intervals_that_are_looked_at_after_every_audit_hold_the_truth_throughout(share: float) -> None:
    generator = np.random.default_rng(5)
    false, runs = 0, 12
    for _ in range(runs):
        seen = np.cumsum(generator.random(200) < share).tolist()
        intervals = [disagreement_interval(k, n) for n, k in enumerate(seen, 1)]
        false += any(not low <= share <= high for low, high in intervals)
    assert false == 0


def test_an_alarm_is_raised_where_the_intervals_part_and_ends_when_enough_says_so() -> None:
    assert alarm_after(INSIDE, 40, 0.2, 0.5, 0.05, 0.1) == ABOVE
    assert alarm_after(INSIDE, 40, 0.0, 0.04, 0.05, 0.1) == BELOW
    assert alarm_after(INSIDE, 40, 0.09, 0.5, 0.05, 0.1) == INSIDE
    assert alarm_after(ABOVE, 1, 0.0, 1.0, 0.05, 0.1) == ABOVE
    assert alarm_after(ABOVE, LEAST_TO_END, 0.06, 0.09, 0.05, 0.1) == INSIDE


@pytest.mark.parametrize(
    ("hits", "whole", "breach"),
    [
        ((30, 200), (62, LEAST_OF_WHOLE), True),
        ((10, 200), (62, LEAST_OF_WHOLE), False),
        ((30, 200), (61, LEAST_OF_WHOLE), False),
        ((0, 0), (62, LEAST_OF_WHOLE), False),
        ((30, 200), (62, LEAST_OF_WHOLE - 1), False),
        ((30, 200), (120, LEAST_OF_WHOLE - 1), True),
    ],
)
def test_a_cache_breaches_where_its_hits_are_shown_to_miss_the_target_and_all_answers_miss_it(
    hits: tuple[int, int], whole: tuple[int, int], breach: bool
) -> None:
    assert cache_breaches(hits, whole, 0.97) == breach


def test_answers_are_audited_or_learnt_from_in_their_shares_and_never_both() -> None:
    kinds = [drawn(request, row, 7, 0.1, 0.2) for request in range(4000) for row in range(2)]
    assert kinds.count(AUDITED) / 8000 == pytest.approx(0.1, abs=0.015)
    assert kinds.count(LEARNT) / 8000 == pytest.approx(0.9 * 0.2, abs=0.015)
    assert drawn(1, 0, 7, 0.0, 0.0) == 0
    assert drawn(1, 0, 7, 1.0, 1.0) == AUDITED
