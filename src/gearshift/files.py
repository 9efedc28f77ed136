"""Files, read with sentences for errors and written whole or not at all."""

import os
import tempfile
from pathlib import Path

from gearshift.errors import InvalidInput


def read_bytes(path: Path, *, remedy: str = "check the path") -> bytes:
    """The content of `path`; raises `InvalidInput` where it cannot be read or is empty."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise InvalidInput("no such file", where=str(path), remedy=remedy) from None
    except OSError as error:
        raise InvalidInput(f"cannot be read ({error.strerror})", where=str(path), remedy=remedy) from None
    if not data.strip():
        raise InvalidInput("the file is empty", where=str(path), remedy=remedy)
    return data


def read_text(path: Path, *, remedy: str = "check the path") -> str:
    """The text of `path` in UTF-8; raises `InvalidInput` where it cannot be read, is empty or is no text."""
    try:
        return read_bytes(path, remedy=remedy).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidInput("not UTF-8 text", where=str(path), remedy=remedy) from None


def write_atomically(path: Path, data: bytes) -> None:
    """Write `data` to a temporary name beside `path`, then rename; raises `InvalidInput` where that is impossible."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise InvalidInput(
            f"cannot be written ({error.strerror})", where=str(path), remedy="choose another place"
        ) from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException as error:
        Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise InvalidInput(
                f"cannot be written ({error.strerror})", where=str(path), remedy="choose another place"
            ) from None
        raise
