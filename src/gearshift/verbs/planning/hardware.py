"""The devices that are planned for."""

from pathlib import Path

from gearshift.errors import require
from gearshift.hardware import HOST, MOST_POOL_CORES, Device, Hardware, identical_devices
from gearshift.planner.space.hosts import bytes_side_by_side
from gearshift.plans.prices import priced
from gearshift.profiles.profile import Profile
from gearshift.support.files import PathLike

MOST_DEVICES = 10_000


def hardware_of(
    devices: int | Hardware | PathLike,
    profile: Profile,
    *,
    memory_bytes: int | None = None,
    price: str | float | None = None,
) -> Hardware:
    """The hardware; `price`, where given, is that of each device, and replaces a file's."""
    return priced(_hardware_of(devices, profile, memory_bytes), price)


def _hardware_of(devices: int | Hardware | PathLike, profile: Profile, memory_bytes: int | None) -> Hardware:
    if isinstance(devices, int):
        return profiled_devices(profile, devices, memory_bytes=memory_bytes)
    return named_hardware(devices, memory_bytes)


def host_of(profile: Profile, cores: int) -> Hardware:
    require(1 <= cores <= MOST_POOL_CORES, f"{cores} cores asked for", remedy=f"ask for 1 to {MOST_POOL_CORES}")
    return Hardware(devices=(Device(id=HOST, kind=profile.curves[0].device_kind),), pool_cores=cores)


def profiled_devices(profile: Profile, count: int, *, memory_bytes: int | None = None) -> Hardware:
    """Return `count` devices like the profiled one, with memory for all models of the profile.

    For a model that only runs split over several devices, its part is counted.
    """
    first = profile.curves[0]
    require(1 <= count <= MOST_DEVICES, f"{count} devices asked for", remedy=f"ask for 1 to {MOST_DEVICES}")
    if memory_bytes is None:
        memory_bytes = max(1 << 30, bytes_side_by_side(profile, kind=first.device_kind, cores=first.cores))
    require(memory_bytes >= 1, f"memory_bytes is {memory_bytes}", remedy="give a positive number of bytes")
    return identical_devices(count, kind=first.device_kind, cores=first.cores, memory_bytes=memory_bytes)


def named_hardware(devices: Hardware | PathLike, memory_bytes: int | None) -> Hardware:
    if isinstance(devices, Hardware):
        return devices
    require(
        memory_bytes is None, "memory and a hardware file are both given", remedy="write memory_bytes into the file"
    )
    from gearshift.plans.hardware_file import read_hardware

    return read_hardware(Path(devices))
