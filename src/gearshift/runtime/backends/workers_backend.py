"""The base of backends with workers: one worker per device set, restarted when it ends."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, Required, TypedDict, Unpack

from gearshift.clock import NS_PER_S, to_ns
from gearshift.errors import GearshiftError, WorkerDied, require
from gearshift.hardware import Device, Hardware
from gearshift.model import TensorSpec
from gearshift.plans.plan_tables import PlanTables
from gearshift.policies.watch.lost_workers import hangs_after_ns
from gearshift.request import Sample
from gearshift.runtime.backends.base import Batch, BatchEvents, all_ended
from gearshift.runtime.wire.batch_messages import assemble, settle
from gearshift.runtime.wire.messages import (
    Adopt,
    Adopted,
    Done,
    Load,
    Loaded,
    OperatorToLoad,
    ReplicaToLoad,
    Run,
    RunPart,
)
from gearshift.runtime.wire.transport import FrameError
from gearshift.runtime.wire.worker_link import OnDone, OnEnd, WorkerLink, why_not_loaded

SHORTEST_RESTART_WAIT_S = 0.1
LONGEST_RESTART_WAIT_S = 5.0
LONGEST_STOP_S = 5.0
WARM_UP_SHARE = 0.5
"""Share of `longest_start_s`; the rest is for loading and a last, longer batch."""

Say = Callable[[str], None]


class ReplicaListener:
    """Hears of a backend's replicas and samples before the router does; this one ignores them."""

    def samples_finished(self, replica: int, samples: Sequence[Sample]) -> None: ...

    def not_finite(self, replica: int, count: int) -> None:
        """`count` cache lookups of a batch met NaN or infinity."""

    def replica_ready(self, replica: int) -> None: ...

    def replica_lost(self, replica: int) -> None: ...

    def stopped(self) -> None: ...


class Worker(Protocol):
    """The router's side of one worker on any machine, from `start` until it has ended.

    `on_done` gets each finished batch. `on_end` is called once if the worker ends although nobody
    stopped it, with the reason (words that follow "the worker"). Batches and learned caches go
    through `link`, which also has the failures of replicas that could not be loaded.
    """

    link: WorkerLink

    @property
    def pid(self) -> int:
        """The process id on its machine, 0 before `start`."""
        ...

    async def start(self, load: Load, *, longest_s: float) -> list[Loaded]:
        """Start the worker and load its models; raises `GearshiftError`, nothing left running."""
        ...

    async def stop(self, *, longest_s: float) -> None:
        """End the worker, by force after `longest_s`; returns when it is gone."""
        ...


@dataclass(frozen=True, slots=True)
class DeviceSet:
    """The devices of one worker, the first of which gives their kind, and the replicas on them."""

    number: int
    devices: tuple[Device, ...]
    replicas: tuple[int, ...]


@dataclass(slots=True, eq=False)
class _Slot:
    devices: DeviceSet
    worker: Worker | None = None
    starting: Worker | None = None
    loaded: Sequence[int] = ()
    restart: asyncio.Task[None] | None = None
    restart_wait_s: float = SHORTEST_RESTART_WAIT_S
    running: dict[int, Batch] = field(default_factory=dict)

    @property
    def replicas(self) -> tuple[int, ...]:
        return self.devices.replicas


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSource:
    """The `gearshift.toml` of an operator, its tensors, and its models (empty: all of the plan)."""

    project: Path
    inputs: Sequence[TensorSpec]
    outputs: Sequence[TensorSpec] = ()
    models: Sequence[str] = ()


class WorkersOptions(TypedDict, total=False):
    """Options of every backend with workers, see `WorkersBackend`."""

    operators: Required[Sequence[OperatorSource]]
    longest_start_s: float
    warm_up: str
    run_ns: Sequence[Sequence[int]] | None
    shortest_hang_s: float
    probe_s: float
    thread_counts: Sequence[int]
    awake_s: float
    say: Say


