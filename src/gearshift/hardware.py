"""Devices, and the hardware that they make up."""

import msgspec
from msgspec import UNSET, UnsetType

from gearshift.errors import require

GIB = 1 << 30
REMOTE = "remote"
HOST = "host"
MOST_POOL_CORES = 4096


def is_cuda(kind: str) -> bool:
    return kind == "cuda" or kind.startswith("cuda-")


def is_remote(kind: str) -> bool:
    return kind == REMOTE or kind.startswith(f"{REMOTE}-")


class Device(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A unit that runs one batch at a time: a GPU, a set of CPU cores, or a place at an endpoint.

    A device of kind `remote` takes none of this machine's cores, whatever `cores` is. Without a
    `price_per_hour` its cost is not known.
    """

    id: str
    node: str = "local"
    kind: str = "cpu"
    memory_bytes: int = 4 * GIB
    cores: int = 1
    price_per_hour: float | UnsetType = UNSET

    def __post_init__(self) -> None:
        require(bool(self.id), "a device's id is empty")
        require(self.memory_bytes > 0, f"device {self.id!r} has {self.memory_bytes} bytes of memory, needs more than 0")
        require(self.cores >= 1, f"device {self.id!r} has {self.cores} cores, needs at least 1")
        require(
            self.price_per_hour is UNSET or 0 <= self.price_per_hour < float("inf"),
            f"device {self.id!r} has price_per_hour {self.price_per_hour}, needs a finite number from 0",
        )

    @property
    def price_to_compare(self) -> float:
        """The price per hour, or 1 where none is given: by number then."""
        return 1.0 if self.price_per_hour is UNSET else self.price_per_hour

    @property
    def own_cores(self) -> int:
        """Cores of its machine that the device takes: none if it is remote."""
        return 0 if is_remote(self.kind) else self.cores


class Hardware(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The available devices.

    `pool_cores`, where given, are the cores that they share: each device begins with its own
    number, and every gear sets how many its replica then has.
    """

    devices: tuple[Device, ...]
    pool_cores: int | None = None

    def __post_init__(self) -> None:
        require(len(self.devices) >= 1, "hardware has no devices, needs at least one")
        ids = [device.id for device in self.devices]
        require(len(set(ids)) == len(ids), f"device ids are not unique: {sorted(ids)}")
        require(
            self.pool_cores is None or self.cores <= self.pool_cores <= MOST_POOL_CORES,
            f"pool_cores is {self.pool_cores}, and devices begin with {self.cores}",
            remedy=f"let them share as many as they begin with, and up to {MOST_POOL_CORES}",
        )

    @property
    def cores(self) -> int:
        return sum(device.own_cores for device in self.devices)


def identical_devices(
    count: int,
    *,
    kind: str = "cpu",
    memory_bytes: int = 4 * GIB,
    cores: int = 1,
    price_per_hour: float | UnsetType = UNSET,
) -> Hardware:
    """Hardware of `count` devices named `kind-0`, `kind-1`, ... on one node."""
    require(count >= 1, f"{count} devices asked for", remedy="ask for at least one")
    return Hardware(
        devices=tuple(
            Device(id=f"{kind}-{i}", kind=kind, memory_bytes=memory_bytes, cores=cores, price_per_hour=price_per_hour)
            for i in range(count)
        )
    )
