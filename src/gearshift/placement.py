"""Replicas of models, and the devices that they are on."""

import msgspec
from msgspec import UNSET, UnsetType

from gearshift.errors import require


class Replica(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One loaded copy of a model on one device or on several of one node.

    `kv_tokens` is the number of tokens whose keys and values an engine's memory holds.
    """

    id: str
    model: str
    device_ids: tuple[str, ...]
    cores: int = 1
    tensor_parallel: int = 1
    weights_version: str = "1"
    kv_tokens: int | UnsetType = UNSET

    def __post_init__(self) -> None:
        require(bool(self.id), "a replica's id is empty")
        require(len(self.device_ids) >= 1, f"replica {self.id!r} is on no device, needs at least one")
        require(len(set(self.device_ids)) == len(self.device_ids), f"replica {self.id!r} names a device twice")
        require(self.cores >= 1, f"replica {self.id!r} has {self.cores} cores, needs at least 1")
        require(
            self.tensor_parallel >= 1, f"replica {self.id!r} has tensor_parallel {self.tensor_parallel}, needs >= 1"
        )
        enough = self.kv_tokens is UNSET or self.kv_tokens >= 1
        require(enough, f"replica {self.id!r} has kv_tokens {self.kv_tokens}, needs at least 1")


class Placement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All replicas."""

    replicas: tuple[Replica, ...]

    def __post_init__(self) -> None:
        require(len(self.replicas) >= 1, "a placement has no replicas, needs at least one")
        ids = [replica.id for replica in self.replicas]
        require(len(set(ids)) == len(ids), f"replica ids are not unique: {sorted(ids)}")
        seen: set[tuple[str, str]] = set()
        for replica in self.replicas:
            for device_id in replica.device_ids:
                pair = (replica.model, device_id)
                require(pair not in seen, f"model {replica.model!r} is placed twice on device {device_id!r}")
                seen.add(pair)

    @property
    def models(self) -> tuple[str, ...]:
        return tuple(sorted({replica.model for replica in self.replicas}))
