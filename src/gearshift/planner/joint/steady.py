"""Place the models of a graph, and simulate one tuple of implementations at one constant load on a placement."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
from numpy.typing import NDArray

from gearshift.cascade import Cascade
from gearshift.clock import NS_PER_S
from gearshift.errors import InvalidInput
from gearshift.gear import Gear, LoadRange, ReplicaSettings
from gearshift.hardware import Device, Hardware
from gearshift.placement import Placement, Replica
from gearshift.planner.evaluate.assemble import curves_of
from gearshift.planner.evaluate.balance import balanced
from gearshift.planner.evaluate.cells import Cell, measured_in, rank_of
from gearshift.planner.joint.request import PipelineRequest
from gearshift.planner.space.bisection import climbed
from gearshift.planner.space.hosts import bytes_per_device, device_seconds, replica_on, ways
from gearshift.profiles.profile import PART_A, Profile, RunTimeCurve
from gearshift.profiles.several import as_one
from gearshift.simulator.simulate import Simulation, prepare
from gearshift.workload import Trace, Workload, draw_workload


def place(profiles: Iterable[Profile], hardware: Hardware, visits: Mapping[str, float]) -> Placement:
    """Replicas of the models in `visits`, each with its items per request.

    First each model gets one replica, large ones first, on the device with the most memory left;
    then further ones as long as memory lasts, always the model with the most load per replica.
    Raises `InvalidInput` where a model fits nowhere.
    """
    curves = _curves(profiles, hardware)
    load_s = {model: visits[model] * _seconds(model, curves) for model in visits}
    left = {device.id: device.memory_bytes for device in hardware.devices}
    held: dict[str, list[Device]] = {model: [] for model in load_s}

    def homes(model: str) -> list[Device]:
        return [
            device
            for device in hardware.devices
            if device not in held[model]
            and (curve := curves.get((model, device.id))) is not None
            and bytes_per_device(curve) <= left[device.id]
        ]

    def hold(model: str, device: Device) -> None:
        held[model].append(device)
        left[device.id] -= bytes_per_device(curves[model, device.id])

    def size(model: str) -> int:
        return max((bytes_per_device(c) for (name, _), c in curves.items() if name == model), default=0)

    for model in sorted(load_s, key=lambda m: (-size(m), m)):
        free = homes(model)
        if not free:
            raise InvalidInput(
                f"model {model!r} fits on no device beside the others",
                remedy="give devices more memory, or more devices, or leave out a model",
            )
        hold(model, max(free, key=lambda device: left[device.id]))
    while True:
        wanting = [model for model in load_s if homes(model)]
        if not wanting:
            break
        model = max(wanting, key=lambda m: (load_s[m] / len(held[m]), m))
        hold(model, max(homes(model), key=lambda device: left[device.id]))
    replicas: list[Replica] = []
    for model in sorted(load_s):
        by_place = [device for device in hardware.devices if device in held[model]]
        replicas += [replica_on(curves[model, device.id], [device]) for device in by_place]
    return Placement(replicas=tuple(replicas))


def _seconds(model: str, curves: Mapping[tuple[str, str], RunTimeCurve]) -> float:
    return min((device_seconds(curve) for (name, _), curve in curves.items() if name == model), default=0.0)


def _curves(profiles: Iterable[Profile], hardware: Hardware) -> dict[tuple[str, str], RunTimeCurve]:
    """The curve of each model on each device, by model and device id; only those of one device."""
    return {
        (curve.model, device.id): curve
        for profile in profiles
        for device in hardware.devices
        for curve in ways(profile, kind=device.kind, cores=device.cores)
        if curve.tensor_parallel == 1
    }


SAMPLES = 6_000


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A tuple: the cascade of each node, its expected quality, and work in seconds per request row.

    `visits` are the items of each model per request row.
    """

    cascades: Mapping[str, Cascade]
    quality: float
    work_s: float
    visits: Mapping[str, float]

    @property
    def models(self) -> frozenset[str]:
        return frozenset(model for cascade in self.cascades.values() for model in cascade.models)


def most_visits(front: Sequence[Candidate]) -> dict[str, float]:
    """Visits of each model per request row, in the tuple that visits it most: how much it needs replicas."""
    most: dict[str, float] = {}
    for candidate in front:
        for model in candidate.models:
            most[model] = max(most.get(model, 0.0), candidate.visits.get(model, 0.0))
    return most


