import json
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gearshift.errors import InvalidInput
from gearshift.model import DATATYPES, TensorSpec
from gearshift.request import Answer, RowFacts
from gearshift.v2.binary import read_tensor, write_tensor
from gearshift.v2.json import encode_answer, parse_request

X = TensorSpec(name="x", datatype="FP32", shape=(-1, 2))
N = TensorSpec(name="n", datatype="INT8", shape=(-1,))
SPECS = {"x": X, "n": N}
ROWS = np.array([[1, 2], [3, 4.5]], dtype="<f4")
JSON_N = {"name": "n", "shape": [2], "datatype": "INT8", "data": [1, -128]}


def binary(name: str, array: np.ndarray, datatype: str, **fields) -> dict:
    tensor = {"name": name, "shape": list(array.shape), "datatype": datatype}
    return tensor | {"parameters": {"binary_data_size": array.nbytes}} | fields


def parse(header: object, *tensors: bytes, specs=SPECS, header_bytes: int | None = None, outputs=("label",)):
    text = json.dumps(header).encode()
    return parse_request(
        b"".join([text, *tensors]), specs, outputs, len(text) if header_bytes is None else header_bytes
    )


def test_binary_and_json_tensors_stand_in_one_request():
    request = parse({"inputs": [JSON_N, binary("x", ROWS, "FP32")], "id": "7"}, ROWS.tobytes())
    assert request.inputs["x"].tolist() == ROWS.tolist()
    assert request.inputs["n"].tolist() == [1, -128]
    assert (request.id, request.rows, list(request.inputs)) == ("7", 2, ["x", "n"])


def test_binary_tensors_follow_in_the_order_of_the_inputs():
    numbers = np.array([5, 6], dtype=np.int8)
    header = {"inputs": [binary("n", numbers, "INT8"), binary("x", ROWS, "FP32")]}
    request = parse(header, numbers.tobytes(), ROWS.tobytes())
    assert request.inputs["n"].tolist() == [5, 6]
    assert request.inputs["x"].tolist() == ROWS.tolist()


def test_binary_numbers_are_not_copied():
    text = json.dumps({"inputs": [binary("x", ROWS, "FP32")]}).encode()
    body = text + ROWS.tobytes()
    array = parse_request(body, {"x": X}, (), len(text)).inputs["x"]
    assert np.shares_memory(array, np.frombuffer(body, np.uint8))


VALUES = {"BOOL": [True, False], "BYTES": ["gr\u00fcn", ""], "FP16": [0.5, -2.0]}


@pytest.mark.parametrize("datatype", sorted(DATATYPES))
def test_each_datatype_crosses_both_ways(datatype):
    array = np.array(VALUES.get(datatype, [1, 2]), dtype=DATATYPES[datatype])
    data = bytes(write_tensor(array))
    read = read_tensor(memoryview(data), [2], datatype, "x")
    assert read.dtype == array.dtype
    assert read.tolist() == array.tolist()


@settings(deadline=None, derandomize=True)
@given(hnp.arrays(np.float64, hnp.array_shapes(max_dims=3, max_side=4)))
def test_numbers_cross_bit_by_bit(array):
    read = read_tensor(memoryview(bytes(write_tensor(array))), array.shape, "FP64", "x")
    assert read.tobytes() == array.tobytes()


def test_arrays_that_are_not_contiguous_are_written_row_by_row():
    array = np.arange(6, dtype=np.int32).reshape(2, 3).T
    assert bytes(write_tensor(array)) == np.array([0, 3, 1, 4, 2, 5], dtype="<i4").tobytes()


def test_text_is_text_and_what_is_no_text_stays_bytes():
    elements = [b"a", b"\xff\xd8"]
    data = b"".join(struct.pack("<I", len(element)) + element for element in elements)
    assert read_tensor(memoryview(data), [2], "BYTES", "x").tolist() == elements
    assert read_tensor(memoryview(data[:5]), [1], "BYTES", "x").tolist() == ["a"]


def test_elements_that_are_neither_text_nor_bytes_are_written_as_text():
    assert bytes(write_tensor(np.array([3, None, b"\xff"], dtype=object))) == (
        b"\x01\0\0\x003\x04\0\0\0None\x01\0\0\0\xff"
    )


@pytest.mark.parametrize("element", [b"\xff", b"a\x80b", "a\udc80b", "\ud800", "\udc80\ud800"])
def test_what_is_no_unicode_is_sent_without_a_replacement(element):
    sent = bytes(write_tensor(np.array([element], dtype=object)))[4:]
    assert b"?" not in sent
    escaped = element if isinstance(element, bytes) else None
    assert sent == (escaped or element.encode("utf-8", "surrogatepass" if "\ud800" in element else "surrogateescape"))


@settings(deadline=None, derandomize=True)
@given(st.binary(max_size=64), st.sampled_from(sorted(DATATYPES)), st.integers(1, 1 << 20))
def test_any_bytes_are_read_or_refused_by_name(data, datatype, rows):
    said = ""
    try:
        shape = read_tensor(memoryview(data), [rows], datatype, "input 'x'").shape
    except InvalidInput as error:
        said, shape = str(error), (rows,)
    assert shape == (rows,)
    assert not said or "input 'x'" in said


