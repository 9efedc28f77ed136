"""A pipeline as the router sees it: its meter, its load, the gear in force and its settings."""

from collections import deque

from gearshift.plans.plan_tables import PlanTables
from gearshift.policies.gear_shift import gear_asked_for, gear_in_force, metered_load
from gearshift.policies.load import METER_KEEPS_ARRIVALS, METER_WINDOW_NS, arrival_rate_qps
from gearshift.policies.load_scaling import BINS, FACTORS, LOAD_EDGES, TICKS_PER_ESTIMATE, load_bin, load_factor


class LoadScaling:
    """Counts metered rates by bin, for the latest minutes, as many as the plan sets.

    `factor` is 1 until these minutes have passed, and is estimated again each minute from then on;
    it stays 1 unless the plan is for accuracy alone.
    """

    def __init__(self, tables: PlanTables) -> None:
        self.factor = 1.0
        self._minutes = tables.pipeline.scale_minutes
        self._planned: list[float] = tables.pipeline.planned_shares.tolist()
        self._range_bins = [load_bin(start, LOAD_EDGES) for start in tables.pipeline.range_starts.tolist()]
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


class Meter:
    """Counts arrivals: those since the last tick, and the last few."""

    def __init__(self) -> None:
        self._since_tick = 0
        self._ticked_ns = 0
        self._last: deque[int] = deque(maxlen=METER_KEEPS_ARRIVALS)

    def arrived(self, now_ns: int) -> None:
        self._since_tick += 1
        self._last.append(now_ns)

    def tick(self, now_ns: int) -> float:
        kept = self._last
        rate_qps = arrival_rate_qps(
            self._since_tick,
            max(METER_WINDOW_NS, now_ns - self._ticked_ns),
            len(kept),
            kept[0] if len(kept) == METER_KEEPS_ARRIVALS else 0,
            now_ns,
        )
        self._since_tick, self._ticked_ns = 0, now_ns
        return rate_qps

    def copy(self) -> "Meter":
        other = Meter()
        other._since_tick, other._ticked_ns, other._last = self._since_tick, self._ticked_ns, self._last.copy()
        return other

    @property
    def counted(self) -> tuple[int, int]:
        return self._since_tick, len(self._last)


class Pipeline:
    """Meters arrivals and chooses the gear, of pipeline `number` of the decision log.

    An operator of the plan is a pipeline of one node. It knows no devices: these may be shared.
    """

    def __init__(self, tables: PlanTables, number: int = 0) -> None:
        self.tables, self.number = tables, number
        self._stage_models: list[int] = tables.stage_models.tolist()
        self._range_starts: list[float] = tables.pipeline.range_starts.tolist()
        self.meter = Meter()
        self._eased_ticks = 0
        self.rate_qps = self.load = 0.0
        self.scaling = LoadScaling(tables)
        self.pinned = False
        self.gear, self.first_model = 0, self._stage_models[0]

    def tick(self, waiting: int, longest_first_stage_queue: int, now_ns: int) -> int:
        """Measure the load; return the gear that is to be in force."""
        tables, starts = self.tables, self._range_starts
        self.rate_qps = self.meter.tick(now_ns)
        self.load = metered_load(
            tables.pipeline.meter, self.rate_qps, self.scaling.factor, waiting, tables.pipeline.alpha
        )
        asked = gear_asked_for(
            tables.pipeline.meter,
            self.gear,
            self.load,
            longest_first_stage_queue,
            tables.pipeline.alpha,
            starts,
            tables.pipeline.gears,
        )
        gear, self._eased_ticks = gear_in_force(
            self.gear, asked, self._eased_ticks, self.load, starts, tables.pipeline.upshift_margin
        )
        return self.gear if self.pinned else gear

    def shift(self, gear: int) -> None:
        self.gear, self._eased_ticks = gear, 0
        self.first_model = self._stage_models[gear * self.tables.most_stages]

    def take_meter(self, before: "Pipeline") -> int:
        """Take over the meter of `before`; return its arrivals' gear. Waiting samples do not count."""
        self.meter = before.meter.copy()
        self.rate_qps = self.load = before.rate_qps
        tables = self.tables
        return gear_asked_for(
            tables.pipeline.meter, 0, self.load, 0, tables.pipeline.alpha, self._range_starts, tables.pipeline.gears
        )


class GearSettings:
    """The settings of replicas in the gear in force: lists by replica, looked up once per shift."""

    def __init__(self, tables: PlanTables) -> None:
        self._replicas = len(tables.replica_ids)
        self._minimum_queue_lengths: list[int] = tables.minimum_queue_length.tolist()
        self._largest_batch_sizes: list[int] = tables.largest_batch_size.tolist()
        self._longest_waits_ns: list[int] = tables.longest_wait_ns.tolist()
        self.shift(0)

    def shift(self, gear: int) -> None:
        here = slice(gear * self._replicas, (gear + 1) * self._replicas)
        self.minimum_queue_length = self._minimum_queue_lengths[here]
        self.largest_batch_size = self._largest_batch_sizes[here]
        self.longest_wait_ns = self._longest_waits_ns[here]
