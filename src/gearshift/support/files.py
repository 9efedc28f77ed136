"""Files, read with sentences for errors, and written whole or not at all."""

import codecs
import errno
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import SpooledTemporaryFile, TemporaryFile
from typing import BinaryIO, cast

from gearshift.errors import InvalidInput, require

PathLike = Path | str

HELD_BYTES = 64 << 20
"""Of what cannot be renamed into its place, so much is held in memory before it is written."""

_DESCRIPTOR = re.compile(r"/(?:proc/(?:self|thread-self|(?P<pid>\d+))|dev)/fd/(?P<fd>\d+)")
_STREAMS = {"/dev/stdin": 0, "/dev/stdout": 1, "/dev/stderr": 2}
_MOST_LINKS = 40
IN_ITS_PLACE = (errno.EACCES, errno.EBUSY, errno.EPERM, errno.EROFS, errno.EXDEV)
"""Errors of the folder around: nothing else can be put in a place that may be written itself, such as a mount."""
_NOT_OFFERED = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)


def read_bytes(path: PathLike, *, remedy: str = "check the path") -> bytes:
    """The content of `path`; raises `InvalidInput` where it cannot be read or is empty."""
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        raise InvalidInput("no such file", where=str(path), remedy=remedy) from None
    except IsADirectoryError:
        raise InvalidInput("is a folder, needs a file", where=str(path), remedy="name one file in it") from None
    except OSError as error:
        raise InvalidInput(f"cannot be read ({error.strerror})", where=str(path), remedy=remedy) from None
    if not data.strip():
        raise InvalidInput("the file is empty", where=str(path), remedy=remedy)
    return data


def read_text(path: PathLike, *, remedy: str = "check the path") -> str:
    """The text of `path` in UTF-8, or in UTF-16 with a byte order mark, which is left out.

    Raises `InvalidInput` where it cannot be read, is empty or is no text.
    """
    return decoded(read_bytes(path, remedy=remedy), where=str(path))


def decoded(data: bytes, *, where: str) -> str:
    """Text as editors and shells write it: see `read_text`; raises `InvalidInput` that names the line."""
    utf_16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        return data.decode("utf-16" if utf_16 else "utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InvalidInput("not UTF-8 text", where=f"{where}, line {line}", remedy="save the file as UTF-8") from None


def require_writable(path: PathLike) -> None:
    """Raise `InvalidInput` where a file `path` could not be written, so that no long work is done in vain."""
    if own_descriptor(path) is not None:
        return
    place = Path(os.path.realpath(path))
    above = next((folder for folder in place.parents if folder.exists()), place)
    why = (
        "is a folder, needs a file" * place.is_dir()
        or "cannot be written (Not a directory)" * (not above.is_dir())
        or "cannot be written (Permission denied)" * (not os.access(place if place.exists() else above, os.W_OK))
    )
    require(not why, why, where=str(path), remedy="choose another place")


@contextmanager
def written_atomically(path: PathLike, *, private: bool = False) -> Iterator[BinaryIO]:
    """A file to write to, whose content is at `path`, and on the disk, when the block ends without an error.

    A file is replaced at once, where links lead.  What must stay is written as it is, once all of its content is known:
    pipes, devices, descriptors of this process, files of several names or in a folder that cannot be written.

    A `private` one, of what clients have sent, is for this user's eyes alone; of others the umask decides.
    Raises `InvalidInput` where that is impossible.
    """
    try:
        beside = None if _stays(path) else _beside(Path(os.path.realpath(path)), 0o600 if private else 0o666)
        if beside is None:
            with SpooledTemporaryFile(HELD_BYTES) as held:
                yield cast(BinaryIO, held)
                _write_as_it_is(path, cast(BinaryIO, held))
            return
        with beside as file:
            try:
                yield file
                file.flush()
                sync(file.fileno())
                _put(file, path)
            finally:
                Path(file.name).unlink(missing_ok=True)
    except OSError as error:
        raise not_written(path, error) from None


def write_atomically(path: PathLike, data: bytes, *, private: bool = False) -> None:
    """Write `data` as `written_atomically` does; raises `InvalidInput` where that is impossible."""
    with written_atomically(path, private=private) as file:
        file.write(data)


def not_written(path: PathLike, error: OSError) -> InvalidInput:
    """That `path` cannot be written, for a user."""
    return InvalidInput(f"cannot be written ({error.strerror})", where=str(path), remedy="choose another place")


def own_descriptor(path: PathLike) -> int | None:
    """The descriptor of this process that `path` is a name of, such as 1 for /dev/stdout; None for other paths."""
    place = os.path.abspath(path)
    for _ in range(_MOST_LINKS):
        if place in _STREAMS:
            return _STREAMS[place]
        found = _DESCRIPTOR.fullmatch(place)
        if found is not None and (found["pid"] is None or int(found["pid"]) == os.getpid()):
            return int(found["fd"])
        try:
            place = os.path.normpath(os.path.join(os.path.dirname(place), os.readlink(place)))
        except OSError:
            return None
    return None


def open_in_place(path: PathLike, *, waiting: bool = True) -> int:
    """A descriptor to write into what is at `path`: where that is a descriptor of this process, a copy of it.

    A copy goes on where others print through the same one, and reaches sockets, which have no name to be opened by.
    One that is not `waiting` for slow readers of pipes and terminals has opened these anew, so that others still wait.
    """
    own = own_descriptor(path)
    if own is not None and (waiting or not (stat.S_ISFIFO(os.fstat(own).st_mode) or os.isatty(own))):
        return os.dup(own)
    ways = 0 if waiting else os.O_APPEND | os.O_NONBLOCK
    return os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOCTTY | ways)


