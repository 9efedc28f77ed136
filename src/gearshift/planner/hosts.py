"""Devices as hosts of models: what fits each, and how fast it runs there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gearshift.errors import InvalidInput
from gearshift.hardware import Hardware
from gearshift.placement import Placement, Replica
from gearshift.profiles.profile import Profile

Held = dict[str, list[str]]
"""Models by device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A device with its memory, and the seconds per request and bytes of each model that fits it alone."""

    device: str
    memory_bytes: int
    seconds: Mapping[str, float]
    needs_bytes: Mapping[str, int]

    def over_bytes(self, models: Sequence[str]) -> int:
        """By how much these models exceed its memory; negative when there is room."""
        return sum(self.needs_bytes[model] for model in models) - self.memory_bytes


def hosts_of(profile: Profile, hardware: Hardware) -> list[Host]:
    """The devices, with the models that fit each alone.

    Seconds per request are at the batch size where they are least; raises `InvalidInput` where nothing fits.
    """
    hosts = []
    for device in hardware.devices:
        curves = {m: profile.curve(m, device_kind=device.kind, cores=device.cores) for m in profile.models}
        fitting = {m: curve for m, curve in curves.items() if curve.memory_bytes <= device.memory_bytes}
        tables_s = {m: curve.table_ns()[1:] / 1e9 for m, curve in fitting.items()}
        hosts.append(
            Host(
                device=device.id,
                memory_bytes=device.memory_bytes,
                seconds={m: float((t / np.arange(1, len(t) + 1)).min()) for m, t in tables_s.items()},
                needs_bytes={m: curve.memory_bytes for m, curve in fitting.items()},
            )
        )
    if not any(host.seconds for host in hosts):
        raise InvalidInput(
            "no model fits the memory of any device",
            where="hardware",
            remedy="plan for devices with more memory, or profile smaller models",
        )
    return hosts


def placement_of(hardware: Hardware, placed: Held) -> Placement:
    """The placement of these models."""
    return Placement(
        replicas=tuple(
            Replica(id=replica_id(model, device.id), model=model, device_ids=(device.id,), cores=device.cores)
            for device in hardware.devices
            for model in placed[device.id]
        )
    )


def replica_id(model: str, device: str) -> str:
    """The id of a model's replica on a device."""
    return f"{model}@{device}"


def count_of(placed: Held, model: str) -> int:
    """How many replicas a model has."""
    return sum(model in models for models in placed.values())


def seconds_held(hosts: Sequence[Host], held: Held) -> dict[str, dict[str, float]]:
    """Seconds per request by device and model placed there."""
    return {host.device: {model: host.seconds[model] for model in held[host.device]} for host in hosts}
