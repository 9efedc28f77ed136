from itertools import pairwise

import numpy as np
import pytest

from benchmarks.shared.class_local_streams import class_local_stream, corrupted, halves
from gearshift.errors import InvalidInput

LABELS = np.repeat(np.arange(5), 20)


def test_classes_follow_zipfs_law_around_a_dominant_one() -> None:
    stream = class_local_stream(LABELS, 40_000, exponent=1.5, window=40_000, seed=1)
    counts = np.sort(np.bincount(LABELS[stream.rows], minlength=5))[::-1] / len(stream)
    weights = np.arange(1, 6) ** -1.5
    assert counts == pytest.approx(weights / weights.sum(), abs=0.01)
    assert np.argmax(np.bincount(LABELS[stream.rows])) == stream.dominant[0]


def test_the_dominant_class_is_another_one_in_each_window() -> None:
    stream = class_local_stream(LABELS, 1050, exponent=3.0, window=100, seed=2)
    by_window = [stream.dominant[stream.window == w] for w in range(11)]
    assert all(len(set(one.tolist())) == 1 for one in by_window)
    assert all(one[0] != other[0] for one, other in pairwise(by_window))
    for w in range(10):
        counts = np.bincount(LABELS[stream.rows[stream.window == w]], minlength=5)
        assert np.argmax(counts) == by_window[w][0]


def test_an_exponent_of_zero_is_uniform() -> None:
    counts = np.bincount(LABELS[class_local_stream(LABELS, 20_000, exponent=0, seed=3).rows])
    assert counts / 20_000 == pytest.approx([0.2] * 5, abs=0.02)


def test_unseen_classes_come_only_after_the_shift() -> None:
    stream = class_local_stream(LABELS, 3000, window=100, unseen=(3, 4), shift_at=1550, seed=4)
    classes = LABELS[stream.rows]
    assert set(classes[~stream.shifted].tolist()) == {0, 1, 2}
    assert set(classes[stream.shifted].tolist()) == {0, 1, 2, 3, 4}
    assert int(np.flatnonzero(stream.shifted)[0]) == 1550


def test_the_same_seed_gives_the_same_stream_and_another_another() -> None:
    one, again, other = (class_local_stream(LABELS, 500, seed=seed) for seed in (5, 5, 6))
    assert one.rows.tolist() == again.rows.tolist() != other.rows.tolist()


def test_halves_are_disjoint_complete_and_hold_half_of_every_class() -> None:
    adapt, score = halves(LABELS, seed=1)
    assert sorted([*adapt.tolist(), *score.tolist()]) == list(range(100))
    assert np.bincount(LABELS[adapt]).tolist() == [10] * 5


@pytest.mark.parametrize("kind", ["noise", "contrast", "blur", "occlusion"])
def test_corruptions_change_images_within_their_range(kind: str) -> None:
    images = np.random.default_rng(0).random((4, 3, 8, 8), dtype=np.float32)
    made = corrupted(images, kind=kind, strength=0.5, seed=1)
    assert made.dtype == np.float32
    assert 0 <= made.min() <= made.max() <= 1
    assert all(not np.array_equal(one, other) for one, other in zip(made, images, strict=True))
    assert np.array_equal(made, corrupted(images, kind=kind, strength=0.5, seed=1))
    if kind != "occlusion":
        assert corrupted(images, kind=kind, strength=0.0) == pytest.approx(images, abs=1e-6)


def test_what_makes_no_stream_is_refused() -> None:
    with pytest.raises(InvalidInput, match="fewer than two classes"):
        class_local_stream(np.zeros(5, dtype=np.int64), 10)
    with pytest.raises(InvalidInput, match=r"no sample is of class \[9\]"):
        class_local_stream(LABELS, 10, unseen=(9,), shift_at=5)
    with pytest.raises(InvalidInput, match="unseen classes need shift_at"):
        class_local_stream(LABELS, 10, unseen=(1,))
    with pytest.raises(InvalidInput, match="there is no corruption 'rain'"):
        corrupted(np.zeros((1, 1, 2, 2), dtype=np.float32), kind="rain")
    with pytest.raises(InvalidInput, match=r"images have values outside \[0, 1\]; corrupt before normalising"):
        corrupted(np.full((1, 1, 2, 2), -0.4, dtype=np.float32))
