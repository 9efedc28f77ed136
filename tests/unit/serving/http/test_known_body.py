"""A body that differs from the last one in its data alone is read as all of it would be read, or not at all."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gearshift.errors import InvalidInput
from gearshift.model import TensorSpec
from gearshift.serving.http.known_body import LARGEST_BYTES, KnownBody
from gearshift.v2.bodies import InferRequest
from gearshift.v2.json import parse_request
from gearshift.v2.tensors import Limits

X = TensorSpec(name="x", datatype="FP32", shape=(-1, 2))
SPECS = {"x": X}
LIMITS = Limits(most_rows=8)
BODY = b'{"id": "one", "inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [0.5, 0.25]}]}'


def read(body: bytes, specs: dict[str, TensorSpec] = SPECS, limits: Limits = LIMITS) -> InferRequest:
    return parse_request(body, specs, (), None, limits)


def known(body: bytes = BODY) -> KnownBody:
    found = KnownBody.of(body, read(body), SPECS, LIMITS)
    assert found is not None
    return found


def facts(request: InferRequest) -> dict[str, Any]:
    arrays = {name: (array.dtype, array.shape, array.tolist()) for name, array in request.inputs.items()}
    return {name: getattr(request, name) for name in request.__struct_fields__} | {"inputs": arrays}


@pytest.mark.parametrize("data", [b"[1, 2]", b"[ 1e3,-0.5 ]", b"[[1, 2]]", b" [1, 2] "])
def test_other_data_is_read_alone(data):
    body = BODY.replace(b"[0.5, 0.25]", data)
    request = known().read(body, LIMITS)
    assert request is not None
    assert facts(request) == facts(read(body))
    assert request.id == "one"


@pytest.mark.parametrize(
    "body",
    [
        BODY.replace(b"one", b"two"),
        BODY.replace(b"[1, 2]", b"[2, 2]"),
        BODY.replace(b"0.25]", b"0.25, 1]"),
        BODY.replace(b"0.25]", b"0.25"),
        BODY.replace(b"0.25]", b"1e999]"),
        BODY.replace(b"0.25]", b'0.25], "data": [1, 2]'),
        BODY.replace(b"[0.5, 0.25]", b'"a"'),
        BODY.replace(b"[0.5, 0.25]", b""),
        BODY + b" ",
        BODY[:-40],
        b"",
    ],
)
def test_whatever_else_differs_is_left_to_those_who_read_all(body):
    assert known().read(body, LIMITS) is None


def test_other_limits_are_looked_at_anew():
    assert known().read(BODY, Limits(most_rows=8)) is None


@pytest.mark.parametrize(
    "body",
    [
        BODY.replace(b"[0.5, 0.25]", b"[1, 2]"),  # as the shape is written too
        BODY.replace(b"one", b"x" * LARGEST_BYTES),
    ],
)
def test_what_is_not_to_be_told_apart_or_is_long_is_not_kept(body):
    assert KnownBody.of(body, read(body), SPECS, LIMITS) is None


def test_a_request_of_several_tensors_is_not_kept():
    specs = SPECS | {"y": TensorSpec(name="y", datatype="INT32", shape=(-1,))}
    body = BODY.replace(b"}]}", b'}, {"name": "y", "shape": [1], "datatype": "INT32", "data": [7]}]}')
    assert KnownBody.of(body, read(body, specs), specs, LIMITS) is None


VALUES = st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=6)


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    rows = draw(st.integers(1, 3))
    data: Any = draw(VALUES) if draw(st.booleans()) else np.arange(2 * rows).reshape(rows, 2).tolist()
    tensor = {"name": "x", "shape": [rows, 2], "datatype": "FP32", "data": data}
    extra = draw(st.sampled_from([{}, {"id": "[1, 2]"}, {"parameters": {"priority": 3}}, {"outputs": [{"name": "y"}]}]))
    body = json.dumps({"inputs": [tensor]} | extra, indent=draw(st.sampled_from([None, 1])))
    for old, new in draw(
        st.lists(st.tuples(st.sampled_from('[],"0}'), st.sampled_from(["", "]", "[", " ", ",", "1"])), max_size=1)
    ):
        body = body.replace(old, new, 1)
    return body.encode()


@given(first=bodies(), second=bodies())
def test_what_is_read_is_what_is_read_of_the_whole(first, second):
    try:
        kept = KnownBody.of(first, read(first), SPECS, LIMITS)
    except InvalidInput:
        return
    for body in (first, second):
        request = None if kept is None else kept.read(body, LIMITS)
        if request is not None:
            assert facts(request) == facts(read(body))
