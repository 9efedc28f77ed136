"""Measuring: each model is run alone in a real worker, pinned as it will be served, and its answers are recorded."""

import asyncio
import itertools
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray

from gearshift.config import ModelSettings, ProfileSettings, Project, read_project
from gearshift.errors import ModelFailed
from gearshift.hardware import Hardware, identical_devices
from gearshift.loading import Samples, load_samples
from gearshift.model import Predicted, TensorSpec, spec_of
from gearshift.profiles.measure import curve_from_timings, fit_overheads, records_from_answers, strongest_model
from gearshift.profiles.profile import Profile, RunTimeCurve
from gearshift.request import Request, Sample
from gearshift.runtime.backends.local import assemble, assign_cores, router_cores, settle
from gearshift.runtime.messages import Done, Load, ReplicaToLoad, Run
from gearshift.runtime.service import rows_of, stack_results
from gearshift.runtime.worker_process import WorkerProcess

LONGEST_LOAD_S = 600.0
LEAST_MEMORY_BYTES = 1 << 20
SHARE_OF_PREDICTIONS = 0.5
"""Of a model's progress."""

Progress = Callable[[str, float], None]


def profile_project(project_path: Path, *, progress: Progress, seed: int = 0, folder: Path | None = None) -> Profile:
    """The profile of the project's models on one processor, the highest that this process may use.

    `progress(model, share)` is told how far a model is.  The profile's `project` is relative to `folder`, where it
    will be written; without one it is absolute.  Raises `ModelFailed` or `InvalidInput` naming the model that cannot
    be loaded, raises, answers wrong rows or an unusable certainty.
    """
    project_path = project_path.resolve()
    project = read_project(project_path)
    samples = load_samples(project, project_path.parent)
    measured = _run(_measure_all(project, project_path, samples, progress))
    curves = tuple(one.curve for one in measured)
    answers = {one.curve.model: one.answers for one in measured}
    return Profile(
        operator=project.operator,
        curves=curves,
        predictions=records_from_answers(tuple(answers), answers, samples, seed, strongest=strongest_model(curves)),
        inputs=tuple(spec_of(name, array) for name, array in samples.arrays.items()),
        outputs=common_outputs(list(answers.values())),
        certainty=project.certainty,
        project=str(project_path) if folder is None else os.path.relpath(project_path, folder.resolve()),
    )


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredModel:
    """What a model costs, and its answers to all samples."""

    curve: RunTimeCurve
    answers: Predicted


def common_outputs(answers: Sequence[Predicted]) -> tuple[TensorSpec, ...]:
    """The outputs that all models answer; a dimension in which they differ is -1."""
    specs = [{name: spec_of(name, np.asarray(array)) for name, array in one.outputs.items()} for one in answers]
    common = []
    for name, spec in specs[0].items():
        others = [other[name] for other in specs[1:] if name in other]
        if len(others) == len(specs) - 1 and all(len(other.shape) == len(spec.shape) for other in others):
            sizes = zip(spec.shape, *(other.shape for other in others), strict=True)
            shape = tuple(size[0] if len(set(size)) == 1 else -1 for size in sizes)
            common.append(TensorSpec(name=name, datatype=spec.datatype, shape=shape))
    return tuple(common)


async def _measure_all(
    project: Project, project_path: Path, samples: Samples, progress: Progress
) -> list[MeasuredModel]:
    hardware = identical_devices(1)
    cores_before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, router_cores(hardware))
    try:
        measured = []
        for name, settings in project.models.items():
            measured.append(
                await _measure(name, settings, project.profile, project_path, samples, progress, hardware, cores_before)
            )
        return measured
    finally:
        os.sched_setaffinity(0, cores_before)


async def _measure(
    name: str,
    settings: ModelSettings,
    how: ProfileSettings,
    project_path: Path,
    samples: Samples,
    progress: Progress,
    hardware: Hardware,
    available: set[int],
) -> MeasuredModel:
    device = hardware.devices[0]
    bench = Bench(name, cores=assign_cores(hardware, sorted(available))[device.id])
    progress(name, 0.0)
    try:
        await bench.start(project_path)
        sizes = tuple(sorted(set(how.batch_sizes)))
        runs, trips = await _time_sizes(bench, sizes, how, samples, progress)
        answers = await _predict_all(bench, sizes[-1], samples, progress)
        memory_bytes = bench.memory_bytes()
    finally:
        await bench.stop()
    per_batch_s, per_request_s = fit_overheads(sizes, trips, runs)
    curve = curve_from_timings(
        name,
        sizes,
        runs,
        device_kind=device.kind,
        cores=device.cores,
        memory_bytes=memory_bytes if settings.memory_mib is None else round(settings.memory_mib * (1 << 20)),
        overhead_per_batch_s=per_batch_s,
        overhead_per_request_s=per_request_s,
    )
    return MeasuredModel(curve, answers)


