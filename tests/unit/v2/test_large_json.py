"""Large bodies are read as small ones are, in steps: whatever is written, both ways give the same arrays or refuse."""

import asyncio
import json
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from gearshift.errors import InvalidInput, TooLargeInside
from gearshift.model import TensorSpec
from gearshift.request import Answer
from gearshift.v2 import json as v2_json
from gearshift.v2 import large_json
from gearshift.v2.bodies import InferRequest
from gearshift.v2.pieces import pieces
from gearshift.v2.tensors import Limits

LIMITS = Limits(most_rows=1 << 20, most_tensors=8, most_elements=1 << 20)
TEXT = st.text(max_size=8) | st.sampled_from(['"', '","', "],[", "\\", '\\","', "a,b", "[[", "{}", '",\n"'])
KINDS: dict[str, st.SearchStrategy[Any]] = {
    "FP32": st.floats(width=32, allow_nan=False, allow_infinity=False) | st.integers(-9, 9),
    "FP64": st.floats(allow_nan=False, allow_infinity=False),
    "INT64": st.integers(-(2**63), 2**63 - 1),
    "UINT8": st.integers(0, 300),
    "BOOL": st.booleans(),
    "BYTES": TEXT,
}


@pytest.fixture(autouse=True)
def small_steps(monkeypatch):
    monkeypatch.setattr(large_json, "STEP_BYTES", 16)
    monkeypatch.setattr(large_json, "STEP_ELEMENTS", 4)


def read(body: bytes, *specs: TensorSpec, limits: Limits = LIMITS, held: list[int] | None = None) -> InferRequest:
    hold = (lambda count: None) if held is None else held.append
    return asyncio.run(large_json.parse_request(body, {spec.name: spec for spec in specs}, (), None, limits, hold))


def tensor(data: str, shape: list[int], datatype: str = "FP32", name: str = "x") -> bytes:
    head = json.dumps({"name": name, "shape": shape, "datatype": datatype})[:-1]
    return f'{{"inputs": [{head}, "data": {data}}}]}}'.encode()


def spec_of(datatype: str, dimensions: int) -> TensorSpec:
    return TensorSpec(name="x", datatype=datatype, shape=(-1,) * dimensions)


@st.composite
def tensors(draw: st.DrawFn) -> tuple[bytes, TensorSpec]:
    """A tensor of any kind, flat or nested, whose data and shape mostly fit one another."""
    datatype = draw(st.sampled_from(sorted(KINDS)))
    shape = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    values = draw(st.lists(KINDS[datatype], min_size=int(np.prod(shape)), max_size=int(np.prod(shape))))
    data: Any = np.array(values, dtype=object)
    if draw(st.booleans()):
        data = data.reshape(shape)
    nested = data.tolist()
    if draw(st.integers(0, 3)) == 0:  # something is wrong
        wrong = draw(st.sampled_from([None, [], [[]], 1, "x", {"a": 1}, 1e300]))
        at = draw(st.integers(0, len(nested)))
        nested = [*nested[:at], wrong, *nested[at:]]
    if draw(st.integers(0, 4)) == 0:
        shape = draw(st.lists(st.integers(1, 4), min_size=len(shape), max_size=len(shape)))
    text = json.dumps(nested, indent=draw(st.sampled_from([None, 0, 2])), ensure_ascii=draw(st.booleans()))
    return tensor(text, shape, datatype), spec_of(datatype, len(shape))


@given(tensors())
def test_a_large_body_is_read_as_a_small_one(given):
    body, spec = given
    try:
        expected = v2_json.parse_request(body, {"x": spec}, (), None, LIMITS).inputs["x"]
    except InvalidInput:
        with pytest.raises(InvalidInput):
            read(body, spec)
        return
    array = read(body, spec).inputs["x"]
    assert array.dtype == expected.dtype
    np.testing.assert_array_equal(array, expected)


@given(
    st.lists(TEXT | st.integers() | st.lists(TEXT, min_size=1, max_size=3), min_size=1, max_size=20), st.integers(1, 40)
)
def test_text_is_cut_between_elements_alone(elements, step_bytes):
    text = json.dumps(elements).encode()
    cut = [piece for piece in pieces(memoryview(text)[1:-1], 2 * step_bytes) if piece is not None]
    assert b",".join(cut) == text[1:-1]
    flat = [element for piece in cut for element in json.loads(b"[%b]" % large_json.flattened(piece))]
    assert flat == [each for element in elements for each in (element if isinstance(element, list) else [element])]