class WorkersBackend(ABC):
    """Runs batches in workers; a worker that ends is restarted, each time after a longer wait.

    `operators` have the models that the plan places. A worker is stuck, and is replaced, if it does not answer
    within `probe_s` while idle, or holds a batch for much longer than profiled (`run_ns`:
    (replicas, sizes); `hangs_after_ns`). A restarted worker serves those of its models that can be
    loaded. Before it serves, each model runs batches of every size that the plan allows, within
    `WARM_UP_SHARE` of `longest_start_s`; with `warm_up` "few", only the smallest and the largest.
    `thread_counts` are the numbers of threads that may be set on a worker; between batches in
    quick succession it stays awake, for `awake_s` at most.
    """

    def __init__(self, tables: PlanTables, hardware: Hardware, **options: Unpack[WorkersOptions]) -> None:
        self._tables, self._operators = tables, tuple(options["operators"])
        self._operator_of = operators_of(tables.models, self._operators)
        self._longest_start_s = options.get("longest_start_s", 120.0)
        self._say: Say = options.get("say", lambda text: None)
        self._warms_all = options.get("warm_up", "all") == "all"
        self._run_ns, self._probe_s = options.get("run_ns"), options.get("probe_s", 3.0)
        self._shortest_hang_ns = to_ns(options.get("shortest_hang_s", 10.0))
        self._thread_counts, self._awake_s = tuple(options.get("thread_counts", ())), options.get("awake_s", 0.0)
        self._slots = [_Slot(devices) for devices in device_sets(tables, hardware)]
        self._slot_of = {replica: slot for slot in self._slots for replica in slot.replicas}
        self._events: BatchEvents | None = None
        self._stopped = False
        self.listener = ReplicaListener()
        self._told_cold: set[str] = set()

    @abstractmethod
    def _make_worker(self, devices: DeviceSet, on_done: OnDone, on_end: OnEnd, probe_s: float) -> Worker:
        """Make a worker for these devices, not started."""

    async def start(self, events: BatchEvents) -> None:
        """Start all workers; raises `ModelFailed` or `WorkerDied` with nothing left running."""
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
            if slot.worker is not None:  # else it has ended already and is being restarted
                self._tell_ready(slot)

    def run(self, batch: Batch) -> None:
        slot = self._slot_of[batch.replica]
        try:
            parts, buffers = assemble(batch.samples)
            message = Run(batch=batch.id, replica=batch.replica, parts=parts)
            if slot.worker is not None:
                slot.worker.link.run(message, buffers, longest_s=self._longest_batch_s(batch.replica, parts))
                slot.running[batch.id] = batch
        except FrameError as error:
            self._say(f"batch {batch.id} cannot be sent: {error}")
            slot.running[batch.id] = batch
            asyncio.get_running_loop().call_soon(self._fail_unsent, slot, batch)

    async def stop(self) -> None:
        """End all workers, by force where a batch is running; nothing is left running."""
        self.listener.stopped()
        self._stopped = True
        self._events = None
        restarts = [slot.restart for slot in self._slots if slot.restart is not None]
        for restart in restarts:
            restart.cancel()
        await asyncio.gather(*restarts, return_exceptions=True)
        await all_ended(
            slot.worker.stop(longest_s=0.0 if slot.running else LONGEST_STOP_S)
            for slot in self._slots
            if slot.worker is not None
        )

    @property
    def replicas_loaded(self) -> int:
        """How many replicas the workers have loaded since they were last started."""
        return sum(slot.starting.link.loaded_count for slot in self._slots if slot.starting is not None)

    def expected_start_s(self, load_s: Mapping[tuple[str, str], float]) -> float:
        """How long `start` will take, by models' `load_s` on a kind of device and `run_ns`; 0 if one is unknown.

        Workers start side by side, so it is as long as the longest takes.
        """
        most_warm_up_s = WARM_UP_SHARE * self._longest_start_s
        longest_s = 0.0
        for slot in self._slots:
            load = self._load_message(slot, again=False)
            places = [(replica.model, load.device_kind) for replica in load.replicas]
            if self._run_ns is None or any(place not in load_s for place in places):
                return 0.0
            warm_up_ns = sum(
                self._run_ns[replica.replica][rows] for replica in load.replicas for rows in replica.warm_up_rows
            )
            loading_s = sum(load_s[place] for place in places)
            longest_s = max(longest_s, loading_s + min(most_warm_up_s, warm_up_ns / NS_PER_S))
        return longest_s

    def worker_pids(self) -> dict[int, int]:
        return {r: slot.worker.pid if slot.worker else 0 for slot in self._slots for r in slot.replicas}

    async def adopt(self, message: Adopt, weights: bytes) -> Adopted:
        """Have a replica use other learned caches; raises `WorkerDied` if it has no worker."""
        worker = self._slot_of[message.replica].worker
        if worker is None:
            raise WorkerDied("it is gone")
        return await worker.link.adopt(message, weights)

    def _longest_batch_s(self, replica: int, parts: Sequence[RunPart]) -> float | None:
        if self._run_ns is None:
            return None
        run_ns = sum(self._run_ns[replica][len(part.rows)] for part in parts)
        return hangs_after_ns(run_ns, self._shortest_hang_ns) / NS_PER_S

    async def _start_worker(self, slot: _Slot, *, again: bool = False) -> None:
        """Start the slot's worker; if `again`, replicas that cannot be loaded are left out."""
        worker = self._make_worker(
            slot.devices,
            lambda done, body: self._batch_done(slot, done, body),
            lambda how: self._worker_ended(slot, how),
            self._probe_s,
        )
        slot.starting = worker
        loaded = await worker.start(self._load_message(slot, again), longest_s=self._longest_start_s)
        slot.worker, slot.loaded = worker, [replica.replica for replica in loaded]
        for failed in worker.link.not_loaded:
            self._say(f"{why_not_loaded(failed)}; the other models of its worker are served without it")
        for replica in loaded:
            self._tell_cold(self._tables.model_of(replica.replica), replica)

    def _tell_cold(self, model: str, replica: Loaded) -> None:
        if model in self._told_cold or not (replica.warm_up_failure or replica.cold_sizes):
            return
        self._told_cold.add(model)
        if replica.warm_up_failure:
            self._say(f"model {model!r} failed its warm-up on zeros ({replica.warm_up_failure}); it has not run yet")
        else:
            self._say(
                f"model {model!r} has not run {replica.cold_sizes} of its batch sizes yet, as there was no time in "
                f"{WARM_UP_SHARE * self._longest_start_s:g} s; the first batch of each may be slow (a longer "
                "--longest-start-s gives more time)"
            )

    def _load_message(self, slot: _Slot, again: bool) -> Load:
        tables = self._tables
        largest = tables.largest_batch_size.reshape(-1, len(tables.replica_ids)).max(axis=0)
        here = sorted({self._operator_of[tables.model_of(replica)] for replica in slot.replicas})
        return Load(
            operators=tuple(to_load(self._operators[number]) for number in here),
            device_kind=slot.devices.devices[0].kind,
            keep_others=again,
            warm_up_s=WARM_UP_SHARE * self._longest_start_s,
            thread_counts=self._thread_counts,
            awake_s=self._awake_s,
            replicas=tuple(
                ReplicaToLoad(
                    replica=replica,
                    model=tables.model_of(replica),
                    operator=here.index(self._operator_of[tables.model_of(replica)]),
                    warm_up_rows=self._warm_up_rows(int(largest[replica])),
                )
                for replica in slot.replicas
            ),
        )

    def _warm_up_rows(self, largest: int) -> tuple[int, ...]:
        between = range(2, largest) if self._warms_all else ()
        return (*sorted({1, largest}), *between)

    def _batch_done(self, slot: _Slot, done: Done, body: memoryview) -> None:
        batch = slot.running.get(done.batch) if done.more else slot.running.pop(done.batch, None)
        if batch is None or self._events is None:
            return
        model = self._tables.model_of(batch.replica)
        if done.not_finite:
            self.listener.not_finite(batch.replica, done.not_finite)
        finished = settle(batch.samples, done, body, model)
        self.listener.samples_finished(batch.replica, finished)
        self._events.samples_finished(batch, finished)
        if not done.more and self._events is not None:
            self._events.batch_finished(batch)

    def _fail_unsent(self, slot: _Slot, batch: Batch) -> None:
        if slot.running.pop(batch.id, None) is None or self._events is None:
            return
        for sample in batch.samples:
            sample.error = "the batch is too large to be sent to its model"
        self.listener.samples_finished(batch.replica, batch.samples)
        self._events.samples_finished(batch, batch.samples)
        self._events.batch_finished(batch)

    def _worker_ended(self, slot: _Slot, how: str) -> None:
        slot.worker, slot.loaded = None, ()
        slot.running.clear()
        if self._stopped or self._events is None:
            return
        slot.restart = asyncio.get_running_loop().create_task(self._restart(slot, how))
        for replica in slot.replicas:
            self.listener.replica_lost(replica)
        self._events.replicas_lost(slot.replicas, how)

    async def _restart(self, slot: _Slot, how: str) -> None:
        loop = asyncio.get_running_loop()
        names = ", ".join(self._tables.replica_ids[replica] for replica in slot.replicas)
        while slot.worker is None:
            self._say(f"the worker of {names} {how}; starting it again in {slot.restart_wait_s:g} s")
            await asyncio.sleep(slot.restart_wait_s)
            slot.restart_wait_s = min(2 * slot.restart_wait_s, LONGEST_RESTART_WAIT_S)
            try:
                await self._start_worker(slot, again=True)
            except (GearshiftError, OSError) as error:
                how = f"is not back ({error})"
        loop.call_later(2 * LONGEST_RESTART_WAIT_S, self._forget_failures, slot, slot.worker)
        self._tell_ready(slot)

    def _tell_ready(self, slot: _Slot) -> None:
        if self._events is not None:
            for replica in slot.loaded:
                self.listener.replica_ready(replica)
                self._events.replica_ready(replica)

    @staticmethod
    def _forget_failures(slot: _Slot, worker: Worker) -> None:
        if slot.worker is worker:
            slot.restart_wait_s = SHORTEST_RESTART_WAIT_S


