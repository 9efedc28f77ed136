"""Tensors as bytes, as in the Open Inference Protocol's binary form, for messages of any kind.

Numbers are little-endian; an element of BYTES is its length in 4 bytes, then its bytes.
"""

import math
import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gearshift.model import datatype_of

LENGTH = struct.Struct("<I")
BLOB, TEXT, MISSING = range(3)

Buffer = bytes | memoryview


class PackingError(ValueError):
    """Bytes are not those of a tensor of this shape."""


@lru_cache(maxsize=1024)
def datatype_named(dtype: np.dtype[Any]) -> str:
    return datatype_of(np.empty(0, dtype))


def bytes_of(numbers: NDArray[Any]) -> memoryview:
    return np.ascontiguousarray(numbers).reshape(-1).view(np.uint8).data


def pack_bytes(array: NDArray[Any]) -> tuple[bytes, bool | bytes]:
    """Elements, each after its length, and whether they are text (one byte each if mixed, or if some are missing)."""
    elements = array.ravel().tolist()
    kinds = [TEXT if isinstance(element, str) else MISSING if element is None else BLOB for element in elements]
    text = all(kind == TEXT for kind in kinds) or (bytes(kinds) if any(kinds) else False)
    parts: list[bytes] = []
    for element in elements:
        data = (
            b""
            if element is None
            else element.encode("utf-8", "surrogatepass")
            if isinstance(element, str)
            else bytes(element)
        )
        parts += (LENGTH.pack(len(data)), data)
    return b"".join(parts), text


def unpack_bytes(data: memoryview, shape: Sequence[int], *, text: bool | bytes) -> NDArray[Any]:
    count = math.prod(shape)
    if isinstance(text, bytes) and len(text) != count:
        raise PackingError(f"a BYTES tensor of {count} elements says of {len(text)} whether they are text")
    elements: list[str | bytes | None] = []
    offset = 0
    while offset < len(data) and len(elements) < count:
        if offset + 4 > len(data):
            raise PackingError("a BYTES tensor ends within a length")
        (length,) = LENGTH.unpack_from(data, offset)
        offset += 4 + length
        if offset > len(data):
            raise PackingError("a BYTES tensor ends within an element")
        element = bytes(data[offset - length : offset])
        kind = int(text) if isinstance(text, bool) else text[len(elements)]
        if kind == MISSING:
            elements.append(None)
        else:
            elements.append(element.decode("utf-8", "surrogatepass") if kind == TEXT else element)
    if len(elements) != count or offset != len(data):
        raise PackingError(f"a BYTES tensor of shape {list(shape)} has {len(elements)} elements or bytes to spare")
    array = np.empty(count, dtype=object)
    array[:] = elements
    return array.reshape(shape)
