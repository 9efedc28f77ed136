"""The cores that replicas need, from recent requests; without a clock of its own."""

import itertools
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

from gearshift.clock import to_ns
from gearshift.errors import require
from gearshift.policies.cores.look_ahead import DEFAULT_MARGIN, REMEMBERED_PERIODS, Sight, cores_ahead
from gearshift.policies.cores.scaling import NO_CHOICE, fewest_misses, misses_by_cores, printed_algorithm_1, share_cores

MOST_REMEMBERED = 4096
"""Requests, so that a decision takes no longer at high rates; memory then reaches less far back."""

CORES_EFFECT_S = 0.01
"""The longest time until added cores are available; every actuator of this machine keeps it."""

Waiting = tuple[int, int]
"""A request's arrival and its deadline, in nanoseconds."""
Waits = TypeVar("Waits")
Waits_contra = TypeVar("Waits_contra", contravariant=True)


def require_period(period_s: float, name: str = "period_s") -> None:
    require(0.01 <= period_s <= 3600, f"{name} is {period_s}, needs 0.01 to 3600")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """A scaler: `exact`, `paper` (Sponge's Algorithm 1 as printed, needs `slo_s`) or `static`.

    Only the simulator has `replicas`, `fa2` and `vpa`, which scale one model exactly and
    horizontally, horizontally alone, and by utilisation. A scaler runs every `period_s`; a change
    is expected to hold within `effect_s`.
    """

    scaler: Literal["exact", "paper", "static", "replicas", "fa2", "vpa"] = "exact"
    period_s: float = 1.0
    effect_s: float = CORES_EFFECT_S
    margin: float = DEFAULT_MARGIN
    slo_s: float | None = None

    def __post_init__(self) -> None:
        require_period(self.period_s)
        require(0 <= self.effect_s < self.period_s, f"effect_s is {self.effect_s}, needs 0 to less than a period")
        require(-1 < self.margin <= 10, f"margin is {self.margin}, needs more than -1 and up to 10")
        known = self.slo_s is not None and 0 < self.slo_s < 1e6
        require(self.scaler != "paper" or known, "the printed algorithm needs one SLO", remedy="give slo_s")


class Demand:
    """The demand of one replica.

    `run_ns` is as in `scaling`, for up to `most` cores and batches of `largest`, with the margin.
    """

    def __init__(self, run_ns: Sequence[int], most: int, largest: int, scaling: Scaling) -> None:
        self.run_ns, self._most, self.largest, self._scaling = run_ns, most, largest, scaling
        self._since_ns = 0
        self._period_ns = to_ns(scaling.period_s)
        self.came: deque[Waiting] = deque(maxlen=MOST_REMEMBERED)

    def let_in(self, now_ns: int) -> None:
        """Count all requests from now on; earlier ones may have been a sample for a shadow."""
        self._since_ns = now_ns
        self.came.clear()

    def arrived(self, now_ns: int, deadline_ns: int) -> None:
        self.came.append((now_ns, deadline_ns))

    def wanted(self, now_ns: int, waiting: Sequence[Waiting], free_ns: int, idle: int) -> int:
        """Cores for waiting and expected requests, on a worker that is free at `free_ns`.

        With `static`, and where nothing came recently, `idle`.
        """
        self.forget(now_ns)
        if self._scaling.scaler == "static" or not self.came:
            return idle
        return self._printed(waiting) if self._scaling.scaler == "paper" else self._exact(now_ns, waiting, free_ns)

    def misses(self, now_ns: int, waiting: Sequence[Waiting], free_ns: int, most: int) -> list[int]:
        due_ns = sorted([deadline_ns for _, deadline_ns in waiting])
        ready_ns = max(free_ns, now_ns + to_ns(self._scaling.effect_s))
        return misses_by_cores(
            len(due_ns), most, lambda c: fewest_misses(due_ns, len(due_ns), ready_ns, self.run_ns, c, self.largest)
        )

    def _exact(self, now_ns: int, waiting: Sequence[Waiting], free_ns: int) -> int:
        seen = Sight(
            now_ns,
            self._period_ns,
            self.remembered_ns(now_ns),
            [deadline_ns for _, deadline_ns in waiting],
            [arrived_ns for arrived_ns, _ in self.came],  # cheaper than `zip(*came)`
            [deadline_ns for _, deadline_ns in self.came],
        )
        ready_ns = max(free_ns, now_ns + to_ns(self._scaling.effect_s))
        return cores_ahead(seen, ready_ns, self.run_ns, self._most, self.largest)

    def _printed(self, waiting: Sequence[Waiting]) -> int:
        """Cores only: its batch size is not used (docs/design/vertical-scaling.md)."""
        slo_ns = to_ns(self._scaling.slo_s or 0.0)
        left_ns = min((deadline_ns - arrived_ns for arrived_ns, deadline_ns in waiting), default=slo_ns)
        cores, _ = printed_algorithm_1(len(waiting), slo_ns, slo_ns - left_ns, self.run_ns, self._most, self.largest)
        return self._most if cores == NO_CHOICE else cores

    def forget(self, now_ns: int) -> None:
        while self.came and self.came[0][0] < now_ns - REMEMBERED_PERIODS * self._period_ns:
            self.came.popleft()

    def remembered_ns(self, now_ns: int) -> int:
        if len(self.came) == MOST_REMEMBERED:
            return max(1, now_ns - self.came[0][0])
        reaches_ns = min(REMEMBERED_PERIODS * self._period_ns, now_ns - self._since_ns)
        return max(self._period_ns, reaches_ns)  # a rate over less than a period would be chance


