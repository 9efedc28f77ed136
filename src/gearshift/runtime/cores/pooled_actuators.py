"""Changes the cores of a live worker: processors of a shared pool, and threads by a message."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from gearshift.errors import GearshiftError
from gearshift.runtime.actuators.affinity import AffinityActuator
from gearshift.runtime.actuators.base import Actuator, Effect, Now
from gearshift.runtime.cores.core_pool import CorePool
from gearshift.runtime.wire.messages import ThreadsSet

LONGEST_ANSWER_S = 5.0

SetThreads = Callable[[float], Awaitable[ThreadsSet]]
"""Sets a worker's threads for this many cores."""


class PoolAffinity:
    """Pins a worker to processors of its own; those of a lost worker stay for the next one."""

    name = "affinity"

    def __init__(self, pid: int, pool: CorePool, worker: int, *, now: Now = time.monotonic_ns) -> None:
        self._pid, self._pool, self._worker, self._now = pid, pool, worker, now
        self._affinity = AffinityActuator(pid, pool.held[worker], now=now)

    def apply(self, cores: float) -> Effect:
        if not Path(f"/proc/{self._pid}").exists():
            return self._affinity.apply(cores)
        held = self._pool.resize(self._worker, max(1, math.ceil(cores)))
        self._affinity = AffinityActuator(self._pid, held, now=self._now)
        return self._affinity.apply(cores)

    def in_force(self) -> float:
        return self._affinity.in_force()


class WorkerThreads:
    """Sets a worker's threads between two batches, and waits `longest_s` at most for the answer.

    `ask` sends to the worker on `loop`; `apply` is called in another thread than the loop's. A
    worker that has as many threads already is not asked, as it would answer only after its batch.
    """

    name = "threads"

    def __init__(
        self,
        ask: SetThreads,
        loop: asyncio.AbstractEventLoop,
        *,
        cores: float,
        longest_s: float = LONGEST_ANSWER_S,
        now: Now = time.monotonic_ns,
    ) -> None:
        self._ask, self._loop, self._cores, self._longest_s, self._now = ask, loop, cores, longest_s, now
        self._threads = 0  # by the worker's last answer, 0 if it did not answer

    def apply(self, cores: float) -> Effect:
        """Set as many threads as cores, rounded up; no change if the worker does not answer."""
        asked_ns = self._now()
        wanted, problem, effective_ns = max(1, math.ceil(cores)), "", asked_ns
        if wanted == self._threads:
            self._cores = cores
            return Effect(cores=cores, asked_ns=asked_ns, effective_ns=asked_ns)
        self._threads = 0
        asking = asyncio.run_coroutine_threadsafe(self._answer(cores), self._loop)
        try:
            answer = asking.result(self._longest_s)
            problem, self._threads = answer.problem, answer.threads
            ago_ns = time.monotonic_ns() - answer.since_ns  # the answer may come after a batch that ran with them
            effective_ns = max(asked_ns, self._now() - ago_ns)
            self._cores = cores if answer.threads == wanted else float(answer.threads)
        except TimeoutError:
            asking.cancel()
            problem = f"the worker has not set its threads within {self._longest_s:g} s"
        except GearshiftError as error:
            problem = f"the threads of a worker cannot be set ({error})"
        return Effect(cores=self._cores, asked_ns=asked_ns, effective_ns=effective_ns, problem=problem)

    def in_force(self) -> float:
        return self._cores

    async def _answer(self, cores: float) -> ThreadsSet:
        return await self._ask(cores)


class FractionalCores:
    """An actuator of processors for a worker whose profiled cores are `core_share` of one each."""

    name = "cores"

    def __init__(self, actuator: Actuator, core_share: float) -> None:
        self._actuator, self._core_share = actuator, core_share

    def apply(self, cores: float) -> Effect:
        effect = self._actuator.apply(round(cores * self._core_share, 6))
        return Effect(
            cores=self._in_cores(effect.cores),
            asked_ns=effect.asked_ns,
            effective_ns=effect.effective_ns,
            problem=effect.problem,
        )

    def in_force(self) -> float:
        return self._in_cores(self._actuator.in_force())

    def _in_cores(self, processors: float) -> float:
        return round(processors / self._core_share, 6)
