"""Whatever is sent, a request is either taken whole or refused with a sentence."""

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gearshift.errors import InvalidInput
from gearshift.model import DATATYPES, TensorSpec
from gearshift.request import LEAST_URGENT
from gearshift.v2.bodies import LONGEST_TIMEOUT_US, InferRequest
from gearshift.v2.json import parse_request
from tests.often import often

SPECS = {
    "x": TensorSpec(name="x", datatype="FP32", shape=(-1, 2)),
    "b": TensorSpec(name="b", datatype="BYTES", shape=(-1,)),
    "t": TensorSpec(name="t", datatype="BOOL", shape=(-1, -1)),
}
NUMBERS = st.integers() | st.floats() | st.sampled_from([-1, 0, 1, 2, 1 << 31, 1 << 63, 1 << 64])
ANYTHING = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
DATA = st.lists(st.sampled_from([0, 1, 0.5, True, "a"]), max_size=6)
SIZE = st.sampled_from([0, 1, 2, 4, 5, 8, 16]) | st.integers()
TENSOR = st.fixed_dictionaries(
    {
        "name": st.sampled_from([*SPECS, "other"]) | ANYTHING,
        "datatype": st.sampled_from(list(DATATYPES)) | ANYTHING,
        "shape": st.lists(st.integers(1, 3), min_size=1, max_size=2) | ANYTHING,
    },
    optional={
        "data": DATA | st.lists(DATA, max_size=3) | ANYTHING,
        "parameters": st.fixed_dictionaries({"binary_data_size": SIZE}) | ANYTHING,
    },
)
REQUEST = st.fixed_dictionaries(
    {"inputs": st.lists(TENSOR, max_size=4) | ANYTHING},
    optional={
        "id": st.text(max_size=3) | ANYTHING,
        "outputs": st.lists(st.fixed_dictionaries({"name": st.text(max_size=3), "parameters": ANYTHING})) | ANYTHING,
        "parameters": st.dictionaries(
            st.sampled_from(["priority", "timeout", "binary_data_output", "bulk", "gear", "accuracy"]), ANYTHING
        ),
    },
)
GOOD: dict[str, Any] = {
    "inputs": [
        {"name": "x", "datatype": "FP32", "shape": [1, 2], "parameters": {"binary_data_size": 8}},
        {"name": "b", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": 5}},
        {"name": "t", "datatype": "BOOL", "shape": [1, 3], "parameters": {"binary_data_size": 3}},
    ]
}


def taken(body: bytes, header_bytes: int | None) -> InferRequest | None:
    """The request, None where it was refused with a sentence; any other end is a fault."""
    try:
        request = parse_request(body, SPECS, ("label",), header_bytes)
    except InvalidInput:
        return None
    assert list(request.inputs) == list(SPECS)
    assert {len(array) for array in request.inputs.values()} == {request.rows}
    assert 0 <= request.priority <= LEAST_URGENT
    assert 0 <= request.timeout_us <= LONGEST_TIMEOUT_US
    return request


@settings(max_examples=often(400), deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(request=REQUEST, tail=st.binary(max_size=24), binary=st.booleans())
def test_structured_nonsense_is_refused_with_a_sentence(request, tail, binary):
    text = json.dumps(request).encode()
    taken(text + tail if binary else text, len(text) if binary else None)


@settings(max_examples=often(400), deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(tail=st.binary(max_size=20), off=st.integers(-3, 3))
def test_any_binary_tail_is_read_or_refused(tail, off):
    text = json.dumps(GOOD).encode()
    taken(text + tail, len(text) + off)


@settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(floats=st.binary(min_size=8, max_size=8), element=st.binary(min_size=1, max_size=1), flags=st.booleans())
def test_tails_of_the_right_length_reach_the_arrays(floats, element, flags):
    text = json.dumps(GOOD).encode()
    request = taken(text + floats + b"\1\0\0\0" + element + bytes([flags, 0, 1]), len(text))
    if request is not None:
        assert request.inputs["x"].tobytes() == floats
        assert request.inputs["t"].tolist() == [[flags, False, True]]
        answered = request.inputs["b"][0]
        assert (answered.encode() if isinstance(answered, str) else answered) == element


@settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(body=st.binary(max_size=40), header_bytes=st.none() | st.integers(0, 50))
def test_any_bytes_are_refused_with_a_sentence(body, header_bytes):
    assert taken(body, header_bytes) is None
