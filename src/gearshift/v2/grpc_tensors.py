"""The Open Inference Protocol V2 in gRPC: decode request messages, encode answers."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from gearshift.errors import InvalidInput, require
from gearshift.model import DATATYPES, STRING_BYTES, TensorSpec
from gearshift.request import Answer, BulkWork
from gearshift.v2.binary import read_tensor, text_where_it_is, write_tensor
from gearshift.v2.bodies import InferRequest
from gearshift.v2.grpc_messages_pb2 import (
    InferParameter,
    InferTensorContents,
    ModelInferRequest,
    ModelInferResponse,
)
from gearshift.v2.packing import datatype_named
from gearshift.v2.tensors import (
    MODEL_VERSION,
    Limits,
    answer_parameters,
    answered_arrays,
    bulk_work,
    declared_input,
    is_column,
    refuse_classification,
    refuse_shared_memory,
    require_few_tensors,
    require_finite,
    whole_request,
)

CONTENTS = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}
"""Field for typed contents of each datatype; FP16 has none and travels raw."""

LEAST_ELEMENT_BYTES = 4
"""Smallest element of BYTES in raw contents, which begins with its length."""
Values = Mapping[str, int | float | str]
NOTHING: Values = {}
_RAW_CONTENTS = b"\x32"
"""The tag of `raw_output_contents`."""

# Requests ----------------------------------------------------------------------------------------


def memory_bytes(
    message: ModelInferRequest, raw: Sequence[bytes | memoryview], inputs: Mapping[str, TensorSpec], message_bytes: int
) -> int:
    """Return a request's bytes as arrays, or `message_bytes` if more, before arrays are made.

    Inputs that will be refused count as 0.
    """
    numbers_bytes = objects = 0
    for number, tensor in enumerate(message.inputs):
        spec = inputs.get(tensor.name)
        if spec is None or not (len(tensor.shape) == len(spec.shape) or is_column(tensor.shape, spec)):
            continue
        elements = max(0, math.prod(tensor.shape))
        raw_bytes = len(raw[number]) if number < len(raw) else 0
        if spec.datatype == "BYTES":
            objects += min(elements, raw_bytes // LEAST_ELEMENT_BYTES + len(tensor.contents.bytes_contents))
        elif raw_bytes or spec.datatype not in CONTENTS:
            numbers_bytes += raw_bytes
        else:
            values = len(getattr(tensor.contents, CONTENTS[spec.datatype]))
            numbers_bytes += min(elements, values) * np.dtype(DATATYPES[spec.datatype]).itemsize
    return max(message_bytes, numbers_bytes) + STRING_BYTES * objects


def parse_request(
    message: ModelInferRequest,
    raw: Sequence[bytes | memoryview],
    inputs: Mapping[str, TensorSpec],
    outputs: Sequence[str],
    limits: Limits,
) -> InferRequest:
    """Parse `message` and its `raw` contents; raises `InvalidInput` naming field and reason.

    `outputs` names the operator's outputs; if empty, every name is accepted.
    """
    require_few_tensors(len(message.inputs), len(message.outputs), limits)
    require(
        len(raw) in (0, len(message.inputs)),
        f"there are {len(raw)} raw contents for {len(message.inputs)} inputs",
        where="raw_input_contents",
        remedy="give one for each input, or contents in each input",
    )
    arrays: dict[str, NDArray[Any]] = {}
    for number, tensor in enumerate(message.inputs):
        shape = list(tensor.shape)
        spec = declared_input(tensor.name, tensor.datatype, shape, inputs, limits, arrays)
        where = f"input {spec.name!r}"
        _refuse_parameters(tensor.parameters, where)
        if raw:
            require(not tensor.HasField("contents"), "has contents beside raw ones", where=where)
            array = read_tensor(memoryview(raw[number]), shape, spec.datatype, where)
        else:
            array = from_contents(tensor.contents, shape, spec.datatype, where)
        require_finite(array, spec)
        arrays[spec.name] = array
    for output in message.outputs:
        _refuse_parameters(output.parameters, f"output {output.name!r}")
    return whole_request(
        arrays,
        inputs,
        id=message.id,
        priority=_integer(message.parameters, "priority"),
        timeout_us=_integer(message.parameters, "timeout"),
        outputs=[output.name for output in message.outputs] or None,
        known_outputs=outputs,
        bulk=_bulk_work(message.parameters),
    )


def _bulk_work(parameters: Mapping[str, InferParameter]) -> BulkWork | None:
    bulk, accuracy = _given(parameters, "bulk"), _given(parameters, "accuracy")
    require(bulk in (None, "bool_param"), "bulk is no truth value", where="parameters", remedy="give bool_param")
    require(accuracy in (None, "double_param"), "accuracy is no number", where="parameters", remedy="give double_param")
    return bulk_work(
        bulk is not None and parameters["bulk"].bool_param,
        None if _given(parameters, "gear") is None else _integer(parameters, "gear"),
        None if accuracy is None else parameters["accuracy"].double_param,
    )


def from_contents(contents: InferTensorContents, shape: list[int], datatype: str, where: str) -> NDArray[Any]:
    """Return the array in typed contents; raises `InvalidInput` if they do not fit `shape`."""
    field = CONTENTS.get(datatype)
    if field is None:
        raise InvalidInput(f"{datatype} has no typed contents", where=where, remedy="give it in raw_input_contents")
    values = getattr(contents, field)
    expected = math.prod(shape)
    require(len(values) == expected, f"{field} has {len(values)} elements, shape says {expected}", where=where)
    if datatype == "BYTES":
        array = np.empty(expected, dtype=object)
        array[:] = list(values)
        return text_where_it_is(array).reshape(shape)
    try:
        return np.fromiter(values, DATATYPES[datatype], expected).reshape(shape)
    except OverflowError:
        raise InvalidInput(f"{field} has a number out of the range of {datatype}", where=where) from None


def _refuse_parameters(parameters: Mapping[str, InferParameter], where: str) -> None:
    if _given(parameters, "shared_memory_region"):
        refuse_shared_memory(where)
    if (kind := _given(parameters, "classification")) and getattr(parameters["classification"], kind):
        refuse_classification(where)


def _integer(parameters: Mapping[str, InferParameter], name: str) -> int:
    kind = _given(parameters, name)
    if kind is None:
        return 0
    if kind not in ("int64_param", "uint64_param"):
        raise InvalidInput(f"{name} is no integer", where="parameters", remedy="give int64_param or uint64_param")
    return int(getattr(parameters[name], kind))


def _given(parameters: Mapping[str, InferParameter], name: str) -> str | None:
    """Return which kind of value the parameter has; without any it is like null in JSON."""
    return parameters[name].WhichOneof("parameter_choice") if name in parameters else None


# Answers -----------------------------------------------------------------------------------------


def encode_answer(operator: str, request: InferRequest, answer: Answer, more: Values = NOTHING) -> bytes:
    """Encode a `ModelInferResponse` with raw contents and `more` parameters.

    Raises `InvalidInput` if a requested output was not answered.  Arrays are appended to the
    serialised rest, to save a copy into a message.
    """
    arrays = answered_arrays(request, answer)
    tensor = ModelInferResponse.InferOutputTensor
    rest = ModelInferResponse(
        model_name=operator,
        model_version=MODEL_VERSION,
        id=request.id,
        parameters=parameters({**msgspec.to_builtins(answer_parameters(answer)), **more}),
        outputs=[tensor(name=n, datatype=datatype_named(a.dtype), shape=a.shape) for n, a in arrays.items()],
    )
    parts: list[bytes | memoryview] = [rest.SerializeToString()]
    for array in arrays.values():
        data = write_tensor(array)
        parts += [_RAW_CONTENTS, varint(len(data)), data]
    return b"".join(parts)


def varint(number: int) -> bytes:
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


def parameters(values: Values) -> dict[str, InferParameter]:
    return {name: _parameter(value) for name, value in values.items()}


def _parameter(value: int | float | str) -> InferParameter:
    match value:
        case bool():
            return InferParameter(bool_param=value)
        case int():
            return InferParameter(int64_param=value)
        case float():
            return InferParameter(double_param=value)
        case str():
            return InferParameter(string_param=value)
