"""The scaler of one worker, on which several replicas may take turns."""

from collections.abc import Sequence

from gearshift.policies.demand import Scaling
from gearshift.policies.worker_demand import WorkerDemand
from gearshift.runtime.actuators.base import Actuator, Effect
from gearshift.runtime.scaler import Scaler


class WorkerScaler:
    """`scalers` are told of what comes to each replica of the worker; the first of them gives it cores."""

    def __init__(self, scalers: Sequence[Scaler], scaling: Scaling) -> None:
        self._scalers, self._first = tuple(scalers), scalers[0]
        self.demand = WorkerDemand([one.demand for one in scalers], scaling)

    @property
    def cores(self) -> float:
        """In force."""
        return self._first.cores

    def let_in(self) -> None:
        """As `Scaler.let_in`, of all replicas."""
        for one in self._scalers:
            one.let_in()

    def arrived(self, replica: int, deadline_ns: int) -> None:
        """A request has come to the queue of the worker's replica of this place."""
        self._scalers[replica].arrived(deadline_ns)

    def give(self, cores: int) -> Effect | None:
        """As `Scaler.give`."""
        return self._first.give(cores)

    def act_through(self, actuator: Actuator) -> None:
        """As `Scaler.act_through`."""
        self._first.act_through(actuator)
