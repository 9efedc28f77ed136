"""The cores of one worker: those of its replica, or, where several take turns on it, those that all of them need."""

from collections.abc import Iterable, Sequence

from gearshift.clock import Clock, to_ns
from gearshift.policies.look_ahead import requests_ahead
from gearshift.policies.scaling import NO_CHOICE
from gearshift.policies.worker_cores import fewest_worker_cores, worker_misses
from gearshift.runtime.actuators.base import Actuator, Effect
from gearshift.runtime.scaler import Scaler, Scaling, Waiting

NEVER_NS = 1 << 61
Queues = Sequence[Sequence[Waiting]]
"""Those that wait for each replica of the worker."""


class WorkerScaler:
    """`scalers` remember what has come to each replica of the worker; the first of them gives it cores."""

    def __init__(self, scalers: Sequence[Scaler], clock: Clock, scaling: Scaling) -> None:
        self._scalers, self._first = tuple(scalers), scalers[0]
        self._clock, self._scaling = clock, scaling
        sizes = [one.largest + 1 for one in scalers]
        self._run_ns = [
            [one.run_ns[begin : begin + size] for begin in range(0, len(one.run_ns), size)]
            for one, size in zip(scalers, sizes, strict=True)
        ]

    @property
    def cores(self) -> float:
        """In force."""
        return self._first.cores

    def arrived(self, replica: int, deadline_ns: int) -> None:
        """A request has come to the queue of the worker's replica of this place."""
        self._scalers[replica].arrived(deadline_ns)

    def give(self, cores: int) -> Effect | None:
        """As `Scaler.give`."""
        return self._first.give(cores)

    def act_through(self, actuator: Actuator) -> None:
        """As `Scaler.act_through`."""
        self._first.act_through(actuator)

    def wanted(self, waiting: Queues, free_ns: int, idle: int | None = None) -> int:
        """As `Scaler.wanted`, for the queues of all replicas together."""
        if len(self._scalers) == 1:
            return self._first.wanted(waiting[0], free_ns, idle)
        now_ns = self._clock.now_ns()
        for one in self._scalers:
            one.forget(now_ns)
        came = [one.came for one in self._scalers]
        if self._scaling.scaler == "static" or not any(came):
            return max(1, int(self.cores)) if idle is None else idle
        ready_ns, fastest_ns = self._ready_ns(free_ns), [table[-1][1] for table in self._run_ns]
        period_ns = to_ns(self._scaling.period_s)
        ahead = [
            requests_ahead(now_ns, period_ns, _dues(queue), [at for at, _ in seen], _dues(seen))
            for queue, seen in zip(waiting, came, strict=True)
        ]
        left_ns = [
            due - at for seen, fastest in zip(came, fastest_ns, strict=True) for at, due in seen if due - at >= fastest
        ]
        cores = fewest_worker_cores(
            [[d for d in dues if d >= ready_ns + fastest] for dues, fastest in zip(ahead, fastest_ns, strict=True)],
            ready_ns,
            [len(seen) * 1e9 / one.remembered_ns(now_ns) for seen, one in zip(came, self._scalers, strict=True)],
            min(left_ns, default=NEVER_NS) // 2,
            self._run_ns,
        )
        return self._most if cores == NO_CHOICE else cores

    def misses(self, waiting: Queues, free_ns: int) -> list[int]:
        """As `Scaler.misses`, for the queues of all replicas together."""
        if len(self._scalers) == 1:
            return self._first.misses(waiting[0], free_ns)
        due_ns, ready_ns = [sorted(_dues(queue)) for queue in waiting], self._ready_ns(free_ns)
        largest, everyone = [one.largest for one in self._scalers], sum(map(len, due_ns))
        on_some = [
            worker_misses(due_ns, ready_ns, [table[cores] for table in self._run_ns], largest, everyone)
            for cores in range(1, self._most + 1)
        ]
        return [everyone, *on_some]

    @property
    def _most(self) -> int:
        return len(self._run_ns[0]) - 1

    def _ready_ns(self, free_ns: int) -> int:
        return max(free_ns, self._clock.now_ns() + to_ns(self._scaling.effect_s))


def _dues(waiting: Iterable[Waiting]) -> list[int]:
    return [due for _, due in waiting]
