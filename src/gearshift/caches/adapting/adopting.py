"""Another version of a running model's learned caches, from the content of its files."""

import msgspec

from gearshift.caches.network.learned_cache import LearnedCache
from gearshift.caches.running.cached_model import CachedModel
from gearshift.caches.store.manifest import MANIFEST, Manifest
from gearshift.caches.store.weights import in_use, networks_of
from gearshift.errors import InvalidInput, require

WHERE = "a version of learned caches"


def adopted(model: CachedModel, manifest: bytes, weights: bytes) -> tuple[int, dict[int, LearnedCache]]:
    """Return number and caches of a version; raises `InvalidInput` if it is of another model."""
    try:
        read = msgspec.json.decode(manifest, type=Manifest)
    except (msgspec.MsgspecError, ValueError) as error:
        raise InvalidInput(str(error), where=WHERE) from error
    origin = model.origin
    ours = origin is not None and read.weights_sha256 == origin.weights_sha256 and read.blocks == model.chain.names
    require(ours, "belongs to another model", where=WHERE, remedy="adapt the model that is served")
    networks = networks_of(read, weights, None if origin is None else origin.own, where=MANIFEST)
    return (0 if read.adapted is None else read.adapted.number), in_use(read, networks)
