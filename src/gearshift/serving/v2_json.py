"""The Open Inference Protocol V2 in JSON: requests turned into arrays, answers turned into text."""

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from gearshift.errors import InvalidInput, require
from gearshift.model import DATATYPES, TensorSpec
from gearshift.request import Answer
from gearshift.runtime.transport import datatype_named
from gearshift.serving.v2 import (
    FLOATS,
    MODEL_VERSION,
    InferRequest,
    answer_parameters,
    answered_arrays,
    declared_input,
    require_finite,
    whole_request,
)


class _Input(msgspec.Struct):
    name: str
    shape: list[int]
    datatype: str
    data: msgspec.Raw


class _Output(msgspec.Struct):
    name: str


class _Parameters(msgspec.Struct):
    priority: int = 0
    timeout: int = 0


class _Body(msgspec.Struct):
    inputs: list[_Input]
    id: str = ""
    parameters: _Parameters = msgspec.field(default_factory=_Parameters)
    outputs: list[_Output] | None = None


_BODY = msgspec.json.Decoder(_Body)
_ENCODER = msgspec.json.Encoder()


# Requests ------------------------------------------------------------------------------------------------------------


def parse_request(body: bytes, inputs: Mapping[str, TensorSpec], outputs: Sequence[str]) -> InferRequest:
    """The request in `body`; raises `InvalidInput` that names the field and the reason.

    `outputs` are the names of the operator's outputs; without any, every name is let through.
    """
    try:
        request = _BODY.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"the body is no inference request: {error}") from None
    arrays: dict[str, NDArray[Any]] = {}
    for tensor in request.inputs:
        spec = declared_input(tensor.name, tensor.datatype, tensor.shape, inputs)
        require(spec.name not in arrays, "is given twice", where=f"input {spec.name!r}")
        array = _numbers(bytes(tensor.data), tensor.shape, spec.datatype, f"input {spec.name!r}")
        require_finite(array, spec)
        arrays[spec.name] = array
    return whole_request(
        arrays,
        inputs,
        id=request.id,
        priority=request.parameters.priority,
        timeout_us=request.parameters.timeout,
        outputs=None if request.outputs is None else [output.name for output in request.outputs],
        known_outputs=outputs,
    )


def _numbers(data: bytes, shape: list[int], datatype: str, where: str) -> NDArray[Any]:
    """The array in `data`, written flat or nested as its shape is."""
    nested = len(shape) > 1 and data.lstrip()[:1] == b"[" and data.lstrip()[1:].lstrip()[:1] == b"["
    try:
        values = _decoder(datatype, len(shape) if nested else 1).decode(data)
        with np.errstate(over="ignore"):
            array = np.array(values, dtype=DATATYPES[datatype])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"data does not fit {datatype}: {error}", where=where) from None
    except OverflowError:
        raise InvalidInput(f"data has a number out of the range of {datatype}", where=where) from None
    except ValueError:
        raise InvalidInput("data is nested unevenly", where=where, remedy="write it flat or as its shape is") from None
    if nested:
        require(array.shape == tuple(shape), f"data has shape {list(array.shape)}, shape says {shape}", where=where)
        return array
    expected = math.prod(shape)
    require(len(array) == expected, f"data has {len(array)} elements, shape says {expected}", where=where)
    return array.reshape(shape)


@cache
def _decoder(datatype: str, depth: int) -> msgspec.json.Decoder[Any]:
    element: Any = int
    if datatype == "BYTES":
        element = str
    elif datatype == "BOOL":
        element = bool
    elif datatype in FLOATS:
        element = float
    for _ in range(depth):
        element = list[element]
    return msgspec.json.Decoder(element)


# Answers -------------------------------------------------------------------------------------------------------------


def encode_answer(operator: str, request: InferRequest, answer: Answer) -> bytes:
    """The answer as the protocol's JSON; raises `InvalidInput` when an output asked for was not answered."""
    arrays = answered_arrays(request, answer)
    response: dict[str, Any] = {"model_name": operator, "model_version": MODEL_VERSION}
    if request.id:
        response["id"] = request.id
    response["parameters"] = answer_parameters(answer)
    response["outputs"] = [_tensor(name, array) for name, array in arrays.items()]
    return _ENCODER.encode(response)


def _tensor(name: str, array: NDArray[Any]) -> dict[str, Any]:
    datatype = datatype_named(array.dtype)
    data = array.ravel().tolist()
    if datatype == "BYTES":
        data = [item.decode(errors="replace") if isinstance(item, bytes) else str(item) for item in data]
    return {"name": name, "datatype": datatype, "shape": array.shape, "data": data}


def encode(content: object) -> bytes:
    """Anything else that the protocol says, such as metadata."""
    return _ENCODER.encode(content)


def encode_error(text: str) -> bytes:
    """An error as the protocol has it."""
    return _ENCODER.encode({"error": text})


def encode_readiness(name: str, ready: bool) -> bytes:
    """`GET /v2/models/{operator}/ready`."""
    return _ENCODER.encode({"name": name, "ready": ready})
