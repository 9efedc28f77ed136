"""Learned caches on disk: weights in safetensors, and a manifest that names their base model."""

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from gearshift.caches.network.learned_cache import Factory, LearnedCache, filled, state_of
from gearshift.caches.store.compiled_spans import remove_others
from gearshift.caches.store.manifest import MANIFEST, Manifest
from gearshift.caches.store.versions import locked, require_built, version_folder, version_numbers
from gearshift.errors import InvalidInput, require
from gearshift.support.extras import load_extra
from gearshift.support.files import read_bytes, write_atomically

_FILE = re.compile(r"caches-[0-9a-f]{16}\.safetensors")


def save_caches(folder: Path, manifest: Manifest, caches: Mapping[int, LearnedCache]) -> Manifest:
    """Write the caches, then the manifest, which makes them valid; return it as written."""
    save = load_extra("safetensors.torch", extra="torch", where=str(folder)).save
    data = save(state_of(caches))
    digest = hashlib.sha256(data).hexdigest()
    named = msgspec.structs.replace(manifest, file=f"caches-{digest[:16]}.safetensors", file_sha256=digest)
    write_atomically(folder / named.file, data)
    write_atomically(folder / MANIFEST, msgspec.json.format(msgspec.json.encode(named)) + b"\n")
    for old in folder.glob("caches-*.safetensors"):
        if _FILE.fullmatch(old.name) and old.name != named.file:
            old.unlink(missing_ok=True)
    remove_others(folder, manifest.compiled)
    return named


def weights_of(home: Path, manifest: Manifest) -> bytes:
    """Read the weights file of a manifest; raises `InvalidInput` for any other file name."""
    named = bool(_FILE.fullmatch(manifest.file))
    require(named, f"names the file {manifest.file!r}", where=str(home / MANIFEST), remedy="build anew")
    return read_bytes(home / manifest.file)


def networks_of(
    manifest: Manifest, data: bytes, own: Mapping[str, Factory] | None, *, where: str
) -> dict[int, LearnedCache]:
    """Make the trained caches by layer; raises `InvalidInput` if `data` is not the manifest's."""
    broken = InvalidInput(
        "is not what its manifest says", where=str(Path(where).with_name(manifest.file)), remedy="build anew"
    )
    if hashlib.sha256(data).hexdigest() != manifest.file_sha256:
        raise broken
    state = load_extra("safetensors.torch", extra="torch", where=where).load(data)
    entries = [(entry.layer, entry.variant, entry.shape) for entry in manifest.trained]
    try:
        return filled(entries, manifest.classes, state, own)
    except RuntimeError as error:
        raise broken from error


def in_use(manifest: Manifest, networks: Mapping[int, LearnedCache]) -> dict[int, LearnedCache]:
    return {entry.layer: networks[entry.layer] for entry in manifest.chosen}


def add_version(
    folder: Path, manifest: Manifest, networks: Mapping[int, LearnedCache], *, built: str | None = None
) -> Manifest:
    """Write another version, not in use yet; return its manifest with its number.

    Raises `InvalidInput` if it cannot be written, or the folder holds another build.
    """
    assert manifest.adapted is not None
    with locked(folder):
        require_built(folder, built)
        number = max(version_numbers(folder)) + 1
        adapted = msgspec.structs.replace(manifest.adapted, number=number)
        return save_caches(version_folder(folder, number), msgspec.structs.replace(manifest, adapted=adapted), networks)
