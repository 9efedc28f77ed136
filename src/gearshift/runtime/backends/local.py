"""Worker processes on this machine, one for each distinct device set."""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gearshift.clock import NS_PER_S, to_ns
from gearshift.errors import GearshiftError, InvalidInput
from gearshift.gear import GearPlan
from gearshift.hardware import Hardware, is_cuda
from gearshift.model import Arrays, TensorSpec
from gearshift.plan_tables import PlanTables
from gearshift.policies.recovery import hangs_after_ns
from gearshift.request import Sample
from gearshift.runtime.backends.base import Batch, BatchEvents
from gearshift.runtime.messages import Done, Load, Loaded, ReplicaToLoad, Run, RunPart
from gearshift.runtime.transport import Buffer, FrameError, pack_tensors, unpack_tensors
from gearshift.runtime.worker import part_bytes
from gearshift.runtime.worker_process import WorkerProcess, why_not_loaded

SHORTEST_RESTART_WAIT_S = 0.1
LONGEST_RESTART_WAIT_S = 5.0
LONGEST_STOP_S = 5.0

Say = Callable[[str], None]


# Cores ---------------------------------------------------------------------------------------------------------------


def available_cores() -> tuple[int, ...]:
    """The processors this process may run on, by number."""
    return tuple(sorted(os.sched_getaffinity(0)))


def assign_cores(hardware: Hardware, available: Sequence[int] | None = None) -> dict[str, frozenset[int]]:
    """Disjoint processors for each device, from the highest number downward; the lowest remain for the router.

    Remote devices take none.  Raises `InvalidInput` where the others need more than there are.
    """
    free = list(available_cores() if available is None else sorted(available))
    if hardware.cores > len(free):
        raise InvalidInput(
            f"the plan needs {_cores(hardware.cores)} for devices and one for the router, this machine has {len(free)}",
            remedy="plan for fewer devices, or serve with --backend emulated",
        )
    return {device.id: frozenset(free.pop() for _ in range(device.own_cores)) for device in hardware.devices}


def router_cores(hardware: Hardware, available: Sequence[int] | None = None) -> frozenset[int]:
    """The processors that devices leave to the router and the front end; all, where they leave none."""
    cores = frozenset(available_cores() if available is None else available)
    taken = frozenset().union(*assign_cores(hardware, available).values())
    return cores - taken or cores


def cuda_places(hardware: Hardware) -> dict[str, int]:
    """Each CUDA device's place among those of its node, in the order of the hardware."""
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


@dataclass(slots=True, eq=False)
class _Slot:
    """A device set, its kind, the replicas that share it, and the worker that serves them now."""

    cores: frozenset[int]
    kind: str
    cuda: tuple[int, ...]
    replicas: list[int]
    worker: WorkerProcess | None = None
    restart: asyncio.Task[None] | None = None
    restart_wait_s: float = SHORTEST_RESTART_WAIT_S
    running: dict[int, Batch] = field(default_factory=dict)


