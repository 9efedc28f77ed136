"""Scalers to compare with, and ours, simulated for a plan of one model on one worker."""

import math
from pkgutil import resolve_name
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from gearshift.clock import NS_PER_S
from gearshift.errors import require
from gearshift.gear import GearPlan
from gearshift.plans.plan_tables import PlanTables
from gearshift.plans.workers import scaled_workers, shared_pool
from gearshift.policies.cores.demand import Scaling
from gearshift.policies.cores.look_ahead import DEFAULT_MARGIN, REMEMBERED_PERIODS, Sight, cores_ahead, workers_ahead
from gearshift.policies.cores.scaling import NO_CHOICE
from gearshift.profiles.performance_model import planned_ns
from gearshift.profiles.profile import Profile
from gearshift.profiles.run_times import exits_of, scaled_times_ns
from gearshift.simulator.compared.table import COMPARED
from gearshift.simulator.compared.vertical import Seen, Setting, VerticalRun, simulate_vertical
from gearshift.workload import Workload

COLD_START_S = 10.0
VPA_TARGET = 0.7
Table = NDArray[np.int64]
"""Nanoseconds (cores + 1, sizes + 1) of a batch: `PerformanceModel.table_ns`."""


class Bounded:
    """Base of scalers bounded by a table's cores and sizes; planned run times carry a margin."""

    start_up_ns = 0

    def __init__(self, table_ns: Table, margin: float = 0.0, period_s: float = 1.0) -> None:
        self._most, self._largest = (size - 1 for size in table_ns.shape)
        self._run_ns = planned_ns(table_ns, margin)
        self._period_ns = round(period_s * NS_PER_S)

    @classmethod
    def of(cls, table_ns: Table, scaling: Scaling, pool: int) -> Self:
        """The scaler as it is asked for, with `pool` cores to give."""
        return cls(table_ns, scaling.margin, scaling.period_s)

    @property
    def most(self) -> Setting:
        return Setting(self._most, self._largest)

    def first(self, cores: int) -> Setting:
        return Setting(cores, self._largest)


class ExactScaler(Bounded):
    """Sponge Eq. 3, solved exactly for the queue and the period ahead (`policies.look_ahead`).

    The largest batch size stays as it is: a batch takes the waiting requests, as many as its most
    urgent one allows, so that the solver's b only shows that its cores suffice.
    """

    def __init__(
        self,
        table_ns: Table,
        *,
        margin: float = DEFAULT_MARGIN,
        period_s: float = 1.0,
        effect_s: float = 0.0,
        remembered_periods: int = REMEMBERED_PERIODS,
    ) -> None:
        super().__init__(table_ns, margin, period_s)
        self._effect_ns, self._remembered_ns = round(effect_s * NS_PER_S), remembered_periods * self._period_ns

    @classmethod
    def of(cls, table_ns: Table, scaling: Scaling, pool: int) -> Self:
        return cls(table_ns, margin=scaling.margin, period_s=scaling.period_s, effect_s=scaling.effect_s)

    def setting(self, seen: Seen) -> Setting:
        sight = self._sight(seen)
        if sight is None:
            return seen.setting
        ready_ns = max(seen.free_ns, seen.now_ns + self._effect_ns)
        return Setting(cores_ahead(sight, ready_ns, self._run_ns, self._most, self._largest), self._largest)

    def _sight(self, seen: Seen) -> Sight | None:
        remembered_ns = min(self._remembered_ns, seen.now_ns)
        arrivals_ns, deadlines_ns = seen.since(seen.now_ns - remembered_ns)
        if len(arrivals_ns) == 0:
            return None
        came = arrivals_ns.tolist(), deadlines_ns.tolist()
        return Sight(seen.now_ns, self._period_ns, remembered_ns, seen.waiting_ns, *came)


class ReplicasScaler(ExactScaler):
    """As `ExactScaler`, or several workers of one core each, where fewer cores then suffice.

    All workers exist from the beginning, and cost nothing while they have no core.
    """

    def setting(self, seen: Seen) -> Setting:
        one, sight = super().setting(seen), self._sight(seen)
        if sight is None:
            return one
        ready_ns = max(seen.all_free_ns, seen.now_ns + self._effect_ns)
        workers = workers_ahead(sight, ready_ns, self._run_ns, self._most, self._largest)
        return one if workers == NO_CHOICE or workers >= one.cores else Setting(1, self._largest, workers)


