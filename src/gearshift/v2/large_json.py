"""Parse and encode large V2 JSON in steps, between which the event loop runs.

    {"inputs": [{"name": ..., "shape": ..., "data": [[1, 2], [3, 4]]}], ...}
                                                     1, 2], [3, 4     cut at commas outside of strings
                                                    -> 1, 2, 3, 4     numbers, copied into the array
                                                    -> ,],[,          structure, must equal that of the shape

A small body is decoded into objects and then checked (`v2_json`).  A large one is bounded first:
everything but the data of its tensors must be small, and data is parsed step by step.
"""

import asyncio
import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from gearshift.errors import InvalidInput, TooLargeInside, require
from gearshift.model import DATATYPES, STRING_BYTES, TensorSpec
from gearshift.request import Answer
from gearshift.v2 import json as v2_json
from gearshift.v2.bodies import InferBody, InferRequest, InputTensor
from gearshift.v2.packing import Buffer
from gearshift.v2.pieces import STEP_BYTES, pieces, without_escapes
from gearshift.v2.tensors import Limits, answered_arrays, declared_input

LARGE_BYTES = 256 << 10
"""Larger bodies and answers are processed in steps; one of this size takes some milliseconds."""
STEP_ELEMENTS = 32 << 10
LONGEST_STRING_BYTES = 8 << 20
"""Bound on an element of a BYTES tensor in a large body."""

_STRING = re.compile(rb'"[^"]*"')
_STRING_OR_BRACKET = re.compile(rb'"[^"]*"|[\[\]]')
"""Both patterns need text without escapes."""
_STRUCTURE = b"[],"
_NO_STRUCTURE = bytes(set(range(256)) - set(_STRUCTURE))

Hold = Callable[[int], None]


# Requests ----------------------------------------------------------------------------------------


async def parse_request(
    body: bytes,
    inputs: Mapping[str, TensorSpec],
    outputs: Sequence[str],
    header_bytes: int | None,
    limits: Limits,
    hold: Hold,
) -> InferRequest:
    """Parse as `v2_json.parse_request`; `hold` receives the bytes of each array before it is made.

    `hold` may raise.  Raises `TooLargeInside` if more of the body is JSON than `limits` allow.
    """
    text, binary = v2_json.split(body, header_bytes)
    if len(text) > limits.most_text_bytes:
        raise TooLargeInside(
            f"{len(text)} bytes of the body are JSON, at most {limits.most_text_bytes} are taken; "
            "send tensors as binary data, or fewer rows at once"
        )
    request = _bounded(text, len(inputs) + 1)
    arrays: dict[str, NDArray[Any]] = {}
    for tensor in request.inputs:
        spec = declared_input(tensor.name, tensor.datatype, tensor.shape, inputs, limits, arrays)
        array = v2_json.binary_array(tensor, binary, spec)
        arrays[spec.name] = await _numbers(tensor, spec, hold) if array is None else array
    return v2_json.whole(request, arrays, inputs, outputs, binary)


class _LargeInput(msgspec.Struct):
    name: msgspec.Raw
    shape: msgspec.Raw
    datatype: msgspec.Raw
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    parameters: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


@cache
def _decoder(most_inputs: int) -> msgspec.json.Decoder[Any]:
    """Return a decoder that keeps parts as text, for `most_inputs` inputs: lists have no bound."""
    numbered = [(f"input_{number}", _LargeInput | msgspec.UnsetType, msgspec.UNSET) for number in range(most_inputs)]
    few = msgspec.defstruct("Inputs", numbered, array_like=True, forbid_unknown_fields=True)
    rest: Any = msgspec.Raw | msgspec.UnsetType
    parts: list[Any] = [("inputs", few), *((name, rest, msgspec.UNSET) for name in ("id", "parameters", "outputs"))]
    return msgspec.json.Decoder(msgspec.defstruct("LargeBody", parts))


def _bounded(text: memoryview | bytes, most_inputs: int) -> InferBody:
    """Decode all but the data; raises `InvalidInput` if anything else in it is large."""
    try:
        large = _decoder(most_inputs).decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise v2_json.no_request(error) from None
    given = [part for part in msgspec.structs.astuple(large.inputs) if part is not msgspec.UNSET]
    data = [part.data for part in given]
    for part in given:
        part.data = msgspec.UNSET
    large.inputs = given
    small = msgspec.json.encode(large)
    require(
        len(small) <= LARGE_BYTES,
        f"all but the data of the inputs takes {len(small)} bytes, at most {LARGE_BYTES} are taken",
        remedy="send shorter names and ids, and fewer outputs",
    )
    request = v2_json.decode_body(small)
    for tensor, text_of_data in zip(request.inputs, data, strict=True):
        tensor.data = text_of_data
    return request


