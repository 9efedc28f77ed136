"""The cores that the workers of one machine need, from recent requests; without a clock of its own."""

import itertools
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gearshift.clock import to_ns
from gearshift.errors import require
from gearshift.policies.cores.look_ahead import DEFAULT_MARGIN, REMEMBERED_PERIODS, Sight, cores_ahead, cores_of_turns
from gearshift.policies.cores.scaling import (
    NO_CHOICE,
    fewest_misses,
    misses_by_cores,
    misses_in_turns,
    printed_algorithm_1,
    share_cores,
)

MOST_REMEMBERED = 4096
"""Requests, so that a decision takes no longer at high rates; memory then reaches less far back."""

CORES_EFFECT_S = 0.01
"""The longest time until added cores are available; every actuator of this machine keeps it."""

Waiting = tuple[int, int]
"""A request's arrival and its deadline, in nanoseconds."""
Queues = Sequence[Sequence[Waiting]]
"""The waiting requests of each replica of a worker."""
ReplicaQueue = tuple[Sequence[Waiting], int]
"""The waiting requests of a replica, and when its worker should be free."""


def require_period(period_s: float, name: str = "period_s") -> None:
    require(0.01 <= period_s <= 3600, f"{name} is {period_s}, needs 0.01 to 3600")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """A scaler: `exact`, `paper` (Sponge's Algorithm 1 as printed, needs `slo_s`) or `static`.

    Only the simulator has others, such as `replicas`, `fa2` and `vpa`, which scale one model exactly
    and horizontally, horizontally alone, and by utilisation. A scaler runs every `period_s`; a change
    is expected to hold within `effect_s`.
    """

    scaler: str = "exact"
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


@dataclass(frozen=True, slots=True)
class SharedCores:
    """A scaler of `cores` that workers share.

    For each replica: its `run_ns`, as in `scaling` and with the margin, up to its `most`
    cores and batches of `largest`. `workers` lists
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


class WorkerDemand:
    """The cores that one worker needs for its replica, or for several that take turns on it."""

    def __init__(self, shared: SharedCores, replicas: Sequence[int]) -> None:
        self._scaling, self._largest, self._most = shared.scaling, shared.largest, shared.most[replicas[0]]
        self._run_ns = [shared.run_ns[replica] for replica in replicas]
        sizes = shared.largest + 1
        self._tables = [[row[at : at + sizes] for at in range(0, len(row), sizes)] for row in self._run_ns]
        self._since_ns = 0
        self._period_ns, self._effect_ns = to_ns(shared.scaling.period_s), to_ns(shared.scaling.effect_s)
        self._came = [deque[Waiting](maxlen=MOST_REMEMBERED) for _ in replicas]

    def let_in(self, now_ns: int) -> None:
        """Count all requests from now on; earlier ones may have been a sample for a shadow."""
        self._since_ns = now_ns
        for came in self._came:
            came.clear()

    def arrived(self, k: int, now_ns: int, deadline_ns: int) -> None:
        """A request of the worker's replica `k`."""
        self._came[k].append((now_ns, deadline_ns))

    def wanted(self, now_ns: int, waiting: Queues, free_ns: int, idle: int) -> int:
        """Cores for waiting and expected requests, on a worker that is free at `free_ns`.

        With `static`, and where nothing came recently, `idle`.
        """
        self._forget(now_ns)
        if self._scaling.scaler == "static" or not any(self._came):
            return idle
        ready_ns = max(free_ns, now_ns + self._effect_ns)
        if len(self._came) > 1:
            sights = [self._sight(came, queue, now_ns) for came, queue in zip(self._came, waiting, strict=True)]
            return cores_of_turns(sights, ready_ns, self._tables)
        if self._scaling.scaler == "paper":
            return self._printed(waiting[0])
        seen = self._sight(self._came[0], waiting[0], now_ns)
        return cores_ahead(seen, ready_ns, self._run_ns[0], self._most, self._largest)

    def misses(self, now_ns: int, waiting: Queues, free_ns: int, most: int) -> list[int]:
        """Waiting requests that miss their deadline, by number of cores from 0 to `most`."""
        due_ns = [sorted(_dues(queue)) for queue in waiting]
        everyone, ready_ns = sum(map(len, due_ns)), max(free_ns, now_ns + self._effect_ns)

        def missed(cores: int) -> int:
            if len(due_ns) == 1:
                return fewest_misses(due_ns[0], everyone, ready_ns, self._run_ns[0], cores, self._largest)
            times = [table[cores] for table in self._tables]
            return misses_in_turns(due_ns, ready_ns, times, [self._largest] * len(times), everyone)

        return misses_by_cores(everyone, most, missed)

    def _sight(self, came: deque[Waiting], waiting: Sequence[Waiting], now_ns: int) -> Sight:
        arrivals_ns = [arrived_ns for arrived_ns, _ in came]  # cheaper than `zip(*came)`
        remembered_ns = self._remembered_ns(came, now_ns)
        return Sight(now_ns, self._period_ns, remembered_ns, _dues(waiting), arrivals_ns, _dues(came))

    def _printed(self, waiting: Sequence[Waiting]) -> int:
        """Cores only: its batch size is not used (docs/design/vertical-scaling.md)."""
        slo_ns = to_ns(self._scaling.slo_s or 0.0)
        left_ns = min((deadline_ns - arrived_ns for arrived_ns, deadline_ns in waiting), default=slo_ns)
        cores, _ = printed_algorithm_1(
            len(waiting), slo_ns, slo_ns - left_ns, self._run_ns[0], self._most, self._largest
        )
        return self._most if cores == NO_CHOICE else cores

    def _forget(self, now_ns: int) -> None:
        for came in self._came:
            while came and came[0][0] < now_ns - REMEMBERED_PERIODS * self._period_ns:
                came.popleft()

    def _remembered_ns(self, came: deque[Waiting], now_ns: int) -> int:
        if len(came) == MOST_REMEMBERED:
            return max(1, now_ns - came[0][0])
        reaches_ns = min(REMEMBERED_PERIODS * self._period_ns, now_ns - self._since_ns)
        return max(self._period_ns, reaches_ns)  # a rate over less than a period would be chance


