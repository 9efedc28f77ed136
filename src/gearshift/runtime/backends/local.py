"""Worker processes on this machine, one for each distinct device set."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Unpack

from gearshift.errors import InvalidInput, WorkerDied
from gearshift.gear import GearPlan
from gearshift.hardware import Hardware, is_cuda, is_remote
from gearshift.plans.plan_tables import PlanTables
from gearshift.runtime.backends.workers_backend import DeviceSet, WorkersBackend, WorkersOptions
from gearshift.runtime.wire.messages import Release, ThreadsSet
from gearshift.runtime.wire.worker_link import OnDone, OnEnd
from gearshift.runtime.workers.worker_process import WorkerProcess
from gearshift.support.processors import processors_of

# Cores ---------------------------------------------------------------------------------------------------------------


def available_cores() -> tuple[int, ...]:
    return tuple(sorted(processors_of()))


def assign_cores(hardware: Hardware, available: Sequence[int] | None = None) -> dict[str, frozenset[int]]:
    """Disjoint processors for each device, from the highest down; the router gets the lowest.

    Remote devices take none. Raises `InvalidInput` if the others need more than there are.
    """
    free = list(available_cores() if available is None else sorted(available))
    if hardware.cores > len(free):
        raise InvalidInput(
            f"the plan needs {_cores(hardware.cores)} for devices and one for the router, this machine has {len(free)}",
            remedy="plan for fewer devices, or serve with --backend emulated",
        )
    return {device.id: frozenset(free.pop() for _ in range(device.own_cores)) for device in hardware.devices}


def router_cores(hardware: Hardware, available: Sequence[int] | None = None) -> frozenset[int]:
    """The processors that devices leave to router and front end; all if they leave none."""
    cores = frozenset(available_cores() if available is None else available)
    taken = frozenset().union(*assign_cores(hardware, available).values())
    return cores - taken or cores


def cores_beside_engines(
    hardware: Hardware, device_ids: Collection[str], available: Sequence[int] | None = None
) -> frozenset[int] | None:
    """The processors that engines of language models on these devices leave to router and front end; all if none.

    None where they are on no processor of this machine, or some have accelerators: an engine that
    gets no processors of its own may use those of the process that starts it.
    """
    kinds = {device.id: device.kind for device in hardware.devices if device.id in device_ids}
    mine = [id for id, kind in kinds.items() if not is_remote(kind)]
    if not mine or any(map(is_cuda, kinds.values())):
        return None
    assigned, all_cores = assign_cores(hardware, available), frozenset(available or available_cores())
    return all_cores - frozenset().union(*(assigned[id] for id in mine)) or all_cores


def cuda_places(hardware: Hardware) -> dict[str, int]:
    """Each CUDA device's position among those of its node, in the order of the hardware."""
    seen: dict[str, int] = {}
    places = {}
    for device in hardware.devices:
        if is_cuda(device.kind):
            places[device.id] = seen.get(device.node, 0)
            seen[device.node] = places[device.id] + 1
    return places


def _cores(count: int) -> str:
    return "1 core" if count == 1 else f"{count} cores"


# The backend ---------------------------------------------------------------------------------------------------------


class LocalBackend(WorkersBackend):
    """Runs batches in worker processes of this machine.

    `cores` are each device's processors, by default those of `assign_cores`, which depends on
    where this process may run: a process that pins itself must assign them before. If they change,
    `held_by` gives the processors of a replica's worker at each start. A stuck worker is replaced.
    """

    def __init__(
        self,
        tables: PlanTables,
        plan: GearPlan,
        *,
        cores: Mapping[str, frozenset[int]] | None = None,
        **options: Unpack[WorkersOptions],
    ) -> None:
        super().__init__(tables, plan.hardware, **options)
        self._cores, self._cuda = cores or assign_cores(plan.hardware), cuda_places(plan.hardware)
        self.held_by: Callable[[int], Sequence[int]] = lambda replica: ()

    def _make_worker(self, devices: DeviceSet, on_done: OnDone, on_end: OnEnd, probe_s: float) -> WorkerProcess:
        return WorkerProcess(
            cores=frozenset(self.held_by(devices.replicas[0])) or self._planned(devices),
            cuda=tuple(self._cuda[device.id] for device in devices.devices if device.id in self._cuda),
            on_done=on_done,
            on_end=on_end,
            probe_s=probe_s,
        )

    def _planned(self, devices: DeviceSet) -> frozenset[int]:
        return frozenset().union(*(self._cores[device.id] for device in devices.devices))

    def set_cores(self, replica: int, threads: int, release: Release | None) -> "asyncio.Future[ThreadsSet]":
        """Set the worker's cores before its next batch; the future may raise `WorkerDied`.

        It never has more threads than processors, and so may be told of more beforehand.
        """
        worker = self._slot_of[replica].worker
        if not isinstance(worker, WorkerProcess):
            gone: asyncio.Future[ThreadsSet] = asyncio.get_running_loop().create_future()
            gone.set_exception(WorkerDied("it is gone"))
            return gone
        if release is not None:
            worker.link.send(release)
        return worker.link.set_threads(threads)
