"""The Open Inference Protocol V2 in JSON: decode requests into arrays, encode answers."""

import math
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from gearshift.errors import InvalidInput, NotAcceptable, printable, require
from gearshift.model import DATATYPES, TensorSpec
from gearshift.request import Answer
from gearshift.v2.binary import BinaryTensors, read_tensor, write_tensor
from gearshift.v2.bodies import (
    AnsweredTensor,
    AskedOutput,
    BinarySize,
    IndexBody,
    InferAnswer,
    InferBody,
    InferParameters,
    InferRequest,
    InputTensor,
)
from gearshift.v2.packing import datatype_named
from gearshift.v2.tensors import (
    FLOATS,
    MODEL_VERSION,
    Limits,
    answer_parameters,
    answered_arrays,
    bulk_work,
    declared_input,
    refuse_classification,
    refuse_shared_memory,
    require_few_tensors,
    require_finite,
    whole_request,
)

DEFAULT_LIMITS = Limits()
FEW = 100
NESTED = re.compile(rb"\s*\[\s*\[")
DTYPES = {datatype: np.dtype(name) for datatype, name in DATATYPES.items()}
PACKED = {
    "FP16": "e", "FP32": "f", "FP64": "d", "INT8": "b", "INT16": "h", "INT32": "i", "INT64": "q",
    "UINT8": "B", "UINT16": "H", "UINT32": "I", "UINT64": "Q",
}  # fmt: skip
"""Format characters of `struct`, which rejects numbers out of range and is faster than NumPy."""

NULL = msgspec.Raw(b"null")
NOTHING_ASKED = InferParameters()

_INDEX = msgspec.json.Decoder(IndexBody)
_BODY = msgspec.json.Decoder(InferBody)
_ENCODER = msgspec.json.Encoder()


# Requests ----------------------------------------------------------------------------------------


def parse_request(
    body: bytes,
    inputs: Mapping[str, TensorSpec],
    outputs: Sequence[str],
    header_bytes: int | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> InferRequest:
    """Parse the request in `body`; raises `InvalidInput` naming the field and the reason.

    With binary tensors the first `header_bytes` are JSON and the tensors follow; the arrays share
    the body's memory.  `outputs` names the operator's outputs; if empty, every name is accepted.
    """
    text, binary = split(body, header_bytes)
    request = decode_body(text)
    require_few_tensors(len(request.inputs), len(request.outputs or ()), limits)
    arrays: dict[str, NDArray[Any]] = {}
    for tensor in request.inputs:
        spec = declared_input(tensor.name, tensor.datatype, tensor.shape, inputs, limits, arrays)
        in_json = tensor.parameters is None and tensor.data is not msgspec.UNSET
        array = None if in_json else binary_array(tensor, binary, spec)
        if array is None:
            array = numbers(memoryview(cast(msgspec.Raw, tensor.data)), tensor.shape, spec, f"input {spec.name!r}")
        arrays[spec.name] = array
    return whole(request, arrays, inputs, outputs, binary)


def split(body: bytes, header_bytes: int | None) -> tuple[bytes | memoryview, BinaryTensors | None]:
    """Split a body into JSON and the tensors after it; raises `InvalidInput` for a bad length."""
    if header_bytes is None:
        return body, None
    require(
        0 <= header_bytes <= len(body),
        f"Inference-Header-Content-Length is {header_bytes}, the body has {len(body)} bytes",
    )
    view = memoryview(body)
    return view[:header_bytes], BinaryTensors(view[header_bytes:])


def decode_body(text: bytes | memoryview) -> InferBody:
    try:
        return _BODY.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise no_request(error) from None


def no_request(error: Exception) -> InvalidInput:
    return InvalidInput(f"the body is no inference request: {error}")


def whole(
    request: InferBody,
    arrays: Mapping[str, NDArray[Any]],
    inputs: Mapping[str, TensorSpec],
    outputs: Sequence[str],
    binary: BinaryTensors | None,
) -> InferRequest:
    if binary is not None:
        binary.end()
    asked = request.parameters or NOTHING_ASKED
    return whole_request(
        arrays,
        inputs,
        id=request.id or "",
        priority=asked.priority or 0,
        timeout_us=asked.timeout or 0,
        outputs=[output.name for output in request.outputs] if request.outputs else None,
        known_outputs=outputs,
        binary_output=bool(asked.binary_data_output),
        binary_outputs=_binary_outputs(request.outputs) if request.outputs else None,
        bulk=bulk_work(bool(asked.bulk), asked.gear, asked.accuracy),
    )


def wants_ready_only(body: bytes) -> bool:
    """Whether a request for the repository's index wants only ready models; it may be empty."""
    try:
        return bool(body and _INDEX.decode(body).ready)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"the body is no request for an index: {error}") from None


