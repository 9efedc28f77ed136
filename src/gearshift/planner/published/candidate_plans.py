"""Candidate plans of a search: an assignment of cascades on a placement.

Each is scheduled and simulated once. Ken, sections 4.3.3 and 4.3.4.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linprog

from gearshift.clock import NS_PER_S
from gearshift.gear import Gear, GearPlan, GearPrediction, LoadRange, ReplicaSettings, alone
from gearshift.placement import Placement, Replica
from gearshift.planner.evaluate.assemble import DEFAULT_ALPHA, assemble, curves_of, replica_settings, with_pipeline
from gearshift.planner.evaluate.cells import Cell
from gearshift.planner.evaluate.confirm import own, prepared_together, replay, together, together_workload
from gearshift.planner.evaluate.steady_state import SteadyState, steady_of
from gearshift.planner.space.cascade_search import CandidateCascade
from gearshift.planner.space.metered import search_trace
from gearshift.planner.space.request import PlanRequest, load_ranges
from gearshift.plans.plan_tables import plan_tables
from gearshift.profiles.profile import PART_A
from gearshift.profiles.run_times import Exits, exits_of, front_end_of, run_times_ns
from gearshift.result import percentile
from gearshift.simulator.simulate import Prepared, Simulation
from gearshift.workload import Workload, draw_workload

Ints = NDArray[np.int64]

# Spread a gear's load over replicas, and set how many waiting requests start a batch.
#
# Ken, section 4.3.3.

NEGLIGIBLE_SHARE = 1e-9
ONE_SECOND = 1 + 1e-9
"""A second of work per second, with room for rounding."""


def balanced_shares(
    placement: Placement, rate_qps: Mapping[str, float], run_s: Mapping[str, float]
) -> dict[str, float]:
    """Load shares by replica id that keep devices closest to the average load (Eq. 1 and 2).

    `rate_qps` holds the requests per second that reach each model of a cascade, `run_s` each
    replica's seconds for a batch of 1. The average is over the devices that hold the cascade's
    models, with each model's load spread evenly. Loads are in units of the average, so one
    solution of the linear program serves every load range that has the cascade.
    """
    used = [replica for replica in placement.replicas if replica.model in rate_qps]
    models = sorted(rate_qps)
    if len(used) == len(models):
        return {replica.id: 1.0 for replica in used}
    row = {d: i for i, d in enumerate(sorted({d for replica in used for d in replica.device_ids}))}
    devices, replicas = len(row), len(used)
    replicas_of = {model: sum(replica.model == model for replica in used) for model in models}
    even = np.array([1 / replicas_of[replica.model] for replica in used])
    work_s = np.array([run_s[replica.id] * rate_qps[replica.model] for replica in used])
    device, held = np.array([(row[d], r) for r, replica in enumerate(used) for d in replica.device_ids]).T
    load = work_s[held] / ((work_s * even)[held].sum() / devices)
    each, ones = np.arange(devices), np.ones(devices)
    solved = linprog(
        np.repeat([0.0, 1.0], [replicas, devices]),
        A_ub=_matrix(
            np.concatenate([load, -load, -ones, -ones]),
            np.concatenate([device, devices + device, each, devices + each]),
            np.concatenate([held, held, replicas + each, replicas + each]),
            (2 * devices, replicas + devices),
        ),
        b_ub=np.repeat([1.0, -1.0], devices),
        A_eq=_matrix(
            np.ones(replicas),
            np.array([models.index(replica.model) for replica in used]),
            np.arange(replicas),
            (len(models), replicas + devices),
        ),
        b_eq=np.ones(len(models)),
        method="highs",
    )
    found = even if solved.x is None else np.where(solved.x[:replicas] < NEGLIGIBLE_SHARE, 0, solved.x[:replicas])
    total = dict.fromkeys(models, 0.0)
    for replica, share in zip(used, found.tolist(), strict=True):
        total[replica.model] += share
    return {replica.id: share / total[replica.model] for replica, share in zip(used, found.tolist(), strict=True)}


def least_busy_s(
    placement: Placement, rate_qps: Mapping[str, float], run_s: Mapping[str, NDArray[np.float64]]
) -> float:
    """Seconds of work per second of the busiest device, at the most efficient batch sizes.

    `rate_qps` and `run_s` as for `minimum_queue_lengths`. Proportional to the load.
    """
    busy_s: dict[str, float] = {}
    for replica in placement.replicas:
        rate = rate_qps.get(replica.id, 0.0)
        if rate > 0:
            work_s = _work_per_s(rate, run_s[replica.id])[-1]
            for device_id in replica.device_ids:
                busy_s[device_id] = busy_s.get(device_id, 0.0) + work_s
    return max(busy_s.values(), default=0.0)


def minimum_queue_lengths(
    placement: Placement,
    rate_qps: Mapping[str, float],
    run_s: Mapping[str, NDArray[np.float64]],
) -> dict[str, int]:
    """Queue lengths by replica id, raised until each device's work fits in one second.

    They rise round-robin from 1. `rate_qps` and `run_s` by replica id: requests per second, and
    seconds (largest + 1,) for a batch of each size. No length rises past the most efficient size.
    Where even that does not fit on some device, all lengths stay at 1.
    """
    used = [replica for replica in placement.replicas if rate_qps.get(replica.id, 0.0) > 0]
    work_s = {r.id: _work_per_s(rate_qps[r.id], run_s[r.id]) for r in used}
    on_device: dict[str, list[Replica]] = {}
    for replica in used:
        for device_id in replica.device_ids:
            on_device.setdefault(device_id, []).append(replica)
    least = {r.id: len(work_s[r.id]) for r in used}
    length = dict.fromkeys(least, 1)

    def busy_s(device_id: str) -> float:
        return sum(work_s[r.id][length[r.id] - 1] for r in on_device[device_id])

    if least_busy_s(placement, rate_qps, run_s) > ONE_SECOND:
        return length
    turn = dict.fromkeys(on_device, 0)
    while crowded := [d for d in on_device if busy_s(d) > ONE_SECOND]:
        for device_id in crowded:
            while busy_s(device_id) > ONE_SECOND:
                replica = on_device[device_id][turn[device_id] % len(on_device[device_id])]
                length[replica.id] = min(length[replica.id] + 1, least[replica.id])
                turn[device_id] += 1
    return length


def _work_per_s(rate_qps: float, run_s: NDArray[np.float64]) -> list[float]:
    work = rate_qps * run_s[1:] / np.arange(1, len(run_s))
    kept: list[float] = work[: int(work.argmin()) + 1].tolist()
    return kept


def _matrix(values: NDArray[np.float64], rows: Ints, columns: Ints, shape: tuple[int, int]) -> Any:
    return sparse.csr_array((values, (rows, columns)), shape=shape)


RUNS_TO_DRAIN = 4
"""A backlog counts as load that is to be gone after this many runs of the slowest model, or after
125 ms if that is longer."""
LONGEST_WAIT_S = 3600.0

Assignment = tuple[int, ...]
"""A cascade's number for each load range, from the cheapest (0) to the most accurate."""


