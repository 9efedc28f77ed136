"""The factor on measured load, compiled: `runtime/router/pipeline.py` on arrays."""

from typing import Any, NamedTuple

import numpy as np

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
    """Ticks by bin of their rate, in `counts` (minutes, bins) and `totals` (bins,).

    `below` (bins + 1,) is scratch space. `range_bins` and `planned_shares` (gears,) are the
    plan's. Without minutes load is not scaled.
    """

    minutes: int
    counts: Any
    totals: Any
    below: Any
    range_bins: Any
    planned_shares: Any


def make_scaling(tables: PlanTables) -> Scaling:
    bins = (
        [load_scaling.load_bin(s, LOAD_EDGES) for s in tables.pipeline.range_starts]
        if tables.pipeline.scale_minutes
        else []
    )
    return Scaling(
        minutes=tables.pipeline.scale_minutes,
        counts=np.zeros((tables.pipeline.scale_minutes, BINS), dtype=np.int64),
        totals=np.zeros(BINS, dtype=np.int64),
        below=np.zeros(BINS + 1, dtype=np.int64),
        range_bins=np.array(bins, dtype=np.int64),
        planned_shares=tables.pipeline.planned_shares,
    )


@inlined
def ticked(scaling: Scaling, ticks: int, rate_qps: float, factor: float) -> float:
    """Count the rate of tick number `ticks`, from 1; returns the factor from then on."""
    if scaling.minutes == 0:
        return factor
    place = load_bin(rate_qps, _EDGES)
    scaling.counts[(ticks - 1) // TICKS_PER_ESTIMATE % scaling.minutes, place] += 1
    scaling.totals[place] += 1
    if ticks % TICKS_PER_ESTIMATE != 0:
        return factor
    minute = ticks // TICKS_PER_ESTIMATE
    if minute >= scaling.minutes:
        factor = load_factor(scaling.totals, scaling.below, scaling.range_bins, scaling.planned_shares, _FACTORS)
    oldest = minute % scaling.minutes
    for place in range(BINS):
        scaling.totals[place] -= scaling.counts[oldest, place]
        scaling.counts[oldest, place] = 0
    return factor
