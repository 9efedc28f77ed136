"""Replace a folder as a whole."""

import ctypes
import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

from gearshift.support.files import IN_ITS_PLACE, PathLike, not_written, sync, sync_folder, write_atomically

_HERE = -100
_EXCHANGE = 2
_NOT_OFFERED = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EPERM)


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
            _put(_made(workplace / "new", content), place, old=workplace / "old")
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


def _put(new: Path, place: Path, *, old: Path) -> None:
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
    if number in _NOT_OFFERED:
        return False
    raise OSError(number, os.strerror(number), str(b))


def _fill(place: Path, content: Mapping[str, bytes]) -> None:
    for name, data in content.items():
        write_atomically(place / name, data)
    for entry in place.iterdir():
        if entry.name not in content:
            entry.unlink()
