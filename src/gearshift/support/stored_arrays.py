"""Folders of readable metadata and plain arrays, with a hash of both; the same content gives the same bytes."""

import hashlib
import io
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from gearshift.errors import InvalidInput, require
from gearshift.support.files import read_bytes

Arrays = Mapping[str, NDArray[Any]]
Formats = Mapping[str, tuple[str, int]]
"""The types and dimensions of arrays by name; the type "U" is text of any width."""

_BROKEN_ZIP = (
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
"""Errors that `zipfile` and NumPy raise for damaged files."""
_EARLIEST = (1980, 1, 1, 0, 0, 0)


def encode_metadata(metadata: msgspec.Struct) -> bytes:
    """Its JSON, in one order of fields; numbers of NumPy are written as plain ones."""
    return msgspec.json.encode(metadata, order="deterministic", enc_hook=_plain_number)


def _plain_number(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"values of type {type(value).__name__} have no JSON")


def content_hash(metadata: msgspec.Struct, arrays: Arrays) -> str:
    """The SHA-256 of metadata, without its own `sha256`, and arrays in their order."""
    digest = hashlib.sha256(encode_metadata(msgspec.structs.replace(metadata, sha256="")))
    for name, array in arrays.items():
        digest.update(f"\n{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).view(np.uint8).data)
    return digest.hexdigest()


def encode_arrays(arrays: Arrays) -> bytes:
    """An uncompressed npz with one date for all members."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            member = zipfile.ZipInfo(f"{name}.npy", date_time=_EARLIEST)
            member.create_system, member.external_attr = 3, 0o644 << 16
            data = io.BytesIO()
            np.lib.format.write_array(data, array, version=(1, 0), allow_pickle=False)
            archive.writestr(member, data.getvalue())
    return buffer.getvalue()


def read_arrays(path: Path, names: Sequence[str], formats: Formats, *, remedy: str) -> dict[str, NDArray[Any]]:
    """The arrays of an npz file, which must be `names`; raises `InvalidInput` for others, and for a damaged file."""
    data = read_bytes(path, remedy=remedy)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            found = sorted(archive.namelist())
            require(found == sorted(f"{name}.npy" for name in names), f"holds {found}, needs {sorted(names)}")
            arrays = {name: _decoded(archive.read(f"{name}.npy")) for name in names}
        for name, array in arrays.items():
            dtype, dimensions = formats[name]
            fits = array.ndim == dimensions and dtype in (array.dtype.str, array.dtype.kind)
            require(fits, f"array {name!r} is of type {array.dtype} and shape {array.shape}")
    except InvalidInput as error:
        raise InvalidInput(error.what, where=str(path), remedy=remedy) from error
    except _BROKEN_ZIP as error:
        raise InvalidInput(f"the file is damaged or cut short ({error})", where=str(path), remedy=remedy) from error
    return arrays


def _decoded(data: bytes) -> NDArray[Any]:
    array: NDArray[Any] = np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
    return array


def require_replaceable_folder(folder: Path, parts: Sequence[str], *, what: str) -> None:
    """Raise `InvalidInput` where `folder` holds more than `parts`, the first of which marks `what` it is."""
    if not folder.exists():
        return
    require(folder.is_dir(), "is a file, needs a folder", where=str(folder), remedy="choose another place")
    found = {entry.name for entry in folder.iterdir()}
    others = sorted(found - set(parts) if parts[0] in found else found)
    require(
        not others,
        f"the folder holds {others[0]!r}, which is no part of {what}, and would be replaced" if others else "",
        where=str(folder),
        remedy="choose a new or empty folder, or move its files away",
    )