def operators_of(models: Sequence[str], operators: Sequence[OperatorSource]) -> dict[str, int]:
    """The place of each model's operator; raises `InvalidInput` for a model of none, or of two."""
    found: dict[str, int] = {}
    for number, operator in enumerate(operators):
        for model in operator.models or models:
            require(
                model not in found or model not in models,
                f"two operators have a model {model!r}",
                remedy="give one of the models another name: replicas are named by their model",
            )
            found[model] = number
    lacking = sorted(set(models) - set(found))
    require(not lacking, f"no operator has the models {lacking}", remedy="serve the plan with all of its profiles")
    return found


def to_load(operator: OperatorSource) -> OperatorToLoad:
    return OperatorToLoad(project=str(operator.project), inputs=tuple(operator.inputs), outputs=tuple(operator.outputs))


def device_sets(tables: PlanTables, hardware: Hardware) -> list[DeviceSet]:
    devices = {device.id: device for device in hardware.devices}
    by_devices: dict[tuple[int, ...], list[int]] = {}
    for replica in range(len(tables.replica_ids)):
        begin, end = tables.spans_begin[replica], tables.spans_begin[replica + 1]
        by_devices.setdefault(tuple(tables.spans[begin:end].tolist()), []).append(replica)
    return [
        DeviceSet(number, tuple(devices[tables.device_ids[place]] for place in places), tuple(replicas))
        for number, (places, replicas) in enumerate(by_devices.items())
    ]