class LocalBackend:
    """Runs batches in worker processes; a worker that ends is started again, each time after a longer wait.

    `project` is the path of the `gearshift.toml` whose models the plan places; `inputs` are the operator's tensors.
    `cores` are each device's processors, by default those of `assign_cores`, which looks at what this process may use:
    who pins itself beside the devices assigns them before.  A worker that does not answer within `probe_s` while it is
    idle, or holds a batch for much longer than profiled (`run_ns`: (replicas, sizes); `hangs_after_ns`), is killed, and
    so replaced.  A worker that is started again serves those of its models that can be loaded.
    """

    def __init__(
        self,
        tables: PlanTables,
        plan: GearPlan,
        *,
        project: Path,
        inputs: Sequence[TensorSpec],
        cores: Mapping[str, frozenset[int]] | None = None,
        longest_start_s: float = 120.0,
        run_ns: Sequence[Sequence[int]] | None = None,
        shortest_hang_s: float = 10.0,
        probe_s: float = 3.0,
        say: Say = lambda text: None,
    ) -> None:
        self._tables, self._project, self._inputs = tables, project, tuple(inputs)
        self._longest_start_s, self._say = longest_start_s, say
        self._run_ns, self._shortest_hang_ns, self._probe_s = run_ns, to_ns(shortest_hang_s), probe_s
        self._slots = _slots(tables, plan.hardware, cores or assign_cores(plan.hardware))
        self._slot_of = {replica: slot for slot in self._slots for replica in slot.replicas}
        self._events: BatchEvents | None = None
        self._stopped = False
        self._told_cold: set[str] = set()

    async def start(self, events: BatchEvents) -> None:
        """Start all workers at once; raises `ModelFailed` or `WorkerDied` with nothing left running."""
        self._events = events
        starts = [asyncio.create_task(self._start_worker(slot)) for slot in self._slots]
        try:
            await asyncio.gather(*starts)
        except BaseException:
            for start in starts:
                start.cancel()
            await asyncio.gather(*starts, return_exceptions=True)
            await self.stop()
            raise
        for slot in self._slots:
            if slot.worker is not None:  # else it has ended already and is being started again
                self._tell_ready(slot.replicas)

    def run(self, batch: Batch) -> None:
        """Send `batch` to its replica's worker."""
        slot = self._slot_of[batch.replica]
        try:
            parts, buffers = assemble(batch.samples)
            message = Run(batch=batch.id, replica=batch.replica, parts=parts)
            if slot.worker is not None:
                slot.worker.run(message, buffers, longest_s=self._longest_batch_s(batch.replica, parts))
                slot.running[batch.id] = batch
        except FrameError as error:
            self._say(f"batch {batch.id} cannot be sent: {error}")
            slot.running[batch.id] = batch
            asyncio.get_running_loop().call_soon(self._fail_unsent, slot, batch)

    async def stop(self) -> None:
        """End all workers, kindly where nothing runs on them; nothing is left running."""
        self._stopped = True
        self._events = None
        restarts = [slot.restart for slot in self._slots if slot.restart is not None]
        for restart in restarts:
            restart.cancel()
        await asyncio.gather(*restarts, return_exceptions=True)
        await asyncio.gather(
            *(
                slot.worker.stop(longest_s=0.0 if slot.running else LONGEST_STOP_S)
                for slot in self._slots
                if slot.worker is not None
            )
        )

    def worker_pids(self) -> dict[int, int]:
        """The process id of each replica's worker, 0 where none runs."""
        return {r: slot.worker.pid if slot.worker else 0 for slot in self._slots for r in slot.replicas}

    def _longest_batch_s(self, replica: int, parts: Sequence[RunPart]) -> float | None:
        if self._run_ns is None:
            return None
        run_ns = sum(self._run_ns[replica][len(part.rows)] for part in parts)
        return hangs_after_ns(run_ns, self._shortest_hang_ns) / NS_PER_S

    async def _start_worker(self, slot: _Slot, *, again: bool = False) -> list[int]:
        """Start the slot's worker; answers the replicas that it has loaded, all of them unless it is `again`."""
        worker = WorkerProcess(
            cores=slot.cores,
            cuda=slot.cuda,
            on_done=lambda done, body: self._batch_done(slot, done, body),
            on_end=lambda how: self._worker_ended(slot, how),
            probe_s=self._probe_s,
        )
        loaded = await worker.start(self._load_message(slot, again), longest_s=self._longest_start_s)
        slot.worker = worker
        for failed in worker.not_loaded:
            self._say(f"{why_not_loaded(failed)}; the other models of its worker are served without it")
        for replica in loaded:
            if replica.warm_up_failure:
                self._tell_cold(self._tables.models[self._tables.replica_model[replica.replica]], replica)
        return [replica.replica for replica in loaded]

    def _tell_cold(self, model: str, replica: Loaded) -> None:
        """Say once for each model that it may well not work."""
        if model not in self._told_cold:
            self._told_cold.add(model)
            self._say(f"model {model!r} failed its warm-up on zeros ({replica.warm_up_failure}); it has not run yet")

    def _load_message(self, slot: _Slot, again: bool) -> Load:
        tables = self._tables
        largest = tables.largest_batch_size.reshape(tables.gears, -1).max(axis=0)
        return Load(
            project=str(self._project),
            inputs=self._inputs,
            device_kind=slot.kind,
            keep_others=again,
            replicas=tuple(
                ReplicaToLoad(
                    replica=replica,
                    model=tables.models[tables.replica_model[replica]],
                    warm_up_rows=tuple(sorted({1, int(largest[replica])})),
                )
                for replica in slot.replicas
            ),
        )

    def _batch_done(self, slot: _Slot, done: Done, body: memoryview) -> None:
        batch = slot.running.pop(done.batch, None)
        if batch is None or self._events is None:
            return
        model = self._tables.models[self._tables.replica_model[batch.replica]]
        settle(batch.samples, done, body, model)
        self._events.samples_finished(batch, batch.samples)
        self._events.batch_finished(batch)

    def _fail_unsent(self, slot: _Slot, batch: Batch) -> None:
        if slot.running.pop(batch.id, None) is None or self._events is None:
            return
        for sample in batch.samples:
            sample.error = "the batch is too large to be sent to its model"
        self._events.samples_finished(batch, batch.samples)
        self._events.batch_finished(batch)

    def _worker_ended(self, slot: _Slot, how: str) -> None:
        slot.worker = None
        slot.running.clear()
        if self._stopped or self._events is None:
            return
        slot.restart = asyncio.get_running_loop().create_task(self._restart(slot, how))
        self._events.replicas_lost(slot.replicas, how)

    async def _restart(self, slot: _Slot, how: str) -> None:
        """Start the worker again until it stays; each attempt waits twice as long as the one before, up to a bound."""
        loop = asyncio.get_running_loop()
        names = ", ".join(self._tables.replica_ids[replica] for replica in slot.replicas)
        loaded: list[int] = []
        while slot.worker is None:
            self._say(f"the worker of {names} {how}; starting it again in {slot.restart_wait_s:g} s")
            await asyncio.sleep(slot.restart_wait_s)
            slot.restart_wait_s = min(2 * slot.restart_wait_s, LONGEST_RESTART_WAIT_S)
            try:
                loaded = await self._start_worker(slot, again=True)
            except (GearshiftError, OSError) as error:
                how = f"is not back ({error})"
        loop.call_later(2 * LONGEST_RESTART_WAIT_S, self._forget_failures, slot, slot.worker)
        self._tell_ready(loaded)

    def _tell_ready(self, replicas: Sequence[int]) -> None:
        if self._events is not None:
            for replica in replicas:
                self._events.replica_ready(replica)

    @staticmethod
    def _forget_failures(slot: _Slot, worker: WorkerProcess) -> None:
        if slot.worker is worker:
            slot.restart_wait_s = SHORTEST_RESTART_WAIT_S


