"""Measuring: runs each model alone in a real worker, and records run times and answers."""

import asyncio
import itertools
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gearshift.errors import ModelFailed, require
from gearshift.hardware import REMOTE, Device, Hardware, is_cuda
from gearshift.measuring.disturbance import Disturbance
from gearshift.measuring.other_batches import found_in_other_batches
from gearshift.measuring.paid import Kept, PaidWork, Timed, count_as_wrong
from gearshift.measuring.turnaround import Turnaround
from gearshift.model import Predicted, spec_of
from gearshift.models.classes import class_names
from gearshift.models.config import ProfileSettings, Project, read_project
from gearshift.models.declared_outputs import common_outputs
from gearshift.models.loaded_from import LoadedFrom, settings_of
from gearshift.models.samples import Samples, load_samples
from gearshift.profiles.doubts import doubts_about, require_common_class
from gearshift.profiles.measure import (
    curve_from_timings,
    fit_overheads,
    performance_models,
    records_from_answers,
    strongest_model,
    unusable_counted,
    without_unusable,
)
from gearshift.profiles.parts import split_parts
from gearshift.profiles.performance_model import LEAST_BATCH_SIZES
from gearshift.profiles.profile import Profile, RunTimeCurve
from gearshift.request import Request, Sample
from gearshift.runtime.actuators.cpu_quota import quota_cores, quota_warning
from gearshift.runtime.actuators.own_group import bounded
from gearshift.runtime.backends.local import assign_cores, router_cores
from gearshift.runtime.cores.core_pool import on_processors
from gearshift.runtime.remote.checks import require_askable
from gearshift.runtime.remote.models import is_remote_model
from gearshift.runtime.service.answers import rows_of, stack_results
from gearshift.runtime.wire.batch_messages import assemble, settle
from gearshift.runtime.wire.messages import Done, Load, Loaded, ReplicaToLoad, Run
from gearshift.runtime.workers.worker_process import WorkerProcess
from gearshift.support.own_loop import run_in_own_loop
from gearshift.support.processors import pin, processors_of, usable_processors

LONGEST_LOAD_S = 600.0
LEAST_MEMORY_BYTES = 1 << 20
LEAST_REPEATS = 3
SHARE_OF_PAUSES = 0.5
LONGEST_PAUSE_S = 0.005
SHARE_OF_TIMING = 0.4
"""Share of the progress; the rest is for predictions."""

MOST_UNUSABLE = 20
"""Unusable answers, with no usable one among them, after which the model must be at fault."""

Progress = Callable[[str, float], None]
Notice = Callable[[str], None]
Keep = Callable[[Done, memoryview], None]


@dataclass(slots=True)
class FrontEndTime:
    """Mean time of the front end per request; 0 where it was not measured.

    `router_s` is a request's time on the router's processor while many arrive at once.
    """

    mean_s: float = 0.0
    router_s: float = 0.0


FrontEnd = Callable[[Samples], AbstractAsyncContextManager[FrontEndTime]]


@asynccontextmanager
async def no_front_end(samples: Samples) -> AsyncIterator[FrontEndTime]:
    yield FrontEndTime()


def profile_project(
    project_path: Path,
    *,
    progress: Progress,
    seed: int = 0,
    folder: Path | None = None,
    front_end: FrontEnd = no_front_end,
    cores: Sequence[int] = (1,),
    core_share: float = 1.0,
    notice: Notice = lambda text: None,
) -> Profile:
    """Profile the project's models on the highest processors it may use, or on CUDA device 0.

    Run times are measured on each of `cores`, with as many threads as cores; with several core
    counts, performance models are fitted. A core is `core_share` of a processor; below 1, the
    quota of a control group enforces it. `front_end` works next to the models while they are
    timed, and is measured itself.

    `progress(what, share)` gets what was done and the share of all work. The profile's `project`
    is relative to `folder`, where the profile will be written; without a folder it is absolute.
    Answers of endpoints are kept next to `folder` until `runtime/paid.py` deletes them; `notice`
    gets a message when measuring continues from kept answers.

    Raises `ModelFailed` or `InvalidInput` naming the model that cannot be loaded, raises, answers
    wrong rows or an unusable certainty.
    """
    import uvloop

    project_path = project_path.resolve()
    project = read_project(project_path)
    counts = _core_counts(cores, core_share, project, where=str(project_path))
    samples = load_samples(project, project_path.parent)
    require_askable(project, samples)
    split_parts(np.arange(len(samples)) if samples.groups is None else samples.groups, seed)  # fails early
    paid = PaidWork(folder)
    measured = run_in_own_loop(
        _measure_all(project, project_path, samples, progress, seed, front_end, counts, core_share, paid, notice),
        loop_factory=uvloop.new_event_loop,
    )
    curves = tuple(curve for one in measured for curve in one.curves)
    answers = {one.model: one.answers for one in measured if one.answers is not None}
    exits = {model: answer.exit_segment for model, answer in answers.items() if answer.exit_segment is not None}
    outputs, left_out = common_outputs(
        {model: answer.outputs for model, answer in answers.items()}, {one.model: one.classes for one in measured}
    )
    records = records_from_answers(tuple(answers), answers, samples, seed, strongest=strongest_model(curves, exits))
    return Profile(
        operator=project.operator,
        curves=curves,
        predictions=without_unusable(records, answers),
        warnings=(
            *filter(None, (quota_warning(max(counts) + 1, "profiling", quota=quota_cores()),)),
            *dict.fromkeys(sentence for one in measured for sentence in one.warnings),
            *left_out,
            *unusable_counted(answers),
            *doubts_about(records),
        ),
        inputs=tuple(spec_of(name, array) for name, array in samples.arrays.items()),
        outputs=outputs,
        loaded_from=tuple(
            LoadedFrom(model=one.model, settings=settings_of(project, one.model), files=dict(one.files))
            for one in measured
            if one.answers is not None
        ),
        certainty=project.certainty,
        performance=performance_models(curves),
        front_end_s=_mean([one.front_end.mean_s for one in measured]),
        router_s=_mean([one.front_end.router_s for one in measured]),
        project=str(project_path) if folder is None else os.path.relpath(project_path, folder.resolve()),
    )


