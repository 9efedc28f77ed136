"""Arrays in an npz file whose bytes depend on nothing but the arrays."""

import io
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

BROKEN_ZIP = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    KeyError,
    MemoryError,
    NotImplementedError,
    OSError,
    OverflowError,
    RuntimeError,
    ValueError,
)
"""Errors that damaged files raise."""
_EARLIEST = (1980, 1, 1, 0, 0, 0)


def encode_arrays(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """An uncompressed npz with one date for all members: the same arrays give the same bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            member = zipfile.ZipInfo(f"{name}.npy", date_time=_EARLIEST)
            member.create_system, member.external_attr = 3, 0o644 << 16
            data = io.BytesIO()
            np.lib.format.write_array(data, array, version=(1, 0), allow_pickle=False)
            archive.writestr(member, data.getvalue())
    return buffer.getvalue()


def decode_array(data: bytes) -> NDArray[Any]:
    array: NDArray[Any] = np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
    return array
