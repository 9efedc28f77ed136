"""The plan file: a gear plan as versioned, readable JSON."""

import codecs
from typing import TypeVar

import msgspec

from gearshift.errors import InvalidInput
from gearshift.gear import SCHEMA_VERSION, GearPlan
from gearshift.support.files import PathLike, read_bytes, write_atomically

T = TypeVar("T")


def decode_json(data: bytes, type_: type[T], *, where: str, remedy: str) -> T:
    """Decode `data`; raises `InvalidInput` that names `where` and the field's path."""
    try:
        return msgspec.json.decode(data.removeprefix(codecs.BOM_UTF8), type=type_)
    except msgspec.MsgspecError as error:  # malformed JSON and wrong fields alike
        raise InvalidInput(str(error), where=where, remedy=remedy) from error
    except UnicodeDecodeError as error:
        raise InvalidInput("not UTF-8 text", where=where, remedy=remedy) from error


def read_plan(path: PathLike) -> GearPlan:
    """Read a plan; raises `InvalidInput` for a missing, damaged or inconsistent file."""
    data = read_bytes(path, remedy="make a plan with `gearshift plan`")
    remedy = "mend the file, or make the plan anew with `gearshift plan`"
    version = decode_json(data, _Versioned, where=str(path), remedy=remedy).schema_version
    if version != SCHEMA_VERSION:
        raise InvalidInput(
            f"schema_version is {version}, this version of gearshift reads {SCHEMA_VERSION}",
            where=str(path),
            remedy="make the plan anew with `gearshift plan`",
        )
    return decode_json(data, GearPlan, where=str(path), remedy=remedy)


def encode_plan(plan: GearPlan) -> bytes:
    """The plan as indented JSON; the same plan gives the same bytes."""
    return msgspec.json.format(msgspec.json.encode(plan), indent=1) + b"\n"


def write_plan(plan: GearPlan, path: PathLike) -> None:
    """Write `plan` to `path`, whole or not at all."""
    write_atomically(path, encode_plan(plan))


class _Versioned(msgspec.Struct):
    schema_version: int = 0
