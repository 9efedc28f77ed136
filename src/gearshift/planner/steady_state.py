"""Steady state: what one cascade does at one constant load on a placement, by simulation."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gearshift.cascade import Cascade
from gearshift.clock import NS_PER_S
from gearshift.gear import Gear, GearPlan, LoadRange, OperatorPlan, ReplicaSettings, SourceFile
from gearshift.hardware import Hardware
from gearshift.objective import Objective
from gearshift.placement import Placement
from gearshift.plan_tables import plan_tables
from gearshift.planner.assemble import curves_of, replica_settings
from gearshift.profiles.profile import PART_A, Profile
from gearshift.profiles.run_times import run_times_ns
from gearshift.result import percentile
from gearshift.simulator.simulate import simulate_tables
from gearshift.workload import Trace, Workload, draw_workload

SAMPLES = 20_000
WARM_UP_SHARE = 0.1
CAPACITY_PRECISION = 0.02
STABLE_GROWTH = 1.5
"""A queue that grows without end makes the last third of a run 5 / 3 as slow as the middle third."""
HARDLY_EVER_IDLE = 0.995
STABLE_GROWTH_UNDER_FULL_LOAD = 1.15
"""Large batches may keep a device busy all the time and still keep up; growth is then looked at more closely."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One cascade at one load with one largest batch: seconds at the percentile, share late, mean utilisation."""

    latency_s: float
    share_late: float
    stable: bool
    utilisation: float


def shares_by_speed(profile: Profile, hardware: Hardware, placement: Placement) -> dict[str, float]:
    """Each replica's load share: in proportion to its device's speed for its model."""
    speed = {}
    curves = curves_of(profile, hardware, placement)
    for replica in placement.replicas:
        table = curves[replica.id].table_ns()[1:]
        speed[replica.id] = float((np.arange(1, len(table) + 1) / table).max())
    total: dict[str, float] = {}
    for replica in placement.replicas:
        total[replica.model] = total.get(replica.model, 0.0) + speed[replica.id]
    return {replica.id: speed[replica.id] / total[replica.model] for replica in placement.replicas}


