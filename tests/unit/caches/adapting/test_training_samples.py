from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gearshift.caches.adapting.training_samples import ROLE_SHARES, Recent, Window, role_of, weights_of


def sample(at_s: float, value: float = 0.0) -> Recent:
    return Recent(np.full(10, value, dtype=np.float32), at_s, 0)


def window(**options: Any) -> Window:
    return Window(**{"window_s": 100.0, "most_samples": 1000, "most_bytes": 1 << 20, **options})


@pytest.mark.parametrize(
    ("options", "left"), [({"window_s": 3.0}, 4), ({"most_samples": 3}, 3), ({"most_bytes": 200}, 5)]
)
def test_the_oldest_go_where_time_number_or_bytes_are_over_the_bound(options: dict[str, Any], left: int) -> None:
    filled = window(**options)
    for at_s in range(10):
        filled.add(sample(at_s), at_s)
    assert [one.at_s for one in filled] == list(range(10 - left, 10))
    assert filled.size_bytes == 40 * left


def test_features_count_as_bytes() -> None:
    filled = window(most_bytes=100)
    one = sample(0)
    filled.add(one, 0)
    filled.learnt(one, np.ones(2, dtype=np.float32), {0: np.zeros(5, dtype=np.float32)})
    assert filled.size_bytes == 60
    filled.drop(one)
    assert (filled.size_bytes, len(filled)) == (0, 0)


def test_those_with_and_without_an_answer_run_apart_the_oldest_first() -> None:
    filled = window()
    for at_s in range(4):
        filled.add(sample(at_s), at_s)
        list(filled)[-1].probabilities = np.ones(2, dtype=np.float32) if at_s % 2 else None
    assert [one.at_s for one in filled.pending(5)] == [0, 2]
    assert [one.at_s for one in filled.pending(1)] == [0]


def test_answers_are_named_in_their_order_and_none_before_one_that_is_not_known() -> None:
    filled = window(most_samples=4)
    known = [np.eye(3, dtype=np.float32)[i % 3] for i in range(6)]
    for at_s in range(4):
        filled.add(sample(at_s), at_s)
    kept = list(filled)
    for i in (0, 2, 3):
        kept[i].probabilities = known[i]
    assert list(filled.named()) == [(0, 0.0)]
    kept[1].probabilities = known[1]
    assert list(filled.named()) == [(1, 1.0), (2, 2.0), (0, 3.0)]
    assert list(filled.named()) == []
    for at_s in (4, 5):
        filled.add(sample(at_s), at_s)
    waiting, later = list(filled)[-2:]
    later.probabilities = known[5]
    filled.drop(waiting)
    assert list(filled.named()) == [(2, 5.0)]


def test_recent_ones_count_more() -> None:
    assert weights_of([sample(0), sample(5), sample(10)], 10, 5).tolist() == [0.25, 0.5, 1]


def test_what_is_saved_comes_back_but_for_what_is_too_old(tmp_path: Path) -> None:
    filled = window()
    for at_s in range(4):
        filled.add(sample(at_s, at_s), at_s)
    list(filled)[2].probabilities = np.array([0.5, 0.5], dtype=np.float32)
    filled.retrained_s = 2.5
    (tmp_path / ".window.npz.left-by-a-kill").write_bytes(b"half")
    filled.save(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["window.npz"]
    assert (tmp_path / "window.npz").stat().st_mode & 0o777 == 0o600
    again = window(window_s=10)
    assert again.load(tmp_path, 11, (10,), 2) == ""
    assert [(one.at_s, one.row[0]) for one in again] == [(1, 1), (2, 2), (3, 3)]
    assert [one.probabilities is not None for one in again] == [False, True, False]
    assert again.retrained_s == 2.5
    assert "is of another model" in window().load(tmp_path, 0, (9,), 2)
    assert "is of another model" in window().load(tmp_path, 0, (10,), 3)


def test_the_same_input_always_has_the_same_purpose_and_purposes_have_their_shares() -> None:
    rows = np.random.default_rng(0).normal(size=(3000, 4)).astype(np.float32)
    roles = [role_of(row, 3) for row in rows]
    assert roles == [role_of(row.copy(), 3) for row in rows]
    assert np.allclose(np.bincount(roles) / 3000, ROLE_SHARES, atol=0.03)