async def _numbers(tensor: InputTensor, spec: TensorSpec, hold: Hold) -> NDArray[Any]:
    where, shape, datatype = f"input {spec.name!r}", tensor.shape, spec.datatype
    data = memoryview(tensor.data)  # type: ignore[arg-type]  # `binary_array` has checked it
    if len(data) <= STEP_BYTES:
        return v2_json.numbers(data, shape, spec, where)
    require(data[0] == ord("["), f"data is no list of {datatype}", where=where)
    expected, nested = math.prod(shape), len(shape) > 1 and v2_json.NESTED.match(data) is not None
    if len(data) // 2 < expected:  # before memory is taken for them
        raise InvalidInput(f"data has fewer than the {expected} elements that shape says", where=where)
    dtype = np.dtype(DATATYPES[datatype])
    hold(len(data) + expected * STRING_BYTES if dtype.hasobject else expected * dtype.itemsize)
    array, filled = np.empty(expected, dtype), 0
    structure: list[bytes] = []
    for piece in pieces(data[1:-1], STEP_BYTES):
        await asyncio.sleep(0)
        if piece is None:
            continue
        if len(piece) > LONGEST_STRING_BYTES:
            raise InvalidInput("data has a string that is too long for JSON", where=where, remedy="send binary data")
        if nested:
            structure.append(_structure(piece))
            piece = flattened(piece)
        values = v2_json.flat_numbers(b"[%b]" % piece, spec, where)
        if filled + len(values) > expected:
            raise InvalidInput(f"data has more than the {expected} elements that shape says", where=where)
        array[filled : filled + len(values)] = values
        filled += len(values)
    if filled != expected:
        raise InvalidInput(f"data has {filled} elements, shape says {expected}", where=where)
    if nested and b",".join(structure) != structure_of(shape):
        raise InvalidInput(f"data is not nested as shape {shape} says", where=where, remedy="write it flat, or so")
    return array.reshape(shape)


def flattened(piece: bytes) -> bytes:
    """Remove brackets outside strings."""
    if b'"' not in piece:
        return piece.translate(None, b"[]")
    kept, at = [], 0
    for match in _STRING_OR_BRACKET.finditer(without_escapes(piece)):
        if match[0] in (b"[", b"]"):
            kept.append(piece[at : match.start()])
            at = match.end()
    return b"".join([*kept, piece[at:]])


def _structure(piece: bytes) -> bytes:
    """Return only brackets and commas outside strings."""
    return (_STRING.sub(b"", without_escapes(piece)) if b'"' in piece else piece).translate(None, _NO_STRUCTURE)


def structure_of(shape: Sequence[int]) -> bytes:
    """Return the brackets and commas between the outer brackets of an array of `shape`."""
    inner = b"," * (shape[-1] - 1)
    for size in reversed(shape[:-1]):
        inner = b",".join([b"[%b]" % inner] * size)
    return inner


# Answers -----------------------------------------------------------------------------------------


def is_large(request: InferRequest, answer: Answer) -> bool:
    outputs: Any = answer.outputs
    for name, array in outputs.items():
        if array.size > STEP_ELEMENTS and not request.wants_binary(name):
            return True
    return False


async def encode_answer(operator: str, request: InferRequest, answer: Answer) -> tuple[list[Buffer], int | None]:
    """Encode as `v2_json.encode_answer`, in steps, and in parts that are never joined."""
    parts: list[Buffer] = [v2_json.encode_with(operator, request, answer, [])[:-2]]
    buffers: list[Buffer] = []
    for number, (name, array) in enumerate(answered_arrays(request, answer).items()):
        if number:
            parts.append(b",")
        if request.wants_binary(name):
            parts.append(v2_json.encode(v2_json.binary_tensor(name, array, buffers)))
        else:
            parts += [v2_json.encode(v2_json.written_tensor(name, array, []))[:-2], *await _written(name, array), b"]}"]
    parts.append(b"]}")
    return [*parts, *buffers], sum(len(part) for part in parts) if buffers else None


async def _written(name: str, array: NDArray[Any]) -> list[Buffer]:
    flat, parts = array.ravel(), list[Buffer]()
    for begin in range(0, len(flat), STEP_ELEMENTS):
        await asyncio.sleep(0)
        elements = v2_json.elements(name, flat[begin : begin + STEP_ELEMENTS])
        if isinstance(elements[0], str) and sum(len(text) for text in elements) > STEP_BYTES:
            for text in elements:
                parts += [*await _written_string(name, text), b","]
        else:
            parts += [v2_json.encode_elements(name, elements)[1:-1], b","]
    return parts[:-1]


async def _written_string(name: str, text: str) -> list[Buffer]:
    parts: list[Buffer] = [b'"']
    for begin in range(0, len(text), STEP_BYTES):
        parts.append(v2_json.encode_elements(name, text[begin : begin + STEP_BYTES])[1:-1])
        await asyncio.sleep(0)
    return [*parts, b'"']
