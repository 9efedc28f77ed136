"""Data frames of each library as arrays and back."""

from typing import Any

import numpy as np
import pytest

from gearshift.errors import InvalidInput
from gearshift.support.frames import FrameKind, columns_of, frame_of, without_gaps

KINDS: list[FrameKind] = ["pandas", "polars", "pyarrow"]
CELLS: dict[str, list[Any]] = {
    "age": [40, None, 7],
    "name": ["Ada", None, "Eve"],
    "known": [True, False, True],
    "sum": [0.5, 1.5, None],
}


def made(kind: FrameKind) -> Any:
    library = pytest.importorskip(kind)
    return library.table(CELLS) if kind == "pyarrow" else library.DataFrame(CELLS)


@pytest.mark.parametrize("kind", KINDS)
def test_columns_are_arrays_with_nan_and_none_for_what_is_missing(kind: FrameKind) -> None:
    found = columns_of(made(kind))
    assert found is not None
    np.testing.assert_array_equal(found["age"], [40, np.nan, 7])
    assert found["name"].tolist() == ["Ada", None, "Eve"]
    assert (found["known"].dtype, found["known"].tolist()) == (bool, [True, False, True])
    np.testing.assert_array_equal(found["sum"], [0.5, 1.5, np.nan])


def test_encoded_columns_of_arrow_are_plain() -> None:
    pyarrow = pytest.importorskip("pyarrow")
    words = pyarrow.array(["a", None, "a"], pyarrow.string_view())
    whole = pyarrow.array([1, None, 1]).dictionary_encode()
    codes = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0, None, 1]), ["a", "b"])
    views = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0, None, 0]), words.slice(0, 1))
    runs = pyarrow.RunEndEncodedArray.from_arrays(pyarrow.array([1, 3]), pyarrow.array(["a", None]))
    found = columns_of(pyarrow.table({"words": words, "codes": codes, "views": views, "runs": runs, "whole": whole}))
    assert found is not None
    texts = {name: found[name].tolist() for name in ("words", "codes", "views", "runs")}
    assert texts == {
        "words": ["a", None, "a"],
        "codes": ["a", None, "b"],
        "views": ["a", None, "a"],
        "runs": ["a", None, None],
    }
    np.testing.assert_array_equal(found["whole"], [1, np.nan, 1])


@pytest.mark.parametrize("kind", KINDS)
def test_arrays_become_a_frame_and_scores_a_column_each(kind: FrameKind) -> None:
    pytest.importorskip(kind)
    frame = frame_of(kind, {"label": np.array(["a", None], object), "scores": np.eye(2)}, where="here")
    found = columns_of(frame)
    assert found is not None
    assert list(found) == ["label", "scores.0", "scores.1"]
    assert found["label"].tolist() == ["a", None]
    assert found["scores.1"].tolist() == [0.0, 1.0]


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_text_alone_has_the_type_of_one_beside_others(kind: FrameKind) -> None:
    pytest.importorskip(kind)
    alone, beside = (frame_of(kind, {"town": np.array(t, object)}, where="here") for t in ([None], [None, "Ulm"]))
    if kind == "pandas":
        assert alone["town"].dtype == beside["town"].dtype
        assert repr(alone["town"].tolist()[0]) == repr(beside["town"].tolist()[0])
    else:
        assert alone.schema == beside.schema


def test_categories_and_nullable_numbers_of_pandas_are_plain() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {"size": pandas.Categorical(["s", "m"]), "count": pandas.array([1, None], dtype="Int64"), 3: ["x", pandas.NA]}
    )
    found = columns_of(frame)
    assert found is not None
    assert found["size"].tolist() == ["s", "m"]
    np.testing.assert_array_equal(found["count"], [1.0, np.nan])
    assert found["3"].tolist() == ["x", None]


def test_dictionaries_of_pyarrow_are_plain() -> None:
    pyarrow = pytest.importorskip("pyarrow")
    found = columns_of(pyarrow.table({"size": pyarrow.array(["s", "m", None]).dictionary_encode()}))
    assert found is not None
    assert found["size"].tolist() == ["s", "m", None]


@pytest.mark.parametrize("other", [{"a": np.ones(2)}, np.ones((2, 2)), "text", None])
def test_other_things_are_no_frames(other: object) -> None:
    assert columns_of(other) is None


def test_gaps_of_texts_are_none() -> None:
    assert without_gaps(np.array(["a", np.nan, None], dtype=object)).tolist() == ["a", None, None]


def test_a_library_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "polars", None)
    with pytest.raises(InvalidInput, match=r"field frame: needs polars.*pip install 'gearshift\[polars\]'"):
        frame_of("polars", {"a": np.ones(2)}, where="field frame")