@pytest.mark.parametrize(
    ("data", "error"),
    [
        ("1" * 20, "data is no list of FP32"),
        ('{"a": [1, 2, 3, 4, 5]}', "data is no list of FP32"),
        ("[" + "1," * 40 + "1]", "data has more than the 4 elements that shape says"),
        ("[1, 2, 3" + " " * 40 + "]", "data has 3 elements, shape says 4"),
        ("[[1, 2, 3], [4]" + " " * 40 + "]", "data is not nested as shape .* says; write it flat"),
        ("[[1, 2], [3, 4" + " " * 40 + ", 5]]", "data has more than the 4 elements"),
        ('[1, 2, 3, "4"' + " " * 40 + "]", "data does not fit FP32"),
    ],
)
def test_data_that_does_not_fit_is_refused_with_the_reason(data, error):
    with pytest.raises(InvalidInput, match=f"input 'x': {error}"):
        read(tensor(data, [2, 2]), spec_of("FP32", 2))


def test_no_room_is_made_for_more_elements_than_the_text_can_hold():
    held: list[int] = []
    with pytest.raises(InvalidInput, match="fewer than the 1048576 elements"):
        read(tensor("[" + "1, " * 20 + "1]", [1 << 20]), spec_of("FP32", 1), held=held)
    assert held == []


@pytest.mark.parametrize(("datatype", "element", "held_bytes"), [("FP64", "1", 320), ("BYTES", '""', 2681)])
def test_room_is_asked_for_before_it_is_taken(datatype, element, held_bytes):
    held: list[int] = []
    read(tensor("[" + ",".join([element] * 40) + "]", [40], datatype), spec_of(datatype, 1), held=held)
    assert held == [held_bytes]


def test_what_is_no_request_is_refused_as_if_it_were_small():
    for body in (
        b"",
        b"{",
        b"[]",
        b'{"inputs": 1}',
        b'{"inputs": [1]}',
        b'{"inputs": [null]}',
        b'{"inputs": []}',
        b'{"inputs": [{}]}',
    ):
        with pytest.raises(InvalidInput) as small:
            v2_json.parse_request(body, {"x": spec_of("FP32", 1)}, (), None, LIMITS)
        with pytest.raises(InvalidInput) as large:
            read(body, spec_of("FP32", 1))
        assert str(large.value)[:30] == str(small.value)[:30]


def test_inputs_without_end_are_not_made_into_objects():
    one = tensor("[1]", [1])[len(b'{"inputs": [') : -len(b"]}")]
    with pytest.raises(InvalidInput, match="the body is no inference request: Expected `array` of at most length 2"):
        read(b'{"inputs": [' + b",".join([one] * 1000) + b"]}", spec_of("FP32", 1))


@pytest.mark.parametrize("field", ['"id": "{}"', '"outputs": [{{"name": "{}"}}]', '"parameters": {{"a": "{}"}}'])
def test_whatever_is_no_data_must_be_small(field):
    body = b"{" + field.format("n" * (300 << 10)).encode() + b"," + tensor("[1]", [1])[1:]
    with pytest.raises(InvalidInput, match=r"all but the data of the inputs takes 3.* bytes, at most 262144 are taken"):
        read(body, spec_of("FP32", 1))


def test_no_more_json_is_read_than_the_limits_let_in():
    with pytest.raises(TooLargeInside, match="at most 20 are taken; send tensors as binary data"):
        read(tensor("[1]", [1]), spec_of("FP32", 1), limits=Limits(most_text_bytes=20))


@given(tensors())
def test_a_large_answer_is_written_as_a_small_one(given):
    body, spec = given
    try:
        array = v2_json.parse_request(body, {"x": spec}, (), None, LIMITS).inputs["x"]
    except InvalidInput:
        return
    request = InferRequest("", {"x": array}, len(array), 0, 0, None, binary_outputs={"z": True})
    answer = Answer(outcome="answered", reason="", rows=(), outputs={"x": array, "z": array, "y": array[:1]}, gear=0)
    parts, header_bytes = asyncio.run(large_json.encode_answer("task", request, answer))
    assert (b"".join(parts), header_bytes) == v2_json.encode_answer("task", request, answer)
