"""The Open Inference Protocol V2 in JSON: requests turned into arrays, answers turned into text."""

import math
import re
import struct
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
from gearshift.runtime.v2_binary import BinaryTensors, read_tensor, write_tensor
from gearshift.serving.v2 import (
    FLOATS,
    MODEL_VERSION,
    Limits,
    answer_parameters,
    answered_arrays,
    declared_input,
    refuse_classification,
    refuse_shared_memory,
    require_few_tensors,
    require_finite,
    whole_request,
)
from gearshift.serving.v2_bodies import (
    AskedOutput,
    IndexBody,
    InferBody,
    InferRequest,
    InputTensor,
    WrittenAnswer,
    WrittenTensor,
)

DEFAULT_LIMITS = Limits()
LARGE_BYTES = 64 << 10
NESTED = re.compile(rb"\s*\[\s*\[")
PACKED = {
    "FP16": "e", "FP32": "f", "FP64": "d", "INT8": "b", "INT16": "h", "INT32": "i", "INT64": "q",
    "UINT8": "B", "UINT16": "H", "UINT32": "I", "UINT64": "Q",
}  # fmt: skip
"""How `struct` writes them.  It refuses numbers that are too large, and is done before NumPy has begun."""

_INDEX = msgspec.json.Decoder(IndexBody)
_BODY = msgspec.json.Decoder(InferBody)
_ENCODER = msgspec.json.Encoder()


# Requests ------------------------------------------------------------------------------------------------------------


def parse_request(
    body: bytes,
    inputs: Mapping[str, TensorSpec],
    outputs: Sequence[str],
    header_bytes: int | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> InferRequest:
    """The request in `body`; raises `InvalidInput` that names the field and the reason.

    Of a request with binary tensors the first `header_bytes` are JSON, and the tensors follow; the arrays share the
    body's memory.  `outputs` are the names of the operator's outputs; without any, every name is let through.
    """
    text, binary = (body, None) if header_bytes is None else _split(body, header_bytes)
    try:
        request = _BODY.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"the body is no inference request: {error}") from None
    require_few_tensors(len(request.inputs), len(request.outputs or ()), limits)
    arrays: dict[str, NDArray[Any]] = {}
    for tensor in request.inputs:
        spec = declared_input(tensor.name, tensor.datatype, tensor.shape, inputs, limits)
        if spec.name in arrays:
            raise InvalidInput("is given twice", where=f"input {spec.name!r}")
        arrays[spec.name] = _array(tensor, binary, spec)
    if binary is not None:
        binary.end()
    return whole_request(
        arrays,
        inputs,
        id=request.id,
        priority=request.parameters.priority,
        timeout_us=request.parameters.timeout,
        outputs=None if request.outputs is None else [output.name for output in request.outputs],
        known_outputs=outputs,
        binary_output=request.parameters.binary_data_output,
        binary_outputs=None if request.outputs is None else _binary_outputs(request.outputs),
    )


def wants_ready_only(body: bytes) -> bool:
    """Whether a request for the repository's index wants models that are ready alone; an empty body is fine."""
    try:
        return bool(body) and _INDEX.decode(body).ready
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"the body is no request for an index: {error}") from None


def _split(body: bytes, header_bytes: int) -> tuple[memoryview, BinaryTensors]:
    require(
        0 <= header_bytes <= len(body),
        f"Inference-Header-Content-Length is {header_bytes}, the body has {len(body)} bytes",
    )
    view = memoryview(body)
    return view[:header_bytes], BinaryTensors(view[header_bytes:])


def _array(tensor: InputTensor, binary: BinaryTensors | None, spec: TensorSpec) -> NDArray[Any]:
    where = f"input {tensor.name!r}"
    size_bytes = None
    if tensor.parameters is not None:
        size_bytes = tensor.parameters.binary_data_size
        if tensor.parameters.shared_memory_region is not None:
            refuse_shared_memory(where)
    if size_bytes is None:
        if tensor.data is msgspec.UNSET:
            raise InvalidInput("has no data", where=where, remedy="give data, or binary_data_size and bytes")
        return _numbers(memoryview(tensor.data), tensor.shape, spec, where)
    require(tensor.data is msgspec.UNSET, "has both data and binary_data_size", where=where, remedy="give one")
    if binary is None:
        raise InvalidInput(
            "has binary_data_size, but the header Inference-Header-Content-Length is missing", where=where
        )
    array = read_tensor(binary.take(size_bytes, where), tensor.shape, tensor.datatype, where)
    require_finite(array, spec)
    return array


