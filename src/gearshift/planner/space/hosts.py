"""The ways to run a model on one device, or on 2, 4 or 8 of a node (Ken, section 4.3.2), and hosts that hold models.

A host is a group of devices that hold the same models.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

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


Held = dict[str, list[str]]
"""Models by host name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """One device, or several alike of a node, all of which hold the same models.

    For each model that fits there alone: `seconds` per request, for all its `replicas` here
    together, and `needs_bytes` of each device's `memory_bytes`.
    """

    device_ids: tuple[str, ...]
    memory_bytes: int
    seconds: Mapping[str, float]
    needs_bytes: Mapping[str, int]
    replicas: Mapping[str, tuple[Replica, ...]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return "+".join(self.device_ids)

    def over_bytes(self, models: Iterable[str]) -> int:
        """By how much these models exceed the memory of each device; negative when there is room."""
        return sum(self.needs_bytes[model] for model in models) - self.memory_bytes


def hosts_of(profile: Profile, hardware: Hardware, *, models: Sequence[str] | None = None) -> list[Host]:
    """Hosts of `models` (default all), by their first devices; each device is in one host.

    Models run in the narrowest way that fits. A host has as many devices of a node as the widest
    of them needs, and narrower models have a replica on each device, or on each pair. Left-over
    devices make smaller hosts, without the models that need more. Seconds per request are at the
    most efficient batch size. Raises `InvalidInput` where nothing fits.
    """
    place = {device.id: i for i, device in enumerate(hardware.devices)}
    wanted = set(profile.models if models is None else models)
    hosts = [
        (place[devices[0].id], _host(devices, ways))
        for alike in alike_devices(hardware)
        for devices, ways in _cut(alike, {m: c for m, c in narrowest_ways(profile, alike[0]).items() if m in wanted})
    ]
    if not any(host.seconds for _, host in hosts):
        raise nowhere(profile, hardware)
    return [host for _, host in sorted(hosts, key=lambda both: both[0])]


def placement_of(hosts: Sequence[Host], placed: Held) -> Placement:
    return Placement(
        replicas=tuple(replica for host in hosts for model in placed[host.name] for replica in host.replicas[model])
    )


def replica_shares(hosts: Sequence[Host], shares: Mapping[tuple[str, str], float]) -> dict[str, float]:
    replicas = {(model, host.name): here for host in hosts for model, here in host.replicas.items()}
    return {replica.id: share / len(replicas[at]) for at, share in shares.items() for replica in replicas[at]}


def count_of(placed: Held, model: str) -> int:
    return sum(model in models for models in placed.values())


def seconds_held(hosts: Sequence[Host], held: Held) -> dict[str, dict[str, float]]:
    return {host.name: {model: host.seconds[model] for model in held[host.name]} for host in hosts}


def alike_devices(hardware: Hardware) -> list[list[Device]]:
    alike: dict[tuple[str, str, int, int], list[Device]] = {}
    for d in hardware.devices:
        alike.setdefault((d.node, d.kind, d.cores, d.memory_bytes), []).append(d)
    return list(alike.values())


def _cut(
    devices: Sequence[Device], ways: Mapping[str, RunTimeCurve]
) -> Iterator[tuple[Sequence[Device], dict[str, RunTimeCurve]]]:
    begin = 0
    while begin < len(devices):
        left = len(devices) - begin
        here = {model: curve for model, curve in ways.items() if curve.tensor_parallel <= left}
        size = max((curve.tensor_parallel for curve in here.values()), default=1)
        yield devices[begin : begin + size], here
        begin += size


def _host(devices: Sequence[Device], ways: Mapping[str, RunTimeCurve]) -> Host:
    return Host(
        device_ids=tuple(device.id for device in devices),
        memory_bytes=devices[0].memory_bytes,
        seconds={model: device_seconds(curve) / len(devices) for model, curve in ways.items()},
        needs_bytes={model: bytes_per_device(curve) for model, curve in ways.items()},
        replicas={
            model: tuple(
                replica_on(curve, devices[i : i + curve.tensor_parallel])
                for i in range(0, len(devices), curve.tensor_parallel)
            )
            for model, curve in ways.items()
        },
    )


def place_everywhere(profile: Profile, hardware: Hardware, *, models: Sequence[str] | None = None) -> Placement:
    """Each model on each device (or group of devices that it spans), as far as memory allows.

    Models with fewest replicas go first. `models` are all of the profile by default. Raises
    `InvalidInput` when no model fits any device.
    """
    count = dict.fromkeys(profile.models, 0)
    replicas: list[Replica] = []
    for host in hosts_of(profile, hardware, models=models):
        free_bytes = host.memory_bytes
        for model in sorted(host.seconds, key=lambda m: (count[m], host.needs_bytes[m], m)):
            if host.needs_bytes[model] <= free_bytes:
                free_bytes -= host.needs_bytes[model]
                count[model] += len(host.replicas[model])
                replicas += host.replicas[model]
    return Placement(replicas=tuple(replicas))
