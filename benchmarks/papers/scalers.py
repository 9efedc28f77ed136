"""Scalers that are compared in benchmarks alone: Sponge's as printed, and none."""

import numpy as np

from gearshift.clock import NS_PER_S
from gearshift.policies.cores.scaling import NO_CHOICE, printed_algorithm_1
from gearshift.simulator.compared.scalers import Bounded, Table
from gearshift.simulator.compared.vertical import Seen, Setting


class StaticScaler:
    """Keeps the first setting."""

    start_up_ns = 0

    def setting(self, seen: Seen) -> Setting:
        return seen.setting


class PaperScaler(Bounded):
    """Sponge's Algorithm 1 as printed; the maximum where it returns nothing.

    The paper does not define the set of requests: those that wait (`of_period` false), as its
    section 3.1 says, or, as in its authors' code, those that came in the last period.
    """

    def __init__(
        self, table_ns: Table, *, slo_s: float, of_period: bool = False, margin: float = 0.0, period_s: float = 1.0
    ) -> None:
        super().__init__(table_ns, margin, period_s)
        self._slo_ns, self._of_period = round(slo_s * NS_PER_S), of_period

    def setting(self, seen: Seen) -> Setting:
        arrivals_ns, deadlines_ns = seen.since(seen.now_ns - self._period_ns)
        requests = len(arrivals_ns)
        if not self._of_period:
            requests = len(seen.waiting_ns)
            waits = np.isin(seen.deadlines_ns, np.array(seen.waiting_ns, dtype=np.int64))
            arrivals_ns, deadlines_ns = seen.arrivals_ns[waits], seen.deadlines_ns[waits]
        communication_ns = self._slo_ns - int((deadlines_ns - arrivals_ns).min(initial=self._slo_ns))
        cores, batch = printed_algorithm_1(
            requests, self._slo_ns, communication_ns, self._run_ns, self._most, self._largest
        )
        return self.most if cores == NO_CHOICE else Setting(cores, batch)