@dataclass(slots=True)
class SteadyState:
    """Cells of a profile on a placement, simulated once each; `simulated` counts them.

    Every cell sees the same arrivals (scaled to its load) and the same samples of part A.
    """

    profile: Profile
    hardware: Hardware
    placement: Placement
    objective: Objective
    seed: int
    simulated: int = 0
    _shares: dict[str, float] = field(init=False)
    _unit_gaps: NDArray[np.float64] = field(init=False)
    _records: NDArray[np.int32] = field(init=False)
    _cells: dict[tuple[Cascade, float, int], Cell] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._shares = shares_by_speed(self.profile, self.hardware, self.placement)
        self._unit_gaps = np.random.default_rng([self.seed, 1]).exponential(1.0, SAMPLES)
        trace = Trace(arrivals_ns=np.arange(SAMPLES, dtype=np.int64), duration_s=SAMPLES / NS_PER_S)
        self._records = draw_workload(trace, self.profile.predictions.indices(PART_A), seed=self.seed).record

    def batch_sizes(self) -> list[int]:
        """The largest batches to choose from: the profiled sizes of the model with the most."""
        return sorted({size for curve in self.profile.curves for size in curve.batch_sizes})

    def settings(self, cascade: Cascade, largest_batch_size: int) -> tuple[ReplicaSettings, ...]:
        """How every replica works in a gear with this cascade."""
        return replica_settings(
            self.profile,
            self.hardware,
            self.placement,
            cascade,
            shares=self._shares,
            largest_batch_size=largest_batch_size,
        )

    def cell(self, cascade: Cascade, load_qps: float, largest_batch_size: int) -> Cell:
        """The cell, simulated unless it is known."""
        key = (cascade, load_qps, largest_batch_size)
        if key not in self._cells:
            self._cells[key] = self._simulate(cascade, load_qps, largest_batch_size)
            self.simulated += 1
        return self._cells[key]

    def cells(self, keys: Iterable[tuple[Cascade, float, int]]) -> list[Cell]:
        """Several cells, simulated side by side (the kernel runs without the interpreter's lock)."""
        with ThreadPoolExecutor() as pool:
            return list(pool.map(lambda key: self.cell(*key), keys))

    def best(self, cascade: Cascade, load_qps: float) -> tuple[int, Cell]:
        """The largest batch with the least share late, then the least latency, and its cell."""
        sizes = self.batch_sizes()
        cells = self.cells((cascade, load_qps, size) for size in sizes)
        chosen = min(range(len(sizes)), key=lambda i: (not cells[i].stable, cells[i].share_late, cells[i].latency_s))
        return sizes[chosen], cells[chosen]

    def holds(self, cascade: Cascade, load_qps: float) -> bool:
        """Whether some largest batch keeps the cascade stable and within the objective at this load."""
        sizes = reversed(self.batch_sizes())
        return any(self._meets(self.cell(cascade, load_qps, size)) for size in sizes)

    def capacity_qps(self, cascade: Cascade, *, least_qps: float, most_qps: float) -> float:
        """The highest load, to within `CAPACITY_PRECISION`, at which the cascade holds; 0 when below `least_qps`."""
        if not self.holds(cascade, least_qps):
            return 0.0
        if self.holds(cascade, most_qps):
            return most_qps
        low, high = least_qps, most_qps
        while high > low * (1 + CAPACITY_PRECISION):
            middle = (low * high) ** 0.5
            low, high = (middle, high) if self.holds(cascade, middle) else (low, middle)
        return low

    def _meets(self, cell: Cell) -> bool:
        return cell.stable and (self.objective.latency_s is None or cell.latency_s <= self.objective.latency_s)

    def _simulate(self, cascade: Cascade, load_qps: float, largest_batch_size: int) -> Cell:
        return self.serve(cascade, self.settings(cascade, largest_batch_size), load_qps)

    def serve(self, cascade: Cascade, replicas: tuple[ReplicaSettings, ...], load_qps: float) -> Cell:
        """What the cascade does at this load where replicas work as they are told; simulated each time."""
        gear = Gear(load_range=LoadRange(from_=0.0), cascade=cascade, replicas=replicas)
        plan = GearPlan(
            planner="steady-state",
            hardware=self.hardware,
            placement=self.placement,
            operators={"task": OperatorPlan(objective=self.objective, gears=(gear,))},
            profile=SourceFile(path="", sha256=""),
            trace=SourceFile(path="", sha256=""),
        )
        tables = plan_tables(plan, "task")
        arrivals_ns = np.cumsum(np.rint(self._unit_gaps * (NS_PER_S / load_qps)).astype(np.int64))
        workload = Workload(arrivals_ns=arrivals_ns, record=self._records, duration_s=float(arrivals_ns[-1]) / NS_PER_S)
        records = self.profile.predictions
        certainty = np.ascontiguousarray(records.certainty[records.rows(tables.models)])
        run = simulate_tables(tables, run_times_ns(plan, tables, self.profile), certainty, workload)
        return self._judge(run.latency_s, float(run.busy_s.sum()) / (run.duration_s * len(tables.device_ids)))

    def _judge(self, latency_s: NDArray[np.float64], utilisation: float) -> Cell:
        limit_s = np.inf if self.objective.latency_s is None else self.objective.latency_s
        thirds = np.array_split(latency_s, 3)
        settled = latency_s[int(len(latency_s) * WARM_UP_SHARE) :]
        growth = STABLE_GROWTH if utilisation < HARDLY_EVER_IDLE else STABLE_GROWTH_UNDER_FULL_LOAD
        grows = float(thirds[2].mean()) > growth * float(thirds[1].mean()) + 0.02 * min(limit_s, 1.0)
        return Cell(
            latency_s=percentile(settled, self.objective.percentile),
            share_late=1 - int(np.count_nonzero(settled <= limit_s)) / len(settled),
            stable=not grows,
            utilisation=utilisation,
        )
