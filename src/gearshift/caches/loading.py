"""Load learned caches from their folder, as a model that runs and that can be adapted."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from gearshift.caches.network.chain import HEAD, Chain, weights_sha256
from gearshift.caches.network.learned_cache import Factory
from gearshift.caches.network.tracing import chain_of
from gearshift.caches.running.cached_model import CachedModel, Origin
from gearshift.caches.store.compiled_spans import load_compiled
from gearshift.caches.store.manifest import MANIFEST, Lookups, Manifest, read_manifest
from gearshift.caches.store.versions import Claim, read_state, require_built, version_folder
from gearshift.caches.store.weights import in_use, networks_of, weights_of
from gearshift.errors import require


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
    chain = _chain_for(module, manifest, where)
    networks = networks_of(manifest, weights_of(home, manifest), own, where=where)
    require_built(folder, state.built)
    origin = Origin(folder, manifest.weights_sha256, state.built, dict(own or {}), manifest.device, _open_adapter)
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


def _chain_for(module: nn.Module, manifest: Manifest, where: str) -> Chain:
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
    return chain


def _open_adapter(model: CachedModel, settings: Mapping[str, Any], **options: Any) -> Any:
    from gearshift.caches.adapting.adapter import open_adapter  # one process of several adapts: others start sooner
    from gearshift.caches.adapting.settings import adaptation_of

    claim = Claim(model.loaded_from().folder)
    return open_adapter(model, adaptation_of(settings), keeps=claim.held, **options)
