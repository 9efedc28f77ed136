"""Hosts: groups of devices that hold the same models, what fits on each, and how fast it runs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gearshift.hardware import Device, Hardware
from gearshift.placement import Placement, Replica
from gearshift.planner.space.ways import bytes_per_device, device_seconds, narrowest_ways, nowhere, replica_on
from gearshift.profiles.profile import Profile, RunTimeCurve

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
