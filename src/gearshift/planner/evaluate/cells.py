"""Cells of a steady state: a cascade at a load with a batching, as simulated and as judged."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gearshift.clock import to_ns
from gearshift.gear import GearPrediction
from gearshift.result import percentile_rank
from gearshift.simulator.simulate import Prepared, Simulation

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
