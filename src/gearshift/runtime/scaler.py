"""The loop that gives a replica the cores it will need: told of every request, asked once a period."""

import itertools
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from gearshift.clock import Clock, to_ns
from gearshift.errors import require
from gearshift.observability.journal import Journal, NoJournal
from gearshift.policies.look_ahead import DEFAULT_MARGIN, REMEMBERED_PERIODS, cores_ahead
from gearshift.policies.scaling import NO_CHOICE, fewest_misses, printed_algorithm_1, share_cores
from gearshift.profiles.performance_model import planned_ns
from gearshift.runtime.actuators.base import Actuator, Effect

MOST_REMEMBERED = 4096
"""Requests, so that choosing takes no longer at high rates; what is remembered then reaches less far back."""

Waiting = tuple[int, int]
"""When a request arrived, and its deadline, in nanoseconds."""
Waits = TypeVar("Waits")
Waits_contra = TypeVar("Waits_contra", contravariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """How a scaler works: `exact`, `paper` (Algorithm 1 of Sponge as printed, which needs `slo_s`) or `static`.

    It is asked every `period_s`; a change is expected to hold within `effect_s`.
    """

    scaler: Literal["exact", "paper", "static"] = "exact"
    period_s: float = 1.0
    effect_s: float = 0.01
    margin: float = DEFAULT_MARGIN
    slo_s: float | None = None

    def __post_init__(self) -> None:
        require(0.01 <= self.period_s <= 3600, f"period_s is {self.period_s}, needs 0.01 to 3600")
        require(0 <= self.effect_s < self.period_s, f"effect_s is {self.effect_s}, needs 0 to less than a period")
        require(-1 < self.margin <= 10, f"margin is {self.margin}, needs more than -1 and up to 10")
        known = self.slo_s is not None and 0 < self.slo_s < 1e6
        require(self.scaler != "paper" or known, "the printed algorithm needs one SLO", remedy="give slo_s")


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
        self._most, self.largest = (size - 1 for size in table_ns.shape)
        self.run_ns = planned_ns(table_ns, scaling.margin)
        self._actuator, self._clock, self._journal, self._scaling = actuator, clock, journal, scaling
        self._period_ns = to_ns(scaling.period_s)
        self._written: tuple[float, float, str] | None = None
        self.came: deque[Waiting] = deque(maxlen=MOST_REMEMBERED)

    def arrived(self, deadline_ns: int) -> None:
        """A request has come to the replica's queue."""
        self.came.append((self._clock.now_ns(), deadline_ns))

    def wanted(self, waiting: Sequence[Waiting], free_ns: int, idle: int | None = None) -> int:
        """Cores for those that wait and those that will come, of a worker that is free at `free_ns`.

        With `static`, and where nothing has come of late, `idle`: by default as many as there are now.
        """
        now_ns = self._clock.now_ns()
        self.forget(now_ns)
        if self._scaling.scaler == "static" or not self.came:
            return max(1, int(self.cores)) if idle is None else idle
        return self._printed(waiting) if self._scaling.scaler == "paper" else self._exact(now_ns, waiting, free_ns)

    def give(self, cores: int) -> Effect | None:
        """Have the actuator give so many cores; None where that many are in force.

        What could not be had is asked for again, and stands in the journal once.
        """
        before = self._actuator.in_force()
        if cores == before:
            self.cores = before
            return None
        effect = self._actuator.apply(cores)
        self.cores = effect.cores
        change = cores, effect.cores, effect.problem
        if not effect.problem or change != self._written:
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

    def misses(self, waiting: Sequence[Waiting], free_ns: int) -> list[int]:
        """How many of those that wait miss their deadline on 0, 1, ... cores; for sharing cores with other replicas."""
        due_ns = sorted(deadline_ns for _, deadline_ns in waiting)
        ready_ns = max(free_ns, self._clock.now_ns() + to_ns(self._scaling.effect_s))
        on_some = [
            fewest_misses(due_ns, len(due_ns), ready_ns, self.run_ns, cores, self.largest)
            for cores in range(1, self._most + 1)
        ]
        return [len(due_ns), *on_some]

    def _exact(self, now_ns: int, waiting: Sequence[Waiting], free_ns: int) -> int:
        return cores_ahead(
            now_ns,
            max(free_ns, now_ns + to_ns(self._scaling.effect_s)),
            self._period_ns,
            self.remembered_ns(now_ns),
            [deadline_ns for _, deadline_ns in waiting],
            [arrived_ns for arrived_ns, _ in self.came],
            [deadline_ns for _, deadline_ns in self.came],
            self.run_ns,
            self._most,
            self.largest,
        )

    def _printed(self, waiting: Sequence[Waiting]) -> int:
        slo_ns = to_ns(self._scaling.slo_s or 0.0)
        left_ns = min((deadline_ns - arrived_ns for arrived_ns, deadline_ns in waiting), default=slo_ns)
        cores, _ = printed_algorithm_1(len(waiting), slo_ns, slo_ns - left_ns, self.run_ns, self._most, self.largest)
        return self._most if cores == NO_CHOICE else cores

    def forget(self, now_ns: int) -> None:
        """What came too long ago."""
        while self.came and self.came[0][0] < now_ns - REMEMBERED_PERIODS * self._period_ns:
            self.came.popleft()

    def remembered_ns(self, now_ns: int) -> int:
        """How far back `came` reaches."""
        if len(self.came) == MOST_REMEMBERED:
            return max(1, now_ns - self.came[0][0])
        return max(1, min(REMEMBERED_PERIODS * self._period_ns, now_ns))


class Chooses(Protocol[Waits_contra]):
    """A scaler of one replica, or of a worker with several, by what it calls its queue."""

    @property
    def cores(self) -> float:
        """In force."""
        ...

    def wanted(self, waiting: Waits_contra, free_ns: int, idle: int | None = None) -> int:
        """See `Scaler.wanted`."""
        ...

    def misses(self, waiting: Waits_contra, free_ns: int) -> list[int]:
        """See `Scaler.misses`."""
        ...

    def give(self, cores: int) -> Effect | None:
        """See `Scaler.give`."""
        ...


def share(
    scalers: Sequence[Chooses[Waits]], queues: Sequence[tuple[Waits, int]], cores: int, least: Sequence[int] = ()
) -> list[int]:
    """Cores for each worker of one machine, `cores` in all, from the queue of each and when it is free.

    No fewer than the `least` of each, which are there in all: one, or what the gear in force gives.
    What each wants, where that is there.  Else the shares with which the fewest of all who wait miss their deadline;
    what is left then goes to those that want more, one by one.  Raises `InvalidInput` for more of them than cores.
    """
    require(len(scalers) <= cores, f"{len(scalers)} replicas cannot share {cores} cores", remedy="give each a core")
    idle: Sequence[int | None] = least or [None] * len(scalers)
    least = least or [1] * len(scalers)
    wanted = [max(low, s.wanted(*q, i)) for s, q, low, i in zip(scalers, queues, least, idle, strict=True)]
    if sum(wanted) <= cores:
        return wanted
    misses = [scaler.misses(*queue) for scaler, queue in zip(scalers, queues, strict=True)]
    shares = share_cores([row[: want + 1] for row, want in zip(misses, wanted, strict=True)], cores, least)
    for i in itertools.cycle(range(len(shares))):
        if sum(shares) == cores:
            return shares
        shares[i] += shares[i] < wanted[i]
    return shares


def give_all(scalers: Sequence[Chooses[Waits]], shares: Sequence[int]) -> list[Effect | None]:
    """Have all their cores, those that shrink first, so that no core is given twice; what each change came to."""
    effects: list[Effect | None] = [None] * len(scalers)
    for i in sorted(range(len(scalers)), key=lambda i: shares[i] - scalers[i].cores):
        effects[i] = scalers[i].give(shares[i])
    return effects
