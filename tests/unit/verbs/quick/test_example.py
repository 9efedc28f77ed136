from pathlib import Path

import numpy as np
import pytest

from gearshift.errors import InvalidInput, ModelFailed
from gearshift.verbs.quick.example import example_of_json, example_of_model, taken_by


def test_a_bare_value_is_that_of_the_only_input() -> None:
    row = example_of_json("[1.5, 2]")
    assert list(row) == ["input"]
    assert (row["input"].dtype, row["input"].tolist()) == (np.float32, [[1.5, 2.0]])


def test_an_object_has_a_value_for_each_input_in_the_type_of_its_values() -> None:
    row = example_of_json('{"age": 40, "name": "Ada", "known": true, "weights": [0.5, 1.0]}')
    assert {name: (str(array.dtype), array.shape) for name, array in row.items()} == {
        "age": ("int64", (1,)),
        "name": ("object", (1,)),
        "known": ("bool", (1,)),
        "weights": ("float32", (1, 2)),
    }


@pytest.mark.parametrize(
    ("text", "told"),
    [("[1,", "is no JSON"), ("{}", "has no inputs"), ("null", "is None"), ("[[1], [1, 2]]", "is "), ("[]", "is ")],
)
def test_what_is_no_record_is_refused(text: str, told: str) -> None:
    with pytest.raises(InvalidInput, match=f"--example.*{told}"):
        example_of_json(text)


class Estimator:
    n_features_in_ = 3


class OfColumns(Estimator):
    feature_names_in_ = np.array(["age", "income"])


def test_an_estimator_says_how_many_features_it_takes() -> None:
    row = taken_by(Estimator())
    assert row is not None
    assert row["input"].shape == (1, 3)


def test_an_estimator_of_columns_names_them() -> None:
    row = taken_by(OfColumns())
    assert row is not None
    assert list(row) == ["age", "income"]


def test_a_function_does_not_say_what_it_takes() -> None:
    assert taken_by(lambda x: x) is None


def test_a_model_whose_example_fails_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "models.py").write_text(
        "class Model:\n    def __call__(self, x): return x\n    def example(self): raise ValueError('no signature')\n\n"
        "def load(): return Model()\n"
    )
    (tmp_path / "gearshift.toml").write_text(
        'operator = "task"\nsamples = "models.py:load"\n[models.m]\nload = "models.py:load"\n'
    )
    with pytest.raises(ModelFailed, match=r"does not say what it takes \(no signature\); give one record"):
        example_of_model(tmp_path / "gearshift.toml", "m")
