"""Profiles a project: measures each of its models alone in a real worker, and records its answers."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from msgspec.structs import replace as replaced

from gearshift.errors import require
from gearshift.hardware import REMOTE, Device, Hardware, is_cuda
from gearshift.measuring.answers import records_from_answers, unusable_counted, without_unusable
from gearshift.measuring.functions import function_outputs, function_records
from gearshift.measuring.measured_models import (
    Assignment,
    FrontEnd,
    MeasuredModel,
    Progress,
    Round,
    measure_round,
    no_front_end,
)
from gearshift.measuring.paid import Kept, PaidWork
from gearshift.model import TensorSpec
from gearshift.models.config import ProfileSettings, Project, read_project
from gearshift.models.declared_outputs import common_outputs
from gearshift.models.loaded_from import LoadedFrom, settings_of
from gearshift.models.samples import load_samples
from gearshift.profiles.curves import performance_models, strongest_model
from gearshift.profiles.doubts import doubts_about, doubts_about_number
from gearshift.profiles.performance_model import LEAST_BATCH_SIZES
from gearshift.profiles.profile import PredictionRecords, Profile, split_parts
from gearshift.runtime.actuators.cgroup import quota_cores, quota_warning
from gearshift.runtime.backends.local import assign_cores, router_cores
from gearshift.runtime.cores.local_cores import on_processors
from gearshift.runtime.remote.models import is_remote_model, require_askable
from gearshift.support.event_loop import run_in_own_loop
from gearshift.support.processors import machine_in_words, pin, processors_of, usable_processors

Notice = Callable[[str], None]


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
    how: ProfileSettings | None = None,
    most_samples: int | None = None,
    timed: Callable[[], None] = lambda: None,
) -> Profile:
    """Profile the project's models on the highest processors it may use, or on CUDA device 0.

    Run times are measured on each of `cores`, with as many threads as cores; with several core
    counts, performance models are fitted. A core is `core_share` of a processor; below 1, the
    quota of a control group enforces it. `front_end` works next to the models while they are
    timed, and is measured itself.

    `progress(what, share)` gets what was done and the share of all work. The profile's `project`
    is relative to `folder`, where the profile will be written; without a folder it is absolute.
    Answers of endpoints are kept next to `folder` until `paid.py` deletes them; `notice`
    gets a message when measuring continues from kept answers. `how`, but for its kind of device,
    takes the place of the project's settings; of more than `most_samples` so many are drawn by `seed`.
    `timed` is called when nothing is left to be timed: other work does not disturb any more.

    Raises `ModelFailed` or `InvalidInput` naming the model that cannot be loaded, raises, answers
    wrong rows or an unusable certainty.
    """
    project_path = project_path.resolve()
    project = _measured_by(how, read_project(project_path))
    require(
        len(project.operators) == 1 and not project.pipelines,
        f"the project has operators {', '.join(project.operators)} and pipelines {', '.join(project.served)}",
        where=str(project_path),
        remedy="call profile_pipelines",
    )
    measuring = Measuring(
        core_counts(cores, core_share, project, where=str(project_path)), core_share, progress, notice, timed
    )
    samples = load_samples(project, project_path.parent)
    if most_samples is not None and len(samples) > most_samples:
        samples = samples.some(np.sort(np.random.default_rng([seed, 5]).permutation(len(samples))[:most_samples]))
    (operator,) = project.operators
    task = Assignment(project, operator, project_path, samples, seed, front_end, PaidWork(folder))
    return profile_operator(task, measuring, folder)[0]


def _measured_by(how: ProfileSettings | None, project: Project) -> Project:
    if how is None:
        return project
    return replaced(project, profile=replaced(how, device_kind=project.profile.device_kind))


@dataclass(frozen=True, slots=True)
class Measuring:
    """Core counts to measure on, the share of a processor that a core is, and whom to tell."""

    core_counts: Sequence[int]
    core_share: float
    progress: Progress
    notice: Notice
    timed: Callable[[], None] = lambda: None


def profile_operator(task: Assignment, how: Measuring, folder: Path | None) -> tuple[Profile, Sequence[MeasuredModel]]:
    """Measure the models or the function of one operator; as `profile_project`, with the raw answers."""
    import uvloop

    samples = task.samples
    require_askable(task.models, samples)
    if task.part is None:
        split_parts(np.arange(len(samples)) if samples.groups is None else samples.groups, task.seed)  # fails early
    measured = run_in_own_loop(_measure_all(task, how), loop_factory=uvloop.new_event_loop)
    quota = quota_warning(max(how.core_counts) + 1, "profiling", quota=quota_cores())
    make = _profile_of_function if task.is_function else _profile_of_models
    return make(task, measured, quota, folder), measured


def _profile_of_function(
    task: Assignment, measured: Sequence[MeasuredModel], quota: str, folder: Path | None
) -> Profile:
    results = next(one.results for one in measured if one.results)
    records = function_records(task.operator, results, task.samples, task.part, task.seed)
    warnings = dict.fromkeys(sentence for one in measured for sentence in one.warnings)
    return _profile(task, measured, records, function_outputs(results), (quota, *warnings), folder)


def _profile_of_models(task: Assignment, measured: Sequence[MeasuredModel], quota: str, folder: Path | None) -> Profile:
    samples = task.samples
    curves = tuple(curve for one in measured for curve in one.curves)
    answers = {one.model: one.answers for one in measured if one.answers is not None}
    exits = {model: answer.exit_segment for model, answer in answers.items() if answer.exit_segment is not None}
    outputs, left_out = common_outputs(
        {model: answer.outputs for model, answer in answers.items()}, {one.model: one.classes for one in measured}
    )
    strongest = strongest_model(curves, exits)
    records = records_from_answers(tuple(answers), answers, samples, task.seed, strongest=strongest)
    if task.part is not None:
        records = replace(records, part=task.part)
    warnings = (
        quota,
        *dict.fromkeys(sentence for one in measured for sentence in one.warnings),
        *left_out,
        *unusable_counted(answers),
        *doubts_about(records),
        *doubts_about_number(records),
    )
    return _profile(task, measured, without_unusable(records, answers), outputs, warnings, folder)


def _profile(
    task: Assignment,
    measured: Sequence[MeasuredModel],
    records: PredictionRecords,
    outputs: tuple[TensorSpec, ...],
    warnings: Sequence[str],
    folder: Path | None,
) -> Profile:
    curves = tuple(curve for one in measured for curve in one.curves)
    return Profile(
        operator=task.operator,
        curves=curves,
        predictions=records,
        warnings=tuple(filter(None, warnings)),
        inputs=task.samples.specs,
        outputs=outputs,
        loaded_from=tuple(
            LoadedFrom(model=one.model, settings=settings_of(task.project, one.model), files=dict(one.files))
            for one in measured
            if one.answers is not None or one.results
        ),
        certainty=task.project.operators[task.operator].certainty,
        performance=performance_models(curves),
        front_end_s=_mean([one.front_end.mean_s for one in measured]),
        router_s=_mean([one.front_end.router_s for one in measured]),
        notes={"machine": machine_in_words(), "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")},
        project=str(task.path) if folder is None else os.path.relpath(task.path, folder.resolve()),
    )


def _mean(seconds: Sequence[float]) -> float:
    """The mean of the values above 0, as 0 means not measured; 0 if there are none."""
    return float(np.mean([one for one in seconds if one > 0] or [0.0]))


def core_counts(cores: Sequence[int], core_share: float, project: Project, *, where: str) -> tuple[int, ...]:
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


async def _measure_all(task: Assignment, how: Measuring) -> list[MeasuredModel]:
    """Measure all models per core count, in one worker or one each, as they will be served.

    Remote models have their own worker, on a device of kind `remote`, whose cores do not matter.
    Answers are recorded on the first core count.
    """
    project, first, groups = task.project, how.core_counts[0], _groups(task)
    rounds = [
        (names, kind, count) for count in how.core_counts for names, kind in groups if kind != REMOTE or count == first
    ]
    cores_before = processors_of()
    measured: dict[tuple[str, int], MeasuredModel] = {}
    try:
        for done, (names, kind, count) in enumerate(rounds):

            def told(what: str, share: float, done: int = done) -> None:
                how.progress(what, (done + share) / len(rounds))

            devices = {one: Device(id=one, kind=one, cores=1 if one == REMOTE else count) for _, one in groups}
            hardware = on_processors(Hardware(devices=tuple(devices.values())), how.core_share)
            cores = assign_cores(hardware, sorted(cores_before))[kind]
            pin(router_cores(hardware, sorted(cores_before)))
            quota = count * how.core_share if how.core_share < 1 and kind != REMOTE else None
            paid_for = names if kind == REMOTE else []
            kept = Kept(task.paid, project, task.path.parent, paid_for, task.samples, task.seed)
            if kept.found:
                how.notice(f"going on with {kept.found} in {task.paid.folder}")
            group = Round(names, devices[kind], cores, quota)
            timed = how.timed if done == len(rounds) - 1 else lambda: None
            for one in await measure_round(task, group, told, kept=kept, predicts=count == first, timed=timed):
                measured[one.model, count] = one
    finally:
        pin(cores_before)
    return [measured[name, count] for count in how.core_counts for name in task.models if (name, count) in measured]


def _groups(task: Assignment) -> list[tuple[list[str], str]]:
    """Groups of models that share a worker, with the kind of device that they are measured on."""
    project = task.project
    remote = [name for name in task.models if is_remote_model(project, name)]
    local = [name for name in task.models if name not in remote]
    kind = project.profile.device_kind
    kinds = [(local, "cpu" if task.is_function and is_cuda(kind) else kind), (remote, REMOTE)]
    if project.profile.together:
        return [(names, kind) for names, kind in kinds if names]
    return [([name], kind) for names, kind in kinds for name in names]
