"""Cores of emulated devices that change with the gear and a scaler, like the simulator's."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from gearshift.clock import NEVER_NS, to_ns
from gearshift.decisions import Decision, LogRow
from gearshift.plans.plan_tables import PlanTables
from gearshift.policies.cores.demand import MachineDemand, SharedCores
from gearshift.policies.cores.scaling import change_holds_ns, cores_in_gear
from gearshift.request import Sample
from gearshift.runtime.router.by_deadline import DeadlineQueues


class EmulatedCores:
    """Changes rows of `times` (replicas, sizes) with the replicas' cores, from `run_ns` by cores.

    It starts with the cores of the first gear. Without `run_ns` nothing ever changes; with
    `shared` a scaler chooses cores, no fewer than the gear's, if it has
    some. `log` takes each decision.
    """

    def __init__(
        self,
        tables: PlanTables,
        run_ns: NDArray[np.int64] | None,
        times: list[list[int]],
        effect_ns: int,
        shared: SharedCores | None,
        *,
        log: Callable[[LogRow], None],
        now: Callable[[], int],
    ) -> None:
        self._run_ns: list[list[list[int]]] = [] if run_ns is None else run_ns.tolist()
        self._in_gear: list[int] = tables.cores.tolist()
        self._times, self._effect_ns, self._shared, self._log, self._now = times, effect_ns, shared, log, now
        self._demand = None if shared is None else MachineDemand(shared)
        self._period_ns = NEVER_NS if shared is None else to_ns(shared.scaling.period_s)
        self.next_period_ns = self._period_ns
        self._asked = self._in_gear[: len(self._run_ns)] or [*(() if shared is None else shared.first)]
        self._in_force = [*self._asked]
        self._due: dict[int, int] = {}
        for replica, cores in enumerate(self._in_force):
            times[replica] = self._run_ns[replica][cores]

    @property
    def next_ns(self) -> int:
        return min(self._due.values(), default=NEVER_NS)

    def came(self, replica: int, sample: Sample) -> None:
        if self._demand is not None:
            self._demand.arrived(replica, self._now(), sample.request.late_after_ns)

    def period(self, gear: int, queues: DeadlineQueues) -> None:
        self.next_period_ns += self._period_ns
        self._ask(gear, queues)

    def shifted(self, gear: int, queues: DeadlineQueues) -> None:
        if self._in_gear:
            self._ask(gear, queues)

    def _ask(self, gear: int, queues: DeadlineQueues) -> None:
        now_ns, replicas = self._now(), len(self._run_ns)
        here = range(replicas if self._in_gear else 0)
        wanted = in_gear = [cores_in_gear(self._in_gear, gear, replicas, replica) for replica in here]
        if self._demand is not None:
            waiting = [queues.waiting(replica, now_ns) for replica in range(replicas)]
            wanted = self._demand.wanted(waiting, now_ns, in_gear=in_gear, asked=self._asked)
        for replica, cores in enumerate(wanted):
            before = self._asked[replica]
            if cores == before:
                continue
            self._log((now_ns, Decision.CORES.value, replica, cores, before))
            self._asked[replica] = cores
            self._due[replica] = change_holds_ns(now_ns, self._in_force[replica], cores, self._effect_ns)
            if self._due[replica] == now_ns:
                self._reckon_with(replica, now_ns, queues)

    def take_effect(self, now_ns: int, queues: DeadlineQueues) -> None:
        for replica in sorted(self._due):
            if self._due[replica] <= now_ns:
                self._reckon_with(replica, now_ns, queues)

    def _reckon_with(self, replica: int, now_ns: int, queues: DeadlineQueues) -> None:
        del self._due[replica]
        self._in_force[replica] = self._asked[replica]
        self._times[replica] = self._run_ns[replica][self._asked[replica]]
        queues.take_run_times(replica, self._times[replica], now_ns)
