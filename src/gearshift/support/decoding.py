"""JSON of files, with errors that name the file and the field."""

import codecs
from collections.abc import Container
from typing import TypeVar

import msgspec

from gearshift.errors import InvalidInput, require

T = TypeVar("T")


class _Versioned(msgspec.Struct):
    schema_version: int = 0


def decode_json(data: bytes, type_: type[T], *, where: str, remedy: str) -> T:
    """Decode `data`; raises `InvalidInput` that names `where` and the field's path."""
    try:
        return msgspec.json.decode(data.removeprefix(codecs.BOM_UTF8), type=type_)
    except msgspec.MsgspecError as error:  # malformed JSON and wrong fields alike
        raise InvalidInput(str(error), where=where, remedy=remedy) from error
    except UnicodeDecodeError as error:
        raise InvalidInput("not UTF-8 text", where=where, remedy=remedy) from error


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
