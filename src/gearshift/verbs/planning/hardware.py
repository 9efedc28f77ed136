"""The devices that are planned for."""

from pathlib import Path

from gearshift.errors import require
from gearshift.hardware import HOST, MOST_POOL_CORES, Device, Hardware, identical_devices, is_remote
from gearshift.planner.language.request import MEMORY_SHARE
from gearshift.planner.space.ways import bytes_side_by_side
from gearshift.plans.hardware_file import read_hardware
from gearshift.plans.prices import priced
from gearshift.profiles.engines.language_profile import LanguageProfile
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
    return _named(devices, memory_bytes)


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


def language_hardware(
    profile: LanguageProfile,
    devices: int | Hardware | PathLike | None,
    *,
    memory_bytes: int | None = None,
    memory_share: float = MEMORY_SHARE,
) -> Hardware:
    if devices is not None and not isinstance(devices, int):
        return _named(devices, memory_bytes)
    kind = profile.engines[0].device_kind
    if is_remote(kind):
        require(devices is None, "a number of devices is given, and models are behind endpoints", remedy="leave it out")
        return Hardware(devices=tuple(Device(id=f"{model}-0", kind=kind) for model in profile.models))
    here = [one for one in profile.engines if one.device_kind == kind]
    narrowest = {
        model: min(one.tensor_parallel for one in here if one.model == model) for model in {e.model for e in here}
    }
    known = all(one.weights_bytes and one.kv_bytes_per_token for one in here)
    count = devices or (min(narrowest.values()) if known else sum(narrowest.values()))
    require(1 <= count <= MOST_DEVICES, f"{count} devices asked for", remedy=f"ask for 1 to {MOST_DEVICES}")
    enough = max(
        (one.weights_bytes + one.kv_blocks * one.block_tokens * one.kv_bytes_per_token) / one.tensor_parallel
        for one in here
    )
    return identical_devices(
        count, kind=kind, memory_bytes=memory_bytes or max(1 << 20, int(enough / memory_share) + 1)
    )


def _named(devices: Hardware | PathLike, memory_bytes: int | None) -> Hardware:
    if isinstance(devices, Hardware):
        return devices
    require(
        memory_bytes is None, "memory and a hardware file are both given", remedy="write memory_bytes into the file"
    )
    return read_hardware(Path(devices))
