import numpy as np
import pytest

from benchmarks.caches.promise import held_of


def test_builds_without_caches_are_not_counted_as_keeping_what_was_asked_for() -> None:
    agreement, chosen = np.array([1.0, 0.95, 0.9, 0.8]), [(), (0,), (1, 2), (0, 3)]
    assert held_of(agreement, chosen, 0.9) == pytest.approx(2 / 3)
    assert np.isnan(held_of(agreement[:1], chosen[:1], 0.9))
