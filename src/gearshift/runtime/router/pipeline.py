"""A pipeline as the router sees it: its meter, its load, its gear and turns; and the settings in force."""

from collections import deque
from collections.abc import Sequence

from gearshift.plans.plan_tables import PipelineTables, PlanTables
from gearshift.policies.gear_shift import gear_asked_for, gear_in_force, metered_load
from gearshift.policies.load import METER_KEEPS_ARRIVALS, METER_WINDOW_NS, arrival_rate_qps
from gearshift.policies.load_scaling import BINS, FACTORS, LOAD_EDGES, TICKS_PER_ESTIMATE, load_bin, load_factor
from gearshift.policies.sharing import settings_in_force
from gearshift.runtime.router.turns import Turns, Weigh


class LoadScaling:
    """Counts metered rates by bin, for the latest minutes, as many as the plan sets.

    `factor` is 1 until these minutes have passed, and is estimated again each minute from then on;
    it stays 1 unless the plan is for accuracy alone.
    """

    def __init__(self, tables: PipelineTables) -> None:
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
    """Meters arrivals, chooses the gear, and takes turns, of pipeline `number` of the plan.

    `waiting` counts its request rows of which something waits. Its turns leave `skipped` replicas out,
    and `weigh` the shares of the others.
    """

    def __init__(
        self, tables: PlanTables, number: int = 0, skipped: Sequence[bool] = (), weigh: Weigh | None = None
    ) -> None:
        self.tables, self.number = tables.pipelines[number], number
        self.name = self.tables.name
        self._most_stages = tables.most_stages
        self._stage_models: list[int] = tables.stage_models.tolist()
        self._choice_begin: list[int] = tables.choice_begin.tolist()
        self._range_starts: list[float] = self.tables.range_starts.tolist()
        begin, end = tables.graph.entry_begin[number : number + 2]
        self.entries: list[int] = tables.graph.entries[begin:end].tolist()
        self._entry_rows: list[int] = tables.first_row[tables.graph.entries[begin:end]].tolist()
        self.first_node = self.tables.first_node
        self.is_graph = len(self.tables.nodes) > 1
        self.turns = Turns(tables, number, skipped or [False] * len(tables.replica_ids), weigh)
        self.meter = Meter()
        self.waiting = 0
        self._eased_ticks = 0
        self.rate_qps = self.load = 0.0
        self.slowdown = 1.0
        self.scaling = LoadScaling(self.tables)
        self.pinned = False
        self.gear = 0
        self.shift(0)

    def tick(self, longest_first_stage_queue: int, now_ns: int, slowdown: float = 1.0) -> int:
        """Measure the load; return the gear for `slowdown` times this load, which is to be in force."""
        tables, starts = self.tables, self._range_starts
        self.rate_qps = self.meter.tick(now_ns)
        self.slowdown = slowdown
        self.load = slowdown * metered_load(
            tables.meter, self.rate_qps, self.scaling.factor, self.waiting, tables.alpha
        )
        asked = gear_asked_for(
            tables.meter, self.gear, self.load, longest_first_stage_queue, tables.alpha, starts, tables.gears
        )
        gear, self._eased_ticks = gear_in_force(
            self.gear, asked, self._eased_ticks, self.load, starts, tables.upshift_margin
        )
        return self.gear if self.pinned else gear

    def shift(self, gear: int) -> None:
        self.gear, self._eased_ticks = gear, 0
        choices = [self._choice_begin[row + gear] for row in self._entry_rows]
        self.first_models = [self._stage_models[choice * self._most_stages] for choice in choices]
        self.first_model = self.first_models[0]
        self.turns.share(gear)

    def take_meter(self, before: "Pipeline", slowdown: float = 1.0) -> int:
        """Take over the meter of `before`; return its arrivals' gear. Waiting samples do not count."""
        self.meter = before.meter.copy()
        self.rate_qps, self.slowdown = before.rate_qps, slowdown
        self.load = slowdown * before.rate_qps
        tables = self.tables
        return gear_asked_for(tables.meter, 0, self.load, 0, tables.alpha, self._range_starts, tables.gears)


class GearSettings:
    """The settings of replicas in the gears in force: lists by replica, resolved once per shift."""

    def __init__(self, tables: PlanTables, pipelines: Sequence[Pipeline]) -> None:
        self._pipelines, self._replicas = pipelines, len(tables.replica_ids)
        self._shares: list[int] = tables.shares.tolist()
        self._minimum_queue_lengths: list[int] = tables.minimum_queue_length.tolist()
        self._largest_batch_sizes: list[int] = tables.largest_batch_size.tolist()
        self._longest_waits_ns: list[int] = tables.longest_wait_ns.tolist()
        self.shift()

    def shift(self) -> None:
        rows = [pipeline.tables.first_gear + pipeline.gear for pipeline in self._pipelines]
        in_force = [
            settings_in_force(
                replica,
                rows,
                self._replicas,
                self._shares,
                self._minimum_queue_lengths,
                self._largest_batch_sizes,
                self._longest_waits_ns,
            )
            for replica in range(self._replicas)
        ]
        self.minimum_queue_length = [minimum for minimum, _, _ in in_force]
        self.largest_batch_size = [largest for _, largest, _ in in_force]
        self.longest_wait_ns = [wait_ns for _, _, wait_ns in in_force]