Timings = list[NDArray[np.float64]]


async def _time_sizes(
    bench: "Bench", sizes: Sequence[int], how: ProfileSettings, samples: Samples, progress: Progress
) -> tuple[Timings, Timings]:
    """Runs and round trips for each batch size, over real samples, after one batch that does not count."""
    runs: Timings = []
    trips: Timings = []
    for done, size in enumerate(sizes):
        rows = itertools.cycle(range(len(samples)))
        timed: list[tuple[float, float]] = []
        begun = time.perf_counter()
        await bench.run(samples, [next(rows) for _ in range(size)])
        while len(timed) < how.repeats and (not timed or time.perf_counter() - begun < how.longest_s):
            batch = [next(rows) for _ in range(size)]
            _, run_s, trip_s = await bench.run(samples, batch)
            timed.append((run_s, trip_s))
        runs.append(np.array([run_s for run_s, _ in timed]))
        trips.append(np.array([trip_s for _, trip_s in timed]))
        progress(bench.name, (1 - SHARE_OF_PREDICTIONS) * (done + 1) / len(sizes))
    return runs, trips


async def _predict_all(bench: "Bench", size: int, samples: Samples, progress: Progress) -> Predicted:
    finished: list[Sample] = []
    for begin in range(0, len(samples), size):
        batch, _, _ = await bench.run(samples, list(range(begin, min(begin + size, len(samples)))))
        finished += batch
        progress(bench.name, 1 - SHARE_OF_PREDICTIONS * (1 - len(finished) / len(samples)))
    try:
        outputs = stack_results(finished)
    except (KeyError, ValueError) as error:
        raise ModelFailed(
            f"model {bench.name!r} answers outputs of different names or shapes from batch to batch"
        ) from error
    return Predicted(outputs, np.array([sample.certainty for sample in finished]))


class Bench:
    """One model in one worker, run batch by batch as the server does."""

    def __init__(self, name: str, *, cores: frozenset[int]) -> None:
        self.name = name
        self._worker = WorkerProcess(cores=cores, on_done=self._done, on_end=self._ended)
        self._batch_ids = itertools.count(1)
        self._finished: asyncio.Future[tuple[Done, memoryview]] | None = None
        self._memory_before = 0

    async def start(self, project_path: Path) -> None:
        """Load the model; raises `ModelFailed`."""
        load = Load(project=str(project_path), replicas=(ReplicaToLoad(replica=0, model=self.name),))
        (loaded,) = await self._worker.start(load, longest_s=LONGEST_LOAD_S)
        self._memory_before = self._resident_bytes() - loaded.memory_bytes

    async def run(self, samples: Samples, rows: list[int]) -> tuple[list[Sample], float, float]:
        """The finished samples, seconds in the model, and seconds from assembling the batch to settling it.

        Raises `ModelFailed` when a sample fails or the worker dies.
        """
        request = Request(id=0, operator="", arrived_ns=0)
        payloads = rows_of(samples.batch(np.array(rows)), len(rows))
        batch = [Sample(request, row, row, payload) for row, payload in zip(rows, payloads, strict=True)]
        self._finished = asyncio.get_running_loop().create_future()
        begun = time.perf_counter()
        parts, buffers = assemble(batch)
        self._worker.run(Run(batch=next(self._batch_ids), replica=0, parts=parts), buffers)
        done, body = await self._finished
        settle(batch, done, body, self.name)
        trip_s = time.perf_counter() - begun
        if done.failed:
            raise ModelFailed(
                f"model {self.name!r} failed on {len(done.failed)} of {len(rows)} samples, "
                f"first on sample {rows[done.failed[0]]}: {done.first_failure}"
            )
        if done.first_failure:
            raise ModelFailed(f"model {self.name!r} failed on a batch of {len(rows)} samples: {done.first_failure}")
        return batch, max(done.run_s, 1e-9), trip_s

    def memory_bytes(self) -> int:
        """By how much the worker's resident memory has grown since before the model was loaded."""
        return max(LEAST_MEMORY_BYTES, self._resident_bytes() - self._memory_before)

    async def stop(self) -> None:
        """End the worker."""
        await self._worker.stop(longest_s=1.0)

    def _resident_bytes(self) -> int:
        return int(psutil.Process(self._worker.pid).memory_info().rss)

    def _done(self, done: Done, body: memoryview) -> None:
        if self._finished is not None and not self._finished.done():
            self._finished.set_result((done, body))

    def _ended(self) -> None:
        if self._finished is not None and not self._finished.done():
            self._finished.set_exception(ModelFailed(f"model {self.name!r} ended its worker while it ran a batch"))


def _run(main: Any) -> list[MeasuredModel]:
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        measured: list[MeasuredModel] = runner.run(main)
        return measured