@pytest.mark.parametrize(
    ("header", "tensors", "reason"),
    [
        ({"inputs": [binary("x", ROWS, "FP32")]}, ROWS.tobytes()[:-1], "16, but 15 bytes are left"),
        ({"inputs": [binary("x", ROWS, "FP32")]}, ROWS.tobytes() + b"0", "1 bytes after the header belong to no input"),
        (
            {"inputs": [binary("x", ROWS, "FP32", parameters={"binary_data_size": -1})]},
            ROWS.tobytes(),
            "input 'x': binary_data_size is -1",
        ),
        (
            {"inputs": [binary("x", ROWS, "FP32", parameters={"binary_data_size": 8})]},
            ROWS.tobytes()[:8],
            r"input 'x': has 8 bytes, FP32 of shape \[2, 2\] has 16",
        ),
        ({"inputs": [binary("x", ROWS, "FP32", data=[1])]}, ROWS.tobytes(), "both data and binary_data_size"),
        (
            {"inputs": [binary("x", ROWS, "FP32", parameters={"binary_data_size": "16"})]},
            ROWS.tobytes(),
            "binary_data_size",
        ),
        ({"inputs": [{"name": "x", "shape": [2, 2], "datatype": "FP32"}]}, b"", "input 'x': has no data"),
        (
            {"inputs": [binary("x", ROWS, "FP32", parameters={"shared_memory_region": "a"})]},
            b"",
            "input 'x': shared memory is not taken",
        ),
        ({"inputs": [binary("x", ROWS * np.inf, "FP32")]}, (ROWS * np.inf).tobytes(), "not finite"),
    ],
)
def test_binary_data_that_does_not_fit_is_refused_with_the_reason(header, tensors, reason):
    with pytest.raises(InvalidInput, match=reason):
        parse(header, tensors, specs={"x": X})


def test_a_header_longer_than_the_body_is_refused():
    with pytest.raises(InvalidInput, match="Inference-Header-Content-Length is 1000"):
        parse({"inputs": []}, header_bytes=1000)


def test_binary_data_without_the_header_is_refused():
    body = json.dumps({"inputs": [binary("x", ROWS, "FP32")]}).encode()
    with pytest.raises(InvalidInput, match="Inference-Header-Content-Length is missing"):
        parse_request(body, {"x": X}, ())


@pytest.mark.parametrize(("data", "shape"), [(b"\2", [1]), (b"\0\1\xff", [3])])
def test_a_bool_is_0_or_1(data, shape):
    with pytest.raises(InvalidInput, match="neither 0 nor 1"):
        read_tensor(memoryview(data), shape, "BOOL", "x")


ANSWER = Answer(
    outcome="answered",
    rows=(RowFacts(model="small", stage=0, certainty=0.9), RowFacts(model="large", stage=1, certainty=0.5)),
    outputs={"label": np.array(["a", "bc"], dtype=object), "scores": np.array([[1, 2], [3, 4]], dtype=np.float32)},
)


def answered(parameters: dict, outputs: list[dict] | None = None) -> tuple[dict[str, dict], bytes]:
    """The tensors of the answer by name, and what follows its header."""
    request = {"inputs": [JSON_N], "parameters": parameters}
    if outputs is not None:
        request["outputs"] = outputs
    parsed = parse_request(json.dumps(request).encode(), {"n": N}, ())
    body, header_bytes = encode_answer("op", parsed, ANSWER)
    tensors = json.loads(body[:header_bytes])["outputs"]
    return {tensor["name"]: tensor for tensor in tensors}, b"" if header_bytes is None else body[header_bytes:]


def test_all_outputs_are_binary_on_request():
    tensors, data = answered({"binary_data_output": True})
    assert "data" not in tensors["label"]
    assert [tensor["parameters"]["binary_data_size"] for tensor in tensors.values()] == [11, 16]
    assert data[:11] == b"\1\0\0\0a\2\0\0\0bc"
    assert data[11:] == ANSWER.outputs["scores"].tobytes()


def test_each_output_may_say_otherwise():
    outputs = [{"name": "label", "parameters": {"binary_data": False}}, {"name": "scores"}]
    tensors, data = answered({"binary_data_output": True}, outputs)
    assert tensors["label"]["data"] == ["a", "bc"]
    assert data == ANSWER.outputs["scores"].tobytes()
    tensors, data = answered({}, [{"name": "label"}, {"name": "scores", "parameters": {"binary_data": True}}])
    assert tensors["label"]["data"] == ["a", "bc"]
    assert data == ANSWER.outputs["scores"].tobytes()


def test_row_facts_may_be_binary():
    names = ["gearshift_stage", "gearshift_certainty"]
    _, data = answered({}, [{"name": name, "parameters": {"binary_data": True}} for name in names])
    assert data == np.array([0, 1], dtype="<i8").tobytes() + np.array([0.9, 0.5], dtype="<f8").tobytes()


@pytest.mark.parametrize("parameters", [{"classification": 3}, {"shared_memory_region": "a"}])
def test_outputs_in_other_forms_are_refused(parameters):
    with pytest.raises(InvalidInput, match="output 'label'"):
        answered({}, [{"name": "label", "parameters": parameters}])
