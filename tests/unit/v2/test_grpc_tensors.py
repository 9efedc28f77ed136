import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from tritonclient.grpc import model_config_pb2, service_pb2

import gearshift
from gearshift.errors import InvalidInput
from gearshift.model import DATATYPES, STRING_BYTES, TensorSpec
from gearshift.request import LEAST_URGENT, Answer, BulkWork, RowFacts
from gearshift.v2 import grpc_messages_pb2 as pb
from gearshift.v2.binary import write_tensor
from gearshift.v2.grpc_tensors import CONTENTS, encode_answer, memory_bytes, parse_request
from gearshift.v2.tensors import Limits
from tests.often import often

NUMBERS = sorted(DATATYPES.keys() - {"BYTES"})
PACKAGE = Path(gearshift.__file__).parent


def request(
    datatype: str, shape: tuple[int, ...], *, raw: bytes | None = None, **contents: Any
) -> pb.ModelInferRequest:
    tensor = pb.ModelInferRequest.InferInputTensor(name="x", datatype=datatype, shape=shape)
    if contents:
        tensor.contents.CopyFrom(pb.InferTensorContents(**contents))
    return pb.ModelInferRequest(inputs=[tensor], raw_input_contents=[] if raw is None else [raw])


def parsed(message: pb.ModelInferRequest, datatype: str, columns: int = -1) -> Any:
    specs = {"x": TensorSpec(name="x", datatype=datatype, shape=(-1, columns))}
    limits = Limits(most_tensors=3, most_elements=1 << 20)
    return parse_request(message, message.raw_input_contents, specs, ("y",), limits)


def a_batch(datatype: str) -> st.SearchStrategy[Any]:
    dtype = np.dtype(DATATYPES[datatype])
    finite = {"allow_nan": False, "allow_infinity": False} if dtype.kind == "f" else {}
    shapes = arrays.array_shapes(min_dims=2, max_dims=2, max_side=4)
    return arrays.arrays(dtype, shapes, elements=arrays.from_dtype(dtype, **finite))


@pytest.mark.parametrize("datatype", NUMBERS)
@settings(deadline=None, derandomize=True, max_examples=often(30))
@given(data=st.data())
def test_numbers_are_the_same_raw_or_typed(datatype, data):
    array = data.draw(a_batch(datatype))
    taken = [parsed(request(datatype, array.shape, raw=bytes(write_tensor(array))), datatype)]
    if datatype in CONTENTS:
        typed = {CONTENTS[datatype]: array.ravel().tolist()}
        taken.append(parsed(request(datatype, array.shape, **typed), datatype))
    for got in taken:
        assert got.inputs["x"].dtype == array.dtype
        assert got.rows == len(array)
        np.testing.assert_array_equal(got.inputs["x"], array)


@settings(deadline=None, derandomize=True)
@given(st.lists(st.binary(max_size=8), min_size=1, max_size=6))
def test_bytes_are_the_same_raw_or_typed_and_text_where_all_are(elements):
    array = np.array([*elements, None], dtype=object)[:-1].reshape(-1, 1)
    typed = parsed(request("BYTES", array.shape, bytes_contents=elements), "BYTES").inputs["x"]
    raw = parsed(request("BYTES", array.shape, raw=bytes(write_tensor(array))), "BYTES").inputs["x"]
    assert typed.tolist() == raw.tolist()
    try:
        assert typed.ravel().tolist() == [element.decode() for element in elements]
    except UnicodeDecodeError:
        assert typed.ravel().tolist() == elements


@pytest.mark.parametrize(
    ("message", "datatype", "reason"),
    [
        (request("FP32", (1, 2), fp32_contents=[1]), "FP32", "fp32_contents has 1 elements, shape says 2"),
        (request("FP32", (1, 2)), "FP32", "fp32_contents has 0 elements"),
        (request("FP32", (1, 2), raw=b"123"), "FP32", "has 3 bytes"),
        (request("FP32", (1, 1), raw=b"\0\0\xc0\x7f"), "FP32", "not finite"),
        (request("FP32", (1, 1), raw=b"\0\0\0\0", fp32_contents=[1]), "FP32", "has contents beside raw ones"),
        (request("FP16", (1, 1)), "FP16", "FP16 has no typed contents"),
        (request("INT8", (1, 1), int_contents=[200]), "INT8", "out of the range of INT8"),
        (request("UINT16", (1, 1), uint_contents=[70_000]), "UINT16", "out of the range of UINT16"),
        (request("BOOL", (1, 1), raw=b"\2"), "BOOL", "neither 0 nor 1"),
        (request("BYTES", (1, 1), raw=b"\5\0\0\0a"), "BYTES", "ends within an element"),
        (request("FP64", (1, 1), fp64_contents=[1]), "FP32", "datatype is 'FP64'"),
        (request("FP32", (0, 1)), "FP32", "shape is [0, 1]"),
        (request("FP32", (-1, 1)), "FP32", "shape is [-1, 1]"),
        (request("FP32", (1 << 40, 1)), "FP32", "elements by its shape, at most"),
        (request("FP32", (1, 2), raw=b""), "FP32", "has 0 bytes"),
        (request("FP32", (1, 1 << 60), raw=b""), "FP32", "elements by its shape"),
        (pb.ModelInferRequest(inputs=[{}] * 4), "FP32", "there are 4 inputs"),
        (pb.ModelInferRequest(), "FP32", "['x'] are missing"),
        (pb.ModelInferRequest(raw_input_contents=[b"1"]), "FP32", "1 raw contents for 0 inputs"),
    ],
)
def test_what_does_not_fit_is_refused_with_field_and_reason(message, datatype, reason):
    with pytest.raises(InvalidInput, match=re.escape(reason)):
        parsed(message, datatype)


