"""The cores that a worker needs: for its replica, or for several that take turns on it."""

from collections.abc import Iterable, Sequence

from gearshift.clock import to_ns
from gearshift.policies.cores.demand import Demand, Scaling, SharedCores, Waiting, share
from gearshift.policies.cores.look_ahead import least_left_ns, requests_ahead
from gearshift.policies.cores.scaling import NO_CHOICE, misses_by_cores
from gearshift.policies.cores.worker_cores import fewest_worker_cores, worker_misses

Queues = Sequence[Sequence[Waiting]]
"""The waiting requests of each replica of a worker."""
ReplicaQueue = tuple[Sequence[Waiting], int]
"""The waiting requests of a replica, and when its worker should be free."""


class WorkerDemand:
    """The demand of a worker; its replicas' `demands` remember their requests."""

    def __init__(self, demands: Sequence[Demand], scaling: Scaling) -> None:
        self._demands, self._scaling = tuple(demands), scaling
        sizes = [one.largest + 1 for one in demands]
        self._run_ns = [
            [one.run_ns[begin : begin + size] for begin in range(0, len(one.run_ns), size)]
            for one, size in zip(demands, sizes, strict=True)
        ]

    def wanted(self, now_ns: int, waiting: Queues, free_ns: int, idle: int) -> int:
        """Like `Demand.wanted`, for the queues of all replicas together."""
        if len(self._demands) == 1:
            return self._demands[0].wanted(now_ns, waiting[0], free_ns, idle)
        for one in self._demands:
            one.forget(now_ns)
        came = [one.came for one in self._demands]
        if self._scaling.scaler == "static" or not any(came):
            return idle
        ready_ns, fastest_ns = self._ready_ns(now_ns, free_ns), [table[-1][1] for table in self._run_ns]
        period_ns = to_ns(self._scaling.period_s)
        ahead = [
            requests_ahead(now_ns, period_ns, _dues(queue), [at for at, _ in seen], _dues(seen))
            for queue, seen in zip(waiting, came, strict=True)
        ]
        left_ns = [
            least_left_ns([at for at, _ in seen], _dues(seen), fastest)
            for seen, fastest in zip(came, fastest_ns, strict=True)
        ]
        cores = fewest_worker_cores(
            [[d for d in dues if d >= ready_ns + fastest] for dues, fastest in zip(ahead, fastest_ns, strict=True)],
            ready_ns,
            [len(seen) * 1e9 / one.remembered_ns(now_ns) for seen, one in zip(came, self._demands, strict=True)],
            min(left_ns) // 2,
            self._run_ns,
        )
        return self._most if cores == NO_CHOICE else cores

    def misses(self, now_ns: int, waiting: Queues, free_ns: int, most: int) -> list[int]:
        """Like `Demand.misses`, for the queues of all replicas together."""
        if len(self._demands) == 1:
            return self._demands[0].misses(now_ns, waiting[0], free_ns, most)
        due_ns, ready_ns = [sorted(_dues(queue)) for queue in waiting], self._ready_ns(now_ns, free_ns)
        largest, everyone = [one.largest for one in self._demands], sum(map(len, due_ns))
        return misses_by_cores(
            everyone,
            most,
            lambda cores: worker_misses(due_ns, ready_ns, [table[cores] for table in self._run_ns], largest, everyone),
        )

    @property
    def _most(self) -> int:
        return len(self._run_ns[0]) - 1

    def _ready_ns(self, now_ns: int, free_ns: int) -> int:
        return max(free_ns, now_ns + to_ns(self._scaling.effect_s))


class MachineDemand:
    """The demand of all workers of one machine, by the numbers of replicas."""

    def __init__(self, shared: SharedCores) -> None:
        self._cores, self._replicas = shared.cores, shared.demands()
        self._numbers = shared.replicas_of_workers()
        self._workers = [WorkerDemand([self._replicas[r] for r in each], shared.scaling) for each in self._numbers]

    def let_in(self, now_ns: int) -> None:
        for one in self._replicas:
            one.let_in(now_ns)

    def arrived(self, replica: int, now_ns: int, deadline_ns: int) -> None:
        self._replicas[replica].arrived(now_ns, deadline_ns)

    def shares(
        self, queues: Sequence[ReplicaQueue], now_ns: int, *, in_gear: Sequence[int], asked: Sequence[int]
    ) -> list[int]:
        """Cores for each worker by `share`; `in_gear` and `asked` are by worker."""
        of_workers = [([queues[r][0] for r in each], queues[each[0]][1]) for each in self._numbers]
        return share(self._workers, of_workers, now_ns, self._cores, in_gear=in_gear, asked=asked)

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
