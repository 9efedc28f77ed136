"""Learned caches on disk: weights in safetensors, and a manifest that names their base model."""

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec
from torch import nn

from gearshift.caches.network.chain import HEAD, chain_of, weights_sha256
from gearshift.caches.network.learned_cache import Factory, LearnedCache, filled, state_of
from gearshift.caches.running.cached_model import CachedModel, Origin
from gearshift.caches.running.concurrent_lookups import Lookups
from gearshift.caches.store.compiled_spans import load_compiled, remove_others
from gearshift.caches.store.manifest import MANIFEST, Manifest, read_manifest
from gearshift.caches.store.versions import locked, read_state, require_built, version_folder, version_numbers
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


def load_caches(
    folder: Path | str,
    module: nn.Module,
    *,
    own: Mapping[str, Factory] | None = None,
    lookups: Lookups | None = None,
    lookup_cores: int = 1,
    version: int | None = None,
    compiled: bool = False,
) -> CachedModel:
    """Load the learned caches in `folder` for `module`; `own` makes the user's predictors by name.

    Load the weights of `module` and move it to its device first: a convolution before a batch norm
    is copied.

    Lookups run as the caches were built for, unless `lookups` is given: "inline", or "beside" the
    module on `lookup_cores` of the process's cores. `version` is by default the one in use
    (`gearshift caches versions`).

    No code in the files is run unless `compiled` asks for compiled segments. These are machine
    code: ask for them only in folders that you have built. If there are none for this kind of
    machine, a warning is logged and the module's own segments run.

    Raises `InvalidInput` for caches of other weights, and for files that are missing, broken or
    inconsistent, also if another build is written meanwhile.
    """
    folder = Path(folder)
    state = read_state(folder)
    number = state.current if version is None else version
    home = version_folder(folder, number)
    manifest = read_manifest(home)
    where = str(home / MANIFEST)
    require(
        weights_sha256(module) == manifest.weights_sha256,
        f"these learned caches belong to other weights than this {type(module).__name__} has",
        where=where,
        remedy="load the weights that they were built for, or build them anew",
    )
    chain = chain_of(module, manifest.blocks[:-1] if manifest.blocks_named else None)
    require(
        chain.names == manifest.blocks and manifest.blocks[-1] == HEAD,
        "the module has other blocks than these learned caches were built for",
        where=where,
        remedy="build them anew",
    )
    networks = networks_of(manifest, weights_of(home, manifest), own, where=where)
    require_built(folder, state.built)
    origin = Origin(folder, manifest.weights_sha256, state.built, dict(own or {}), manifest.device)
    return CachedModel(
        chain,
        in_use(manifest, networks),
        logits=manifest.logits,
        lookups=lookups or manifest.lookups,
        lookup_cores=lookup_cores,
        origin=origin,
        compiled=load_compiled(folder, read_manifest(folder).compiled) if compiled else None,
        off=state.layers_off if number == state.current else (),
        version=number,
    )


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
