"""Cores that change with the gear on emulated devices: `simulator/gear_cores.py` keeps the same books."""

import numpy as np
from numpy.typing import NDArray

from gearshift.plan_tables import PlanTables
from gearshift.policies.gear_cores import change_holds_ns, cores_in_gear
from gearshift.runtime.by_deadline import DeadlineQueues

NEVER_NS = 1 << 62


class EmulatedCores:
    """Changes rows of `times` (replicas, sizes) with the cores that replicas have, from `run_ns` by cores.

    Begins with the cores of the first gear.  Without `run_ns` nothing ever changes.
    """

    def __init__(
        self, tables: PlanTables, run_ns: NDArray[np.int64] | None, times: list[list[int]], effect_ns: int
    ) -> None:
        self._run_ns: list[list[list[int]]] = [] if run_ns is None else run_ns.tolist()
        self._in_gear: list[int] = tables.cores.tolist()
        self._times, self._effect_ns = times, effect_ns
        self._in_force = self._in_gear[: len(self._run_ns)]
        self._due: dict[int, tuple[int, int]] = {}
        for replica, cores in enumerate(self._in_force):
            times[replica] = self._run_ns[replica][cores]

    @property
    def next_ns(self) -> int:
        """When cores take effect next."""
        return min((at_ns for at_ns, _ in self._due.values()), default=NEVER_NS)

    def ask(self, before: int, gear: int, now_ns: int, queues: DeadlineQueues | None) -> None:
        """Ask for the cores of `gear`, where they are others than in the gear `before`."""
        replicas = len(self._run_ns)
        for replica in range(replicas):
            wanted, had = (cores_in_gear(self._in_gear, each, replicas, replica) for each in (gear, before))
            if wanted == had:
                continue
            at_ns = change_holds_ns(now_ns, self._in_force[replica], wanted, self._effect_ns)
            self._due[replica] = at_ns, wanted
            if at_ns == now_ns:
                self._reckon_with(replica, now_ns, queues)

    def take_effect(self, now_ns: int, queues: DeadlineQueues | None) -> None:
        """Reckon with cores that are there now."""
        for replica in sorted(self._due):
            if self._due[replica][0] <= now_ns:
                self._reckon_with(replica, now_ns, queues)

    def _reckon_with(self, replica: int, now_ns: int, queues: DeadlineQueues | None) -> None:
        _, cores = self._due.pop(replica)
        self._in_force[replica] = cores
        self._times[replica] = self._run_ns[replica][cores]
        if queues is not None:
            queues.take_run_times(replica, self._times[replica], now_ns)
