"""What steady load is judged by: cells, as simulated and as judged, and other pipelines that stay as they are.

A cell is a cascade at a load with a batching.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from gearshift.clock import NS_PER_S, to_ns
from gearshift.gear import GearPlan, GearPrediction
from gearshift.planner.space.beside import Beside, in_steady_load, joined
from gearshift.profiles.profile import PART_A
from gearshift.result import percentile_rank
from gearshift.simulator.simulate import Prepared, Simulation, prepare
from gearshift.workload import Trace, Workload, draw_workload, merge_workloads

Ints = NDArray[np.int64]

WARM_UP_SHARE = 0.1
QUANTILES = np.linspace(0, 1, 513)
STABLE_GROWTH = 1.5
"""With a queue that grows without end, the last third of a run is 5 / 3 as slow as the middle
third."""
HARDLY_EVER_IDLE = 0.995
STABLE_GROWTH_UNDER_FULL_LOAD = 1.15
"""Large batches may keep a device busy all the time and still keep up, so growth is judged more
strictly."""
AS_DRAWN = 0.01
"""Latency may grow by this share of elapsed time: the load of a finite sample is no more exact."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One cascade at one load with one batching; latency is at the objective's percentile."""

    latency_s: float
    share_late: float
    stable: bool
    utilisation: float

    def prediction(self, load_qps: float, accuracy: float, *, replayed_gain: float | None = None) -> GearPrediction:
        return GearPrediction(
            load_qps=load_qps,
            accuracy=accuracy,
            latency_p95_s=self.latency_s,
            share_late=self.share_late,
            utilisation=self.utilisation,
            replayed_gain=replayed_gain,
        )


class Batching(NamedTuple):
    """The largest batch, and minimum queue length and longest wait of the first model.

    A replica with a smaller load share has a proportionally smaller minimum queue length.
    """

    largest: int
    least: int = 1
    longest_wait_s: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """A simulated cell before it is judged against a latency limit.

    `middle_s` and `last_s` are mean latencies in the middle and the last third of the run; a third
    lasts `third_s`. `first_batch` is the mean batch size of the first model.
    """

    percentile: float
    latency_s: float
    quantiles_s: NDArray[np.float32]
    middle_s: float
    last_s: float
    third_s: float
    utilisation: float
    first_batch: float

    def stable(self, limit_s: float) -> bool:
        growth = STABLE_GROWTH if self.utilisation < HARDLY_EVER_IDLE else STABLE_GROWTH_UNDER_FULL_LOAD
        allowed_s = (growth - 1) * self.middle_s + 0.02 * min(limit_s, 1.0)
        return self.last_s - self.middle_s <= max(allowed_s, AS_DRAWN * self.third_s)

    def meets(self, limit_s: float) -> bool:
        return self.latency_s <= limit_s and self.stable(limit_s)

    def judged(self, limit_s: float) -> Cell:
        within = float(np.interp(limit_s, self.quantiles_s, QUANTILES)) if limit_s < math.inf else 1.0
        exactly = self.percentile  # the percentile decides exactly, interpolation does not
        within = max(within, exactly) if limit_s >= self.latency_s else min(within, exactly - 1e-9)
        return Cell(
            latency_s=self.latency_s,
            share_late=1 - within,
            stable=self.stable(limit_s),
            utilisation=self.utilisation,
        )


def least_of(batching: Batching, share: float) -> int:
    return max(1, round(batching.least * share))


def batched(prepared: Prepared, batching: Batching, first_shares: Mapping[str, float]) -> Prepared:
    """Change the batching of the first gear, which is the only one of the first pipeline.

    The tables must have been prepared for batches at least as large.
    """
    tables, replicas = prepared.tables, len(prepared.tables.replica_ids)

    def with_first(of_gears: Ints, first: Ints) -> Ints:
        return np.concatenate([first, of_gears[replicas:]])

    largest = tables.largest_batch_size
    limited = np.minimum(largest[:replicas], batching.largest)
    changed = replace(tables, largest_batch_size=with_first(largest, limited))
    if batching.least > 1:
        least = [least_of(batching, first_shares.get(r, 0.0)) for r in tables.replica_ids]
        wait_ns = [to_ns(batching.longest_wait_s) if r in first_shares else 0 for r in tables.replica_ids]
        changed = replace(
            changed,
            minimum_queue_length=with_first(tables.minimum_queue_length, np.array(least)),
            longest_wait_ns=with_first(tables.longest_wait_ns, np.array(wait_ns)),
        )
    return replace(prepared, tables=changed)


