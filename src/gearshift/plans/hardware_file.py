"""The file of hardware: its devices as JSON or TOML."""

from pathlib import Path

import msgspec

from gearshift.errors import InvalidInput
from gearshift.hardware import Hardware
from gearshift.support.files import PathLike, read_text

REMEDY = "list devices with id, kind, memory_bytes, price_per_hour, node and cores"


def read_hardware(path: PathLike) -> Hardware:
    """Read the devices in `path`, as TOML if its name ends so, else as JSON.

    Raises `InvalidInput` that names the field.
    """
    text = read_text(path)
    try:
        decode = msgspec.toml.decode if Path(path).suffix == ".toml" else msgspec.json.decode
        return decode(text, type=Hardware)
    except (msgspec.MsgspecError, ValueError) as error:
        raise InvalidInput(str(error), where=str(path), remedy=REMEDY) from error
