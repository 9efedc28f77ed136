"""The factor on measured load, from recent minutes; computed as in `simulator/kernel.py`."""

from gearshift.plans.plan_tables import PlanTables
from gearshift.policies.load_scaling import BINS, FACTORS, LOAD_EDGES, TICKS_PER_ESTIMATE, load_bin, load_factor


class LoadScaling:
    """Counts metered rates by bin, for the latest minutes, as many as the plan sets.

    `factor` is 1 until these minutes have passed, and is estimated again each minute from then on;
    it stays 1 unless the plan is for accuracy alone.
    """

    def __init__(self, tables: PlanTables) -> None:
        self.factor = 1.0
        self._minutes = tables.scale_minutes
        self._planned: list[float] = tables.planned_shares.tolist()
        self._range_bins = [load_bin(start, LOAD_EDGES) for start in tables.range_starts.tolist()]
        self._counts = [[0] * BINS for _ in range(self._minutes)]
        self._totals, self._below = [0] * BINS, [0] * (BINS + 1)
        self._ticks = 0

    def ticked(self, rate_qps: float) -> None:
        if self._minutes == 0:
            return
        place = load_bin(rate_qps, LOAD_EDGES)
        self._counts[self._ticks // TICKS_PER_ESTIMATE % self._minutes][place] += 1
        self._totals[place] += 1
        self._ticks += 1
        if self._ticks % TICKS_PER_ESTIMATE:
            return
        minute = self._ticks // TICKS_PER_ESTIMATE
        if minute >= self._minutes:
            self.factor = load_factor(self._totals, self._below, self._range_bins, self._planned, FACTORS)
        oldest = self._counts[minute % self._minutes]
        for place in range(BINS):
            self._totals[place] -= oldest[place]
            oldest[place] = 0
