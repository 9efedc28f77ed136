"""The actuators of local workers: quota for shares of a core, processors of a pool, threads."""

import asyncio
import math
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from gearshift.errors import GearshiftError, InvalidInput, WorkerDied
from gearshift.hardware import Hardware
from gearshift.runtime.actuators.affinity import AffinityActuator
from gearshift.runtime.actuators.base import Actuator, ActuatorChain, Effect, Now, Say
from gearshift.runtime.actuators.cgroup import CgroupActuator, make_group, move_into, remove_group
from gearshift.runtime.backends.local import LocalBackend, assign_cores
from gearshift.runtime.wire.messages import Release, ThreadsSet


class CorePool:
    """Processors, and their holders: `held` at first, by the number of the worker."""

    def __init__(self, processors: Sequence[int], held: Mapping[int, Sequence[int]]) -> None:
        self.held = {worker: tuple(mine) for worker, mine in held.items()}
        taken = {processor for mine in self.held.values() for processor in mine}
        self._free = sorted(set(processors) - taken)

    def __len__(self) -> int:
        return len(self._free) + sum(map(len, self.held.values()))

    def held_by(self, worker: int) -> tuple[int, ...]:
        return self.held.get(worker, ())

    def resize(self, worker: int, count: int) -> tuple[int, ...]:
        """Give the worker `count` processors, or fewer if no more are free, and return them.

        It keeps its own; the highest free ones are added first, and the last added go first.
        """
        mine = [*self.held[worker]]
        while len(mine) > count:
            self._free.append(mine.pop())
        self._free.sort()
        while len(mine) < count and self._free:
            mine.append(self._free.pop())
        self.held[worker] = tuple(mine)
        return self.held[worker]


def processors_for(cores: float, core_share: float) -> int:
    """Whole processors for this many profiled cores, each of which is `core_share` of one."""
    return max(1, math.ceil(round(cores * core_share, 6)))


def on_processors(hardware: Hardware, core_share: float) -> Hardware:
    return Hardware(
        devices=tuple(
            msgspec.structs.replace(device, cores=processors_for(device.cores, core_share))
            for device in hardware.devices
        )
    )


def pooled_cores(
    hardware: Hardware, available: Sequence[int], core_share: float
) -> tuple[dict[str, frozenset[int]], tuple[int, ...], frozenset[int]]:
    """The processors that devices start with, those that they share, and the router's.

    The router has the lowest; if devices start with all there are, it shares them. Raises
    `InvalidInput` if devices need more than there are.
    """
    first = assign_cores(on_processors(hardware, core_share), available)
    taken = frozenset().union(*first.values())
    lowest = min(available)
    pool = frozenset(available) if lowest in taken else frozenset(available) - {lowest}
    return first, tuple(sorted(pool)), frozenset({lowest})


LONGEST_ANSWER_S = 5.0

AskThreads = Callable[[float], Awaitable[ThreadsSet]]
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
        ask: AskThreads,
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
        return replace(effect, cores=self._in_cores(effect.cores))

    def in_force(self) -> float:
        return self._in_cores(self._actuator.in_force())

    def _in_cores(self, processors: float) -> float:
        return round(processors / self._core_share, 6)


class LocalCores:
    """Actuators for the workers of `backend`, each of one replica, which share `pool`.

    A core is `core_share` of a processor; below 1 a worker is put into a control group, which
    `close` removes. Whole cores need no quota in addition to processors, unless a `container` has
    one.
    """

    def __init__(
        self,
        backend: LocalBackend,
        pool: CorePool,
        *,
        core_share: float,
        say: Say,
        now: Callable[[], int],
        container: Actuator | None = None,
    ) -> None:
        self._backend, self._pool, self._core_share, self._container = backend, pool, core_share, container
        self._say, self._now = say, now
        self._groups: dict[int, Path] = {}
        self._quotas: dict[int, Actuator] = {}

    def actuator(self, replica: int) -> Actuator:
        """The actuator of the replica's present worker; recreates its control group if it is gone.

        Raises `InvalidInput` if a quota is needed and impossible, `WorkerDied` if there is no
        worker. Needs a running event loop.
        """
        pid, backend = self._backend.worker_pids()[replica], self._backend
        if not pid:
            raise WorkerDied("it is gone")
        chain: list[Actuator] = [] if self._container is None else [self._container]
        if self._core_share < 1:
            chain.append(self._quota(replica, pid))
        chain.append(PoolAffinity(pid, self._pool, replica, now=self._now))
        chain.append(
            WorkerThreads(
                lambda share: backend.set_cores(replica, processors_for(share, 1), self._order(replica, share)),
                asyncio.get_running_loop(),
                cores=len(self._pool.held[replica]),
                now=self._now,
            )
        )
        return FractionalCores(ActuatorChain(chain, cores=0.0, say=self._say), self._core_share)

    def tell(self, replica: int, cores: int) -> None:
        """Make a change hold for the next batch; the worker's actuator would be too late.

        A quota is set now, unless the worker loses processors: it gives these up itself between
        two batches, and lowers the quota then.
        """
        processors, share = processors_for(cores, self._core_share), cores * self._core_share
        loses, quota = processors < len(self._pool.held[replica]), self._quotas.get(replica)
        if quota is not None and not loses:
            quota.apply(share)
        told = self._backend.set_cores(replica, processors, self._order(replica, share) if loses else None)
        told.add_done_callback(lambda answer: answer.cancelled() or answer.exception())  # nobody awaits it

    def close(self) -> None:
        """Remove the control groups; workers that still run are no longer bounded."""
        for group in self._groups.values():
            remove_group(group)
        self._groups.clear()
        self._quotas.clear()

    def _order(self, replica: int, share: float) -> Release:
        """The processors and the quota that the worker shall have for `share` of processors.

        Actuators send it too, for gains as well as losses: a worker may obey an older queued order
        after they have pinned it, and then corrects that by the newer one.
        """
        group = str(self._groups[replica]) if replica in self._quotas else ""
        processors = self._pool.held[replica][: processors_for(share, 1)]
        return Release(processors=processors, group=group, cores=share if group else 0.0)

    def _quota(self, replica: int, pid: int) -> Actuator:
        group = self._groups.get(replica)
        if group is None or not group.exists():
            group = self._groups[replica] = make_group(f"gearshift-{os.getpid()}-{pid}")
        try:
            move_into(group, pid)
            self._quotas[replica] = CgroupActuator(group, now=self._now)
            return self._quotas[replica]
        except OSError as error:
            raise InvalidInput(
                f"the worker cannot be moved into control group {group} ({error.strerror})",
                remedy="serve with --core-share 1",
            ) from None
