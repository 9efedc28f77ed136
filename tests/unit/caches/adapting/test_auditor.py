import numpy as np
import pytest

from gearshift.caches.adapting.auditor import AuditCounts, Audited
from gearshift.policies.watch.audit import MOST_AUDITED

TARGET = 0.97


def audits_until_off(share: float, wrong: float, seed: int, most: int = 12_000) -> int | None:
    """After how many audits a cache is switched off that hits a share and is wrong on some of it; None where never."""
    generator = np.random.default_rng(seed)
    audit = AuditCounts(TARGET)
    for i in range(most):
        layer = 0 if generator.random() < share else None
        if audit.add(layer, agreed=layer is None or generator.random() >= wrong):
            return i + 1
    return None


def test_counts_are_halved_and_keep_their_share() -> None:
    one = Audited(MOST_AUDITED, 400)
    one.add(agreed=True)
    assert (one.audited, one.disagreed) == (MOST_AUDITED // 2 + 1, 200)


def test_the_whole_never_begins_anew() -> None:
    audit = AuditCounts(TARGET)
    for i in range(3 * MOST_AUDITED):
        audit.add(0 if i % 2 else None, agreed=i % 100 != 99)
        if i >= MOST_AUDITED:
            assert MOST_AUDITED // 2 <= audit.whole.audited <= MOST_AUDITED
    assert audit.whole.disagreed / audit.whole.audited == pytest.approx(0.01, abs=0.001)


def test_the_other_answers_still_count_when_a_cache_is_switched_off() -> None:
    audit = AuditCounts(TARGET)
    for i in range(3000):
        audit.add((0, 1, None)[i % 3], agreed=i % 30 != 1)
    audit.switched_off(0)
    assert (audit.whole.audited, audit.whole.disagreed) == (2000, 100)
    audit.switched_off(1)
    assert (audit.whole.audited, audit.whole.disagreed) == (1000, 0)


@pytest.mark.parametrize(
    ("share", "wrong", "audits"),
    [
        (0.3, 0.2, 2048),
        pytest.param(0.3, 0.1167, 6000, marks=pytest.mark.long),
        pytest.param(0.5, 0.08, 3000, marks=pytest.mark.long),
        (0.05, 0.8, 3000),
    ],
)
def test_a_cache_that_lowers_the_whole_below_the_target_is_switched_off(
    share: float, wrong: float, audits: int
) -> None:
    """The whole misses the target by 0.5 to 3 points, in hits of little and of much disagreement."""
    took = [audits_until_off(share, wrong, seed) for seed in range(20)]
    assert all(taken is not None and taken <= audits for taken in took)


@pytest.mark.parametrize(
    ("share", "wrong"),
    [pytest.param(*case, marks=pytest.mark.long) for case in ((0.3, 0.0667), (0.1, 0.2), (0.9, 0.0222))]
    + [(0.05, 0.4)],
)
def test_a_cache_stays_whose_whole_keeps_the_target_with_a_point_to_spare(share: float, wrong: float) -> None:
    """Its hits by themselves do not keep it, as composition has allowed."""
    off = [audits_until_off(share, wrong, seed) is not None for seed in range(30)]
    assert sum(off) <= 1


def test_a_cache_stays_that_is_good_enough_when_another_one_is_switched_off() -> None:
    """One in ten answers is its, 7 % of them wrong; all answers agree on 99.3 %."""
    generator = np.random.default_rng(1)
    audit = AuditCounts(TARGET)
    for i in range(12_000):
        hit = generator.random() < 0.1
        assert not audit.add(1 if hit else None, agreed=not hit or generator.random() >= 0.07)
        if i == 8000:
            audit.switched_off(0)