class Fa2Scaler(Bounded):
    """Horizontal scaling as Sponge section 2.1 describes FA2: one-core workers as the rate needs.

    The batch size is the one with the highest throughput whose wait and run fit into the time left
    by the slowest request of the last period; 1 where none does. An added worker takes
    `cold_start_s` before it serves. There are up to `most_workers`, by default the table's cores.
    """

    def __init__(
        self,
        table_ns: Table,
        *,
        most_workers: int | None = None,
        cold_start_s: float = COLD_START_S,
        period_s: float = 1.0,
    ) -> None:
        super().__init__(table_ns, 0.0, period_s)
        self._most = self._most if most_workers is None else most_workers
        self.start_up_ns = round(cold_start_s * NS_PER_S)
        self._one_core_ns: list[int] = table_ns[1].tolist()

    @classmethod
    def of(cls, table_ns: Table, scaling: Scaling, pool: int) -> Self:
        return cls(table_ns, most_workers=pool, period_s=scaling.period_s)

    @property
    def most(self) -> Setting:
        return Setting(1, self._largest, self._most)

    def first(self, cores: int) -> Setting:
        return Setting(1, self._largest, cores)

    def setting(self, seen: Seen) -> Setting:
        arrivals_ns, deadlines_ns = seen.since(seen.now_ns - self._period_ns)
        if len(arrivals_ns) == 0:
            return seen.setting
        left_ns = int((deadlines_ns - arrivals_ns).min())
        fitting = [b for b in range(1, self._largest + 1) if 2 * self._one_core_ns[b] <= left_ns]
        batch = max(fitting, key=lambda b: b / self._one_core_ns[b], default=1)
        busy = len(arrivals_ns) * self._one_core_ns[batch] / (self._period_ns * batch)
        return Setting(1, batch, min(self._most, max(1, math.ceil(busy))))


class VpaScaler(Bounded):
    """A threshold on utilisation, like Kubernetes' vertical autoscaler: `VPA_TARGET` is busy."""

    def setting(self, seen: Seen) -> Setting:
        if len(seen.arrivals_ns) == 0:
            return seen.setting
        wanted = math.ceil(seen.busy_share * seen.setting.cores / VPA_TARGET)
        return Setting(min(self._most, max(1, wanted)), self._largest)


PLAN_ONE = "compare with --scaler exact, or plan for one model on one device"


def simulate_compared(
    plan: GearPlan,
    tables: PlanTables,
    profile: Profile,
    workload: Workload,
    scaling: Scaling,
    cores: int | None = None,
) -> VerticalRun:
    """Serve `workload`, whose requests all have deadlines, within `cores` (default: the plan's).

    Batches are the largest that the plan has and deadlines allow, and start without waiting; a
    request that would make them small gives way, as in the router. Raises `InvalidInput` for a
    plan of several models or workers, one whose cores change with its gears, a model that stops
    early, and requests of several rows.
    """
    one = len(tables.models) == len(tables.replica_ids) == 1
    require(one, f"{scaling.scaler} knows one model on one worker, the plan has more", remedy=PLAN_ONE)
    require(plan.hardware.pool_cores is None, f"{scaling.scaler} knows no gears with cores of their own")
    require(
        exits_of(plan, tables, profile) is None, f"{scaling.scaler} knows no model that stops early", remedy=PLAN_ONE
    )
    require(workload.continues is None, f"{scaling.scaler} knows requests of one row only")
    workers = scaled_workers(plan, tables, printed=False)
    pool = shared_pool(workers, tables, cores)
    table_ns = scaled_times_ns(workers, plan, tables, profile, most_cores=pool, margin=0.0)[0][0]
    scaler: Any = resolve_name(COMPARED[scaling.scaler]).of(table_ns, scaling, pool)
    return simulate_vertical(
        workload,
        table_ns.tolist(),
        scaler,
        first=scaler.first(workers[0][0].cores),
        period_s=scaling.period_s,
        effect_s=scaling.effect_s,
        gives_way=True,
    )
