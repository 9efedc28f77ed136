"""Measured load and the factors on it, compiled: `LoadScaling` and `Slowdown` of `runtime/router` on arrays."""

from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gearshift.plans.plan_tables import PlanTables
from gearshift.policies import load as load_module
from gearshift.policies import load_scaling, slowdown
from gearshift.policies.load import METER_KEEPS_ARRIVALS, METER_WINDOW_NS
from gearshift.policies.load_scaling import BINS, FACTORS, LOAD_EDGES, TICKS_PER_ESTIMATE
from gearshift.simulator.kernel.state import Outcome, State
from gearshift.support.compiled import inlined

arrival_rate_qps = inlined(load_module.arrival_rate_qps)
load_bin = inlined(load_scaling.load_bin)
load_factor = inlined(load_scaling.load_factor)
slowdown_of_load = inlined(slowdown.slowdown_of_load)
learnt = inlined(slowdown.learnt)

_EDGES: Any
_FACTORS: Any
_EDGES, _FACTORS = np.array(LOAD_EDGES), np.array(FACTORS)


class Scaling(NamedTuple):
    """Ticks by bin of their rate, in `counts` (minutes, bins) and `totals` (pipelines, bins).

    Pipeline p has `minutes[p]` of `counts`, from `first_minute[p]`, and gears from `first_gear[p]`
    to `first_gear[p + 1]` in `range_bins` and `planned_shares` (gears,), which are the plan's.
    `below` (bins + 1,) is scratch space. Without minutes load is not scaled.
    """

    minutes: Any
    first_minute: Any
    first_gear: Any
    counts: Any
    totals: Any
    below: Any
    range_bins: Any
    planned_shares: Any


def make_scaling(tables: PlanTables) -> Scaling:
    minutes = [pipeline.scale_minutes for pipeline in tables.pipelines]
    starts = [start for pipeline in tables.pipelines for start in pipeline.range_starts]
    planned = [p.planned_shares if p.scale_minutes else np.zeros(p.gears) for p in tables.pipelines]
    return Scaling(
        minutes=np.array(minutes),
        first_minute=np.array([0, *accumulate(minutes)]),
        first_gear=first_gears(tables),
        counts=np.zeros((sum(minutes), BINS), dtype=np.int64),
        totals=np.zeros((len(minutes), BINS), dtype=np.int64),
        below=np.zeros(BINS + 1, dtype=np.int64),
        range_bins=np.array([load_scaling.load_bin(start, LOAD_EDGES) for start in starts], dtype=np.int64),
        planned_shares=np.concatenate(planned),
    )


def first_gears(tables: PlanTables) -> NDArray[np.int64]:
    """The first row of each pipeline's gears (pipelines + 1,), and the end of the last's."""
    return np.array([0, *accumulate(pipeline.gears for pipeline in tables.pipelines)], dtype=np.int64)


@inlined
def ticked(scaling: Scaling, number: int, ticks: int, rate_qps: float, factor: float) -> float:
    """Count the rate of a pipeline's tick number `ticks`, from 1; returns its factor from then on."""
    minutes, first, totals = scaling.minutes[number], scaling.first_minute[number], scaling.totals[number]
    if minutes == 0:
        return factor
    place = load_bin(rate_qps, _EDGES)
    scaling.counts[first + (ticks - 1) // TICKS_PER_ESTIMATE % minutes, place] += 1
    totals[place] += 1
    if ticks % TICKS_PER_ESTIMATE != 0:
        return factor
    minute = ticks // TICKS_PER_ESTIMATE
    if minute >= minutes:
        begin, end = scaling.first_gear[number], scaling.first_gear[number + 1]
        bins, planned = scaling.range_bins[begin:end], scaling.planned_shares[begin:end]
        factor = load_factor(totals, scaling.below, bins, planned, _FACTORS)
    oldest = first + minute % minutes
    for place in range(BINS):
        totals[place] -= scaling.counts[oldest, place]
        scaling.counts[oldest, place] = 0
    return factor


@inlined
def count_arrived(state: State, out: Outcome, number: int) -> None:
    """Count the samples that have arrived since the last tick in the gear that was in force."""
    pipeline = state.pipelines[number]
    out.arrived_in_gear[state.gear_row[number]] += pipeline.arrived - pipeline.arrived_at_tick
    pipeline.arrived_at_tick = pipeline.arrived


@inlined
def measured_qps(state: State, number: int, now_ns: int) -> float:
    """The arrival rate of the window that ends now; the next window begins."""
    pipeline = state.pipelines[number]
    kept = min(pipeline.metered, METER_KEEPS_ARRIVALS)
    oldest = number * METER_KEEPS_ARRIVALS + pipeline.metered % METER_KEEPS_ARRIVALS
    oldest_ns = state.kept_ns[oldest] if kept == METER_KEEPS_ARRIVALS else 0
    window_ns = max(METER_WINDOW_NS, now_ns - pipeline.ticked_ns)
    recent = pipeline.metered - pipeline.metered_at_tick
    pipeline.metered_at_tick, pipeline.ticked_ns = pipeline.metered, now_ns
    return arrival_rate_qps(recent, window_ns, kept, oldest_ns, now_ns)


class Slowdown(NamedTuple):
    """Observed over expected run times; arrays are empty where they are not learnt.

    Per replica: `alike`, as in `PlanTables`; `ratios` and the `work_ns` since the last tick, of the
    first of those alike; and of the batch that runs, `started_ns` and `expected_ns`. `of_load` (1,)
    is what load is multiplied by.
    """

    alike: Any
    ratios: Any
    work_ns: Any
    started_ns: Any
    expected_ns: Any
    of_load: Any


def make_slowdown(tables: PlanTables, *, learns: bool) -> Slowdown:
    replicas = len(tables.replica_ids) if learns else 0
    return Slowdown(
        alike=tables.alike,
        ratios=np.ones(replicas),
        work_ns=np.zeros(replicas, dtype=np.int64),
        started_ns=np.zeros(replicas, dtype=np.int64),
        expected_ns=np.zeros(replicas, dtype=np.int64),
        of_load=np.ones(1),
    )


@inlined
def batch_ended(slowdown: Slowdown, replica: int, now_ns: int) -> Any:
    """Learn from a batch; return the first of the replicas that this is about."""
    first, expected_ns = slowdown.alike[replica], slowdown.expected_ns[replica]
    took_ns = now_ns - slowdown.started_ns[replica]
    slowdown.ratios[first] = learnt(slowdown.ratios[first], took_ns, expected_ns)
    slowdown.work_ns[first] += expected_ns
    return first


@inlined
def slowdown_ticked(slowdown: Slowdown) -> None:
    slowdown.of_load[0] = slowdown_of_load(slowdown.ratios, slowdown.work_ns, slowdown.of_load[0])
    slowdown.work_ns[:] = 0
