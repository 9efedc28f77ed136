"""The ways to run a model: on one device, or on 2, 4 or 8 of one node (Ken, section 4.3.2)."""

from collections.abc import Sequence

import numpy as np

from gearshift.clock import NS_PER_S
from gearshift.errors import InvalidInput
from gearshift.hardware import Device, Hardware
from gearshift.placement import Placement, Replica
from gearshift.profiles.profile import Profile, RunTimeCurve

DEGREES = (1, 2, 4, 8)


def ways(profile: Profile, *, kind: str, cores: int) -> list[RunTimeCurve]:
    """Ways profiled on devices of this kind and cores, by model, narrow ones first."""
    found = [
        c for c in profile.whole_curves if (c.device_kind, c.cores) == (kind, cores) and c.tensor_parallel in DEGREES
    ]
    order = {model: i for i, model in enumerate(profile.models)}
    return sorted(found, key=lambda c: (order[c.model], c.tensor_parallel))


def narrowest_ways(profile: Profile, device: Device) -> dict[str, RunTimeCurve]:
    """For each model, the way over the fewest devices like `device` whose memory is enough."""
    narrowest: dict[str, RunTimeCurve] = {}
    for curve in ways(profile, kind=device.kind, cores=device.cores):
        if bytes_per_device(curve) <= device.memory_bytes:
            narrowest.setdefault(curve.model, curve)
    return narrowest


def bytes_per_device(curve: RunTimeCurve) -> int:
    return -(-curve.memory_bytes // curve.tensor_parallel)


def bytes_side_by_side(profile: Profile, *, kind: str, cores: int) -> int:
    widest_first = reversed(ways(profile, kind=kind, cores=cores))
    return sum({curve.model: bytes_per_device(curve) for curve in widest_first}.values())


def device_seconds(curve: RunTimeCurve) -> float:
    """Device-seconds per request at the most efficient batch size, over all its devices."""
    table_s = curve.table_ns()[1:] / NS_PER_S
    return curve.tensor_parallel * float((table_s / np.arange(1, len(table_s) + 1)).min())


def replica_on(curve: RunTimeCurve, devices: Sequence[Device]) -> Replica:
    ids = tuple(device.id for device in devices)
    return Replica(
        id=f"{curve.model}@{'+'.join(ids)}",
        model=curve.model,
        device_ids=ids,
        cores=curve.cores,
        tensor_parallel=curve.tensor_parallel,
    )


def nowhere(profile: Profile, hardware: Hardware) -> InvalidInput:
    asked = {(device.kind, device.cores) for device in hardware.devices}
    if not asked & {(curve.device_kind, curve.cores) for curve in profile.whole_curves}:
        return InvalidInput(
            "the profile has no run times on devices of these kinds and cores: "
            + ", ".join(f"{kind} with {cores}" for kind, cores in sorted(asked)),
            where="hardware",
            remedy="profile models there, or plan for devices that were profiled",
        )
    return InvalidInput(
        "no model fits the memory of any device",
        where="hardware",
        remedy="plan for devices with more memory, or for more of them on a node, or profile smaller models",
    )


def room_for(
    models: Sequence[str], placement: Placement, hardware: Hardware, profile: Profile
) -> dict[str, tuple[str, ...]]:
    """Devices with room for each model, after all placed ones and the models before it."""
    free_bytes = {device.id: device.memory_bytes for device in hardware.devices}
    for replica in placement.replicas:
        curve = profile.curve(
            replica.model,
            device_kind=next(d.kind for d in hardware.devices if d.id == replica.device_ids[0]),
            tensor_parallel=replica.tensor_parallel,
            cores=replica.cores,
        )
        for id_ in replica.device_ids:
            free_bytes[id_] -= bytes_per_device(curve)
    room: dict[str, tuple[str, ...]] = {}
    for model in models:
        room[model] = _first_room(model, free_bytes, hardware, profile)
    return room


def _first_room(model: str, free_bytes: dict[str, int], hardware: Hardware, profile: Profile) -> tuple[str, ...]:
    for first in hardware.devices:
        for curve in ways(profile, kind=first.kind, cores=first.cores):
            needs_bytes = bytes_per_device(curve)
            alike = [
                d.id
                for d in hardware.devices
                if (d.node, d.kind, d.cores) == (first.node, first.kind, first.cores)
                and free_bytes[d.id] >= needs_bytes
            ]
            if curve.model == model and len(alike) >= curve.tensor_parallel:
                taken = tuple(alike[: curve.tensor_parallel])
                for id_ in taken:
                    free_bytes[id_] -= needs_bytes
                return taken
    return ()