def _mean(seconds: Sequence[float]) -> float:
    """The mean of the values above 0, as 0 means not measured; 0 if there are none."""
    return float(np.mean([one for one in seconds if one > 0] or [0.0]))


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredModel:
    """Run times of a model's segments, its answers if requested, and the front end's time.

    `warnings` name disturbances and answers that depend on their batch; `files` are the model's.
    """

    curves: tuple[RunTimeCurve, ...]
    answers: Predicted | None
    front_end: FrontEndTime
    warnings: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    classes: tuple[str, ...] = ()

    @property
    def model(self) -> str:
        return self.curves[0].model


def _core_counts(cores: Sequence[int], core_share: float, project: Project, *, where: str) -> tuple[int, ...]:
    counts = tuple(sorted(set(cores)))
    require(0.05 <= core_share <= 1, f"core_share is {core_share:g}", remedy="give 0.05 to 1")
    there = int(usable_processors() / core_share + 1e-9)
    require(
        len(counts) >= 1 and counts[0] >= 1 and counts[-1] <= there,
        f"cores {', '.join(map(str, counts))} are to be measured, and this process may use {there}",
        where=where,
        remedy=f"give numbers from 1 to {there}",
    )
    sizes = len(set(project.profile.batch_sizes))
    require(
        len(counts) == 1 or sizes >= LEAST_BATCH_SIZES,
        f"{sizes} batch sizes on {len(counts)} core counts are too few for a performance model",
        where=where,
        remedy=f"give at least {LEAST_BATCH_SIZES} batch_sizes in [profile]",
    )
    return counts


async def _measure_all(
    project: Project,
    project_path: Path,
    samples: Samples,
    progress: Progress,
    seed: int,
    front_end: FrontEnd,
    core_counts: Sequence[int],
    core_share: float,
    paid: PaidWork,
    notice: Notice,
) -> list[MeasuredModel]:
    """Measure all models per core count, in one worker or one each, as they will be served.

    Remote models have their own worker, on a device of kind `remote`, whose cores do not matter.
    Answers are recorded on the first core count.
    """
    groups = _groups(project)
    rounds = [
        (group, kind, count)
        for count in core_counts
        for group, kind in groups
        if kind != REMOTE or count == core_counts[0]
    ]
    cores_before = processors_of()
    measured: dict[tuple[str, int], MeasuredModel] = {}
    try:
        for done, (group, kind, count) in enumerate(rounds):

            def told(what: str, share: float, done: int = done) -> None:
                progress(what, (done + share) / len(rounds))

            devices = {one: Device(id=one, kind=one, cores=1 if one == REMOTE else count) for _, one in groups}
            hardware = on_processors(Hardware(devices=tuple(devices.values())), core_share)
            cores = assign_cores(hardware, sorted(cores_before))[kind]
            pin(router_cores(hardware, sorted(cores_before)))
            first = count == core_counts[0]
            quota = count * core_share if core_share < 1 and kind != REMOTE else None
            at_endpoints = group if kind == REMOTE else []
            kept = Kept(paid, project, project_path.parent, at_endpoints, samples, seed)
            if kept.found:
                notice(f"going on with {kept.found} in {paid.folder}")
            for one in await _measure(
                group,
                project,
                project_path,
                samples,
                told,
                devices[kind],
                cores,
                quota,
                seed,
                front_end,
                kept,
                predict=first,
            ):
                measured[one.model, count] = one
    finally:
        pin(cores_before)
    return [measured[name, count] for count in core_counts for name in project.models if (name, count) in measured]


