import json
import tracemalloc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gearshift.errors import InvalidInput, NotAcceptable
from gearshift.model import TensorSpec
from gearshift.request import Answer
from gearshift.v2.json import DEFAULT_LIMITS
from gearshift.v2.records import encode_records, example_record, parse_records

SPECS = {
    spec.name: spec
    for spec in (
        TensorSpec(name="age", datatype="FP32", shape=(-1,), missing=True),
        TensorSpec(name="visits", datatype="INT64", shape=(-1, 1)),
        TensorSpec(name="city", datatype="BYTES", shape=(-1,)),
        TensorSpec(name="image", datatype="UINT8", shape=(-1, 2, 2)),
    )
}
RECORD = {"age": 41.5, "visits": 3, "city": "Bern", "image": [[0, 1], [2, 255]]}


def parsed(body: Any) -> Any:
    return parse_records(json.dumps(body).encode(), SPECS, DEFAULT_LIMITS)


def test_one_record_and_a_list_of_them() -> None:
    request, alone = parsed(RECORD)
    assert (alone, request.rows) == (True, 1)
    assert request.inputs["visits"].tolist() == [[3]]
    assert request.inputs["image"].shape == (1, 2, 2)
    assert {name: array.dtype for name, array in request.inputs.items()} == {
        "age": np.float32,
        "visits": np.int64,
        "city": object,
        "image": np.uint8,
    }
    request, alone = parsed([RECORD, RECORD | {"city": "Genève"}])
    assert (alone, request.rows) == (False, 2)
    assert request.inputs["city"].tolist() == ["Bern", "Genève"]


@pytest.mark.parametrize("age", [41, 41.0, "41", "4.1e1"])
@pytest.mark.parametrize("visits", [3, 3.0, "3", "3.0", [3]])
def test_numbers_are_taken_however_they_are_written(age: Any, visits: Any) -> None:
    request, _ = parsed(RECORD | {"age": age, "visits": visits})
    assert (request.inputs["age"].tolist(), request.inputs["visits"].tolist()) == ([41.0], [[3]])


def test_null_is_a_missing_value_where_there_may_be_one() -> None:
    assert np.isnan(parsed(RECORD | {"age": None})[0].inputs["age"]).all()
    with pytest.raises(InvalidInput, match="field 'visits': is None"):
        parsed(RECORD | {"visits": None})


def test_a_field_that_may_be_null_may_be_left_out() -> None:
    without = {name: value for name, value in RECORD.items() if name != "age"}
    assert np.isnan(parsed(without)[0].inputs["age"]).all()
    np.testing.assert_array_equal(parsed([without, RECORD])[0].inputs["age"], np.array([np.nan, 41.5], np.float32))


def test_true_and_false_are_taken_in_their_forms() -> None:
    specs = {"on": TensorSpec(name="on", datatype="BOOL", shape=(-1,))}
    body = [{"on": value} for value in (True, 1, "true", "1", False, 0, "False", "0")]
    request, _ = parse_records(json.dumps(body).encode(), specs, DEFAULT_LIMITS)
    assert request.inputs["on"].tolist() == [True] * 4 + [False] * 4


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (3, "neither a record nor a list"),
        ([], "the list of records is empty"),
        ([1], "neither a record nor a list"),
        ({}, "field 'visits': is missing"),
        ({"ages": 4} | {k: v for k, v in RECORD.items() if k != "age"}, "field 'ages': there is no such input"),
        ([RECORD, {"age": 1}], "record 1, field 'visits': is missing"),
        (RECORD | {"colour": 1}, "field 'colour': there is no such input; the inputs are 'age', 'visits'"),
        (RECORD | {"visits": 3.5}, "field 'visits': is 3.5, needs a list of 1, each a whole number"),
        (RECORD | {"visits": "three"}, "is 'three'"),
        (RECORD | {"city": 7}, "field 'city': is 7, needs a text"),
        (RECORD | {"age": "1_0"}, "is '1_0'"),
        (RECORD | {"age": {}}, "is an object"),
        (RECORD | {"image": [0, 1]}, "needs a list of 2 by 2"),
        (RECORD | {"image": [[0, 1], [2]]}, "lists of different lengths"),
        (RECORD | {"image": [[0, 1], [2, 256]]}, "out of the range of UINT8"),
        (RECORD | {"age": "inf"}, "not finite"),
        (RECORD | {"image": [[0, 1, 2], [2, 3, 4]]}, "shape is"),
        (RECORD | {"visits": 10**30}, "out of the range"),
    ],
)
def test_what_does_not_fit_is_named(body: Any, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        parsed(body)


@pytest.mark.parametrize("datatype", ["BYTES", "FP32"])
def test_one_long_text_does_not_make_room_for_all(datatype: str) -> None:
    specs = {"a": TensorSpec(name="a", datatype=datatype, shape=(-1,))}
    body = json.dumps([{"a": "1" * 30_000}] + [{"a": "1"}] * 3000).encode()
    tracemalloc.start()
    try:
        parse_records(body, specs, DEFAULT_LIMITS)
    except InvalidInput as error:
        assert "not finite" in str(error)  # noqa: PT017  as a number it is too large
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 << 20


def test_records_beyond_the_bound_are_refused_before_they_are_read() -> None:
    with pytest.raises(InvalidInput, match="there are 3 records, at most 2 are taken"):
        parse_records(json.dumps([{}] * 3).encode(), SPECS, replace(DEFAULT_LIMITS, most_rows=2))


def test_whole_numbers_keep_all_their_digits() -> None:
    request, _ = parsed(RECORD | {"visits": "9007199254740993.0"})
    assert request.inputs["visits"].tolist() == [[9007199254740993]]
    with pytest.raises(InvalidInput, match="is '1e999999999'"):
        parsed(RECORD | {"visits": "1e999999999"})


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 100_000])
def test_what_is_no_json_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidInput, match="no JSON"):
        parse_records(body, SPECS, DEFAULT_LIMITS)


def test_the_example_is_taken() -> None:
    specs = {name: spec for name, spec in SPECS.items() if name != "image"}
    parse_records(json.dumps(example_record(specs)).encode(), specs, DEFAULT_LIMITS)


def test_answers_are_records_again() -> None:
    request, _ = parsed([RECORD, RECORD])
    outputs = {"label": np.array(["a", "b"], dtype=object), "scores": np.array([[0.25, 0.75], [1.0, 0.0]])}
    outputs["box"] = np.array([b"%d" % i for i in range(8)], dtype=object).reshape(2, 2, 2)
    outputs["none"] = np.zeros((2, 0))
    answer = Answer(outcome="answered", outputs=outputs)
    records = json.loads(encode_records(request, answer, alone=False))
    assert records == [
        {"label": "a", "scores": [0.25, 0.75], "box": [["0", "1"], ["2", "3"]], "none": []},
        {"label": "b", "scores": [1.0, 0.0], "box": [["4", "5"], ["6", "7"]], "none": []},
    ]
    assert json.loads(encode_records(request, answer, alone=True)) == records[0]
    with pytest.raises(NotAcceptable):
        encode_records(request, Answer(outcome="answered", outputs={"x": np.array([np.nan, 0.0])}), alone=False)


def test_null_is_a_missing_text_where_there_may_be_one() -> None:
    name = TensorSpec(name="name", datatype="BYTES", shape=(-1,), missing=True)
    request, _ = parse_records(b'[{"name": null}, {"name": "Ada"}]', {"name": name}, DEFAULT_LIMITS)
    assert request.inputs["name"].tolist() == [None, "Ada"]
