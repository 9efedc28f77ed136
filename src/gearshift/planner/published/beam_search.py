"""Placement by beam search: replicas of models on one or several devices of a node.

Ken, section 4.3.2.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from gearshift.hardware import Device, Hardware
from gearshift.placement import Placement, Replica
from gearshift.planner.space.hosts import bytes_per_device, ways
from gearshift.profiles.profile import Profile, RunTimeCurve

WIDTH = 4
EXPANSIONS = 8
MOST_ROUNDS = 32
ATTEMPTS = 32
"""Random first placements to sample before a deterministic last attempt."""

Cost = tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Devices of one kind, cores and node, any `degree` of which can hold a replica of `model`.

    `memory_bytes` is the memory of the replica on each of them.
    """

    model: str
    degree: int
    device_ids: tuple[str, ...]
    cores: int
    memory_bytes: int
    curve: RunTimeCurve


def sites(profile: Profile, hardware: Hardware) -> tuple[Site, ...]:
    found = []
    for (_, kind, cores), alike in groupby(sorted(hardware.devices, key=_likeness), key=_likeness):
        devices = list(alike)
        for curve in ways(profile, kind=kind, cores=cores):
            memory_bytes = bytes_per_device(curve)
            large_enough = tuple(device.id for device in devices if memory_bytes <= device.memory_bytes)
            if len(large_enough) >= curve.tensor_parallel:
                found.append(
                    Site(
                        model=curve.model,
                        degree=curve.tensor_parallel,
                        device_ids=large_enough,
                        cores=curve.cores,
                        memory_bytes=memory_bytes,
                        curve=curve,
                    )
                )
    return tuple(found)


@dataclass(slots=True)
class Placer:
    """Sample placements of models on `hardware` within memory, no model twice on a device."""

    hardware: Hardware
    sites: tuple[Site, ...]
    generator: np.random.Generator

    def first(self, models: Iterable[str]) -> Placement | None:
        """One replica per model, sampled; None when none was found.

        The last attempt is not random: the largest model first, where most memory is free.
        """
        names = sorted(models)
        for attempt in range(ATTEMPTS + 1):
            chance = attempt < ATTEMPTS
            order = self.generator.permutation(names).tolist() if chance else sorted(names, key=self._bulk)
            room = _Room(self)
            if all(room.add([model], sampled=chance) for model in order):
                return room.placement()
        return None

    def completed(self, placement: Placement, models: Iterable[str]) -> Placement | None:
        """Drop other models and sample one replica of each missing model; None for no room."""
        wanted = sorted(models)
        room = _Room(self, [replica for replica in placement.replicas if replica.model in wanted])
        missing = [model for model in wanted if model not in placement.models]
        return room.placement() if all(room.add([model]) for model in missing) else None

    def expanded(self, placement: Placement) -> Placement | None:
        """Add a random number (1, 2, 4, ...) of sampled replicas of its models; None when full."""
        room, models = _Room(self, placement.replicas), placement.models
        doublings = len(self.hardware.devices).bit_length()
        for added in range(1 << int(self.generator.integers(doublings))):
            if not room.add(models):
                return room.placement() if added else None
        return room.placement()

    def _bulk(self, model: str) -> tuple[int, str]:
        return -max((site.memory_bytes for site in self.sites if site.model == model), default=0), model


def beam_search(
    placer: Placer,
    cost: Callable[[Placement], Cost],
    starts: Sequence[Placement],
    *,
    width: int = WIDTH,
    expansions: int = EXPANSIONS,
) -> Placement:
    """The placement of least `cost` that was found from `starts` by adding replicas.

    Each of the `width` best is expanded `expansions` times, and the best of old and new are kept,
    until nothing changes. Of equally good ones the earlier stays, which has fewer replicas.
    """
    beam = _best(starts, cost, width)
    for _ in range(MOST_ROUNDS):
        grown = [placer.expanded(placement) for placement in beam for _ in range(expansions)]
        better = _best([*beam, *(placement for placement in grown if placement is not None)], cost, width)
        if better == beam:
            break
        beam = better
    return beam[0]


def _best(placements: Iterable[Placement], cost: Callable[[Placement], Cost], width: int) -> list[Placement]:
    return sorted(dict.fromkeys(placements), key=cost)[:width]


def _likeness(device: Device) -> tuple[str, str, int]:
    return device.node, device.kind, device.cores


class _Room:
    def __init__(self, placer: Placer, replicas: Iterable[Replica] = ()) -> None:
        self.placer = placer
        self.replicas: list[Replica] = []
        self.free_bytes = {device.id: device.memory_bytes for device in placer.hardware.devices}
        self.taken: set[tuple[str, str]] = set()
        self.open_ids = [dict.fromkeys(site.device_ids) for site in placer.sites]
        memory_bytes = {
            (site.model, site.degree, d): site.memory_bytes for site in placer.sites for d in site.device_ids
        }
        for replica in replicas:
            first = replica.device_ids[0]
            self._take(replica, memory_bytes[replica.model, replica.tensor_parallel, first])

    def add(self, models: Iterable[str], *, sampled: bool = True) -> bool:
        choices = [
            (site, open_ids)
            for site, open_ids in zip(self.placer.sites, self.open_ids, strict=True)
            if site.model in models and len(open_ids) >= site.degree
        ]
        if not choices:
            return False
        if sampled:
            generator = self.placer.generator
            weights = [math.comb(len(open_ids), site.degree) for site, open_ids in choices]
            total = sum(weights)
            site, open_ids = choices[int(generator.choice(len(choices), p=[w / total for w in weights]))]
            chosen = generator.choice(len(open_ids), site.degree, replace=False).tolist()
            in_order = list(open_ids)
            device_ids = [in_order[i] for i in sorted(chosen)]
        else:
            site, open_ids = min(choices, key=lambda choice: choice[0].memory_bytes)
            device_ids = sorted(open_ids, key=lambda d: -self.free_bytes[d])[: site.degree]
        replica = Replica(
            id=f"{site.model}@{'+'.join(device_ids)}",
            model=site.model,
            device_ids=tuple(device_ids),
            cores=site.cores,
            tensor_parallel=site.degree,
        )
        self._take(replica, site.memory_bytes)
        return True

    def placement(self) -> Placement:
        """Independent of the order in which replicas were added."""
        return Placement(replicas=tuple(sorted(self.replicas, key=lambda replica: replica.id)))

    def _fits(self, site: Site, device_id: str) -> bool:
        return site.memory_bytes <= self.free_bytes[device_id] and (site.model, device_id) not in self.taken

    def _take(self, replica: Replica, memory_bytes: int) -> None:
        self.replicas.append(replica)
        for device_id in replica.device_ids:
            self.free_bytes[device_id] -= memory_bytes
            self.taken.add((replica.model, device_id))
            for site, open_ids in zip(self.placer.sites, self.open_ids, strict=True):
                if not self._fits(site, device_id):
                    open_ids.pop(device_id, None)