def _groups(project: Project) -> list[tuple[list[str], str]]:
    """Groups of models that share a worker, with the kind of device that they are measured on."""
    remote = [name for name in project.models if is_remote_model(project, name)]
    local = [name for name in project.models if name not in remote]
    kinds = [(local, project.profile.device_kind), (remote, REMOTE)]
    if project.profile.together:
        return [(names, kind) for names, kind in kinds if names]
    return [([name], kind) for names, kind in kinds for name in names]


async def _measure(
    names: list[str],
    project: Project,
    project_path: Path,
    samples: Samples,
    progress: Progress,
    device: Device,
    cores: frozenset[int],
    quota: float | None,
    seed: int,
    front_end: FrontEnd,
    kept: Kept,
    *,
    predict: bool,
) -> list[MeasuredModel]:
    sizes = tuple(sorted(set(project.profile.batch_sizes)))
    bench = Bench(names, cores=cores, device_kind=device.kind)
    progress("loading models", 0.0)
    try:
        memory_bytes = await bench.start(project_path, samples, warm_up_rows=sizes[-1:])
        _require_labels_among_classes(bench.loaded, samples)
        held = nullcontext() if quota is None else bounded(bench.pid, quota)
        async with front_end(samples) as front_end_time, Turnaround(sizes[-1]) as turnaround:
            disturbance = Disturbance(cores, bench.pid)
            with held:
                timings = await _time_sizes(bench, turnaround, sizes, project.profile, samples, progress, seed, kept)
        disturbed = "" if device.kind == REMOTE else disturbance.warning()
        answers: dict[str, Predicted] = {}
        warnings: dict[str, list[str]] = {}
        for done, name in enumerate(names if predict else ()):

            def told(share: float, name: str = name, done: int = done) -> None:
                progress(
                    f"predicting with {name}", SHARE_OF_TIMING + (1 - SHARE_OF_TIMING) * (done + share) / len(names)
                )

            answers[name] = await _predict_all(bench, name, sizes[-1], samples, told, kept)
            if device.kind != REMOTE:  # answers of remote models cost money
                warnings[name] = await _in_other_batches(bench, name, answers[name], project.profile, samples, seed)
    finally:
        await bench.stop()
    measured = []
    for name in names:
        runs, trips = timings[name]
        per_batch_s, per_request_s = fit_overheads(sizes, trips, [run.sum(axis=1) for run in runs])
        given_mib = project.models[name].memory_mib
        require(
            given_mib is not None or memory_bytes[name] > 0,
            f"the memory that model {name!r} takes on device kind {device.kind!r} cannot be measured",
            where=str(project_path),
            remedy=f"give memory_mib in [models.{name}]",
        )
        whole_bytes = memory_bytes[name] if given_mib is None else round(given_mib * (1 << 20))
        curves = tuple(
            curve_from_timings(
                name,
                sizes,
                [run[:, segment] for run in runs],
                device_kind=device.kind,
                cores=device.cores,
                segment=segment,
                memory_bytes=whole_bytes if segment == 0 else 0,
                overhead_per_batch_s=per_batch_s if segment == 0 else 0.0,
                overhead_per_request_s=per_request_s if segment == 0 else 0.0,
            )
            for segment in range(runs[0].shape[1])
        )
        told_of = (*filter(None, (disturbed,)), *warnings.get(name, ()))
        measured.append(
            MeasuredModel(
                curves, answers.get(name), front_end_time, told_of, bench.loaded[name].files, bench.loaded[name].classes
            )
        )
    return measured


def _require_labels_among_classes(loaded: Mapping[str, Loaded], samples: Samples) -> None:
    if samples.labels is not None:
        labels = class_names(samples.labels)
        for name, one in loaded.items():
            if one.classes:
                require_common_class(name, np.array(one.classes), labels, where="samples, labels")


Timings = list[NDArray[np.float64]]


