"""The loop that gives a replica the cores it will need: told of every request, asked once a period."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gearshift.clock import Clock
from gearshift.observability.journal import Journal, NoJournal
from gearshift.policies.demand import Demand, Scaling
from gearshift.profiles.performance_model import planned_ns
from gearshift.runtime.actuators.base import Actuator, Effect


class Scaler:
    """Chooses the cores of one replica, and has an actuator give them.

    `table_ns` (cores + 1, sizes + 1) is how long batches take.  `cores` are those in force, which somebody else may
    change: that is seen at the next call of `give`.
    """

    def __init__(
        self,
        replica: str,
        table_ns: NDArray[np.int64],
        actuator: Actuator,
        *,
        cores: int,
        clock: Clock,
        journal: Journal | NoJournal,
        scaling: Scaling,
    ) -> None:
        self.replica, self.cores = replica, float(cores)
        most, largest = (size - 1 for size in table_ns.shape)
        self.demand = Demand(planned_ns(table_ns, scaling.margin), most, largest, scaling)
        self._actuator, self._clock, self._journal = actuator, clock, journal
        self._written: tuple[float, float, str] | None = None

    def let_in(self) -> None:
        """All requests come from now on."""
        self.demand.let_in(self._clock.now_ns())

    def arrived(self, deadline_ns: int) -> None:
        """A request has come to the replica's queue."""
        self.demand.arrived(self._clock.now_ns(), deadline_ns)

    def give(self, cores: int) -> Effect | None:
        """Have the actuator give so many cores; None where that many are in force.

        What could not be had is asked for again, and stands in the journal once.
        """
        in_force = self._actuator.in_force()
        if cores == in_force == self.cores:
            return None
        before = self.cores if cores == in_force else in_force  # a worker that was told ahead may have them by now
        effect = self._actuator.apply(cores)
        self.cores = effect.cores
        change = cores, effect.cores, effect.problem
        if change != self._written if effect.problem else effect.cores != before:
            self._written = change
            self._journal.write(
                "cores",
                replica=self.replica,
                before=before,
                asked=cores,
                cores=effect.cores,
                took_s=round(effect.took_s, 6),
                problem=effect.problem,
            )
        return effect

    def act_through(self, actuator: Actuator) -> None:
        """Change cores through another actuator from now on, as the worker is another."""
        self._actuator = actuator


class Scales(Protocol):
    """A scaler of one replica, or of a worker with several."""

    @property
    def cores(self) -> float:
        """In force."""
        ...

    def give(self, cores: int) -> Effect | None:
        """See `Scaler.give`."""
        ...


def give_all(scalers: Sequence[Scales], shares: Sequence[int]) -> list[Effect | None]:
    """Have all their cores, those that shrink first, so that no core is given twice; what each change came to."""
    effects: list[Effect | None] = [None] * len(scalers)
    for i in sorted(range(len(scalers)), key=lambda i: shares[i] - scalers[i].cores):
        effects[i] = scalers[i].give(shares[i])
    return effects