def binary_array(tensor: InputTensor, binary: BinaryTensors | None, spec: TensorSpec) -> NDArray[Any] | None:
    """Return a tensor whose bytes follow the JSON, else None; raises `InvalidInput`."""
    where = f"input {tensor.name!r}"
    size_bytes = None
    if tensor.parameters is not None:
        size_bytes = tensor.parameters.binary_data_size
        if tensor.parameters.shared_memory_region is not None:
            refuse_shared_memory(where)
    has_data = tensor.data is not msgspec.UNSET and tensor.data != NULL
    if size_bytes is None:
        if not has_data:
            raise InvalidInput("has no data", where=where, remedy="give data, or binary_data_size and bytes")
        return None
    require(not has_data, "has both data and binary_data_size", where=where, remedy="give one")
    if binary is None:
        raise InvalidInput(
            "has binary_data_size, but the header Inference-Header-Content-Length is missing", where=where
        )
    array = read_tensor(binary.take(size_bytes, where), tensor.shape, tensor.datatype, where)
    require_finite(array, spec)
    return array


def _binary_outputs(outputs: Sequence[AskedOutput]) -> dict[str, bool]:
    said = {}
    for output in outputs:
        if output.parameters is not None:
            where = f"output {output.name!r}"
            if output.parameters.shared_memory_region is not None:
                refuse_shared_memory(where)
            if output.parameters.classification:
                refuse_classification(where)
            if output.parameters.binary_data is not None:
                said[output.name] = output.parameters.binary_data
    return said


def numbers(data: memoryview, shape: list[int], spec: TensorSpec, where: str) -> NDArray[Any]:
    """Parse an array written flat or nested as `shape`; raises `InvalidInput`."""
    depth = len(shape) if len(shape) > 1 and NESTED.match(data) is not None else 1
    array, wanted = _read_numbers(data, depth, spec, where), tuple(shape)
    if depth > 1:
        require(array.shape == wanted, f"data has shape {list(array.shape)}, shape says {shape}", where=where)
        return array
    if array.size != (expected := math.prod(wanted)):
        raise InvalidInput(f"data has {array.size} elements, shape says {expected}", where=where)
    return array.reshape(wanted)


def flat_numbers(data: memoryview | bytes, spec: TensorSpec, where: str) -> NDArray[Any]:
    return _read_numbers(data, 1, spec, where)


def _read_numbers(data: memoryview | bytes, depth: int, spec: TensorSpec, where: str) -> NDArray[Any]:
    datatype = spec.datatype
    try:
        values = _decoder(datatype, depth, spec.missing).decode(data)
        if datatype in PACKED and depth == 1 and not spec.missing:
            return np.frombuffer(_packer(len(values), datatype)(*values), DTYPES[datatype])
        with np.errstate(over="ignore"):
            array = np.array(values, dtype=DATATYPES[datatype])
        require_finite(array, spec)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"data does not fit {datatype}: {error}", where=where) from None
    except (OverflowError, struct.error):
        raise InvalidInput(f"data has a number out of the range of {datatype}", where=where) from None
    except ValueError:
        raise InvalidInput("data is nested unevenly", where=where, remedy="write it flat or as its shape is") from None
    return array


