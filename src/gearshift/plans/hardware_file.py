"""The file of hardware: its devices as JSON or TOML."""

from pathlib import Path
from typing import Any

import msgspec

from gearshift.errors import InvalidInput
from gearshift.hardware import Hardware
from gearshift.plans.prices import price_of
from gearshift.support.decoding import UNREADABLE, why_unreadable
from gearshift.support.files import LARGEST_JSON_BYTES, PathLike, read_text

REMEDY = "list devices with id, kind, memory_bytes, price_per_hour, node and cores"


def read_hardware(path: PathLike) -> Hardware:
    """Read the devices in `path`, as TOML if its name ends so, else as JSON.

    A `price_per_hour` may be the kind of an instance, see `gearshift.plans.prices`.
    Raises `InvalidInput` that names the field.
    """
    text = read_text(path, most_bytes=LARGEST_JSON_BYTES)
    try:
        decode = msgspec.toml.decode if Path(path).suffix == ".toml" else msgspec.json.decode
        return msgspec.convert(_with_prices(decode(text), str(path)), Hardware)
    except UNREADABLE as error:
        raise InvalidInput(why_unreadable(error), where=str(path), remedy=REMEDY) from error


def _with_prices(read: Any, where: str) -> Any:
    """The same with prices in place of kinds of instances."""
    for device in read.get("devices", ()) if isinstance(read, dict) else ():
        if isinstance(device, dict) and isinstance(device.get("price_per_hour"), str):
            try:
                device["price_per_hour"] = price_of(device["price_per_hour"])
            except InvalidInput as error:
                raise InvalidInput(error.what, where=where, remedy=error.remedy) from error
    return read