def rank_of(cell: Cell) -> tuple[bool, float, float]:
    return not cell.stable, cell.share_late, cell.latency_s


def measured_in(run: Simulation, p: float) -> Measured:
    latency_s = run.latency_s
    middle_s, last_s = (float(third.mean()) for third in np.array_split(latency_s, 3)[1:])
    settled_s = latency_s[int(len(latency_s) * WARM_UP_SHARE) :]
    settled_s.sort()
    return Measured(
        percentile=p,
        latency_s=float(settled_s[percentile_rank(p, len(settled_s))]),
        quantiles_s=settled_s[np.rint(QUANTILES * (len(settled_s) - 1)).astype(np.int64)].astype(np.float32),
        middle_s=middle_s,
        last_s=last_s,
        third_s=run.workload.duration_s / 3,
        utilisation=float(run.busy_s.sum()) / (run.duration_s * len(run.tables.device_ids)),
        first_batch=_first_batch(run),
    )


def _first_batch(run: Simulation) -> float:
    model, begins = int(run.tables.stage_models[0]), run.tables.model_begin
    counts = run.batches[begins[model] : begins[model + 1]].sum(axis=0)
    return float(counts @ np.arange(len(counts)) / max(1, counts.sum()))


REQUESTS, LEAST_OWN = 36_000, 1_500
"""Steady load of several pipelines has about this many requests, and at least so many of the
pipeline that is planned."""
MOST_REQUESTS, VERY_LEAST_OWN = 300_000, 200
"""Bounds where the others have very much more load."""
GROWS = 1.5
"""Another pipeline is not stable if its last third is this many times as slow as its middle third."""


@dataclass(frozen=True, slots=True, eq=False)
class SteadyOthers:
    """The others in steady load: each with the gear of its load alone."""

    beside: Beside
    seed: int

    def prepare(self, made: GearPlan) -> Prepared:
        plan = joined(made, self.beside.plan)
        steady = {
            name: in_steady_load(pipeline, self.beside.loads_qps[name]) if name in self.beside.names else pipeline
            for name, pipeline in plan.pipelines.items()
        }
        return prepare(msgspec.structs.replace(plan, pipelines=steady, predictions={}), self.beside.together)

    def beside_own(self, own: Workload, load_qps: float) -> Workload:
        """Own steady load and the others', which last as long; own is shortened to bound their requests."""
        others_qps = sum(self.beside.loads_qps.values())
        share = load_qps / (load_qps + others_qps)
        kept = min(max(LEAST_OWN, REQUESTS * share), MOST_REQUESTS * share)
        own = first_of(own, max(VERY_LEAST_OWN, math.ceil(kept)))
        return merge_workloads([own, *(self._of(number, own.duration_s) for number in range(len(self.beside.names)))])

    def _of(self, number: int, duration_s: float) -> Workload:
        name = self.beside.names[number]
        records = self.beside.profiles[name].predictions.indices(PART_A)
        arrivals = random_arrivals(self.beside.loads_qps[name], duration_s, seed=[self.seed, 6, number])
        return draw_workload(arrivals, records, seed=self.seed)

    def kept_in(self, run: Simulation) -> bool:
        """Whether the others keep their latencies, or only keep up where they need not."""
        for name in self.beside.names:
            objective = self.beside.plan.pipelines[name].objective
            latency_s = run.of(name).latency_s
            middle_s, last_s = (float(third.mean()) for third in np.array_split(latency_s, 3)[1:])
            limit_s = math.inf if objective.latency_s is None else objective.latency_s
            if last_s > GROWS * middle_s + 0.02 * min(limit_s, 1.0):
                return False
            settled_s = np.sort(latency_s[int(len(latency_s) * WARM_UP_SHARE) :])
            if name in self.beside.kept and settled_s[percentile_rank(objective.percentile, len(settled_s))] > limit_s:
                return False
        return True


def first_of(workload: Workload, count: int) -> Workload:
    if count >= len(workload):
        return workload
    arrivals_ns = workload.arrivals_ns[:count]
    return Workload(
        arrivals_ns=arrivals_ns, record=workload.record[:count], duration_s=float(arrivals_ns[-1]) / NS_PER_S
    )


def random_arrivals(load_qps: float, duration_s: float, *, seed: Sequence[int]) -> Trace:
    """Poisson arrivals, at least one."""
    generator = np.random.default_rng(seed)
    times = np.sort(generator.random(max(1, int(generator.poisson(load_qps * duration_s))))) * duration_s
    return Trace(arrivals_ns=(times * NS_PER_S).astype(np.int64), duration_s=duration_s)
