import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gearshift.errors import InvalidInput, ModelFailed
from gearshift.model import datatype_of, spec_of
from gearshift.models.samples import Samples, load_samples
from tests.unit.models.user_files import project, write


@pytest.fixture(autouse=True)
def _own_import_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])


def test_one_array_is_the_input_named_input() -> None:
    samples = Samples(np.zeros((3, 2)))
    assert {name: array.shape for name, array in samples.arrays.items()} == {"input": (3, 2)}
    assert len(samples) == 3


def test_a_batch_takes_rows_of_every_input() -> None:
    samples = Samples({"a": np.arange(4), "b": np.arange(4) * 10})
    batch = samples.batch(np.array([3, 1]))
    assert {name: array.tolist() for name, array in batch.items()} == {"a": [3, 1], "b": [30, 10]}


def test_lists_become_arrays() -> None:
    samples = Samples(["good film", "bad film"], labels=[1, 0])  # type: ignore[arg-type]
    assert samples.arrays["input"].dtype.kind == "U"
    assert isinstance(samples.labels, np.ndarray)


def test_arrays_of_the_other_byte_order_are_turned() -> None:
    assert datatype_of(Samples(np.array([1, 2], dtype=">f4")).arrays["input"]) == "FP32"


UNUSABLE: dict[str, tuple[Callable[[], Samples], str]] = {
    "no inputs": (lambda: Samples({}), "there are no inputs"),
    "one row": (lambda: Samples(np.zeros((1, 2))), "there are 1 rows, needs at least 2"),
    "a number": (lambda: Samples(3), "input 'input' is int, no array of rows"),  # type: ignore[arg-type]
    "ragged": (lambda: Samples([[1], [1, 2]]), "input 'input' is no array"),  # type: ignore[arg-type]
    "no width": (lambda: Samples(np.zeros((3, 0))), r"input 'input' has shape \(3, 0\)"),
    "infinity": (lambda: Samples(np.array([[np.nan], [0], [np.inf]])), "infinity in 1 rows, the first is row 2"),
    "dates": (lambda: Samples(np.array(["2020-01-01"] * 2, dtype="datetime64")), r"datetime64\[D\] have no datatype"),
    "objects": (lambda: Samples(np.array([{}, None], dtype=object)), "holds objects of type dict"),
    "rows differ": (lambda: Samples({"a": np.zeros(3), "b": np.zeros(2)}), "input 'b' has 2 rows, but input 'a' has 3"),
    "few labels": (lambda: Samples(np.zeros(3), np.zeros(2)), "labels has 2 rows, but input 'input' has 3"),
    "wide labels": (lambda: Samples(np.zeros(3), np.zeros((3, 2))), r"labels have shape \(3, 2\), needs one value"),
    "NaN labels": (lambda: Samples(np.zeros(2), np.array([1, np.nan])), "labels holds NaN"),
    "few groups": (lambda: Samples(np.zeros(3), None, np.zeros(4)), "groups has 4 rows"),
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_unusable_samples_are_refused(name: str) -> None:
    make, told = UNUSABLE[name]
    with pytest.raises(InvalidInput, match=told):
        make()


class Frame:
    """As data frames of several libraries are: columns by name."""

    def __init__(self, **columns: object) -> None:
        self.columns, self._values = list(columns), columns

    def __getitem__(self, column: str) -> Any:
        return SimpleNamespace(to_numpy=lambda: np.array(self._values[column]))


def test_the_columns_of_a_data_frame_are_the_inputs() -> None:
    samples = Samples(Frame(age=[1.0, np.nan], town=["Ulm", "Bonn"]))  # type: ignore[arg-type]
    assert list(samples.arrays) == ["age", "town"]
    assert samples.arrays["town"].tolist() == ["Ulm", "Bonn"]


def test_a_data_frame_of_pandas_is_taken() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"age": [1, 2], "town": ["Ulm", "Bonn"]})
    assert {name: array.tolist() for name, array in Samples(frame).arrays.items()} == {
        "age": [1, 2],
        "town": ["Ulm", "Bonn"],
    }


def test_missing_values_of_an_input_are_told_by_its_tensor() -> None:
    samples = Samples({"a": np.array([np.nan, 1.0]), "b": np.zeros(2)})
    assert [spec_of(name, array).missing for name, array in samples.arrays.items()] == [True, False]


def test_samples_are_loaded_from_the_users_file(tmp_path: Path) -> None:
    write(
        tmp_path,
        samples="""
            import numpy as np
            from gearshift import Samples
            def load(): return Samples(np.zeros((3, 2)), labels=[0, 1, 0])
        """,
    )
    samples = load_samples(project(), tmp_path)
    assert len(samples) == 3


def test_unusable_samples_name_the_function(tmp_path: Path) -> None:
    text = "from gearshift import Samples\ndef load(): return Samples([1, 2], labels=[1])"
    with pytest.raises(InvalidInput, match=r"samples\.py:load, samples: labels has 1 rows, but input 'input' has 2"):
        load_samples(project(), write(tmp_path, samples=text))


def test_samples_of_another_type_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFailed, match=r"samples\.py:load answered dict; answer gearshift\.Samples"):
        load_samples(project(), write(tmp_path, samples="def load(): return {}"))


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        ("np.linspace(0, 1, 50)", "labels hold 50 different fractions in 50 rows, .* a regression is not judged here"),
        ("np.eye(50, dtype=int)", r"labels have shape \(50, 50\).*an operator answers one label per row"),
        ("np.arange(50) % 9 / 2", None),
        ("np.arange(50.0)", None),
    ],
)
def test_labels_that_are_no_classes_are_refused_at_the_door(tmp_path: Path, labels: str, told: str | None) -> None:
    code = f"""
        import numpy as np
        import gearshift
        def load():
            return gearshift.Samples(inputs=np.zeros((50, 2)), labels={labels})
        """
    write(tmp_path, samples=code)
    if told is None:
        assert len(load_samples(project(), tmp_path)) == 50
    else:
        with pytest.raises(InvalidInput, match=told):
            load_samples(project(), tmp_path)


def test_missing_texts_are_none_and_the_input_says_that_it_may_lack_them() -> None:
    samples = Samples({"name": np.array(["Ada", None, np.nan], dtype=object), "age": np.arange(3)})
    assert samples.arrays["name"].tolist() == ["Ada", None, None]
    assert [spec.missing for spec in samples.specs] == [True, False]


def test_a_label_that_is_missing_is_refused() -> None:
    with pytest.raises(InvalidInput, match="labels holds objects of type NoneType"):
        Samples(np.zeros((2, 1)), labels=np.array(["a", None], dtype=object))


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow"])
def test_a_frame_of_any_library_gives_an_input_for_each_column(kind: str) -> None:
    library = pytest.importorskip(kind)
    cells = {"name": ["Ada", None], "age": [40, 7]}
    samples = Samples(library.table(cells) if kind == "pyarrow" else library.DataFrame(cells))
    assert [(spec.name, spec.datatype, spec.missing) for spec in samples.specs] == [
        ("name", "BYTES", True),
        ("age", "INT64", False),
    ]
