"""A pipeline as the router sees it: its meter, its load, and the gear in force."""

from gearshift.plans.plan_tables import PlanTables
from gearshift.policies.gear_shift import gear_asked_for, gear_in_force, metered_load
from gearshift.runtime.router.load_scaling import LoadScaling
from gearshift.runtime.router.meter import Meter


class Pipeline:
    """Meters arrivals and chooses the gear, of pipeline `number` of the decision log.

    An operator of the plan is a pipeline of one node. It knows no devices: these may be shared.
    """

    def __init__(self, tables: PlanTables, number: int = 0) -> None:
        self.tables, self.number = tables, number
        self._stage_models: list[int] = tables.stage_models.tolist()
        self._range_starts: list[float] = tables.range_starts.tolist()
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
        self.load = metered_load(tables.meter, self.rate_qps, self.scaling.factor, waiting, tables.alpha)
        asked = gear_asked_for(
            tables.meter, self.gear, self.load, longest_first_stage_queue, tables.alpha, starts, tables.gears
        )
        gear, self._eased_ticks = gear_in_force(
            self.gear, asked, self._eased_ticks, self.load, starts, tables.upshift_margin
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
        return gear_asked_for(tables.meter, 0, self.load, 0, tables.alpha, self._range_starts, tables.gears)
