"""The version of learned caches that a model looks up while they are adapted, and its folder."""

from collections.abc import Collection, Mapping, Sequence

import msgspec

from gearshift.caches.network.learned_cache import LearnedCache
from gearshift.caches.running.cached_model import CachedModel
from gearshift.caches.store.manifest import MANIFEST, Manifest, read_manifest
from gearshift.caches.store.versions import (
    Off,
    State,
    drop,
    read_state,
    require_built,
    switch_off,
    switch_to,
    version_folder,
)
from gearshift.caches.store.weights import add_version, in_use, networks_of, weights_of
from gearshift.errors import InvalidInput


class VersionInUse:
    """Manifest and `networks` by layer, with spare ones; call `take` first.

    `known` is the version in use, and the layers switched off, as the folder last said.
    """

    manifest: Manifest
    known: tuple[int, tuple[int, ...]]

    def __init__(self, model: CachedModel) -> None:
        origin = model.loaded_from()
        self._model, self._own = model, origin.own
        self.folder, self.built = origin.folder, origin.built
        self.networks: dict[int, LearnedCache] = {}
        self._weights = b""

    @property
    def caches(self) -> Mapping[int, LearnedCache]:
        return self._model.caches

    @property
    def off(self) -> tuple[int, ...]:
        return self._model.layers_off

    def take(self, number: int, off: Sequence[int]) -> None:
        """Use a version in the folder; raises `InvalidInput` if broken or of another build."""
        home = version_folder(self.folder, number)
        manifest = read_manifest(home)
        weights = weights_of(home, manifest)
        require_built(self.folder, self.built)
        networks = networks_of(manifest, weights, self._own, where=str(home / MANIFEST))
        self._use(manifest, networks, weights, off, number)

    def replace(self, manifest: Manifest, networks: dict[int, LearnedCache], *, stay_off: bool) -> None:
        """Write another version and use it; raises `InvalidInput` if another process chose one."""
        written = add_version(self.folder, manifest, networks, built=self.built)
        assert written.adapted is not None
        number = written.adapted.number
        try:
            state = switch_to(self.folder, number, built=self.built, stay_off=stay_off, instead_of=self.known)
        except InvalidInput:
            drop(self.folder, number)
            raise
        weights = weights_of(version_folder(self.folder, number), written)
        self._use(written, networks, weights, state.layers_off, number)

    def switch_off(self, off: Off) -> None:
        """Write that a cache is switched off, unless another version is in use by now."""
        state = switch_off(self.folder, self._model.version, off, built=self.built)
        if state.current == self._model.version:
            self.known = state.current, tuple(sorted({*self.known[1], off.layer}))

    def pass_by(self, layers: Collection[int]) -> None:
        """Look up no caches after these layers from now on."""
        off = {*self._model.layers_off, *layers}
        self._model.use(in_use(self.manifest, self.networks), off, version=self._model.version)

    def unknown_state(self) -> State | None:
        """Return the folder's state if it differs from the known one.

        Raises `InvalidInput` if the folder holds another build.
        """
        state = read_state(self.folder)
        require_built(self.folder, self.built)
        return None if (state.current, state.layers_off) == self.known else state

    def content(self) -> tuple[bytes, bytes]:
        return msgspec.json.encode(self.manifest), self._weights

    def _use(
        self, manifest: Manifest, networks: dict[int, LearnedCache], weights: bytes, off: Sequence[int], number: int
    ) -> None:
        self.manifest, self._weights, self.known = manifest, weights, (number, tuple(sorted(off)))
        self.networks = {layer: network.to(self._model.chain.device) for layer, network in networks.items()}
        self._model.use(in_use(manifest, self.networks), off, version=number)
