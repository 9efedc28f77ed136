"""Simulate one cascade at one constant load on a placement (steady state)."""

import math
from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from gearshift.cascade import Cascade
from gearshift.clock import NS_PER_S
from gearshift.gear import Gear, GearPlan, GearPrediction, LoadRange, PipelinePlan, ReplicaSettings, SourceFile, alone
from gearshift.hardware import Hardware
from gearshift.objective import Objective
from gearshift.pipeline import Node
from gearshift.placement import Placement
from gearshift.planner.evaluate.assemble import curves_of, replica_settings
from gearshift.planner.evaluate.balance import Balance, balanced
from gearshift.planner.evaluate.cells import (
    Batching,
    Cell,
    Measured,
    SteadyOthers,
    batched,
    least_of,
    measured_in,
    rank_of,
)
from gearshift.planner.space.bisection import climbed, least_that
from gearshift.planner.space.cascade_search import evaluate_cascade
from gearshift.planner.space.request import PlanRequest
from gearshift.profiles.profile import PART_A, Profile
from gearshift.simulator.simulate import Prepared, prepare
from gearshift.support.processors import usable_processors
from gearshift.workload import Trace, Workload, draw_workload

SAMPLES = 12_000
HARDLY_BUSY = 1e-3
"""Lower loads are simulated as if they kept the slowest replica this busy: nothing waits either
way."""
GRID_STEP = 1.02
"""Capacities are searched on loads this factor apart, the same for all objectives, so that
simulations are shared."""
LOG_STEP = math.log(GRID_STEP)
LIKELY_BUSY = 0.8
WORTH_WAITING = 0.6, 1.35
"""Waiting for batches is tried where latency is between these multiples of the objective: below
there is no need, above no hope."""
NOT_BUSY = 0.5
"""Below this utilisation larger batches do not help."""
LENGTHS = (1.0, 0.7, 1.4, 2.0)
"""Minimum queue lengths to try, as multiples of the mean batch without waiting."""
WORTH = 0.95
"""If the objective is met without waiting, waiting must reduce latency to at most this share."""


_Key = tuple[Cascade, float, Batching]


