"""Makes the actuators of local workers: quota for shares of a core, processors, threads."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from gearshift.errors import InvalidInput, WorkerDied
from gearshift.runtime.actuators.base import Actuator, ActuatorChain, Say
from gearshift.runtime.actuators.cgroup import CgroupActuator
from gearshift.runtime.actuators.own_group import make_group, move_into, remove_group
from gearshift.runtime.backends.local import LocalBackend
from gearshift.runtime.cores.core_pool import CorePool, processors_for
from gearshift.runtime.cores.pooled_actuators import FractionalCores, PoolAffinity, WorkerThreads
from gearshift.runtime.wire.messages import Release


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
