"""Folders of readable metadata and plain arrays, with a hash of both; the same content gives the same bytes."""

import dataclasses
import hashlib
import io
import math
import zipfile
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from gearshift.errors import InvalidInput, require
from gearshift.support.decoding import decode_json, schema_version
from gearshift.support.files import LARGEST_JSON_BYTES, PathLike, read_bytes, replace_folder

Arrays = Mapping[str, NDArray[Any]]
Formats = Mapping[str, tuple[str, int]]
"""The types and dimensions of arrays by name; the type "U" is text of any width."""

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
"""Errors that `zipfile` and NumPy raise for damaged files."""
MOST_NAMED = 10
_EARLIEST = (1980, 1, 1, 0, 0, 0)


class StoredMetadata(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Fields at their default are not written, so that older folders keep their hash."""

    schema_version: int
    sha256: str


M = TypeVar("M", bound=StoredMetadata)
P = TypeVar("P")


@dataclass(frozen=True)
class RecordsFolder(Generic[M, P]):
    """A folder that holds an `owner`, whose field `field` has `records` with arrays.

    It has metadata of the type `kind`, with the other fields of both that have its names, and an npz file with the
    arrays: where metadata names `arrays`, those of `compulsory` and perhaps others of `formats`, else all.
    """

    what: str
    kind: type[M]
    schema_version: int
    metadata_file: str
    arrays_file: str
    formats: Formats
    remedy: str
    owner: type[P]
    field: str
    records: type[Any]
    compulsory: Collection[str] = ()

    def require_replaceable(self, folder: Path) -> None:
        """Raise `InvalidInput` where `folder` holds anything but these files."""
        if not folder.exists():
            return
        require(folder.is_dir(), "is a file, needs a folder", where=str(folder), remedy="choose another place")
        found = {entry.name for entry in folder.iterdir()}
        others = sorted(found - {self.metadata_file, self.arrays_file} if self.metadata_file in found else found)
        require(
            not others,
            f"the folder holds {others[0]!r}, which is no part of {self.what}, and would be replaced" if others else "",
            where=str(folder),
            remedy="choose a new or empty folder, or move its files away",
        )

    def write(self, folder: PathLike, made: P) -> P:
        """Write it, whole or not at all, and return it with its hash; the same content gives the same bytes.

        An older one there is replaced; raises `InvalidInput` for a folder that holds anything else, and where writing
        fails.
        """
        folder, records = Path(folder).resolve(), getattr(made, self.field)
        self.require_replaceable(folder)
        given = {name: getattr(records, name) for name in self.formats}
        arrays = {name: _canonical(array, self.formats[name][0]) for name, array in given.items() if array is not None}
        said: dict[str, Any] = {"schema_version": self.schema_version, "arrays": tuple(arrays)}
        for name in set(self.kind.__struct_fields__) - set(said):
            said[name] = getattr(made if hasattr(made, name) else records, name)
        metadata = self.kind(**{name: said[name] for name in self.kind.__struct_fields__})
        # Decoded once, so that the hash covers exactly the numbers that a reader gets (1.0 for 1).
        metadata = msgspec.json.decode(encode_metadata(metadata), type=self.kind)
        metadata = msgspec.structs.replace(metadata, sha256=content_hash(metadata, arrays))
        content = {
            self.metadata_file: msgspec.json.format(encode_metadata(metadata), indent=1) + b"\n",
            self.arrays_file: encode_arrays(arrays),
        }
        replace_folder(folder, content)
        return cast("P", dataclasses.replace(cast("Any", made), sha256=metadata.sha256))

    def read(self, folder: Path, *, remedy: str) -> P:
        """Raises `InvalidInput` where it is missing (with `remedy`), damaged, changed or of another version."""
        require(folder.is_dir(), "there is no such profile folder", where=str(folder), remedy=remedy)
        metadata = self._read_metadata(folder, remedy=remedy)
        names: Sequence[str] = getattr(metadata, "arrays", tuple(self.formats))
        plausible = set(self.compulsory) <= set(names) <= set(self.formats) and len(set(names)) == len(names)
        where = str(folder / self.metadata_file)
        require(plausible, f"arrays is {list(names)}", where=where, remedy=self.remedy)
        arrays = self._read_arrays(folder, metadata, names)
        try:
            records = self.records(**(_shared(self.records, metadata) | arrays))
            return self.owner(**(_shared(self.owner, metadata) | {self.field: records}))
        except InvalidInput as error:
            raise InvalidInput(error.what, where=str(folder), remedy=self.remedy) from error

    def _read_metadata(self, folder: Path, *, remedy: str) -> M:
        """The metadata; raises `InvalidInput` where it is missing (with `remedy`), damaged or of another version."""
        path = folder / self.metadata_file
        require(path.exists(), "no such file", where=str(path), remedy=remedy)
        data = read_bytes(path, remedy=self.remedy, most_bytes=LARGEST_JSON_BYTES)
        schema_version(data, [self.schema_version], reads=str(self.schema_version), where=str(path), remedy=self.remedy)
        return decode_json(data, self.kind, where=str(path), remedy=self.remedy)

    def _read_arrays(self, folder: Path, metadata: M, names: Sequence[str]) -> dict[str, NDArray[Any]]:
        """The arrays `names`; raises `InvalidInput` where they or the metadata are not as they were written."""
        arrays = read_arrays(folder / self.arrays_file, names, self.formats, remedy=self.remedy)
        require(
            content_hash(metadata, arrays) == metadata.sha256,
            f"the content does not match the hash in {self.metadata_file}, field sha256: "
            "a file was changed or mixed up",
            where=str(folder),
            remedy=self.remedy,
        )
        return arrays


def _shared(kind: type[Any], metadata: StoredMetadata) -> dict[str, Any]:
    """The fields of `kind` that metadata has, too."""
    names = {field.name for field in dataclasses.fields(kind)} & set(metadata.__struct_fields__)
    return {name: getattr(metadata, name) for name in names}


def _canonical(array: NDArray[Any], dtype: str) -> NDArray[Any]:
    if dtype == "U":
        array = array.astype(np.str_)
        dtype = f"<U{max(1, int(np.strings.str_len(array).max(initial=1)))}"
    return np.ascontiguousarray(array, dtype=dtype)


def encode_metadata(metadata: msgspec.Struct) -> bytes:
    """Its JSON, in one order of fields; numbers of NumPy are written as plain ones."""
    return msgspec.json.encode(metadata, order="deterministic", enc_hook=_plain_number)


def _plain_number(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"values of type {type(value).__name__} have no JSON")


def content_hash(metadata: StoredMetadata, arrays: Arrays) -> str:
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
        arrays = plain_arrays(data, names)
        for name, array in arrays.items():
            dtype, dimensions = formats[name]
            fits = array.ndim == dimensions and dtype in (array.dtype.str, array.dtype.kind)
            require(fits, f"array {name!r} is of type {array.dtype} and shape {array.shape}")
    except InvalidInput as error:
        raise InvalidInput(error.what, where=str(path), remedy=remedy) from error
    except BROKEN_ZIP as error:
        raise InvalidInput(f"the file is damaged or cut short ({error})", where=str(path), remedy=remedy) from error
    return arrays


def plain_arrays(data: bytes, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """The arrays of the npz file with content `data`, which takes at most twice its size in memory.

    Raises `InvalidInput` where they are not `names`, or compressed: a megabyte can hold gigabytes, and the hash of
    their content is known only afterwards. Raises one of `BROKEN_ZIP` for a damaged file.
    """
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        found = sorted(archive.namelist())
        held = f"{found[:MOST_NAMED]}{f' and {len(found) - MOST_NAMED} more' if len(found) > MOST_NAMED else ''}"
        require(found == sorted(f"{name}.npy" for name in names), f"holds {held}, needs {sorted(names)}")
        for member in archive.infolist():
            stored = member.compress_type == zipfile.ZIP_STORED and member.file_size <= len(data)
            require(stored, f"array {member.filename!r} is compressed, and plain ones are needed")
        return {name: _decoded(archive.read(f"{name}.npy")) for name in names}


def _decoded(data: bytes) -> NDArray[Any]:
    """The array of a npy file, once its header is known to say no more than its bytes hold."""
    file = io.BytesIO(data)
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"version {version} of its format is unknown")
    read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read_header(file)
    held, left = math.prod(shape) * dtype.itemsize, len(data) - file.tell()
    if not dtype.hasobject and (held != left or min(shape, default=0) < 0):  # of objects, none is read anyway
        raise ValueError(f"an array of type {dtype} and shape {shape} has {left} bytes")
    array: NDArray[Any] = np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
    return array
