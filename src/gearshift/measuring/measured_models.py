"""Measures the models that share a worker on one core count: their run times, and their answers."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray

from gearshift.errors import require
from gearshift.hardware import REMOTE, Device
from gearshift.measuring.answers import answers_to_all, found_in_other_batches, predicted_of
from gearshift.measuring.bench import Bench
from gearshift.measuring.paid import Kept, PaidWork
from gearshift.measuring.timing import BatchTimer, Disturbance, Timings, curve_from_timings, fit_overheads
from gearshift.measuring.turnaround import Turnaround
from gearshift.model import Arrays, Predicted
from gearshift.models.classes import class_names
from gearshift.models.config import ModelSettings, Project, models_of
from gearshift.models.samples import Samples
from gearshift.profiles.doubts import require_common_class
from gearshift.profiles.profile import RunTimeCurve
from gearshift.request import Sample
from gearshift.runtime.actuators.cgroup import bounded
from gearshift.runtime.wire.messages import Loaded

SHARE_OF_TIMING = 0.4
"""Share of the progress; the rest is for predictions."""

Progress = Callable[[str, float], None]


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


@dataclass(frozen=True, slots=True, eq=False)
class Assignment:
    """An operator of a project, and the samples for which it is measured next to `front_end`.

    `part` (n,) is the part of each sample; without it samples are split by their groups.
    """

    project: Project
    operator: str
    path: Path
    samples: Samples
    seed: int
    front_end: FrontEnd
    paid: PaidWork
    part: NDArray[np.int8] | None = None

    @property
    def is_function(self) -> bool:
        return bool(self.project.operators[self.operator].function)

    @property
    def models(self) -> Mapping[str, ModelSettings]:
        return models_of(self.operator, self.project.operators[self.operator])

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(sorted(set(self.project.profile.batch_sizes)))


@dataclass(frozen=True, slots=True, eq=False)
class Round:
    """The models of one worker, on the `cores` of a device; `quota` bounds these where it is set."""

    names: Sequence[str]
    device: Device
    cores: frozenset[int]
    quota: float | None

    @property
    def is_remote(self) -> bool:
        return self.device.kind == REMOTE


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredModel:
    """Run times of a model's segments, its answers if requested, and the front end's time.

    `results` are a function's outputs for each item, in place of `answers`. `warnings` name
    disturbances and answers that depend on their batch; `files` are the model's.
    """

    curves: tuple[RunTimeCurve, ...]
    answers: Predicted | None
    front_end: FrontEndTime
    warnings: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    classes: tuple[str, ...] = ()
    results: tuple[Arrays, ...] = ()

    @property
    def model(self) -> str:
        return self.curves[0].model


async def measure_round(
    task: Assignment,
    group: Round,
    progress: Progress,
    *,
    kept: Kept,
    predicts: bool,
    timed: Callable[[], None] = lambda: None,
) -> list[MeasuredModel]:
    """Time the models, then call `timed`, and have them predict."""
    bench = Bench(group.names, cores=group.cores, device_kind=group.device.kind)
    progress("loading models", 0.0)
    answers: dict[str, Predicted] = {}
    results: dict[str, tuple[Arrays, ...]] = {}
    warnings: dict[str, list[str]] = {}
    try:
        memory_bytes = await bench.start(task.path, task.samples, warm_up_rows=task.sizes[-1:])
        _require_labels_among_classes(bench.loaded, task.samples)
        timings, front_end_time, disturbed = await _timed(task, group, bench, progress, kept)
        timed()
        for done, name in enumerate(group.names if predicts else ()):

            def told(share: float, name: str = name, done: int = done) -> None:
                predicted = (done + share) / len(group.names)
                progress(f"predicting with {name}", SHARE_OF_TIMING + (1 - SHARE_OF_TIMING) * predicted)

            finished = await answers_to_all(bench, name, task.sizes[-1], task.samples, told, kept)
            if task.is_function:
                results[name] = tuple(cast("Arrays", sample.result) for sample in finished)
                continue
            answers[name] = predicted_of(name, finished, segmented=name in bench.segmented)
            if not group.is_remote:  # answers of remote models cost money
                warnings[name] = await _in_other_batches(task, bench, name, answers[name])
    finally:
        await bench.stop()
    return [
        MeasuredModel(
            curves=_curves(task, group.device, bench.loaded[name].load_s, name, timings[name], memory_bytes[name]),
            answers=answers.get(name),
            front_end=front_end_time,
            warnings=(*filter(None, (disturbed,)), *warnings.get(name, ())),
            files=bench.loaded[name].files,
            classes=bench.loaded[name].classes,
            results=results.get(name, ()),
        )
        for name in group.names
    ]


async def _timed(
    task: Assignment, group: Round, bench: Bench, progress: Progress, kept: Kept
) -> tuple[dict[str, tuple[Timings, Timings]], FrontEndTime, str]:
    """Run times and round trips by model, the front end's time, and a warning of other programs."""
    held = nullcontext() if group.quota is None else bounded(bench.pid, group.quota)

    def told(share: float) -> None:
        progress("timing batches", SHARE_OF_TIMING * share)

    async with task.front_end(task.samples) as front_end_time, Turnaround(task.sizes[-1]) as turnaround:
        disturbance = Disturbance(group.cores, bench.pid)
        timer = BatchTimer(bench, turnaround, task.samples, kept.runs)
        with held:
            timings = await timer.times(task.sizes, task.project.profile, task.seed, told)
    return timings, front_end_time, "" if group.is_remote else disturbance.warning()


def _curves(
    task: Assignment, device: Device, load_s: float, name: str, timings: tuple[Timings, Timings], memory_bytes: int
) -> tuple[RunTimeCurve, ...]:
    runs, trips = timings
    per_batch_s, per_request_s = fit_overheads(task.sizes, trips, [run.sum(axis=1) for run in runs])
    given_mib = task.models[name].memory_mib
    require(
        given_mib is not None or memory_bytes > 0,
        f"the memory that model {name!r} takes on device kind {device.kind!r} cannot be measured",
        where=str(task.path),
        remedy=f"give memory_mib in [models.{name}]",
    )
    whole_bytes = memory_bytes if given_mib is None else round(given_mib * (1 << 20))
    return tuple(
        curve_from_timings(
            name,
            task.sizes,
            [run[:, segment] for run in runs],
            device_kind=device.kind,
            cores=device.cores,
            segment=segment,
            memory_bytes=whole_bytes if segment == 0 else 0,
            overhead_per_batch_s=per_batch_s if segment == 0 else 0.0,
            overhead_per_request_s=per_request_s if segment == 0 else 0.0,
            load_s=max(0.0, load_s) if segment == 0 else UNSET,
        )
        for segment in range(runs[0].shape[1])
    )


def _require_labels_among_classes(loaded: Mapping[str, Loaded], samples: Samples) -> None:
    if samples.labels is not None:
        labels = class_names(samples.labels)
        for name, one in loaded.items():
            if one.classes:
                require_common_class(name, np.array(one.classes), labels, where="samples, labels")


async def _in_other_batches(task: Assignment, bench: Bench, name: str, answers: Predicted) -> list[str]:
    async def run(rows: list[int]) -> tuple[list[Sample], float]:
        batch, _, trip_s = await bench.run(name, task.samples, rows)
        return batch, trip_s

    longest_s = task.project.profile.longest_s
    return await found_in_other_batches(name, run, answers, task.sizes, seed=task.seed, longest_s=longest_s)