async def _time_sizes(
    bench: "Bench",
    turnaround: Turnaround,
    sizes: Sequence[int],
    how: ProfileSettings,
    samples: Samples,
    progress: Progress,
    seed: int,
    kept: Kept,
) -> dict[str, tuple[Timings, Timings]]:
    """Time runs and round trips per model and batch size over real samples; drop each first one.

    Runs are (repeats, segments), round trips (repeats,); no sample leaves a model with learned
    caches early. Models and sizes are timed in rounds of random order, half of the batches after a
    pause, with the front end's work going on, so that each batch finds processor and caches as it
    would when served. A model of 0.3 ms per sample was seen to take twice as long after a pause of
    3 ms, and half as long again next to a busy core. A round trip ends when a service would have
    started the next batch, because the device waits until then.
    """
    generator = np.random.default_rng([seed, 3])
    rows = itertools.cycle(range(len(samples)))
    timed: dict[tuple[str, int], list[tuple[tuple[float, ...], float]]] = {
        (n, s): [] for n in bench.names for s in sizes
    }
    spent_s = dict.fromkeys(timed, 0.0)
    pairs = list(timed)
    for done in range(how.repeats + 1):
        for i in generator.permutation(len(pairs)).tolist():
            name, size = pairs[i]
            if spent_s[name, size] > how.longest_s and len(timed[name, size]) >= LEAST_REPEATS:
                continue
            chosen = [next(rows) for _ in range(size)]
            paused = generator.random() < SHARE_OF_PAUSES
            pause_s = generator.random() * LONGEST_PAUSE_S if paused else None

            async def run(name: str = name, chosen: list[int] = chosen, pause_s: float | None = pause_s) -> Timed:
                turnaround.hold(len(chosen))
                if pause_s is not None:
                    await asyncio.sleep(pause_s)
                _, run_s, trip_s = await bench.run(name, samples, chosen, through=True, then=turnaround.turn)
                return run_s, trip_s

            run_s, trip_s = await kept.runs.run(size, run)
            spent_s[name, size] += trip_s
            if done > 0:
                timed[name, size].append((run_s, trip_s))
        progress("timing batches", SHARE_OF_TIMING * (done + 1) / (how.repeats + 1))
    return {
        name: (
            [np.array([run_s for run_s, _ in timed[name, size]]) for size in sizes],
            [np.array([trip_s for _, trip_s in timed[name, size]]) for size in sizes],
        )
        for name in bench.names
    }


async def _predict_all(
    bench: "Bench", name: str, size: int, samples: Samples, progress: Callable[[float], None], kept: Kept
) -> Predicted:
    answered = dict(kept.answered(name))
    left = [row for row in range(len(samples)) if row not in answered]
    for begin in range(0, len(left), size):
        rows = left[begin : begin + size]
        batch, _, _ = await bench.run(name, samples, rows, keep=lambda *said, rows=rows: kept.keep(name, rows, *said))
        answered.update(zip(rows, batch, strict=True))
        progress(len(answered) / len(samples))
    finished = [answered[row] for row in range(len(samples))]
    try:
        outputs = stack_results(finished)
    except (KeyError, ValueError) as error:
        raise ModelFailed(f"model {name!r} answers outputs of different names or shapes from batch to batch") from error
    exits = np.array([sample.exit_segment for sample in finished]) if name in bench.segmented else None
    certainty = np.array([sample.certainty for sample in finished])
    unusable = np.array([sample.unanswered for sample in finished])
    return Predicted(outputs, certainty, exit_segment=exits, unusable=unusable if unusable.any() else None)


async def _in_other_batches(
    bench: "Bench", name: str, answers: Predicted, how: ProfileSettings, samples: Samples, seed: int
) -> list[str]:
    async def run(rows: list[int]) -> tuple[list[Sample], float]:
        batch, _, trip_s = await bench.run(name, samples, rows)
        return batch, trip_s

    sizes = sorted(set(how.batch_sizes))
    return await found_in_other_batches(name, run, answers, sizes, seed=seed, longest_s=how.longest_s)


class Bench:
    """Models in one worker, run batch by batch as the server does."""

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
            project=str(project_path),
            replicas=replicas,
            inputs=tuple(spec_of(name, array) for name, array in samples.arrays.items()),
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
        payloads = rows_of(samples.batch(np.array(rows)), len(rows))
        batch = [Sample(request, row, row, payload) for row, payload in zip(rows, payloads, strict=True)]
        self._finished, self._running = asyncio.get_running_loop().create_future(), name
        begun = time.perf_counter()
        parts, buffers = assemble(batch)
        self._batch = batch
        message = Run(batch=next(self._batch_ids), replica=self.names.index(name), parts=parts, through=through)
        self._worker.run(message, buffers)
        done, body = await self._finished
        settle(batch, done, body, name)
        then()
        trip_s = time.perf_counter() - begun - done.waited_s
        count_as_wrong(batch, done)
        if done.parts or done.unusable:
            keep(done, body)
        self._judge_usable(name, done, len(rows))
        failed = [row for row in done.failed if row not in done.unusable]
        if failed:
            raise ModelFailed(
                f"model {name!r} failed on {len(failed)} of {len(rows)} samples, "
                f"first on sample {rows[failed[0]]}: {done.first_failure}"
            )
        if done.first_failure and not done.unusable:
            raise ModelFailed(f"model {name!r} failed on a batch of {len(rows)} samples: {done.first_failure}")
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
