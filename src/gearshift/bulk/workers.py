"""Worker processes that each hold all models of a cascade and run batches for whole chunks."""

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gearshift.bulk.background import together
from gearshift.bulk.stages import Ran
from gearshift.errors import InvalidInput, WorkerDied, require
from gearshift.gear import GearPlan
from gearshift.hardware import is_cuda, is_remote
from gearshift.model import Arrays
from gearshift.profiles.profile import Profile
from gearshift.runtime.wire.batch_messages import part_bytes
from gearshift.runtime.wire.messages import Done, Load, OperatorToLoad, ReplicaToLoad, Run, RunPart
from gearshift.runtime.wire.transport import pack_tensors, unpack_tensors
from gearshift.runtime.workers.worker_process import WorkerProcess
from gearshift.support.processors import processors_of
from gearshift.v2.packing import Buffer

LONGEST_LOAD_S = 600.0
LONGEST_STOP_S = 1.0
MOST_WORKERS = 256

Ints = NDArray[np.int64]
Frame = tuple[Done, memoryview]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The processors and CUDA devices of one worker."""

    cores: frozenset[int]
    cuda: tuple[int, ...] = ()


def places_of(plan: GearPlan, workers: int | None) -> list[Place]:
    """A place for each of `workers`: on each CUDA device of the plan, or on as many cores as a device has.

    By default there are as many workers as there are places.
    """
    require(
        workers is None or 1 <= workers <= MOST_WORKERS,
        f"workers is {workers}",
        remedy=f"give 1 to {MOST_WORKERS}",
    )
    cores = sorted(processors_of())
    devices = [device for device in plan.hardware.devices if not is_remote(device.kind)]
    if devices and is_cuda(devices[0].kind):
        count = workers or len(devices)
        return [Place(cores=frozenset(cores), cuda=(number % len(devices),)) for number in range(count)]
    each = min(len(cores), devices[0].cores if devices else 1)
    count = workers or len(cores) // each
    return [
        Place(cores=frozenset(cores[(number * each + one) % len(cores)] for one in range(each)))
        for number in range(count)
    ]


def device_kind_of(plan: GearPlan) -> str:
    return next((device.kind for device in plan.hardware.devices if not is_remote(device.kind)), "cpu")


class Seat:
    """One worker, started when it is first needed, with at most one message to it at a time."""

    def __init__(self, load: Load, place: Place) -> None:
        self._load, self._place = load, place
        self._worker: WorkerProcess | None = None
        self._killed: WorkerProcess | None = None
        self._closed = False
        self._batches = itertools.count(1)
        self._heard: list[Frame] = []
        self._whole: asyncio.Future[None] | None = None

    @property
    def pid(self) -> int:
        return 0 if self._worker is None else self._worker.pid

    async def start(self) -> None:
        await self._reap()
        require(not self._closed, "the pipeline was closed while it ran")
        worker = WorkerProcess(cores=self._place.cores, cuda=self._place.cuda, on_done=self._done, on_end=self._ended)
        self._worker = worker
        try:
            await worker.start(self._load, longest_s=LONGEST_LOAD_S)
        except BaseException:
            self._killed, self._worker = worker, None  # a second failure may have ended the wait for its end
            raise

    async def run(self, replica: int, parts: tuple[RunPart, ...], buffers: Sequence[Buffer]) -> list[Frame]:
        """Run the parts, one call of the model each; raises `WorkerDied` if the worker ends.

        Whoever cancels this gets rid of the worker too, as it cannot be stopped in a model.
        """
        if self._worker is None:
            await self.start()
        assert self._worker is not None
        self._heard, self._whole = [], asyncio.get_running_loop().create_future()
        self._worker.link.run(Run(batch=next(self._batches), replica=replica, parts=parts), buffers)
        try:
            await self._whole
        except asyncio.CancelledError:
            if self._worker is not None:
                self._worker.terminate("its query was stopped")
                self._killed, self._worker = self._worker, None
            raise
        return self._heard

    async def stop(self) -> None:
        """End the worker; none is started any more."""
        self._closed = True
        worker, self._worker = self._worker, None
        if worker is not None:
            await worker.stop(longest_s=LONGEST_STOP_S)
        await self._reap()

    async def _reap(self) -> None:
        if self._killed is not None:
            await self._killed.kill()
            self._killed = None

    def _done(self, done: Done, body: memoryview) -> None:
        self._heard.append((done, body))
        if not done.more and self._whole is not None and not self._whole.done():
            self._whole.set_result(None)

    def _ended(self, how: str) -> None:
        self._worker = None
        if self._whole is not None and not self._whole.done():
            self._whole.set_exception(WorkerDied(f"a worker {how}"))


@dataclass(frozen=True, slots=True)
class Source:
    """The profile of an operator, and the project with its models."""

    profile: Profile
    project: Path


@dataclass(slots=True, eq=False)
class Workers:
    """Runs models on chunks: pieces of a chunk on all workers, in batches of the profiled size.

    A batch that ends its worker is run again in halves, until the row that did stands alone.
    Without `label` the label of a row is a dict of all outputs, arrays of this row alone.
    """

    seats: list[Seat]
    models: tuple[str, ...]
    batch_rows: dict[str, int]
    label: str | None
    _free: asyncio.Queue[Seat] = field(default_factory=asyncio.Queue)

    @classmethod
    def of(
        cls, plan: GearPlan, operators: Sequence[Source], models: Sequence[str], label: str | None, workers: int | None
    ) -> "Workers":
        """Workers with `models`, which are of `operators`."""
        of_model = {model: at for at, source in enumerate(operators) for model in source.profile.models}
        load = Load(
            operators=tuple(
                OperatorToLoad(project=str(one.project), inputs=one.profile.inputs, outputs=one.profile.outputs)
                for one in operators
            ),
            replicas=tuple(
                ReplicaToLoad(replica=i, model=model, operator=of_model[model]) for i, model in enumerate(models)
            ),
            device_kind=device_kind_of(plan),
        )
        largest = dict.fromkeys(models, 1)
        for curve in (curve for source in operators for curve in source.profile.curves):
            if curve.model in largest:
                largest[curve.model] = max(largest[curve.model], curve.largest_batch_size)
        return cls([Seat(load, place) for place in places_of(plan, workers)], tuple(models), largest, label)

    async def start(self) -> None:
        """Load the models everywhere; raises `ModelFailed`, `WorkerDied` or `InvalidInput`."""
        await together([seat.start() for seat in self.seats])
        for seat in self.seats:
            self._free.put_nowait(seat)

    async def stop(self) -> None:
        await asyncio.gather(*(seat.stop() for seat in self.seats))

    async def run(self, model: str, inputs: Arrays, rows: int) -> Ran:
        batch = self.batch_rows[model]
        piece = -(-rows // max(1, min(len(self.seats), rows // batch)))
        piece = -(-piece // batch) * batch
        starts = range(0, rows, piece)
        if len(starts) == 1:
            return await self._piece(model, inputs, np.arange(rows))
        pieces = [np.arange(start, min(rows, start + piece)) for start in starts]
        return joined(await together([self._piece(model, inputs, numbers) for numbers in pieces]))

    async def _piece(self, model: str, inputs: Arrays, rows: Ints) -> Ran:
        """The answers to `rows`; those of a lost worker batch by batch, then in halves."""
        batch = self.batch_rows[model]
        seat = await self._free.get()
        try:
            parts, buffers = _packed(inputs, rows, batch)
            frames = await seat.run(self.models.index(model), parts, buffers)
        except WorkerDied:
            if len(rows) == 1:
                return Ran(_NONE, np.zeros(0), np.zeros(0), failed=rows, unanswered=_NONE)
            size = batch if len(rows) > batch else -(-len(rows) // 2)
        else:
            return self._ran(frames, rows)
        finally:
            self._free.put_nowait(seat)
        return joined([await self._piece(model, inputs, rows[i : i + size]) for i in range(0, len(rows), size)])

    def _ran(self, frames: list[Frame], rows: Ints) -> Ran:
        kept, labels, certainties = [_NONE], [], [np.zeros(0)]
        failed: list[int] = []
        unanswered: list[int] = []
        for done, body in frames:
            offset = 0
            for part in done.parts:
                certainty, outputs = part.tensors[:1], part.tensors[1:]
                certainties += unpack_tensors(certainty, body, offset).values()
                arrays = unpack_tensors(outputs, body, offset + certainty[0].size_bytes)
                labels.append(_each_row(arrays, len(part.rows)) if self.label is None else _label(arrays, self.label))
                kept.append(rows[list(part.rows)])
                offset += part_bytes(part)
            silent = set(done.unanswered)
            failed += [row for row in done.failed if row not in silent]
            unanswered += done.unanswered
        return Ran(
            np.concatenate(kept),
            np.concatenate(labels) if labels else np.zeros(0),
            np.concatenate(certainties),
            failed=rows[failed],
            unanswered=rows[unanswered],
        )


_NONE = np.zeros(0, dtype=np.int64)


def joined(parts: Sequence[Ran]) -> Ran:
    labels = [part.label for part in parts if len(part.rows)]
    return Ran(
        np.concatenate([part.rows for part in parts]),
        np.concatenate(labels) if labels else np.zeros(0),
        np.concatenate([part.certainty for part in parts]),
        failed=np.concatenate([part.failed for part in parts]),
        unanswered=np.concatenate([part.unanswered for part in parts]),
    )


def _label(arrays: Arrays, name: str) -> NDArray[Any]:
    label = arrays[name]
    if label.ndim != 1:
        raise InvalidInput(f"output {name!r} has shape {[-1, *label.shape[1:]]}, needs one value per row")
    return label


def _each_row(arrays: Arrays, rows: int) -> NDArray[Any]:
    """The arrays of each row alone (rows,)."""
    copied = {name: np.array(array) for name, array in arrays.items()}  # the frame is not kept
    made = np.empty(rows, dtype=object)
    for row in range(rows):
        made[row] = {name: array[row : row + 1] for name, array in copied.items()}
    return made


def _packed(inputs: Arrays, rows: Ints, batch: int) -> tuple[tuple[RunPart, ...], list[Buffer]]:
    """Parts of up to `batch` of the `rows`, which are consecutive, numbered from 0."""
    first, count = int(rows[0]), len(rows)
    parts: list[RunPart] = []
    buffers: list[Buffer] = []
    for start in range(0, count, batch):
        end = min(count, start + batch)
        headers, part = pack_tensors({name: array[first + start : first + end] for name, array in inputs.items()})
        parts.append(RunPart(rows=tuple(range(start, end)), tensors=headers))
        buffers += part
    return tuple(parts), buffers