def is_plain(path: PathLike) -> bool:
    """Whether a regular file is at `path`, or nothing is yet, so that another may take its place."""
    try:
        return own_descriptor(path) is None and stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return True


def memory_file(name: str) -> int:
    """The descriptor of an empty file that has no name in any folder, in memory where the system offers that."""
    try:
        return os.memfd_create(name)
    except (AttributeError, OSError):  # a sandbox leaves it out
        with TemporaryFile() as file:
            return os.dup(file.fileno())


def sync(descriptor: int) -> None:
    """Have what was written reach the disk, where the file system offers that."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NOT_OFFERED:
            raise


def sync_folder(folder: PathLike) -> None:
    """Have the names in `folder` reach the disk, where it may be read and the file system offers that."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)


def _stays(path: PathLike) -> bool:
    """Whether nothing else may take the place of what is at `path`; raises `OSError` for a folder."""
    if own_descriptor(path) is not None:
        return True
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return False
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    return not stat.S_ISREG(found.st_mode) or found.st_nlink > 1


def _beside(place: Path, mode: int) -> BinaryIO | None:
    """A new file beside `place`; None where only what is at `place` itself can be written."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        name = place.with_name(f".gearshift.{secrets.token_hex(8)}")
        return open(name, "xb", opener=lambda name, flags: os.open(name, flags | os.O_CLOEXEC, mode))
    except OSError as error:
        if error.errno in IN_ITS_PLACE and place.exists():
            return None
        raise


def _put(file: BinaryIO, path: PathLike) -> None:
    """Move a written file to where `path` leads, or its content where nothing can be moved there."""
    place = Path(os.path.realpath(path))
    try:
        os.replace(file.name, place)
    except OSError as error:
        if error.errno not in IN_ITS_PLACE or not place.exists():
            raise
        with open(file.name, "rb") as written:
            _write_as_it_is(place, written)
    sync_folder(place.parent)


def _write_as_it_is(path: PathLike, content: BinaryIO) -> None:
    """Write the whole of `content` into what is at `path`, which is cut to it unless it is an open descriptor."""
    with os.fdopen(open_in_place(path), "wb") as file:
        content.seek(0)
        shutil.copyfileobj(content, file)
        file.flush()
        if own_descriptor(path) is None and stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            file.truncate()
        sync(file.fileno())