@dataclass(slots=True)
class SteadyState:
    """Cells of a profile on a placement, each simulated once.

    Every cell sees the same arrivals (scaled to its load) and the same samples of part A. Loads
    are balanced over the devices for each cascade. With `waits`, batches wait for more samples
    where that helps. With `others`, all share the devices, and a cell meets its objective only if
    the others keep theirs; `placement` has own replicas alone.
    """

    profile: Profile
    hardware: Hardware
    placement: Placement
    objective: Objective
    seed: int
    samples: int = field(default_factory=lambda: SAMPLES)
    waits: bool = True
    others: SteadyOthers | None = None
    _work_s: dict[str, NDArray[np.float64]] = field(init=False, repr=False)
    _unit_gaps: NDArray[np.float64] = field(init=False, repr=False)
    _records: NDArray[np.int32] = field(init=False, repr=False)
    _cells: dict[_Key, Measured] = field(default_factory=dict, repr=False)
    _by_load: dict[tuple[Cascade, Batching], list[tuple[float, Measured]]] = field(default_factory=dict, repr=False)
    _prepared: dict[Cascade, Prepared] = field(default_factory=dict, repr=False)
    _workloads: dict[float, Workload] = field(default_factory=dict, repr=False)
    _balances: dict[Cascade, Balance] = field(default_factory=dict, repr=False)
    _settings: dict[tuple[Cascade, Batching], tuple[ReplicaSettings, ...]] = field(default_factory=dict, repr=False)
    _held_with: dict[Cascade, int] = field(init=False, default_factory=dict, repr=False)
    _held: dict[Cascade, tuple[float, float]] = field(init=False, default_factory=dict, repr=False)
    """The highest load at which a cascade is known to hold, and the lowest at which it is known
    not to."""
    _chosen: dict[tuple[Cascade, float], Batching] = field(init=False, default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        curves = curves_of(self.profile, self.hardware, self.placement)
        self._work_s = {id_: curve.table_ns()[1:] / 1e9 for id_, curve in curves.items()}
        self._unit_gaps = np.random.default_rng([self.seed, 1]).exponential(1.0, self.samples)
        trace = Trace(arrivals_ns=np.arange(self.samples, dtype=np.int64), duration_s=self.samples / NS_PER_S)
        self._records = draw_workload(trace, self.profile.predictions.indices(PART_A), seed=self.seed).record

    def judged_by(self, objective: Objective) -> "SteadyState":
        return replace(self, objective=objective)

    @property
    def simulated(self) -> int:
        return len(self._cells)

    @property
    def limit_s(self) -> float:
        return math.inf if self.objective.latency_s is None else self.objective.latency_s

    def batch_sizes(self) -> list[int]:
        sizes = sorted({size for curve in self.profile.whole_curves for size in curve.batch_sizes})
        kept = [sizes[0]]
        for i, size in enumerate(sizes[1:], start=1):
            if i == len(sizes) - 1 or sizes[i + 1] > 2 * kept[-1]:
                kept.append(size)
        return kept

    def least_run_s(self, model: str) -> float:
        return min(float(self._work_s[r.id].min()) for r in self.placement.replicas if r.model == model)

    def balance(self, cascade: Cascade) -> Balance:
        if cascade not in self._balances:
            self._balances[cascade] = balanced(self.placement, self._least_work_s(), self._reach(cascade))
        return self._balances[cascade]

    def _least_work_s(self) -> dict[str, float]:
        least_s = {id_: float((t / np.arange(1, len(t) + 1)).min()) for id_, t in self._work_s.items()}
        if self.others is None:
            return least_s
        return {r.id: least_s[r.id] / self.others.beside.free(r) for r in self.placement.replicas}

    def _reach(self, cascade: Cascade) -> dict[str, float]:
        work_s = self._least_work_s()
        by_model = {r.model: work_s[r.id] for r in self.placement.replicas}
        known = evaluate_cascade(cascade, self.profile.predictions, by_model, part=PART_A)
        return dict(zip(cascade.models, known.reach, strict=True))

    def busiest_device(self, cascade: Cascade, model: str) -> str:
        shares, reach, work_s = self.balance(cascade).shares, self._reach(cascade), self._least_work_s()
        level_s = dict.fromkeys((d.id for d in self.hardware.devices), 0.0)
        for replica in self.placement.replicas:
            for id_ in replica.device_ids:
                level_s[id_] += reach.get(replica.model, 0.0) * shares.get(replica.id, 0.0) * work_s[replica.id]
        holding = {id_ for replica in self.placement.replicas if replica.model == model for id_ in replica.device_ids}
        return max((id_ for id_ in level_s if id_ in holding), key=lambda id_: level_s[id_])

    def settings(self, cascade: Cascade, batching: Batching) -> tuple[ReplicaSettings, ...]:
        key = cascade, batching
        if key not in self._settings:
            first = self._first_shares(cascade) if batching.least > 1 else {}
            self._settings[key] = replica_settings(
                self.profile,
                self.hardware,
                self.placement,
                cascade,
                shares=self.balance(cascade).shares,
                largest_batch_size=batching.largest,
                minimum_queue_length={r: least_of(batching, share) for r, share in first.items()},
                longest_wait_s=dict.fromkeys(first, batching.longest_wait_s),
            )
        return self._settings[key]

    def gear(
        self, load_range: LoadRange, cascade: Cascade, batching: Batching, predicted: GearPrediction | None = None
    ) -> Gear:
        cascades, replicas = alone(self.profile.operator, cascade), self.settings(cascade, batching)
        return Gear(load_range=load_range, cascades=cascades, replicas=replicas, predicted=predicted)

    def _first_shares(self, cascade: Cascade) -> dict[str, float]:
        shares = self.balance(cascade).shares
        first = {r.id: shares.get(r.id, 0.0) for r in self.placement.replicas if r.model == cascade.models[0]}
        return {r: share / max(first.values()) for r, share in first.items()}

    def cell(self, cascade: Cascade, load_qps: float, batching: Batching) -> Cell:
        return self._measured(cascade, load_qps, batching).judged(self.limit_s)

    def _measured(self, cascade: Cascade, load_qps: float, batching: Batching) -> Measured:
        key = (cascade, load_qps, batching)
        if key not in self._cells:
            if cascade not in self._prepared:
                most = Batching(self.batch_sizes()[-1])
                self._prepared[cascade] = self._prepare(cascade, self.settings(cascade, most))
            prepared = batched(self._prepared[cascade], batching, self._first_shares(cascade))
            self._cells[key] = self._measure(prepared, load_qps)
            by_load = self._by_load.setdefault((cascade, batching), [])
            insort(by_load, (load_qps, self._cells[key]), key=itemgetter(0))
        return self._cells[key]

    def _known(self, cascade: Cascade, load_qps: float, batching: Batching) -> bool | None:
        """Infer from other loads whether the objective is met: less load is never slower."""
        simulated = self._by_load.get((cascade, batching), [])
        at = bisect_left(simulated, load_qps, key=itemgetter(0))
        if at < len(simulated) and simulated[at][1].meets(self.limit_s):
            return True
        if at > 0 and not simulated[at - 1][1].meets(self.limit_s):
            return False
        return None

    def cells(self, keys: Iterable[_Key]) -> list[Cell]:
        wanted = list(keys)
        if unknown := [key for key in wanted if key not in self._cells]:
            with ThreadPoolExecutor(usable_processors()) as pool:
                list(pool.map(lambda key: self.cell(*key), unknown))
        return [self.cell(*key) for key in wanted]

    def best(self, cascade: Cascade, load_qps: float) -> tuple[Batching, Cell]:
        """The batching with the smallest share late, then the lowest latency, and its cell.

        Batchings without waiting are compared first, then the best of them with those that wait.
        """
        sizes = [Batching(size) for size in self.batch_sizes()]
        cells = self.cells((cascade, load_qps, size) for size in sizes)
        chosen = min(range(len(sizes)), key=lambda i: rank_of(cells[i]))
        batching = self._waiting(cascade, load_qps, sizes[chosen])
        return batching, self.cell(cascade, load_qps, batching)

    def batching(self, cascade: Cascade, load_qps: float) -> Batching:
        """Like `best`, searched at the next load of the grid from a size that held before.

        Where that misses the objective, all batchings are compared at the load itself.
        """
        grid_qps = GRID_STEP ** math.ceil(math.log(load_qps) / LOG_STEP)
        key = cascade, grid_qps
        if key not in self._chosen:
            size = self._climbed(cascade, grid_qps, self.batch_sizes())
            self._chosen[key] = self._waiting(cascade, grid_qps, Batching(size))
        chosen = self._chosen[key]
        return chosen if self.meets(self.cell(cascade, grid_qps, chosen)) else self.best(cascade, load_qps)[0]

    def holds(self, cascade: Cascade, load_qps: float) -> bool:
        """Whether some batching keeps the cascade stable and within the objective at this load."""
        highest_qps, lowest_qps = self._held.get(cascade, (0.0, math.inf))
        if not highest_qps < load_qps < lowest_qps:
            return load_qps <= highest_qps
        if met := self._holds(cascade, load_qps):
            highest_qps = load_qps
        else:
            lowest_qps = load_qps
        self._held[cascade] = highest_qps, lowest_qps
        return met

    def _holds(self, cascade: Cascade, load_qps: float) -> bool:
        sizes = self.batch_sizes()
        known = [self._known(cascade, load_qps, Batching(size)) for size in sizes]
        if any(known):
            return True
        if not self.waits:
            sizes = [size for size, met in zip(sizes, known, strict=True) if met is None]
            if not sizes:
                return False
        size = self._climbed(cascade, load_qps, sizes, enough=True)
        met = self.meets(self.cell(cascade, load_qps, Batching(size)))
        if met:
            self._held_with[cascade] = size
            return True
        waiting = self._waiting(cascade, load_qps, Batching(size), enough=True)
        return self.meets(self.cell(cascade, load_qps, waiting))

    def _climbed(self, cascade: Cascade, load_qps: float, sizes: Sequence[int], *, enough: bool = False) -> int:
        """Climb from a start size to the best neighbour until none is better.

        With `enough`, stop at the first size that meets the objective.
        """
        first = self._held_with.get(cascade, sizes[-1])
        place = min(range(len(sizes)), key=lambda i: abs(sizes[i] - first))

        def cell(i: int) -> Cell:
            return self.cell(cascade, load_qps, Batching(sizes[i]))

        return sizes[climbed(place, len(sizes), lambda i: rank_of(cell(i)), lambda i: enough and self.meets(cell(i)))]

    def _waiting(self, cascade: Cascade, load_qps: float, none: Batching, *, enough: bool = False) -> Batching:
        """Return `none`, which does not wait, or a better batching that does.

        With `enough`, the first that meets the objective.
        """
        measured = self._measured(cascade, load_qps, none)
        needed, hopeless = (share * self.limit_s for share in WORTH_WAITING)
        if not self.waits or not needed < measured.latency_s <= hopeless or measured.utilisation < NOT_BUSY:
            return none
        best, best_rank = none, rank_of(measured.judged(self.limit_s))
        if not best_rank[0]:
            best_rank = (*best_rank[:2], WORTH * best_rank[2])
        for waiting in self._lengths(cascade, load_qps, none.largest, measured.first_batch):
            cell = self.cell(cascade, load_qps, waiting)
            if (rank := rank_of(cell)) < best_rank:
                best, best_rank = waiting, rank
            if enough and self.meets(cell):
                break
        return best

    def _lengths(self, cascade: Cascade, load_qps: float, largest: int, first_batch: float) -> list[Batching]:
        """Batchings that wait for about a mean batch, and no longer than the objective allows.

        At low load a request that waits in vain must still pass all stages in time.
        """
        shares = self.balance(cascade).shares
        most_qps = load_qps * max(shares.get(r, 0.0) for r in self._first_shares(cascade))
        alone_s = sum(self.least_run_s(model) for model in cascade.models) + self.profile.front_end_s
        lengths = dict.fromkeys(min(largest, round(share * first_batch)) for share in LENGTHS)
        waits_s = {length: length / most_qps for length in lengths if length > 1}
        return [Batching(largest, n, wait_s) for n, wait_s in waits_s.items() if wait_s + alone_s <= self.limit_s]

    def capacity_qps(self, cascade: Cascade, *, least_qps: float, most_qps: float) -> float:
        """The highest load of the grid at which the cascade holds; 0 if none.

        The search starts at `LIKELY_BUSY`, takes growing steps, then bisects.
        """
        low = math.floor(math.log(least_qps) / LOG_STEP)
        high = max(low, math.ceil(math.log(most_qps) / LOG_STEP))
        bound_qps = LIKELY_BUSY / self.balance(cascade).utilisation_per_qps
        guess = min(high, max(low, round(math.log(bound_qps) / LOG_STEP)))
        step = 4
        if self.holds(cascade, GRID_STEP**guess):
            below, above = guess, guess + step
            while above < high and self.holds(cascade, GRID_STEP**above):
                below, step = above, 2 * step
                above = below + step
            if above >= high:
                if below == high or self.holds(cascade, GRID_STEP**high):
                    return most_qps
                above = high
        else:
            above, below = guess, guess - step
            while below > low and not self.holds(cascade, GRID_STEP**below):
                above, step = below, 2 * step
                below = above - step
            if below <= low:
                if above == low or not self.holds(cascade, GRID_STEP**low):
                    return 0.0
                below = low
        above = least_that(lambda step: not self.holds(cascade, GRID_STEP**step), fails=below, at_most=above)
        return float(min(most_qps, GRID_STEP ** (above - 1)))

    def meets(self, cell: Cell) -> bool:
        return cell.stable and cell.latency_s <= self.limit_s

    def simulate(self, cascade: Cascade, load_qps: float, replicas: tuple[ReplicaSettings, ...]) -> Cell:
        return self._measure(self._prepare(cascade, replicas), load_qps).judged(self.limit_s)

    def _prepare(self, cascade: Cascade, replicas: tuple[ReplicaSettings, ...]) -> Prepared:
        name = self.profile.operator
        gear = Gear(load_range=LoadRange(from_=0.0), cascades=alone(name, cascade), replicas=replicas)
        plan = GearPlan(
            planner="steady-state",
            hardware=self.hardware,
            placement=self.placement,
            pipelines={
                name: PipelinePlan(
                    nodes={name: Node(operator=name)}, output=name, objective=self.objective, gears=(gear,)
                )
            },
            profiles={name: SourceFile(path="", sha256="")},
            traces={name: SourceFile(path="", sha256="")},
        )
        return prepare(plan, self.profile) if self.others is None else self.others.prepare(plan)

    def _workload(self, load_qps: float) -> Workload:
        if load_qps not in self._workloads:
            slowest_s = max(float(table[0]) for table in self._work_s.values())
            gap_ns = NS_PER_S / max(load_qps, HARDLY_BUSY, HARDLY_BUSY / slowest_s)
            arrivals_ns = np.cumsum(np.rint(self._unit_gaps * gap_ns).astype(np.int64))
            duration_s = float(arrivals_ns[-1]) / NS_PER_S
            own = Workload(arrivals_ns=arrivals_ns, record=self._records, duration_s=duration_s)
            self._workloads[load_qps] = own if self.others is None else self.others.beside_own(own, load_qps)
        return self._workloads[load_qps]

    def _measure(self, prepared: Prepared, load_qps: float) -> Measured:
        run = prepared.run(self._workload(load_qps))
        if self.others is None:
            return measured_in(run, self.objective.percentile)
        measured = measured_in(run.of(self.profile.operator), self.objective.percentile)
        return measured if self.others.kept_in(run) else replace(measured, last_s=math.inf)


def steady_of(
    request: PlanRequest, hardware: Hardware, placement: Placement, *, samples: int | None = None
) -> SteadyState:
    """The steady state for a request's objective, among the pipelines beside it."""
    others = None if request.beside is None else SteadyOthers(request.beside, request.seed)
    samples = samples or SAMPLES
    return SteadyState(
        request.profile, hardware, placement, request.objective, seed=request.seed, samples=samples, others=others
    )
