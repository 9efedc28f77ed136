"""JSON of files, with errors that name the file and the field."""

import codecs
import csv
import io
from collections.abc import Container, Iterator
from typing import TypeVar

import msgspec

from gearshift.errors import InvalidInput, require

T = TypeVar("T")

UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)
"""Raised for content that is malformed, of wrong fields, no UTF-8, of too many digits or nested too deeply."""


class _Versioned(msgspec.Struct):
    schema_version: int = 0


def decode_json(data: bytes, type_: type[T], *, where: str, remedy: str, said: str = "") -> T:
    """Decode `data`; raises `InvalidInput` that names `where` and, after `said`, the field's path."""
    try:
        return msgspec.json.decode(data.removeprefix(codecs.BOM_UTF8), type=type_)
    except UNREADABLE as error:
        raise InvalidInput(said + why_unreadable(error), where=where, remedy=remedy) from error


def why_unreadable(error: Exception) -> str:
    """Say in words for people which of `UNREADABLE` was raised."""
    if isinstance(error, RecursionError):
        return "its lists and objects are nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return "not UTF-8 text"
    return "it has a whole number of too many digits" if "set_int_max_str_digits" in str(error) else str(error)


def csv_rows(text: str, *, where: str, remedy: str) -> list[dict[str, str]]:
    """The rows below a header; raises `InvalidInput` where a cell is wrongly quoted or too long."""
    try:
        return list(csv.DictReader(io.StringIO(text, newline="")))
    except csv.Error as error:
        raise InvalidInput(f"is no table of commas ({error})", where=where, remedy=remedy) from None


def csv_cells(line: str, mark: str = ",") -> list[str]:
    """The cells of one line; none where it is wrongly quoted."""
    try:
        return next(csv.reader([line], delimiter=mark, skipinitialspace=mark == " "), [])
    except csv.Error:
        return []


def numbered_lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The lines that are not empty, numbered from 1."""
    lines = enumerate(data.removeprefix(codecs.BOM_UTF8).splitlines(), 1)
    return ((number, line) for number, line in lines if line.strip())


def schema_version(data: bytes, readable: Container[int], *, reads: str, where: str, remedy: str) -> int:
    """The version that `data` states; raises `InvalidInput` where it is none of `readable`, which are named `reads`."""
    version = decode_json(data, _Versioned, where=where, remedy=remedy).schema_version
    require(
        version in readable,
        f"schema_version is {version}, this version of gearshift reads {reads}",
        where=where,
        remedy=remedy,
    )
    return version