class Needs(Protocol[Waits_contra]):
    """A demand of one replica, or of a worker with several, over its type of queue."""

    def wanted(self, now_ns: int, waiting: Waits_contra, free_ns: int, idle: int) -> int: ...

    def misses(self, now_ns: int, waiting: Waits_contra, free_ns: int, most: int) -> list[int]: ...


@dataclass(frozen=True, slots=True)
class SharedCores:
    """A scaler of `cores` that workers share.

    For each replica: its `run_ns`, as in `Demand`, up to its `most` and `largest`. `workers` lists
    the numbers of the replicas that take turns on each; by default each has one. Replicas begin
    with the `first` cores where gears have no cores of their own.
    """

    scaling: Scaling
    cores: int
    run_ns: Sequence[Sequence[int]]
    most: Sequence[int]
    largest: int
    workers: Sequence[Sequence[int]] = ()
    first: Sequence[int] = ()

    def replicas_of_workers(self) -> Sequence[Sequence[int]]:
        return self.workers or [[replica] for replica in range(len(self.run_ns))]

    def demands(self) -> list[Demand]:
        rows = zip(self.run_ns, self.most, strict=True)
        return [Demand(run_ns, most, self.largest, self.scaling) for run_ns, most in rows]


def share(
    demands: Sequence[Needs[Waits]],
    queues: Sequence[tuple[Waits, int]],
    now_ns: int,
    cores: int,
    *,
    in_gear: Sequence[int] = (),
    asked: Sequence[int],
) -> list[int]:
    """Cores for each worker of one machine, `cores` in all, from its queue and when it is free.

    Each gets at least its `in_gear` cores, or one where the gear in force has none for workers.
    Workers without recent requests get those of the gear, or else those `asked` for before. Others
    get the cores they want if there are enough. If not, shares minimise the missed deadlines of
    all waiting requests; the remaining cores go one by one to workers that want more. Raises
    `InvalidInput` for less than the least.
    """
    least, idle = in_gear or [1] * len(demands), in_gear or asked
    require(sum(least) <= cores, f"{len(demands)} replicas cannot share {cores} cores", remedy="give each a core")
    states = list(zip(demands, queues, strict=True))
    wanted = [
        max(low, demand.wanted(now_ns, *queue, none))
        for (demand, queue), low, none in zip(states, least, idle, strict=True)
    ]
    if sum(wanted) <= cores:
        return wanted
    misses = [demand.misses(now_ns, *queue, want) for (demand, queue), want in zip(states, wanted, strict=True)]
    shares = share_cores(misses, cores, least)
    for i in itertools.cycle(range(len(shares))):
        if sum(shares) == cores:
            return shares
        shares[i] += shares[i] < wanted[i]
    return shares
