"""Versions of learned caches: 0 is the one that was built, adaptation adds others; one is in use.

`state.json` says which, and which caches an audit has switched off. `versions/` holds the others,
each in a folder with manifest and weights. PyTorch is not needed here.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from gearshift.caches.store.manifest import MANIFEST, Manifest, read_manifest
from gearshift.errors import InvalidInput, require
from gearshift.support.decoding import decode_json
from gearshift.support.files import PathLike, read_bytes, write_atomically

STATE, VERSIONS, LOCK, CLAIM = "state.json", "versions", ".lock", ".claim"
MOST_NUMBER = 10**6


class Off(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A cache that is not looked up, because audits showed that it disagrees with the model.

    Of `audited` hits, `disagreed` disagreed; at least the share `low` of all its hits do.
    """

    layer: int
    block: str
    audited: int
    disagreed: int
    low: float
    at_s: float


class State(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of `state.json`; `built` is the hash of the build's weights."""

    built: str
    current: int = 0
    off: tuple[Off, ...] = ()

    @property
    def layers_off(self) -> tuple[int, ...]:
        return tuple(sorted({off.layer for off in self.off}))


def read_state(folder: PathLike) -> State:
    """Read which version is in use; version 0 if `state.json` is missing or of another build.

    Raises `InvalidInput` for a folder without learned caches and for a broken file.
    """
    built = read_manifest(folder).file_sha256
    path = Path(folder) / STATE
    if not path.exists():
        return State(built=built)
    remedy = "delete it to use the caches that were built"
    state = decode_json(read_bytes(path), State, where=str(path), remedy=remedy)
    return state if state.built == built else State(built=built)


def version_folder(folder: Path, number: int) -> Path:
    return folder if number == 0 else folder / VERSIONS / f"{number:06d}"


def read_version(folder: Path, number: int) -> Manifest:
    """Read the manifest of a version; raises `InvalidInput` if missing or of other base weights."""
    require(0 <= number < MOST_NUMBER, f"there is no version {number}", where=str(folder))
    manifest = read_manifest(version_folder(folder, number))
    weights = read_manifest(folder).weights_sha256
    require(manifest.weights_sha256 == weights, f"version {number} belongs to other weights", where=str(folder))
    return manifest


def version_numbers(folder: PathLike) -> list[int]:
    found = [int(path.parent.name) for path in (Path(folder) / VERSIONS).glob(f"[0-9]*/{MANIFEST}")]
    return [0, *sorted(number for number in found if number > 0)]


def previous_version(folder: Path) -> int:
    """Return the version that the one in use was made from; `InvalidInput` if that is version 0."""
    current = read_state(folder).current
    adapted = read_version(folder, current).adapted
    if adapted is None:
        raise InvalidInput("the caches in use are those that were built", where=str(folder), remedy="name a version")
    there = [number for number in version_numbers(folder) if number <= adapted.before]
    return there[-1]


def require_built(folder: Path, built: str | None) -> None:
    told = "the folder holds another build now"
    require(
        built is None or read_manifest(folder).file_sha256 == built, told, where=str(folder), remedy="serve it anew"
    )


def switch_to(
    folder: PathLike,
    number: int,
    *,
    built: str | None = None,
    stay_off: bool = False,
    instead_of: tuple[int, tuple[int, ...]] | None = None,
) -> State:
    """Use a version, with all its caches on.

    With `stay_off`, caches that are off now stay off, for versions with the same networks. Raises
    `InvalidInput` if the version is missing or broken, if the folder holds another build than
    `built`, or if version and layers off are no longer those in `instead_of`.
    """
    folder = Path(folder)
    known = version_numbers(folder)
    told = f"there is no version {number}"
    require(number in known, told, where=str(folder), remedy=f"use one of {', '.join(map(str, known))}")
    read_version(folder, number)
    with locked(folder):
        require_built(folder, built)
        before = read_state(folder)
        told = f"version {before.current} was chosen meanwhile, or a cache of it switched"
        require(instead_of in (None, (before.current, before.layers_off)), told, where=str(folder))
        return _write(folder, State(built=before.built, current=number, off=before.off if stay_off else ()))


def switch_off(folder: Path, number: int, off: Off, *, built: str | None = None) -> State:
    """Switch off a cache of version `number`; no effect if another version is in use by now.

    Raises `InvalidInput` if the folder holds another build.
    """
    with locked(folder):
        require_built(folder, built)
        state = read_state(folder)
        if state.current != number or off.layer in state.layers_off:
            return state
        return _write(folder, msgspec.structs.replace(state, off=(*state.off, off)))


def prune(folder: Path, most: int) -> None:
    """Delete the oldest versions beyond `most`, but never the one in use or version 0."""
    current = read_state(folder).current
    numbers = version_numbers(folder)[1:]
    for number in numbers[: max(0, len(numbers) - most)]:
        if number != current:
            shutil.rmtree(version_folder(folder, number), ignore_errors=True)


def drop(folder: Path, number: int) -> None:
    if number and number != read_state(folder).current:
        shutil.rmtree(version_folder(folder, number), ignore_errors=True)


def _write(folder: Path, state: State) -> State:
    write_atomically(folder / STATE, msgspec.json.format(msgspec.json.encode(state)) + b"\n")
    return state


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    with (folder / LOCK).open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class Claim:
    """The right of one process to write audit counts and samples to a folder, until it ends."""

    def __init__(self, folder: Path) -> None:
        self._path, self._file = folder / CLAIM, -1

    def held(self) -> bool:
        if self._file >= 0:
            return True
        try:
            file = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o600)
        except OSError:
            return True  # nobody can write there; the attempt reports it
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return False
        self._file = file
        return True

    def give_up(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
