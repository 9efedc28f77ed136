"""Read files with clear errors, and write files and folders whole or not at all."""

import codecs
import ctypes
import errno
import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from tempfile import SpooledTemporaryFile, TemporaryFile
from typing import BinaryIO, cast

from gearshift.errors import InvalidInput, require

PathLike = Path | str

LARGEST_FILE_BYTES = 4 << 30
LARGEST_JSON_BYTES = 64 << 20
"""Plans, metadata and results are smaller than this; parsed, each byte takes some ten."""
HELD_BYTES = 64 << 20
"""Content that cannot be renamed into place is held in memory up to this size before writing."""

_DESCRIPTOR = re.compile(r"/(?:proc/(?:self|thread-self|(?P<pid>\d+))|dev)/fd/(?P<fd>\d+)")
_STREAMS = {"/dev/stdin": 0, "/dev/stdout": 1, "/dev/stderr": 2}
_MOST_LINKS = 40
IN_ITS_PLACE = (errno.EACCES, errno.EBUSY, errno.EPERM, errno.EROFS, errno.EXDEV)
"""Errors with which a folder admits no new file, though the file itself may be writable."""
_NOT_OFFERED = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)
_HERE = -100
_EXCHANGE = 2
_NO_EXCHANGE = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EPERM)


def open_to_read(path: PathLike, *, remedy: str = "check the path") -> FileIO:
    """Open a regular file, or a pipe that this process was started with, such as `/dev/stdin` and `/dev/fd/63`.

    Raises `InvalidInput` for all others: devices may have no end, and a named pipe waits for somebody who writes.
    """
    inherited = own_descriptor(path) is not None
    ways = os.O_NOCTTY | (0 if inherited else os.O_NONBLOCK)
    try:  # with `open`, so that `models/loaded_from.py` sees it
        file = open(path, "rb", buffering=0, opener=lambda name, flags: os.open(name, flags | ways))  # noqa: SIM115
    except FileNotFoundError:
        raise InvalidInput("no such file", where=str(path), remedy=remedy) from None
    except IsADirectoryError:
        raise InvalidInput("is a folder, needs a file", where=str(path), remedy="name one file in it") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InvalidInput(f"cannot be read ({reason})", where=str(path), remedy=remedy) from None
    mode = os.fstat(file.fileno()).st_mode
    piped = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
    if stat.S_ISREG(mode) or (inherited and (piped or file.isatty())):
        return file
    file.close()
    raise InvalidInput(
        f"is a {'named pipe' if piped else 'device'}, needs a file", where=str(path), remedy="name a regular file"
    )


def read_bytes(path: PathLike, *, remedy: str = "check the path", most_bytes: int = LARGEST_FILE_BYTES) -> bytes:
    """Read `path`; raises `InvalidInput` where it cannot be read, is empty, or is larger than `most_bytes`."""
    try:
        with open_to_read(path, remedy=remedy) as file:
            data = _at_most(file, most_bytes)
    except OSError as error:
        raise InvalidInput(f"cannot be read ({error.strerror})", where=str(path), remedy=remedy) from None
    if data is None:
        what = f"the file is larger than {most_bytes >> 20} MiB"
        raise InvalidInput(what, where=str(path), remedy="check that it is the right one")
    if not data.strip():
        raise InvalidInput("the file is empty", where=str(path), remedy=remedy)
    return data


def _at_most(file: FileIO, most_bytes: int) -> bytes | None:
    """The content; None where it is larger. Of a pipe, nothing says its size before it is read."""
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file.readall() if os.fstat(file.fileno()).st_size <= most_bytes else None
    content = bytearray()
    while part := file.read(1 << 20):
        content += part
        if len(content) > most_bytes:
            return None
    return bytes(content)


def read_text(path: PathLike, *, remedy: str = "check the path", most_bytes: int = LARGEST_FILE_BYTES) -> str:
    """Read text in UTF-8, or in UTF-16 with a byte order mark, which is left out.

    Raises `InvalidInput` where it cannot be read, is empty, is larger than `most_bytes` or is no text.
    """
    return decoded(read_bytes(path, remedy=remedy, most_bytes=most_bytes), where=str(path))