@lru_cache(maxsize=256)
def _packer(count: int, datatype: str) -> Callable[..., bytes]:
    return struct.Struct(f"={count}{PACKED[datatype]}").pack


@cache
def _decoder(datatype: str, depth: int, missing: bool) -> msgspec.json.Decoder[Any]:
    element: Any = int
    if datatype == "BYTES":
        element = str | None if missing else str
    elif datatype == "BOOL":
        element = bool
    elif datatype in FLOATS:
        element = float | None if missing else float
    for _ in range(depth):
        element = list[element]
    return msgspec.json.Decoder(element)


# Answers -----------------------------------------------------------------------------------------


def encode_answer(operator: str, request: InferRequest, answer: Answer) -> tuple[bytes, int | None]:
    """Return the answer's body, and the length of its JSON if binary tensors follow it.

    Raises `InvalidInput` if a requested output was not answered, `NotAcceptable` if JSON cannot
    carry one.
    """
    buffers: list[bytes | memoryview] = []
    tensors = [
        binary_tensor(name, array, buffers)
        if request.wants_binary(name)
        else written_tensor(name, array, elements(name, array))
        for name, array in answered_arrays(request, answer).items()
    ]
    text = encode_with(operator, request, answer, tensors)
    return (b"".join([text, *buffers]), len(text)) if buffers else (text, None)


def encode_with(operator: str, request: InferRequest, answer: Answer, tensors: Sequence[AnsweredTensor]) -> bytes:
    """Encode the JSON of an answer; `large_json` relies on the outputs being last in it."""
    whole = InferAnswer(
        model_name=operator,
        model_version=MODEL_VERSION,
        id=request.id or msgspec.UNSET,
        parameters=answer_parameters(answer),
        outputs=tensors,
    )
    try:
        return _ENCODER.encode(whole)
    except UnicodeEncodeError:
        for tensor in tensors:  # to name the output
            encode_elements(tensor.name, tensor.data)
        raise


def written_tensor(name: str, array: NDArray[Any], data: list[Any]) -> AnsweredTensor:
    return AnsweredTensor(name, datatype_named(array.dtype), array.shape, data)


def elements(name: str, array: NDArray[Any]) -> list[Any]:
    datatype = datatype_named(array.dtype)
    data: list[Any] = array.ravel().tolist()
    if datatype == "BYTES":
        try:
            return [item.decode() if isinstance(item, bytes) else str(item) for item in data]
        except UnicodeDecodeError:
            raise _not_in_json(name, "bytes that are no UTF-8") from None
    # for few numbers a finite sum shows sooner that all are finite
    if datatype in FLOATS and not (len(data) <= FEW and math.isfinite(sum(data))) and not np.isfinite(array).all():
        raise _not_in_json(name, "NaN or infinity")
    return data


def encode_elements(name: str, data: object) -> bytes:
    try:
        return _ENCODER.encode(data)
    except UnicodeEncodeError:
        raise _not_in_json(name, "text with a lone surrogate") from None


def _not_in_json(name: str, what: str) -> NotAcceptable:
    return NotAcceptable(
        f"holds {what}, which JSON cannot carry",
        where=f"output {name!r}",
        remedy='ask for it in binary, with "parameters": {"binary_data": true} beside its name, or over gRPC',
    )


def binary_tensor(name: str, array: NDArray[Any], buffers: list[bytes | memoryview]) -> AnsweredTensor:
    buffer = write_tensor(array)
    buffers.append(buffer)
    return AnsweredTensor(name, datatype_named(array.dtype), array.shape, parameters=BinarySize(len(buffer)))


def encode(content: object) -> bytes:
    return _ENCODER.encode(content)


def encode_error(text: str) -> bytes:
    return _ENCODER.encode({"error": printable(text)})


def encode_readiness(name: str, ready: bool, *, degraded: bool = False) -> bytes:
    return _ENCODER.encode({"name": name, "ready": ready} | ({"degraded": True} if ready and degraded else {}))
