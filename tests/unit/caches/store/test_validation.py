from pathlib import Path

import numpy as np
import pytest

from gearshift.caches.store.validation import CHECK, FIT, JUDGE, VALIDATION, Validation, read_validation
from gearshift.errors import InvalidInput


def validation(n: int = 100, **changed: np.ndarray) -> Validation:
    part = np.repeat([FIT, JUDGE, CHECK], [60, 20, 20]).astype(np.uint8)
    fields = {
        "inputs": np.arange(n, dtype=np.float32)[:, None],
        "labels": np.arange(n) % 4,
        "probabilities": np.full((n, 4), 0.25, dtype=np.float32),
        "part": part,
    }
    return Validation(**(fields | changed))


@pytest.mark.parametrize(
    ("most", "parts"), [(200, [60, 20, 20]), (60, [20, 20, 20]), (80, [40, 20, 20]), (9, [3, 3, 3])]
)
def test_some_are_as_many_for_each_purpose_as_far_as_they_go(most: int, parts: list[int]) -> None:
    some = validation().some(most, seed=0)
    assert np.bincount(some.part).tolist() == parts
    assert np.array_equal(some.labels, some.inputs[:, 0].astype(int) % 4)
    assert np.array_equal(some.inputs, validation().some(most, seed=0).inputs)


@pytest.mark.parametrize("label", [-1, 4])
def test_labels_that_are_no_classes_are_refused(tmp_path: Path, label: int) -> None:
    labels = np.arange(100) % 4
    validation(labels=labels).save(tmp_path)
    labels[7] = label
    with pytest.raises(InvalidInput, match="do not belong together"):
        validation(labels=labels)
    assert len(read_validation(tmp_path)) == 100
    assert (tmp_path / VALIDATION).is_file()
