"""Gives a worker its cores, and records the result in the journal."""

from collections.abc import Sequence

from gearshift.observability.journal import Journal
from gearshift.runtime.actuators.base import Actuator, Effect


class Scaler:
    """Has an actuator give a worker cores; `worker` names it in the journal.

    `cores` are those in force; somebody else may change them, which the next `give` notices.
    """

    def __init__(self, worker: str, actuator: Actuator, *, cores: int, journal: Journal) -> None:
        self.worker, self.cores = worker, float(cores)
        self._actuator, self._journal = actuator, journal
        self._written: tuple[float, float, str] | None = None

    def give(self, cores: int) -> Effect | None:
        """None if `cores` are in force; missing ones are requested again, but journaled once."""
        in_force = self._actuator.in_force()
        if cores == in_force == self.cores:
            return None
        before = self.cores if cores == in_force else in_force  # a worker told ahead may have them
        effect = self._actuator.apply(cores)
        self.cores = effect.cores
        change = cores, effect.cores, effect.problem
        if change != self._written if effect.problem else effect.cores != before:
            self._written = change
            self._journal.write(
                "cores",
                replica=self.worker,
                before=before,
                asked=cores,
                cores=effect.cores,
                took_s=round(effect.took_s, 6),
                problem=effect.problem,
            )
        return effect

    def act_through(self, actuator: Actuator) -> None:
        self._actuator = actuator


def give_all(scalers: Sequence[Scaler], shares: Sequence[int]) -> list[Effect | None]:
    """Give all their cores, shrinking ones first, so that no core is given twice."""
    effects: list[Effect | None] = [None] * len(scalers)
    for i in sorted(range(len(scalers)), key=lambda i: shares[i] - scalers[i].cores):
        effects[i] = scalers[i].give(shares[i])
    return effects