VALUES = st.sampled_from([{}, {"int64_param": -1}, {"uint64_param": 1 << 63}, {"string_param": "1"}])
PARAMETERS = st.dictionaries(st.sampled_from(["priority", "timeout", "shared_memory_region"]), VALUES, max_size=2)
CONTENT = st.fixed_dictionaries(
    {},
    optional={
        "bool_contents": st.lists(st.booleans(), max_size=3),
        "int_contents": st.lists(st.integers(-(1 << 31), (1 << 31) - 1), max_size=3),
        "uint64_contents": st.lists(st.integers(0, (1 << 64) - 1), max_size=3),
        "fp32_contents": st.lists(st.floats(width=32), max_size=3),
        "bytes_contents": st.lists(st.binary(max_size=3), max_size=3),
    },
)
TENSOR = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["x", "b", "other"]),
        "datatype": st.sampled_from([*DATATYPES, "", "FP8"]),
        "shape": st.lists(st.integers(-1, 3) | st.integers(-(1 << 63), (1 << 63) - 1), max_size=3),
    },
    optional={"contents": CONTENT, "parameters": PARAMETERS},
)
MESSAGE = st.fixed_dictionaries(
    {"inputs": st.lists(TENSOR, max_size=3)},
    optional={
        "raw_input_contents": st.lists(st.binary(max_size=12), max_size=3),
        "parameters": PARAMETERS,
        "outputs": st.lists(
            st.fixed_dictionaries({"name": st.sampled_from(["y", "", "gearshift_stage"]), "parameters": PARAMETERS}),
            max_size=2,
        ),
    },
)


def take(message: pb.ModelInferRequest) -> None:
    """Take the request whole or refuse it with a sentence; any other end is a fault."""
    for datatype in DATATYPES:
        try:
            request = parsed(message, datatype)
        except InvalidInput:
            continue
        assert {len(array) for array in request.inputs.values()} == {request.rows}
        assert 0 <= request.priority <= LEAST_URGENT


@settings(deadline=None, derandomize=True, max_examples=often(400), suppress_health_check=list(HealthCheck))
@given(MESSAGE)
def test_structured_nonsense_is_taken_or_refused_with_a_sentence(content):
    take(pb.ModelInferRequest(**content))


@settings(deadline=None, derandomize=True, max_examples=often(400), suppress_health_check=list(HealthCheck))
@given(MESSAGE, st.data())
def test_messages_with_a_changed_byte_are_taken_or_refused_with_a_sentence(content, data):
    sent = bytearray(pb.ModelInferRequest(**content).SerializeToString())
    if sent:
        sent[data.draw(st.integers(0, len(sent) - 1))] = data.draw(st.integers(0, 255))
    try:
        message = pb.ModelInferRequest.FromString(bytes(sent))
    except DecodeError:
        return
    take(message)


def with_parameter(**value: Any) -> pb.ModelInferRequest:
    message = request("FP32", (1, 1), fp32_contents=[1])
    message.parameters["priority"].CopyFrom(pb.InferParameter(**value))
    message.parameters["unknown"].string_param = "ignored"
    return message


def test_an_integer_parameter_is_taken_signed_or_not_and_nothing_else():
    assert parsed(with_parameter(int64_param=3), "FP32").priority == 3
    assert parsed(with_parameter(uint64_param=4), "FP32").priority == 4
    for value in ({"string_param": "3"}, {"bool_param": True}, {"double_param": 3.0}):
        with pytest.raises(InvalidInput, match="priority is no integer"):
            parsed(with_parameter(**value), "FP32")


def test_bulk_work_names_a_gear_or_an_accuracy():
    message = request("FP32", (1, 1), fp32_contents=[1])
    message.parameters["bulk"].bool_param = True
    assert parsed(message, "FP32").bulk == BulkWork()
    message.parameters["accuracy"].double_param = 0.75
    assert parsed(message, "FP32").bulk == BulkWork(accuracy=0.75)
    message.parameters["accuracy"].string_param = "0.75"
    with pytest.raises(InvalidInput, match="accuracy is no number"):
        parsed(message, "FP32")
    message.parameters["accuracy"].SetInParent()
    message.parameters["gear"].int64_param = 3
    with pytest.raises(InvalidInput, match="accuracy is no number"):
        parsed(message, "FP32")
    del message.parameters["accuracy"]
    assert parsed(message, "FP32").bulk == BulkWork(gear=3)


