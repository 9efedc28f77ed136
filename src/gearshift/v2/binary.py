"""Tensors as raw bytes: the binary tensor extension of the V2 protocol, for servers and clients.

Numbers are little-endian; an element of BYTES is its length in 4 bytes, then its bytes.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from gearshift.errors import InvalidInput, require
from gearshift.model import DATATYPES
from gearshift.v2.packing import LENGTH, PackingError, datatype_named, unpack_bytes

INFERENCE_HEADER = "inference-header-content-length"
"""The header with the number of a body's bytes that are JSON, in lower case."""
BULK_HEADER = "x-gearshift-bulk"
"""Tells before the body is read that the request is bulk work, for which there is room apart."""


class BinaryTensors:
    """The tensors that follow a request's JSON header, taken one after another."""

    def __init__(self, data: memoryview) -> None:
        self._data, self._offset = data, 0

    def take(self, size_bytes: int, where: str) -> memoryview:
        """The next `size_bytes`; raises `InvalidInput` if fewer are left."""
        end = self._offset + size_bytes
        if size_bytes < 0 or end > len(self._data):
            left = len(self._data) - self._offset
            raise InvalidInput(
                f"binary_data_size is {size_bytes}, but {left} bytes are left after the header",
                where=where,
                remedy="give the header's length as Inference-Header-Content-Length, and all tensors after it",
            )
        data = self._data[self._offset : end]
        self._offset = end
        return data

    def end(self) -> None:
        left = len(self._data) - self._offset
        require(left == 0, f"{left} bytes after the header belong to no input", remedy="name them by binary_data_size")


def read_tensor(data: memoryview, shape: Sequence[int], datatype: str, where: str) -> NDArray[Any]:
    """The array of `shape` in `data`; numbers share its memory, and are read-only.

    Elements of BYTES are `str` if all are UTF-8, as in JSON, else `bytes`. Raises `InvalidInput`
    if `data` is too short or too long, and for a BOOL that is neither 0 nor 1.
    """
    if datatype == "BYTES":
        return text_where_it_is(_read_bytes(data, shape, where))
    dtype = np.dtype(DATATYPES[datatype]).newbyteorder("<")
    expected = math.prod(shape) * dtype.itemsize
    if len(data) != expected:
        raise InvalidInput(f"has {len(data)} bytes, {datatype} of shape {list(shape)} has {expected}", where=where)
    if datatype == "BOOL" and np.frombuffer(data, np.uint8).max() > 1:
        raise InvalidInput("has a BOOL that is neither 0 nor 1", where=where)
    return np.frombuffer(data, dtype).reshape(shape)


def _read_bytes(data: memoryview, shape: Sequence[int], where: str) -> NDArray[Any]:
    try:
        return unpack_bytes(data, shape, text=False)
    except PackingError as error:
        raise InvalidInput(str(error), where=where) from None


def text_where_it_is(array: NDArray[Any]) -> NDArray[Any]:
    """Elements of a BYTES tensor as `str` if all are UTF-8, else unchanged."""
    try:
        text = [element.decode() for element in array.ravel().tolist()]
    except UnicodeDecodeError:
        return array
    decoded = np.empty(len(text), dtype=object)
    decoded[:] = text
    return decoded.reshape(array.shape)


def write_tensor(array: NDArray[Any]) -> bytes | memoryview:
    if datatype_named(array.dtype) == "BYTES":
        elements = [as_bytes(element) for element in array.ravel().tolist()]
        return b"".join([part for element in elements for part in (LENGTH.pack(len(element)), element)])
    little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    return little.reshape(-1).view(np.uint8).data


def as_bytes(element: object) -> bytes:
    """An element of a BYTES tensor as sent; lone surrogates become the bytes they stand for."""
    if isinstance(element, bytes):
        return element
    text = str(element)
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


# Clients -------------------------------------------------------------------------------------------------------------


class _Output(msgspec.Struct):
    name: str
    datatype: str
    shape: list[int]
    data: list[Any] | None = None
    parameters: dict[str, Any] | None = None


class _Answer(msgspec.Struct):
    outputs: list[_Output]
    parameters: dict[str, Any] | None = None


def binary_tensor(name: str, array: NDArray[Any], buffers: list[bytes | memoryview]) -> dict[str, Any]:
    buffers.append(write_tensor(array))
    size = {"binary_data_size": len(buffers[-1])}
    return {"name": name, "shape": array.shape, "datatype": datatype_named(array.dtype), "parameters": size}


def read_answer(body: bytes, headers: Mapping[str, str]) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """`headers` in lower case; raises `ValueError` if the answer is not of the protocol."""
    try:
        head_bytes = int(headers.get(INFERENCE_HEADER, len(body)))
        answer = msgspec.json.decode(body[:head_bytes], type=_Answer)
        binary = BinaryTensors(memoryview(body)[head_bytes:])
        return {output.name: _array(output, binary) for output in answer.outputs}, answer.parameters or {}
    except (msgspec.MsgspecError, KeyError, OverflowError) as error:
        raise ValueError(str(error)) from None


def _array(output: _Output, binary: BinaryTensors) -> NDArray[Any]:
    where = f"output {output.name!r}"
    size_bytes = (output.parameters or {}).get("binary_data_size")
    if size_bytes is not None:
        return read_tensor(binary.take(size_bytes, where), output.shape, output.datatype, where).copy()
    return np.array(output.data or [], dtype=DATATYPES[output.datatype]).reshape(output.shape)