@dataclass(frozen=True, slots=True)
class Candidate:
    assignment: Assignment
    placement: Placement
    largest_batch_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """The result of simulating a candidate on part A; `entered` are the gears that were in force.

    Where devices are overloaded, nothing is simulated: `overload_s` is the overload of the busiest
    device in seconds per second, added up over the ranges, and `overloaded` the lowest such range.
    """

    candidate: Candidate
    latency_s: float = math.inf
    accuracy: float = 0.0
    entered: frozenset[int] = frozenset()
    overload_s: float = 0.0
    overloaded: int | None = None

    @property
    def score(self) -> float:
        """Accuracy per latency (Ken, section 4.3.1)."""
        return self.accuracy / self.latency_s


@dataclass(slots=True)
class CandidatePlans:
    """Plans of `cascades`, from the cheapest to the most accurate, and their cached results."""

    request: PlanRequest
    cascades: list[CandidateCascade]
    upper_ends: list[float] = field(init=False)
    ranges: list[LoadRange] = field(init=False)
    workload: Workload = field(init=False)
    sampled: bool = field(init=False)
    """Whether the search sees other arrivals than the request's trace."""
    _tried: dict[Candidate, Tried] = field(init=False, default_factory=dict)
    _run_ns: dict[tuple[Placement, int], tuple[NDArray[np.int64], Exits | None]] = field(
        init=False, default_factory=dict
    )
    _certainty: dict[tuple[str, ...], NDArray[np.float64]] = field(init=False, default_factory=dict)
    _run_s: dict[Placement, dict[str, NDArray[np.float64]]] = field(init=False, default_factory=dict)
    _shares: dict[tuple[Placement, int], dict[str, float]] = field(init=False, default_factory=dict)
    _capacity_qps: dict[tuple[Placement, int, int], float] = field(init=False, default_factory=dict)
    _gears: dict[tuple[Placement, int, int, int], Gear] = field(init=False, default_factory=dict)
    _steady: dict[Placement, SteadyState] = field(init=False, default_factory=dict)
    _cells: dict[tuple[Placement, int, int, int, float], Cell] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        request = self.request
        self.upper_ends = request.upper_ends().tolist()
        self.ranges = load_ranges(request.upper_ends())
        trace = search_trace(request)
        self.sampled = trace is not request.trace
        self.workload = draw_workload(trace, request.profile.predictions.indices(PART_A), seed=0)

    def models(self, assignment: Assignment) -> frozenset[str]:
        return frozenset(model for c in set(assignment) for model in self.cascades[c].cascade.models)

    def known(self, candidate: Candidate) -> bool:
        return candidate in self._tried

    def tried(self, candidate: Candidate) -> Tried:
        if candidate not in self._tried:
            self._tried[candidate] = self._simulated(candidate)
        return self._tried[candidate]

    def on_the_whole_trace(self, tried: Tried) -> Tried:
        if not self.sampled:
            return tried
        replayed = replay(self.bare(tried.candidate), self.request, part=PART_A, seeds=1)
        return replace(tried, latency_s=float(replayed.latency_s[0]), accuracy=replayed.result.accuracy)

    def cell(self, candidate: Candidate, k: int, *, margin: float = 1.0) -> Cell:
        key = (*_gear_key(candidate, k), margin)
        if key not in self._cells:
            request, placement = self.request, candidate.placement
            if placement not in self._steady:
                self._steady[placement] = steady_of(request, request.hardware, placement)
            gear = self._gear(candidate, k)
            self._cells[key] = self._steady[placement].simulate(
                gear.cascade, margin * self.upper_ends[k], gear.replicas
            )
        return self._cells[key]

    def bare(self, candidate: Candidate) -> GearPlan:
        """The plan without predictions. Its alpha lets a backlog drain in `RUNS_TO_DRAIN` runs."""
        models, run_s = self.models(candidate.assignment), self._run_times_s(candidate.placement)
        slowest_s = max(float(run_s[r.id][1]) for r in candidate.placement.replicas if r.model in models)
        return assemble(
            self.request,
            candidate.placement,
            [self._gear(candidate, k) for k in range(len(self.ranges))],
            alpha=min(DEFAULT_ALPHA, 1 / (RUNS_TO_DRAIN * slowest_s)),
        )

    def predicted(self, candidate: Candidate) -> GearPlan:
        made, name = self.bare(candidate), self.request.profile.operator
        gears = tuple(
            msgspec.structs.replace(gear, predicted=self._prediction(candidate, k))
            for k, gear in enumerate(made.pipelines[name].gears)
        )
        return with_pipeline(made, gears=gears)

    def _prediction(self, candidate: Candidate, k: int) -> GearPrediction:
        accuracy = self.cascades[candidate.assignment[k]].accuracy
        return self.cell(candidate, k).prediction(self.upper_ends[k], accuracy)

    def _simulated(self, candidate: Candidate) -> Tried:
        """With scope `trace`, ranges with the cheapest cascade may be overloaded."""
        every_range = self.request.objective.scope == "every-range"
        overload_s = {
            k: overload_s
            for k, c in enumerate(candidate.assignment)
            if (every_range or c > 0) and (overload_s := self._overload_s(candidate, k)) > 0
        }
        if overload_s:
            return Tried(candidate=candidate, overload_s=sum(overload_s.values()), overloaded=min(overload_s))
        run = self._run(self.bare(candidate), candidate)
        return Tried(
            candidate=candidate,
            latency_s=percentile(run.latency_s, self.request.objective.percentile),
            accuracy=float(run.quality(together(self.request)).mean()),
            entered=frozenset([0, *run.shifts[:, 1].tolist()]),
        )

    def _run(self, made: GearPlan, candidate: Candidate) -> Simulation:
        """The trace with samples of part A; with pipelines beside it, all traces at once."""
        request, profile = self.request, self.request.profile
        if request.beside is not None:
            return own(prepared_together(made, request).run(together_workload(request, part=PART_A, seed=0)), request)
        tables, key = plan_tables(made), (candidate.placement, candidate.largest_batch_size)
        if key not in self._run_ns:
            self._run_ns[key] = run_times_ns(made, tables, profile), exits_of(made, tables, profile)
        if tables.models not in self._certainty:
            certainty = profile.predictions.certainty[profile.predictions.rows(tables.models)]
            self._certainty[tables.models] = np.ascontiguousarray(certainty)
        run_ns, exits = self._run_ns[key]
        prepared = Prepared(tables, run_ns, self._certainty[tables.models], exits, None, front_end_of(profile))
        return prepared.run(self.workload)

    def _overload_s(self, candidate: Candidate, k: int) -> float:
        placement, c = candidate.placement, candidate.assignment[k]
        key = placement, candidate.largest_batch_size, c
        if key not in self._capacity_qps:
            rate_qps, run_s = self._rates(placement, c, 1.0), self._run_times_s(placement, candidate.largest_batch_size)
            self._capacity_qps[key] = ONE_SECOND / least_busy_s(placement, rate_qps, run_s)
        return max(0.0, self.upper_ends[k] / self._capacity_qps[key] - 1)

    def _gear(self, candidate: Candidate, k: int) -> Gear:
        key = _gear_key(candidate, k)
        if key not in self._gears:
            self._gears[key] = self._scheduled(*key)
        return self._gears[key]

    def _scheduled(self, placement: Placement, largest_batch_size: int, k: int, c: int) -> Gear:
        request, cascade = self.request, self.cascades[c].cascade
        rate_qps = self._rates(placement, c, self.upper_ends[k])
        settings = replica_settings(
            request.profile,
            request.hardware,
            placement,
            cascade,
            shares=self._shares[placement, c],
            largest_batch_size=largest_batch_size,
            minimum_queue_length=minimum_queue_lengths(
                placement, rate_qps, self._run_times_s(placement, largest_batch_size)
            ),
        )
        return Gear(
            load_range=self.ranges[k],
            cascades=alone(request.profile.operator, cascade),
            replicas=tuple(_waiting(s, rate_qps.get(s.replica, 0.0)) for s in settings),
        )

    def _rates(self, placement: Placement, c: int, load_qps: float) -> dict[str, float]:
        """Requests per second by replica id, for replicas with a share of cascade c's load."""
        cascade = self.cascades[c]
        reach = dict(zip(cascade.cascade.models, cascade.reach, strict=True))
        if (placement, c) not in self._shares:
            alone_s = {r: float(seconds[1]) for r, seconds in self._run_times_s(placement).items()}
            self._shares[placement, c] = balanced_shares(placement, reach, alone_s)
        shares = self._shares[placement, c]
        return {
            replica.id: shares[replica.id] * reach[replica.model] * load_qps
            for replica in placement.replicas
            if shares.get(replica.id, 0.0) > 0
        }

    def _run_times_s(self, placement: Placement, largest: int | None = None) -> dict[str, NDArray[np.float64]]:
        """Seconds (sizes + 1,) of a batch of each size up to `largest`, by replica id."""
        if placement not in self._run_s:
            curves = curves_of(self.request.profile, self.request.hardware, placement)
            tables_s = {curve: curve.table_ns() / NS_PER_S for curve in set(curves.values())}
            self._run_s[placement] = {replica: tables_s[curve] for replica, curve in curves.items()}
        run_s = self._run_s[placement]
        return run_s if largest is None else {replica: seconds[: largest + 1] for replica, seconds in run_s.items()}


def _gear_key(candidate: Candidate, k: int) -> tuple[Placement, int, int, int]:
    return candidate.placement, candidate.largest_batch_size, k, candidate.assignment[k]


def _waiting(settings: ReplicaSettings, rate_qps: float) -> ReplicaSettings:
    if settings.minimum_queue_length == 1:
        return settings
    fill_s = min(LONGEST_WAIT_S, settings.minimum_queue_length / rate_qps)
    return msgspec.structs.replace(settings, longest_wait_s=fill_s)