def test_a_parameter_without_a_value_counts_as_left_out():
    message = with_parameter()
    for name in ("shared_memory_region", "classification"):
        message.inputs[0].parameters[name].SetInParent()
    assert parsed(message, "FP32").priority == 0
    message.inputs[0].parameters["classification"].int64_param = 2
    with pytest.raises(InvalidInput, match="classification is not done here"):
        parsed(message, "FP32")


def test_shared_memory_is_refused():
    message = request("FP32", (1, 1))
    message.inputs[0].parameters["shared_memory_region"].string_param = "here"
    with pytest.raises(InvalidInput, match="input 'x': shared memory is not taken"):
        parsed(message, "FP32")


def test_an_answer_carries_its_arrays_raw_and_says_how_it_was_made():
    message = request("FP32", (2, 1), fp32_contents=[1, 2])
    message.id = "seven"
    for name in ("y", "gearshift_stage"):
        message.outputs.add(name=name)
    rows = tuple(RowFacts(model="m", stage=stage, certainty=1.0) for stage in (0, 1))
    outputs = {"y": np.array([["a", b"\xff"]], dtype=object).T, "z": np.zeros(2)}
    answer = Answer(outcome="degraded", reason="why", rows=rows, outputs=outputs, gear=2, queue_s=0.5, run_s=0.25)
    response = pb.ModelInferResponse.FromString(encode_answer("task", parsed(message, "FP32"), answer))
    assert (response.model_name, response.model_version, response.id) == ("task", "1", "seven")
    assert [(t.name, t.datatype, list(t.shape)) for t in response.outputs] == [
        ("y", "BYTES", [2, 1]),
        ("gearshift_stage", "INT64", [2]),
    ]
    assert response.raw_output_contents[0] == b"\1\0\0\0a\1\0\0\0\xff"
    assert np.frombuffer(response.raw_output_contents[1], np.int64).tolist() == [0, 1]
    said = {name: getattr(value, value.WhichOneof("parameter_choice")) for name, value in response.parameters.items()}
    assert said == {"gear": 2, "queue_s": 0.5, "run_s": 0.25, "outcome": "degraded", "reason": "why"}


# The messages themselves ---------------------------------------------------------------------------------------------


def fields_of(message: Any, prefix: str = "") -> dict[str, tuple[Any, ...]]:
    """Every field of a message and of those within it: number, type, repeated or not."""
    path = prefix + message.name
    fields = {f"{path}.{f.name}": (f.number, f.type, f.is_repeated) for f in message.fields}
    for inner in message.nested_types:
        fields |= fields_of(inner, f"{path}.")
    return fields


def fields_in(module: Any) -> dict[str, tuple[Any, ...]]:
    messages = module.DESCRIPTOR.message_types_by_name.values()
    return {name: field for message in messages for name, field in fields_of(message).items()}


def test_every_field_has_the_number_and_the_type_that_the_real_client_gives_it():
    theirs = fields_in(service_pb2) | fields_in(model_config_pb2)
    ours = fields_in(pb)
    assert len(ours) > 100
    assert ours == {name: theirs.get(name) for name in ours}
    assert set(pb.DataType.items()) <= set(model_config_pb2.DataType.items())


def test_no_field_of_the_protocols_own_messages_is_left_out():
    names = ("ModelInferRequest.", "ModelInferResponse.", "InferParameter.", "InferTensorContents.", "ModelMetadata")
    theirs = {name for name in fields_in(service_pb2) if name.startswith(names)}
    assert theirs <= set(fields_in(pb))


def descriptors_in(folder: Path) -> dict[str, str]:
    """The messages as the generated code in `folder` describes them, apart from the generator's version."""
    code = {path.name: path.read_text() for path in (folder / "gearshift").rglob("*_pb2.py")}
    return {
        name: next(line for line in text.splitlines() if line.startswith("DESCRIPTOR = "))
        for name, text in code.items()
    }


def test_generated_messages_are_up_to_date(tmp_path):
    sources = [str(path) for path in PACKAGE.rglob("*.proto")]
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I", str(PACKAGE.parent), f"--python_out={tmp_path}"]
    subprocess.run([*command, *sources], check=True)
    assert descriptors_in(PACKAGE.parent) == descriptors_in(tmp_path), "run `make messages`"


def test_a_column_of_one_value_per_row_is_taken_and_answered_so():
    specs = {"x": TensorSpec(name="x", datatype="BYTES", shape=(-1,))}
    message = request("BYTES", (2, 1), bytes_contents=[b"Bonn", b"Ulm"])
    got = parse_request(message, message.raw_input_contents, specs, ("y",), Limits())
    assert (got.inputs["x"].tolist(), got.rows) == (["Bonn", "Ulm"], 2)
    assert memory_bytes(message, [], specs, 0) == 2 * STRING_BYTES
    answer = Answer(outcome="answered", outputs={"y": np.array([1.0, 2.0])})
    told = pb.ModelInferResponse.FromString(encode_answer("task", got.without_inputs(), answer))
    assert list(told.outputs[0].shape) == [2, 1]