@dataclass(slots=True)
class SteadyTuples:
    """Cells of tuples on a placement, each simulated once, with the same arrivals and records of part A."""

    request: PipelineRequest
    placement: Placement
    simulated: int = 0
    _curves: dict[str, RunTimeCurve] = field(init=False)
    _gaps: NDArray[np.float64] = field(init=False)
    _records: NDArray[np.int32] = field(init=False)
    _shares: dict[int, dict[str, float]] = field(default_factory=dict)
    _cells: dict[tuple[int, float, int], Cell] = field(default_factory=dict)
    _simulated: dict[int, Candidate] = field(default_factory=dict)
    """By the number that cells know them by, so that no other gets it."""
    _last_held: int = 0

    def __post_init__(self) -> None:
        request = self.request
        self._curves = curves_of(as_one(request.profiles), request.hardware, self.placement)
        self._gaps = np.random.default_rng([request.seed, 1]).exponential(1.0, SAMPLES)
        trace = Trace(arrivals_ns=np.arange(SAMPLES, dtype=np.int64), duration_s=SAMPLES / NS_PER_S)
        self._records = draw_workload(trace, request.records.indices(PART_A), seed=request.seed).record

    def sizes(self) -> list[int]:
        """The batch sizes to try: each about twice the one before."""
        largest = max(curve.largest_batch_size for curve in self._curves.values())
        return [1 << power for power in range(largest.bit_length())]

    def settings(self, candidate: Candidate, largest: int) -> tuple[ReplicaSettings, ...]:
        return self.settings_for(self._shares_of(candidate), largest)

    def settings_for(self, shares: Mapping[str, float], largest: int) -> tuple[ReplicaSettings, ...]:
        return tuple(
            ReplicaSettings(
                replica=replica.id,
                load_share=shares.get(replica.id, 0.0),
                largest_batch_size=min(largest, self._curves[replica.id].largest_batch_size),
                cores=replica.cores,
            )
            for replica in self.placement.replicas
        )

    def _shares_of(self, candidate: Candidate) -> dict[str, float]:
        if id(candidate) not in self._shares:
            visits = {model: candidate.visits.get(model, 0.0) for model in candidate.models}
            self._shares[id(candidate)] = self.shares(visits)
        return self._shares[id(candidate)]

    def shares(self, visits: Mapping[str, float]) -> dict[str, float]:
        """The load shares by replica id that balance devices, for these items of each model per request row."""
        work_s = {r.id: self._work_s(self._curves[r.id]) for r in self.placement.replicas}
        reach = {model: max(visits[model], 1e-9) for model in sorted(visits)}
        return balanced(self.placement, work_s, reach).shares

    def run_s(self) -> dict[str, float | NDArray[np.float64]]:
        """Seconds of one item of each model on its fastest replica.

        Of a model with learned caches, those of each recorded sample (samples,) up to its exit.
        """
        alone_ns = {id_: int(curve.table_ns()[1]) for id_, curve in self._curves.items()}
        fastest: dict[str, Replica] = {}
        for replica in sorted(self.placement.replicas, key=lambda replica: alone_ns[replica.id]):
            fastest.setdefault(replica.model, replica)
        return {model: self._until_exit_s(replica) for model, replica in fastest.items()}

    def _until_exit_s(self, replica: Replica) -> float | NDArray[np.float64]:
        curve = self._curves[replica.id]
        profile = next(each for each in self.request.profiles.values() if replica.model in each.models)
        segments = profile.segments(
            replica.model, device_kind=curve.device_kind, tensor_parallel=curve.tensor_parallel, cores=curve.cores
        )
        until_s = np.cumsum([segment.table_ns()[1] for segment in segments]) / NS_PER_S
        exits = profile.predictions.exit_segment
        if len(segments) == 1 or exits is None:
            return float(until_s[-1])
        return np.asarray(until_s[exits[profile.predictions.rows((replica.model,))[0]]])

    @staticmethod
    def _work_s(curve: RunTimeCurve) -> float:
        table_s = curve.table_ns()[1:] / NS_PER_S
        return float((table_s / np.arange(1, len(table_s) + 1)).min())

    def cell(self, candidate: Candidate, load_qps: float, largest: int) -> Cell:
        key = id(candidate), load_qps, largest
        if key not in self._cells:
            request = self.request
            gear = request.gear(LoadRange(from_=0.0), candidate.cascades, self.settings(candidate, largest))
            self._cells[key] = self.judged(self.run(gear, load_qps))
            self._simulated[id(candidate)] = candidate
        return self._cells[key]

    def seen_near(self, load_qps: float, share: float) -> list[tuple[Candidate, float, float]]:
        """The simulated runs at loads up to this share away: tuple, load, and the least latency of its batches."""
        least_s: dict[tuple[int, float], float] = {}
        for (number, qps, _), cell in self._cells.items():
            if abs(qps - load_qps) <= share * load_qps and math.isfinite(cell.latency_s):
                least_s[number, qps] = min(cell.latency_s, least_s.get((number, qps), math.inf))
        return [(self._simulated[number], qps, latency_s) for (number, qps), latency_s in least_s.items()]

    def run(self, gear: Gear, load_qps: float) -> Simulation:
        """One gear, whatever its range, at a constant load."""
        request = self.request
        alone = request.plan(self.placement, [msgspec.structs.replace(gear, load_range=LoadRange(from_=0.0))])
        self.simulated += 1
        return prepare(alone, request.profiles, {request.name: request.records}).run(self._workload(load_qps))

    def judged(self, run: Simulation) -> Cell:
        return measured_in(run, self.request.objective.percentile).judged(self.request.latency_s)

    def _workload(self, load_qps: float) -> Workload:
        arrivals_ns = np.cumsum(np.rint(self._gaps * (NS_PER_S / load_qps)).astype(np.int64))
        duration_s = float(arrivals_ns[-1]) / NS_PER_S
        return self.request.varying(Workload(arrivals_ns=arrivals_ns, record=self._records, duration_s=duration_s))

    def meets(self, cell: Cell) -> bool:
        return cell.stable and cell.latency_s <= self.request.latency_s

    def holding(self, candidate: Candidate, load_qps: float) -> int | None:
        """The largest batch with which the tuple holds at this load; None if it holds with none."""
        if self._busiest(candidate) * load_qps > 1:
            return None
        size = self._climbed(candidate, load_qps)
        if not self.meets(self.cell(candidate, load_qps, size)):
            return None
        self._last_held = size
        return size

    def best(self, candidate: Candidate, load_qps: float) -> Cell:
        """The cell with the best largest batch, also where it does not hold."""
        return self.cell(candidate, load_qps, self._climbed(candidate, load_qps))

    def size(self, candidate: Candidate, load_qps: float) -> int:
        """The best largest batch, also where it does not hold."""
        return self._climbed(candidate, load_qps)

    def _climbed(self, candidate: Candidate, load_qps: float) -> int:
        """Climb from the size that held last, to the better neighbour until one holds or none is better."""
        sizes = self.sizes()
        at = min(range(len(sizes)), key=lambda i: abs(sizes[i] - (self._last_held or sizes[-1])))

        def cell(i: int) -> Cell:
            return self.cell(candidate, load_qps, sizes[i])

        return sizes[climbed(at, len(sizes), lambda i: rank_of(cell(i)), lambda i: self.meets(cell(i)))]

    def _busiest(self, candidate: Candidate) -> float:
        return max(self._busy(candidate).values(), default=math.inf)

    def bottleneck(self, candidate: Candidate) -> tuple[str, str]:
        """The busiest device, and the model that takes most of its time."""
        busy = self._busy(candidate)
        device = max(busy, key=lambda id_: busy[id_])
        shares = self._shares_of(candidate)
        there = [replica for replica in self.placement.replicas if device in replica.device_ids]
        heaviest = max(there, key=lambda replica: shares.get(replica.id, 0.0) * self._seconds(candidate, replica))
        return heaviest.model, device

    def _busy(self, candidate: Candidate) -> dict[str, float]:
        """Device-seconds per request by device, with the most efficient batches."""
        shares, busy = self._shares_of(candidate), dict[str, float]()
        for replica in self.placement.replicas:
            for device_id in replica.device_ids:
                seconds = shares.get(replica.id, 0.0) * self._seconds(candidate, replica)
                busy[device_id] = busy.get(device_id, 0.0) + seconds
        return busy

    def _seconds(self, candidate: Candidate, replica: Replica) -> float:
        return self._work_s(self._curves[replica.id]) * candidate.visits.get(replica.model, 0.0)