def decoded(data: bytes, *, where: str) -> str:
    utf_16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        return data.decode("utf-16" if utf_16 else "utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InvalidInput("not UTF-8 text", where=f"{where}, line {line}", remedy="save the file as UTF-8") from None


def require_writable(path: PathLike) -> None:
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
    """Open a file whose content appears at `path`, on the disk, when the block ends without error.

    A regular file is replaced at once; links are followed. Pipes, devices, descriptors of this
    process, files with several names and files in a folder that cannot be written are written in
    place, once the content is complete. A `private` file, which holds data of clients, is readable
    by this user only; for others the umask decides. Raises `InvalidInput` where writing fails.
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
    with written_atomically(path, private=private) as file:
        file.write(data)


def open_to_append(path: Path) -> FileIO:
    """Open a file of lines; one that was cut short, as its writer was killed within it, is ended."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("a+b", buffering=0)
    if file.tell() > 0 and os.pread(file.fileno(), 1, file.tell() - 1) != b"\n":
        file.write(b"\n")
    return file


def not_written(path: PathLike, error: OSError) -> InvalidInput:
    return InvalidInput(f"cannot be written ({error.strerror})", where=str(path), remedy="choose another place")


def own_descriptor(path: PathLike) -> int | None:
    """The descriptor of this process that `path` names (/dev/stdout: 1), None for others."""
    place = os.path.abspath(path)
    for _ in range(_MOST_LINKS):
        if place in _STREAMS:
            return _STREAMS[place]
        found = _DESCRIPTOR.fullmatch(place)
        if found is not None and (found["pid"] is None or int(found["pid"]) == os.getpid()):
            return int(found["fd"])
        try:
            place = os.path.normpath(os.path.join(os.path.dirname(place), os.readlink(place)))
        except (OSError, ValueError):
            return None
    return None


def open_in_place(path: PathLike, *, waiting: bool = True) -> int:
    """Open `path` for writing; for a descriptor of this process, return a copy of it.

    A copy shares the position with others that print through it, and works for sockets, which
    cannot be opened by name. When not `waiting` for slow readers, pipes and terminals are opened
    anew as non-blocking, so that other users of them still wait.
    """
    own = own_descriptor(path)
    if own is not None and (waiting or not (stat.S_ISFIFO(os.fstat(own).st_mode) or os.isatty(own))):
        return os.dup(own)
    ways = 0 if waiting else os.O_APPEND | os.O_NONBLOCK
    return os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOCTTY | ways)


def is_plain(path: PathLike) -> bool:
    try:
        return own_descriptor(path) is None and stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return True


def memory_file(name: str) -> int:
    """The descriptor of an empty file without a name, in memory where the system offers that."""
    try:
        return os.memfd_create(name)
    except (AttributeError, OSError):  # a sandbox leaves it out
        with TemporaryFile() as file:
            return os.dup(file.fileno())


def sync(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NOT_OFFERED:
            raise


def sync_folder(folder: PathLike) -> None:
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)


def _stays(path: PathLike) -> bool:
    """Whether the content must be written in place; raises `OSError` for a folder."""
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
    """Create a new file next to `place`; None where only `place` itself can be written."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        name = place.with_name(f".gearshift.{secrets.token_hex(8)}")
        return open(name, "xb", opener=lambda name, flags: os.open(name, flags | os.O_CLOEXEC, mode))
    except OSError as error:
        if error.errno in IN_ITS_PLACE and place.exists():
            return None
        raise


def _put(file: BinaryIO, path: PathLike) -> None:
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
    with os.fdopen(open_in_place(path), "wb") as file:
        content.seek(0)
        shutil.copyfileobj(content, file)
        file.flush()
        if own_descriptor(path) is None and stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            file.truncate()
        sync(file.fileno())


def replace_folder(folder: PathLike, content: Mapping[str, bytes]) -> None:
    """Make `folder` hold these files and nothing else; raises `InvalidInput` where that fails.

    The change is atomic: readers find either all former files or all of these. Only where the
    folder cannot be replaced, because it is a mount or the current folder, files are replaced one
    by one.
    """
    place = Path(os.path.realpath(folder))
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.exists() and not place.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if not _replaced(place, content):
            _fill(place, content)
    except OSError as error:
        raise not_written(folder, error) from None


def _replaced(place: Path, content: Mapping[str, bytes]) -> bool:
    """Replace an older folder by a new one; False where that is impossible."""
    if place.exists() and place.samefile(os.curdir):
        return False
    try:
        workplace = Path(tempfile.mkdtemp(dir=place.parent, prefix=".gearshift."))
        try:
            _put_folder(_made(workplace / "new", content), place, old=workplace / "old")
        finally:
            shutil.rmtree(workplace, ignore_errors=True)
    except OSError as error:
        if error.errno in IN_ITS_PLACE and place.exists():
            return False
        raise
    return True


def _made(folder: Path, content: Mapping[str, bytes]) -> Path:
    folder.mkdir()
    for name, data in content.items():
        with (folder / name).open("wb") as file:
            file.write(data)
            file.flush()
            sync(file.fileno())
    sync_folder(folder)
    return folder


def _put_folder(new: Path, place: Path, *, old: Path) -> None:
    if place.exists():
        new.chmod(stat.S_IMODE(place.stat().st_mode))
        if not exchange(new, place):
            _put_in_two_steps(new, place, old)
    else:
        os.rename(new, place)
    sync_folder(place.parent)


def _put_in_two_steps(new: Path, place: Path, old: Path) -> None:
    """For systems that cannot exchange folders: for a moment there is no folder."""
    os.rename(place, old)
    try:
        os.rename(new, place)
    except BaseException:
        os.rename(old, place)
        raise


def exchange(a: Path, b: Path) -> bool:
    """Exchange two folders in one step; False where the system does not offer that."""
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        return False
    if call(_HERE, os.fsencode(a), _HERE, os.fsencode(b), _EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _NO_EXCHANGE:
        return False
    raise OSError(number, os.strerror(number), str(b))


def _fill(place: Path, content: Mapping[str, bytes]) -> None:
    for name, data in content.items():
        write_atomically(place / name, data)
    for entry in place.iterdir():
        if entry.name not in content:
            entry.unlink()
