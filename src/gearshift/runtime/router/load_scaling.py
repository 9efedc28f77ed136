"""The factor on measured load, from the loads of the latest minutes; `simulator/kernel/loop.py` keeps the same books."""

from gearshift.plans.plan_tables import PlanTables
from gearshift.policies.load_scaling import BINS, FACTORS, LOAD_EDGES, TICKS_PER_ESTIMATE, load_bin, load_factor


class LoadScaling:
    """Counts metered rates by bin, minute after minute, as many minutes as the plan was made for.

    `factor` is 1 until that many have passed, and is estimated anew each minute from then on; 1 for good where the
    plan is not for accuracy alone.
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
        """Count what the meter has measured at a tick."""
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
