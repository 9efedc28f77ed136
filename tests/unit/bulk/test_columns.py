"""Arrow columns as input arrays: NULL, bad lists, types; and answers as columns."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gearshift.bulk.answers import ANSWERED, DEGRADED, FAILED, NULL, REFUSED, Answers
from gearshift.bulk.columns import Chunk, answer_columns, as_array, label_type, plain_column
from gearshift.errors import InvalidInput
from gearshift.model import TensorSpec
from tests.often import often

POINT = TensorSpec(name="x", datatype="FP32", shape=(-1, 2))
NUMBER = TensorSpec(name="n", datatype="FP64", shape=(-1,))
TEXT = TensorSpec(name="t", datatype="BYTES", shape=(-1,))


def test_lists_become_a_tensor_of_the_datatype_that_the_model_takes():
    for kind in (pa.list_(pa.float64()), pa.list_(pa.float64(), 2), pa.large_list(pa.int8())):
        array = as_array(pa.array([[1, 2], [3, 4]], kind), POINT)
        assert array.dtype == np.float32
        assert array.tolist() == [[1, 2], [3, 4]]


def test_images_may_be_nested_or_flat_lists():
    image = TensorSpec(name="i", datatype="UINT8", shape=(-1, 2, 3))
    pixels = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    nested = pa.array(pixels.tolist(), pa.list_(pa.list_(pa.uint8())))
    flat = pa.array(pixels.reshape(2, 6).tolist(), pa.list_(pa.uint8()))
    assert (as_array(nested, image) == pixels).all()
    assert (as_array(flat, image) == pixels).all()


def test_a_variable_dimension_takes_what_the_lists_have():
    varying = TensorSpec(name="x", datatype="FP64", shape=(-1, -1))
    assert as_array(pa.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), varying).shape == (2, 3)
    assert as_array(pa.array([], pa.list_(pa.float64())), varying).shape[0] == 0


def test_text_and_bytes_go_as_they_are_and_dictionaries_are_read():
    words = pa.array(["a", "b", "a"])
    assert as_array(words, TEXT).tolist() == ["a", "b", "a"]
    assert as_array(words.dictionary_encode(), TEXT).tolist() == ["a", "b", "a"]
    assert as_array(pa.array([b"\xff"]), TEXT).tolist() == [b"\xff"]


VIEWS = pa.array(["a", "b", None, "a long text that is kept apart"], pa.string_view())
LISTS = [["a"], ["b", None], None, [], ["c"]]
ENCODED = {
    "texts in views": VIEWS,
    "a part of them": VIEWS.slice(1, 2),
    "bytes in views": pa.array([b"a", None], pa.binary_view()),
    "codes of views": pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 1, 3]), VIEWS),
    "few codes of many": pa.DictionaryArray.from_arrays(pa.array([3, 2, None]), VIEWS),
    "no code of many": pa.DictionaryArray.from_arrays(pa.array([None], pa.int8()), VIEWS),
    "runs": pa.RunEndEncodedArray.from_arrays(pa.array([2, 3, 9, 10]), VIEWS),
    "a part of runs": pa.RunEndEncodedArray.from_arrays(pa.array([2, 3, 9, 10]), VIEWS).slice(1, 4),
    "lists of views": pa.array(LISTS, pa.large_list(pa.string_view())).slice(1, 3),
    "views of lists": pa.array(LISTS, pa.list_view(pa.string_view())),
    "a part of views of lists": pa.array(LISTS, pa.large_list_view(pa.string())).slice(1, 4),
    "lists of a size": pa.array([["a", "b"], ["b", None], None], pa.list_(pa.string_view(), 2)).slice(1, 2),
    "lists of lists": pa.array([[["a"]], [["b", "c"], None]], pa.list_(pa.list_(pa.string_view()))),
    "bytes of a size": pa.array([b"abc", None], pa.binary(3)),
    "nothing": pa.array([], pa.list_(pa.string_view())),
}


@pytest.mark.parametrize("name", ENCODED)
def test_a_column_has_the_same_values_without_its_encoding(name):
    column = ENCODED[name]
    plain = plain_column(column)
    assert plain.to_pylist() == column.to_pylist()
    assert not any(mark in str(plain.type) for mark in ("view", "dictionary", "run_end"))


def test_plain_columns_are_not_copied():
    for column in (pa.array(["a"]), pa.array([1.5]), pa.array([["a"]], pa.list_(pa.string()))):
        assert plain_column(column) is column


@pytest.mark.parametrize(
    "column",
    [
        VIEWS,
        pa.array([b"a", b"b", None, b"c"], pa.binary_view()),
        pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 3]), VIEWS),
        pa.RunEndEncodedArray.from_arrays(pa.array([1, 2, 3, 4]), VIEWS),
        pa.array([b"a", b"b", None, b"c"], pa.binary(1)),
    ],
)
def test_a_row_of_an_encoded_column_is_null_or_a_missing_text(column):
    chunk = Chunk([column], (TEXT,))
    assert chunk.usable.tolist() == [0, 1, 3]
    assert [len(text) > 0 for text in chunk.inputs["t"].tolist()] == [True, True, True]
    missing = Chunk([column], (TensorSpec(name="t", datatype="BYTES", shape=(-1,), missing=True),))
    assert missing.inputs["t"].tolist() == column.to_pylist()


@pytest.mark.parametrize(
    ("column", "spec", "said"),
    [
        (pa.array(["1"]), NUMBER, "has type string, and input 'n' is FP64; give numbers"),
        (pa.array([1]), TEXT, "has type int64, and input 't' is BYTES; cast it to VARCHAR"),
        (pa.array([1.5]), TensorSpec(name="k", datatype="INT8", shape=(-1,)), "give whole numbers that INT8 can hold"),
        (pa.array([300]), TensorSpec(name="k", datatype="INT8", shape=(-1,)), "give whole numbers that INT8 can hold"),
        (pa.array([1.0]), POINT, "holds 1 elements in 1 rows, and input 'x' has shape [-1, 2]"),
        (pa.array([[1.0]]), NUMBER, "holds 1 elements in 1 rows|"),
    ],
)
def test_columns_that_do_not_fit_are_refused_in_a_sentence(column, spec, said):
    if said.endswith("|"):  # a list of one element is a single value
        assert as_array(column, spec).tolist() == [1]
        return
    with pytest.raises(InvalidInput) as refused:
        as_array(column, spec)
    assert said in str(refused.value)


def test_rows_with_null_anywhere_have_no_input():
    points = pa.array([[1.0, 2.0], None, [3.0, None], [5.0, 6.0]])
    words = pa.array(["a", "b", "c", None])
    chunk = Chunk([points, words], (POINT, TEXT))
    assert chunk.usable.tolist() == [0]
    assert chunk.inputs["x"].tolist() == [[1, 2]]
    assert chunk.inputs["t"].tolist() == ["a"]


def test_null_is_a_missing_value_where_the_input_may_lack_it():
    missing = TensorSpec(name="x", datatype="FP64", shape=(-1, 2), missing=True)
    number = TensorSpec(name="n", datatype="FP32", shape=(-1,), missing=True)
    chunk = Chunk([pa.array([[1.0, None], None]), pa.array([None, 1.0])], (missing, number))
    assert chunk.usable.tolist() == [0]
    assert np.isnan([chunk.inputs["x"][0, 1], chunk.inputs["n"][0]]).all()


def test_a_list_of_another_length_costs_its_row():
    chunk = Chunk([pa.array([[1.0, 2.0], [3.0], [4.0, 5.0, 6.0], [7.0, 8.0]])], (POINT,))
    assert chunk.usable.tolist() == [0, 3]
    answers = Answers.none_yet(2)
    answers.keep(np.arange(2), np.array([5, 6]), np.ones(2))
    assert chunk.whole(answers).outcome.tolist() == [ANSWERED, FAILED, FAILED, ANSWERED]


def test_answers_are_columns_in_which_rows_without_one_are_null():
    answers = Answers.none_yet(5, NULL)
    answers.keep(np.array([0, 1]), np.array(["cat", b"dog"], dtype=object), np.array([0.5, 0.25]))
    answers.end(np.array([1]), DEGRADED)
    answers.end(np.array([2]), FAILED)
    answers.end(np.array([3]), REFUSED)
    label, certainty, outcome = answer_columns(answers, pa.string())
    assert label.to_pylist() == ["cat", "dog", None, None, None]
    assert certainty.to_pylist() == [0.5, 0.25, None, None, None]
    assert outcome.to_pylist() == ["answered", "degraded", "failed", "refused", None]


def test_labels_keep_their_type():
    assert label_type(TEXT) == pa.string()
    assert label_type(NUMBER) == pa.float64()
    answers = Answers.none_yet(1)
    answers.keep(np.array([0]), np.array([3], dtype=np.int64), np.ones(1))
    assert answer_columns(answers, pa.int64())[0].to_pylist() == [3]
    assert answer_columns(Answers.none_yet(2), pa.string())[0].to_pylist() == [None, None]


rows = st.lists(st.one_of(st.none(), st.lists(st.one_of(st.none(), st.integers(-5, 5)), max_size=3)), max_size=8)


@settings(max_examples=often(200))
@given(rows)
def test_exactly_whole_lists_of_the_right_length_are_usable(values):
    column = pa.array(values, pa.list_(pa.int64()))
    chunk = Chunk([column], (POINT,))
    assert chunk.usable.tolist() == [i for i, v in enumerate(values) if v and len(v) == 2 and None not in v]
    assert chunk.inputs["x"].tolist() == [values[i] for i in chunk.usable]
    null = [i for i, v in enumerate(values) if v is None or None in v]
    whole = chunk.whole(Answers.none_yet(len(chunk.usable), REFUSED))
    assert np.flatnonzero(whole.outcome == NULL).tolist() == null