class MachineDemand:
    """The cores that the workers of one machine get, by the numbers of replicas."""

    def __init__(self, shared: SharedCores) -> None:
        self._cores, self._numbers = shared.cores, shared.replicas_of_workers()
        self._workers = [WorkerDemand(shared, replicas) for replicas in self._numbers]
        self._place = {
            r: (one, k) for one, each in zip(self._workers, self._numbers, strict=True) for k, r in enumerate(each)
        }

    def let_in(self, now_ns: int) -> None:
        for one in self._workers:
            one.let_in(now_ns)

    def arrived(self, replica: int, now_ns: int, deadline_ns: int) -> None:
        worker, k = self._place[replica]
        worker.arrived(k, now_ns, deadline_ns)

    def shares(
        self, queues: Sequence[ReplicaQueue], now_ns: int, *, in_gear: Sequence[int] = (), asked: Sequence[int]
    ) -> list[int]:
        """Cores for each worker, from its replicas' queues; `in_gear` and `asked` are by worker.

        Each gets at least its `in_gear` cores, or one where the gear in force has none for
        workers. Workers without recent requests get those of the gear, or else those `asked` for
        before. Others get the cores they want if there are enough. If not, shares minimise the
        missed deadlines of all waiting requests; the remaining cores go one by one to workers that
        want more. Raises `InvalidInput` for less than the least.
        """
        cores, count = self._cores, len(self._workers)
        least, idle = in_gear or [1] * count, in_gear or asked
        require(sum(least) <= cores, f"{count} replicas cannot share {cores} cores", remedy="give each a core")
        waiting = [[queues[r][0] for r in each] for each in self._numbers]
        free_ns = [queues[each[0]][1] for each in self._numbers]
        workers = list(zip(self._workers, waiting, free_ns, strict=True))
        wanted = [
            max(low, one.wanted(now_ns, queue, free, none))
            for (one, queue, free), low, none in zip(workers, least, idle, strict=True)
        ]
        if sum(wanted) <= cores:
            return wanted
        misses = [
            worker.misses(now_ns, queue, free, most)
            for (worker, queue, free), most in zip(workers, wanted, strict=True)
        ]
        shares = share_cores(misses, cores, least)
        for i in itertools.cycle(range(count)):
            if sum(shares) == cores:
                return shares
            shares[i] += shares[i] < wanted[i]
        return shares

    def wanted(
        self, queues: Sequence[ReplicaQueue], now_ns: int, *, in_gear: Sequence[int], asked: Sequence[int]
    ) -> list[int]:
        """`shares` by replica: those on one worker have its cores together."""
        found = [*(in_gear or asked)]
        shares = self.shares(
            queues,
            now_ns,
            in_gear=[max(in_gear[r] for r in each) for each in self._numbers] if in_gear else (),
            asked=[max(asked[r] for r in each) for each in self._numbers],
        )
        for each, cores in zip(self._numbers, shares, strict=True):
            for replica in each:
                found[replica] = cores
        return found


def _dues(waiting: Iterable[Waiting]) -> list[int]:
    return [due for _, due in waiting]