def _binary_outputs(outputs: Sequence[AskedOutput]) -> dict[str, bool]:
    """Which outputs say whether they are wanted as raw bytes, and what they say."""
    said = {}
    for output in outputs:
        if output.parameters is not None:
            where = f"output {output.name!r}"
            if output.parameters.shared_memory_region is not None:
                refuse_shared_memory(where)
            if output.parameters.classification != 0:
                refuse_classification(where)
            if output.parameters.binary_data is not None:
                said[output.name] = output.parameters.binary_data
    return said


def _numbers(data: memoryview, shape: list[int], spec: TensorSpec, where: str) -> NDArray[Any]:
    """The array in `data`, written flat or nested as its shape is."""
    datatype, expected = spec.datatype, math.prod(shape)
    if len(data) > LARGE_BYTES and datatype != "BYTES" and bytes(data).count(b",") >= expected:
        raise InvalidInput(f"data has more than the {expected} elements that shape says", where=where)
    nested = len(shape) > 1 and NESTED.match(data) is not None
    try:
        values = _decoder(datatype, len(shape) if nested else 1).decode(data)
        if datatype in PACKED and not nested:
            array = np.frombuffer(struct.pack(f"={len(values)}{PACKED[datatype]}", *values), DATATYPES[datatype])
        else:
            with np.errstate(over="ignore"):
                array = np.array(values, dtype=DATATYPES[datatype])
            require_finite(array, spec)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"data does not fit {datatype}: {error}", where=where) from None
    except (OverflowError, struct.error):
        raise InvalidInput(f"data has a number out of the range of {datatype}", where=where) from None
    except ValueError:
        raise InvalidInput("data is nested unevenly", where=where, remedy="write it flat or as its shape is") from None
    if nested:
        require(array.shape == tuple(shape), f"data has shape {list(array.shape)}, shape says {shape}", where=where)
        return array
    if len(array) != expected:
        raise InvalidInput(f"data has {len(array)} elements, shape says {expected}", where=where)
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


def encode_answer(operator: str, request: InferRequest, answer: Answer) -> tuple[bytes, int | None]:
    """The answer's body, and how much of it is JSON where binary tensors follow.

    Raises `InvalidInput` when an output asked for was not answered.
    """
    buffers: list[bytes | memoryview] = []
    tensors = [
        _binary_tensor(name, array, buffers) if request.wants_binary(name) else _tensor(name, array)
        for name, array in answered_arrays(request, answer).items()
    ]
    text = _ENCODER.encode(
        WrittenAnswer(operator, MODEL_VERSION, request.id or msgspec.UNSET, answer_parameters(answer), tensors)
    )
    return (b"".join([text, *buffers]), len(text)) if buffers else (text, None)


def _tensor(name: str, array: NDArray[Any]) -> WrittenTensor:
    datatype = datatype_named(array.dtype)
    data = array.ravel().tolist()
    if datatype == "BYTES":
        data = [item.decode(errors="replace") if isinstance(item, bytes) else str(item) for item in data]
    return WrittenTensor(name, datatype, array.shape, data)


def _binary_tensor(name: str, array: NDArray[Any], buffers: list[bytes | memoryview]) -> WrittenTensor:
    """The tensor without its data, which is put at the end of `buffers`."""
    buffer = write_tensor(array)
    buffers.append(buffer)
    size = {"binary_data_size": len(buffer)}
    return WrittenTensor(name, datatype_named(array.dtype), array.shape, parameters=size)


def encode(content: object) -> bytes:
    """Anything else that the protocol says, such as metadata."""
    return _ENCODER.encode(content)


def encode_error(text: str) -> bytes:
    """An error as the protocol has it."""
    return _ENCODER.encode({"error": text})


def encode_readiness(name: str, ready: bool) -> bytes:
    """`GET /v2/models/{operator}/ready`."""
    return _ENCODER.encode({"name": name, "ready": ready})