def _slots(tables: PlanTables, hardware: Hardware, cores: Mapping[str, frozenset[int]]) -> list[_Slot]:
    kinds = {device.id: device.kind for device in hardware.devices}
    cuda = cuda_places(hardware)
    by_devices: dict[tuple[int, ...], list[int]] = {}
    for replica in range(len(tables.replica_ids)):
        begin, end = tables.spans_begin[replica], tables.spans_begin[replica + 1]
        by_devices.setdefault(tuple(tables.spans[begin:end].tolist()), []).append(replica)
    slots = []
    for devices, replicas in by_devices.items():
        ids = [tables.device_ids[d] for d in devices]
        slots.append(
            _Slot(
                cores=frozenset().union(*(cores[i] for i in ids)),
                kind=kinds[ids[0]],
                cuda=tuple(cuda[i] for i in ids if i in cuda),
                replicas=replicas,
            )
        )
    return slots


# Batches -------------------------------------------------------------------------------------------------------------


def assemble(samples: Sequence[Sample]) -> tuple[tuple[RunPart, ...], list[Buffer]]:
    """A batch's rows as parts of equal shapes, one wherever possible, and the buffers of their tensors."""
    payloads: list[dict[str, NDArray[Any]]] = [sample.payload for sample in samples]  # type: ignore[misc]
    try:
        arrays = stack(payloads)
    except ValueError:  # rows differ in a dimension that varies
        return _assemble_by_shape(payloads)
    headers, buffers = pack_tensors(arrays)
    return (RunPart(rows=tuple(range(len(samples))), tensors=headers),), buffers


def _assemble_by_shape(payloads: Sequence[Arrays]) -> tuple[tuple[RunPart, ...], list[Buffer]]:
    by_shape: dict[tuple[tuple[int, ...], ...], list[int]] = {}
    for row, payload in enumerate(payloads):
        by_shape.setdefault(tuple(array.shape for array in payload.values()), []).append(row)
    parts: list[RunPart] = []
    buffers: list[Buffer] = []
    for rows in by_shape.values():
        headers, part_buffers = pack_tensors(stack([payloads[row] for row in rows]))
        parts.append(RunPart(rows=tuple(rows), tensors=headers))
        buffers += part_buffers
    return tuple(parts), buffers


def stack(payloads: Sequence[Arrays]) -> Arrays:
    """Payloads of one row each as arrays of n rows; raises `ValueError` where their shapes differ."""
    if len(payloads) == 1:
        return payloads[0]
    return {name: np.concatenate([payload[name] for payload in payloads]) for name in payloads[0]}


def settle(samples: Sequence[Sample], done: Done, body: memoryview, model: str) -> None:
    """Give each sample of a finished batch its result and certainty, or its error."""
    offset = 0
    for part in done.parts:
        first, others = part.tensors[:1], part.tensors[1:]
        (certainty,) = unpack_tensors(first, body, offset).values()
        outputs = unpack_tensors(others, body, offset + first[0].size_bytes)
        offset += part_bytes(part)
        for i, (row, value) in enumerate(zip(part.rows, certainty.tolist(), strict=True)):
            sample = samples[row]
            sample.certainty = value
            sample.exit_segment = part.exits[i] if part.exits else 0
            sample.result = {name: array[i : i + 1] for name, array in outputs.items()}
    for row in done.failed:
        samples[row].error = f"model {model!r} failed on this sample"
