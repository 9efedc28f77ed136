"""What gives each worker of this machine its cores: a quota where cores are shares of one, processors, threads."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from msgspec import structs

from gearshift.errors import InvalidInput, WorkerDied
from gearshift.runtime.actuators.base import Actuator, ActuatorChain, Say
from gearshift.runtime.actuators.cgroup import CgroupActuator
from gearshift.runtime.actuators.own_group import make_group, move_into, remove_group
from gearshift.runtime.actuators.worker import FractionalCores, PoolAffinity, WorkerThreads
from gearshift.runtime.backends.local import LocalBackend
from gearshift.runtime.core_pool import CorePool, processors_for
from gearshift.runtime.messages import Release


class LocalCores:
    """Actuators for the workers of `backend`, each of one replica, which share `pool`.

    A core is `core_share` of a processor; below 1 a worker is put into a control group, which `close` removes.  Whole
    cores need no quota beside their processors, unless the one worker's `container` has one.
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
        """For the worker that serves the replica now, in its control group, which is made anew where it is gone.

        Raises `InvalidInput` where a quota is needed and there is none, `WorkerDied` where there is no worker.

        Asks for a running event loop.
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
                lambda threads: backend.set_threads(replica, threads),
                asyncio.get_running_loop(),
                cores=len(self._pool.held[replica]),
                now=self._now,
            )
        )
        return FractionalCores(ActuatorChain(chain, cores=0.0, say=self._say), self._core_share)

    def tell(self, replica: int, cores: int) -> None:
        """Have a change hold for the next batch where the worker's actuator, which is slower, would come too late.

        A quota is set now, unless the worker loses processors: those it gives up itself, and then of the quota, once
        it has fewer threads, which is between two batches.
        """
        processors, share = processors_for(cores, self._core_share), cores * self._core_share
        quota, held, release = self._quotas.get(replica), self._pool.held[replica], None
        if processors < len(held):
            release = Release(processors=held[:processors])
            if quota is not None:
                release = structs.replace(release, group=str(self._groups[replica]), cores=share)
        elif quota is not None:
            quota.apply(share)
        self._backend.tell_cores(replica, processors, release)

    def close(self) -> None:
        """Remove the control groups; workers that still run are bounded no more."""
        for group in self._groups.values():
            remove_group(group)
        self._groups.clear()
        self._quotas.clear()

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
