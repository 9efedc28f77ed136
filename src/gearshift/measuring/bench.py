"""Models in one worker, run batch by batch as the server runs them."""

import asyncio
import itertools
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from gearshift.errors import ModelFailed
from gearshift.hardware import is_cuda
from gearshift.measuring.paid import count_as_wrong
from gearshift.models.samples import Samples
from gearshift.request import Request, Sample
from gearshift.runtime.wire.batch_messages import assemble, settle
from gearshift.runtime.wire.messages import Done, Load, Loaded, OperatorToLoad, ReplicaToLoad, Run
from gearshift.runtime.workers.worker_process import WorkerProcess

LONGEST_LOAD_S = 600.0
LEAST_MEMORY_BYTES = 1 << 20
MOST_UNUSABLE = 20
"""Unusable answers, with no usable one among them, after which the model must be at fault."""

Keep = Callable[[Done, memoryview], None]


class Bench:
    def __init__(self, names: Sequence[str], *, cores: frozenset[int], device_kind: str) -> None:
        self.names = tuple(names)
        self._device_kind = device_kind
        cuda = (0,) if is_cuda(device_kind) else ()
        self._worker = WorkerProcess(cores=cores, cuda=cuda, on_done=self._done, on_end=self._ended)
        self.segmented: frozenset[str] = frozenset()
        self.loaded: dict[str, Loaded] = {}
        self._batch_ids = itertools.count(1)
        self._finished: asyncio.Future[tuple[Done, memoryview]] | None = None
        self._running = ""
        self._batch: list[Sample] = []
        self._unusable = dict.fromkeys(self.names, 0)
        """Counts of unusable answers, for models that have given no usable one yet."""

    @property
    def pid(self) -> int:
        return self._worker.pid

    async def start(self, project_path: Path, samples: Samples, *, warm_up_rows: tuple[int, ...]) -> dict[str, int]:
        """Load the models and return the bytes by which each grew the worker (0: unknown).

        On CUDA, where the worker's own memory says nothing, a batch of zeros is run to see what a
        batch takes. Raises `ModelFailed`.
        """
        on_cuda = is_cuda(self._device_kind)
        replicas = tuple(
            ReplicaToLoad(replica=i, model=name, warm_up_rows=warm_up_rows if on_cuda else ())
            for i, name in enumerate(self.names)
        )
        load = Load(
            operators=(OperatorToLoad(project=str(project_path), inputs=samples.specs),),
            replicas=replicas,
            device_kind=self._device_kind,
            profiling=True,
        )
        loaded = await self._worker.start(load, longest_s=LONGEST_LOAD_S)
        self.segmented = frozenset(self.names[one.replica] for one in loaded if one.segments > 1)
        self.loaded = {self.names[one.replica]: one for one in loaded}
        least = 0 if on_cuda else LEAST_MEMORY_BYTES
        return {self.names[one.replica]: max(least, one.memory_bytes) for one in loaded}

    async def run(
        self,
        name: str,
        samples: Samples,
        rows: list[int],
        *,
        through: bool = False,
        then: Callable[[], None] = lambda: None,
        keep: Keep = lambda done, body: None,
    ) -> tuple[list[Sample], tuple[float, ...], float]:
        """Run a batch: samples, seconds per segment, and seconds from assembly until `then`.

        Without `through`, samples may leave a model with learned caches early, and its time is
        given as a whole. Time in which a remote model waited to ask again does not count. `keep`
        gets the answers, even if other samples of the batch failed. Raises `ModelFailed` if a
        sample fails or the worker dies.
        """
        request = Request(id=0, operator="", arrived_ns=0)
        payloads = zip(rows, samples.payloads(rows), strict=True)
        batch = [Sample(request, row, row, payload) for row, payload in payloads]
        self._finished, self._running = asyncio.get_running_loop().create_future(), name
        begun = time.perf_counter()
        parts, buffers = assemble(batch)
        self._batch = batch
        message = Run(batch=next(self._batch_ids), replica=self.names.index(name), parts=parts, through=through)
        self._worker.link.run(message, buffers)
        done, body = await self._finished
        settle(batch, done, body, name)
        then()
        trip_s = time.perf_counter() - begun - done.waited_s
        count_as_wrong(batch, done)
        if done.parts or done.unusable:
            keep(done, body)
        self._judge_usable(name, done, len(rows))
        _require_answered(name, done, rows)
        return batch, tuple(max(seconds, 1e-9) for seconds in done.segment_s or (done.run_s,)), trip_s

    def _judge_usable(self, name: str, done: Done, rows: int) -> None:
        if name not in self._unusable:
            return
        if len(done.unusable) < rows:
            del self._unusable[name]
            return
        self._unusable[name] += rows
        if self._unusable[name] >= MOST_UNUSABLE:
            raise ModelFailed(
                f"none of the first {self._unusable[name]} answers of model {name!r} counts: {done.first_failure}"
            )

    async def stop(self) -> None:
        await self._worker.stop(longest_s=1.0)

    def _done(self, done: Done, body: memoryview) -> None:
        if done.more:
            settle(self._batch, done, body, self._running)
        elif self._finished is not None and not self._finished.done():
            self._finished.set_result((done, body))

    def _ended(self, how: str) -> None:
        if self._finished is not None and not self._finished.done():
            self._finished.set_exception(
                ModelFailed(f"model {self._running!r} ended its worker while it ran a batch: it {how}")
            )


def _require_answered(name: str, done: Done, rows: Sequence[int]) -> None:
    failed = [row for row in done.failed if row not in done.unusable]
    if failed:
        raise ModelFailed(
            f"model {name!r} failed on {len(failed)} of {len(rows)} samples, "
            f"first on sample {rows[failed[0]]}: {done.first_failure}"
        )
    if done.first_failure and not done.unusable:
        raise ModelFailed(f"model {name!r} failed on a batch of {len(rows)} samples: {done.first_failure}")
