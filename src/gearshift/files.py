"""Files, read with sentences for errors and written whole or not at all."""

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from gearshift.errors import InvalidInput, require


def read_bytes(path: Path, *, remedy: str = "check the path") -> bytes:
    """The content of `path`; raises `InvalidInput` where it cannot be read or is empty."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise InvalidInput("no such file", where=str(path), remedy=remedy) from None
    except IsADirectoryError:
        raise InvalidInput("is a folder, needs a file", where=str(path), remedy="name one file in it") from None
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


def require_writable(path: Path) -> None:
    """Raise `InvalidInput` where a file `path` could not be written, so that no long work is done in vain."""
    above = next(folder for folder in path.absolute().parents if folder.exists())
    why = (
        "is a folder, needs a file" * path.is_dir()
        or "cannot be written (Not a directory)" * (not above.is_dir())
        or "cannot be written (Permission denied)" * (not os.access(above, os.W_OK))
    )
    require(not why, why, where=str(path), remedy="choose another place")


@contextmanager
def written_atomically(path: Path, *, private: bool = False) -> Iterator[BinaryIO]:
    """A file to write to under a temporary name beside `path`, renamed when the block ends without an error.

    A `private` one, of what clients have sent, is for this user's eyes alone; of others the umask decides.
    Raises `InvalidInput` where that is impossible.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600 if private else 0o666)
    except OSError as error:
        raise not_written(path, error) from None
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        os.replace(temporary, path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise not_written(path, error) from None
        raise


def write_atomically(path: Path, data: bytes, *, private: bool = False) -> None:
    """Write `data` to a temporary name beside `path`, then rename; raises `InvalidInput` where that is impossible."""
    with written_atomically(path, private=private) as file:
        file.write(data)


def not_written(path: Path, error: OSError) -> InvalidInput:
    """That `path` cannot be written, for a user."""
    return InvalidInput(f"cannot be written ({error.strerror})", where=str(path), remedy="choose another place")


def replace_folder(folder: Path, content: Mapping[str, bytes]) -> None:
    """Make `folder` hold these files and nothing else, whole or not at all; raises `InvalidInput` where impossible."""
    folder = folder.resolve()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        workplace = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
        try:
            _swap(folder, content, new=workplace / "new", old=workplace / "old")
        finally:
            shutil.rmtree(workplace, ignore_errors=True)
    except OSError as error:
        raise not_written(folder, error) from None


def _swap(folder: Path, content: Mapping[str, bytes], *, new: Path, old: Path) -> None:
    new.mkdir()
    for name, data in content.items():
        (new / name).write_bytes(data)
    if folder.exists():
        os.rename(folder, old)
    try:
        os.rename(new, folder)
    except BaseException:
        if old.exists():
            os.rename(old, folder)
        raise
