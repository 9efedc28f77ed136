"""The factor on measured load, compiled: `runtime/router/pipeline.py` on arrays."""

from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gearshift.plans.plan_tables import PlanTables
from gearshift.policies import load_scaling
from gearshift.policies.load_scaling import BINS, FACTORS, LOAD_EDGES, TICKS_PER_ESTIMATE
from gearshift.support.compiled import inlined

load_bin = inlined(load_scaling.load_bin)
load_factor = inlined(load_scaling.load_factor)

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
