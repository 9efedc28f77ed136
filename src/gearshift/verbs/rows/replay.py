"""Send traces to the pipelines of a server or of a plan, with recorded samples, and measure."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from gearshift.errors import InvalidInput, require
from gearshift.gear import GearPlan
from gearshift.load_generator.targets import Sending
from gearshift.models.config import project_file, read_project
from gearshift.pipeline import Node
from gearshift.profiles.curves import strongest_model
from gearshift.profiles.pipelines.profile_folder import holds_profiles, read_profiles
from gearshift.profiles.profile import PART_B, Profile
from gearshift.profiles.store import NAME_IT, read_profile
from gearshift.profiles.tuples import JointRecords
from gearshift.support.files import PathLike
from gearshift.verbs.common.inputs import Notice, noted, pipeline_of, trace_for, traces_of, workload_on
from gearshift.verbs.common.options import Backend
from gearshift.verbs.common.sending import Sent, Traces, plan_at
from gearshift.workload import Trace

if TYPE_CHECKING:
    from gearshift.load_generator.in_process import InProcessServer
    from gearshift.load_generator.replay import Stream
    from gearshift.load_generator.replay_result import Replay
    from gearshift.load_generator.sources import SampleSource
    from gearshift.load_generator.targets import Target
    from gearshift.serving.rows.task import ServingTask
    from gearshift.traces.network import Uplink

_NAME_IT = f"{NAME_IT}; a server of models without a plan has it in `--keep FOLDER`, as FOLDER/profile"


def replay(
    target: PathLike,
    traces: Traces,
    *,
    profile: Profile | PathLike | None = None,
    project: PathLike | None = None,
    emulated: bool = False,
    model: str | None = None,
    slo_s: float | None = None,
    seed: int | None = None,
    uplink: "Uplink | None" = None,
    notice: Notice = noted,
    **how: Any,
) -> "dict[str, Replay]":
    """As `gearshift.replay`, by pipeline; `how` is as of `sender`."""
    from gearshift.load_generator.in_process import InProcessServer
    from gearshift.support.processors import pinned

    to: str | InProcessServer = str(target)
    path, limits_s, cores = plan_at(target), dict[str, float | None](), None
    if path is None:
        require(bool(traces), "no trace is given", where=str(target), remedy="give one of each with --trace NAME=FILE")
        several, arrivals, recorded = len(traces) > 1, {}, {}
        for name, trace in traces.items():
            read = trace_for(None, target, trace, seed=seed, notice=notice)
            found = recorded_in(profile, name, project, emulated=emulated, model=model, several=several)
            arrivals[found.source.operator], recorded[found.source.operator] = read, found
    else:
        task = task_at(path, "emulated" if emulated else "local", profile, project)
        arrivals = traces_of(task.plan, path, traces, only=model, seed=seed, notice=notice)
        recorded, to, cores = recorded_for(task, only=model), InProcessServer(task), task.router_cores
        if len(task.plan.pipelines) > 1 or "" not in traces:
            limits_s = objectives_s(task.plan)
    if slo_s is not None:
        limits_s = dict.fromkeys(recorded, slo_s)
    send = sender(streams_of(recorded, arrivals, limits_s, seed=seed, uplink=uplink), **how)
    with pinned(cores):
        return send(to)


def sender(
    streams: "Mapping[str, Stream]",
    *,
    processes: int = 1,
    devices: int = 0,
    largest_lateness_s: float | None = None,
    progress: Sent | None = None,
    **how: Any,
) -> "Callable[[str | InProcessServer], dict[str, Replay]]":
    """What sends the streams to a URL or within this process, all on one clock; `how` is as of `Sending`.

    Raises `InvalidInput` for options that do not fit.
    """
    from gearshift.load_generator.http_target import target_at
    from gearshift.load_generator.in_process import InProcessTarget
    from gearshift.load_generator.replay import run_replay, run_replay_together

    require(
        processes == 1 or len(streams) == 1, "several traces are sent by one process", remedy="leave --processes out"
    )
    how |= {name: str(value) for name, value in how.items() if isinstance(value, Path)}
    sending = Sending(**how)
    measuring: dict[str, Any] = {
        "sending": sending,
        "devices": devices,
        "largest_lateness_s": largest_lateness_s,
        "progress": progress,
    }

    def target(to: "str | InProcessServer", name: str, stream: "Stream") -> "Target":
        plain = sending if stream.deadline_s(sending) is None else msgspec.structs.replace(sending, deadline_s=None)
        if isinstance(to, str):
            return target_at(to, name, stream.source.output, plain)
        return InProcessTarget(to, name, stream.source.output, plain)

    def send(to: "str | InProcessServer") -> "dict[str, Replay]":
        if len(streams) > 1:
            return run_replay_together(
                {name: target(to, name, streams[name]) for name in streams}, streams, **measuring
            )
        ((name, one),) = streams.items()
        run = run_replay(
            to if isinstance(to, str) else target(to, name, one),
            one.workload,
            one.source,
            processes=processes,
            slo_s=one.slo_s,
            under_way_s=one.under_way_s,
            **measuring,
        )
        return {name: run}

    return send


def task_at(
    plan: Path,
    backend: Backend,
    profile: Profile | PathLike | None,
    project: PathLike | None,
    cores: frozenset[int] | None = None,
) -> "ServingTask":
    """What a server of the plan would have, on these cores."""
    from gearshift.serving.rows.task import read_task

    if isinstance(profile, Profile):
        raise InvalidInput("a plan file is served with a profile on disk", remedy="name its folder")
    return read_task(
        plan,
        backend,
        profile_path=None if profile is None else Path(profile),
        project_path=None if project is None else Path(project),
        available=None if cores is None else sorted(cores),
    )


def objectives_s(plan: GearPlan) -> dict[str, float | None]:
    return {name: pipeline.objective.latency_s for name, pipeline in plan.pipelines.items()}


def streams_of(
    recorded: "Mapping[str, Recorded]",
    arrivals: Mapping[str, Trace],
    limits_s: Mapping[str, float | None],
    *,
    seed: int | None,
    uplink: "Uplink | None" = None,
) -> "dict[str, Stream]":
    """The requests to each pipeline, which are late after `limits_s`, if it has one."""
    from gearshift.load_generator.replay import Stream

    streams = {}
    for name, one in recorded.items():
        workload, under_way_s = workload_on(one.records, arrivals[name], seed=seed), None
        if uplink is not None:
            arrived = replace(uplink, slo_s=None).carry(workload)  # only the trace's own deadlines are sent
            workload, under_way_s = arrived.workload, arrived.communication_s
        streams[name] = Stream(workload=workload, source=one.source, slo_s=limits_s.get(name), under_way_s=under_way_s)
    return streams


class Recorded(NamedTuple):
    """A pipeline's recorded samples, or tuples, and the numbers of those of part B."""

    source: "SampleSource"
    records: NDArray[np.int32]


def recorded_for(task: "ServingTask", *, only: str | None = None) -> dict[str, Recorded]:
    """The requests for each pipeline of a plan, or for `only` one."""
    from gearshift.serving.rows.make_passing import joint_records_of

    joint, emulated, drawn = joint_records_of(task, only), task.backend == "emulated", dict[str, Recorded]()
    for name, pipeline in task.plan.pipelines.items():
        if only in (None, name):
            served = task.operators[pipeline.nodes[pipeline.output].operator]
            drawn[name] = _recorded(
                name,
                pipeline.nodes,
                joint.get(name),
                task.profiles,
                served.profile,
                served.folder,
                served.project,
                emulated,
            )
    return drawn


def recorded_in(
    profile: Profile | PathLike | None,
    name: str,
    project: PathLike | None,
    *,
    emulated: bool,
    model: str | None,
    several: bool,
) -> Recorded:
    """The requests for pipeline `name`, or `model`, or the only one, of a server whose profile is known.

    Profiles of `several` are in folders of their names.
    """
    folder = Path() if isinstance(profile, Profile) else Path("profile" if profile is None else profile)
    if isinstance(profile, Profile) or not holds_profiles(folder):
        place = folder / name if several or (folder / name).is_dir() else folder
        only = profile if isinstance(profile, Profile) else read_profile(place, remedy=_NAME_IT)
        return _recorded(name or model or only.operator, {}, None, {}, only, place, project, emulated)
    measured, asked = read_profiles(folder), name or model
    if asked is None and len(measured.pipelines) == 1:
        asked = next(iter(measured.pipelines))
    known = measured.pipelines.get(asked or "")
    if known is None or len(known.nodes) > 1:
        asked = pipeline_of(measured, asked)
    pipeline, profiles = measured.pipelines[str(asked)], measured.operators
    operator = pipeline.nodes[pipeline.output].operator
    joint = measured.tuples[str(asked)] if len(pipeline.nodes) > 1 else None
    return _recorded(
        str(asked), pipeline.nodes, joint, profiles, profiles[operator], folder / operator, project, emulated
    )


def _recorded(
    name: str,
    nodes: Mapping[str, Node],
    joint: JointRecords | None,
    profiles: Mapping[str, Profile],
    profile: Profile,
    folder: Path,
    project: PathLike | None,
    emulated: bool,
) -> Recorded:
    """The tuples of a graph, or the samples of `profile`, which is that of its output's operator in `folder`."""
    from gearshift.load_generator.tuples_source import source_from_tuples

    if joint is None:
        source = source_of(profile, folder, project=project, emulated=emulated, name=name)
        return Recorded(source, profile.predictions.indices(PART_B))
    code = None if emulated else _project_of(profile, folder, project)
    return Recorded(source_from_tuples(name, nodes, joint, profiles, code), joint.indices(PART_B))


def source_of(
    profile: Profile, folder: Path, *, project: PathLike | None, emulated: bool, name: str = ""
) -> "SampleSource":
    """The samples of a profile in `folder` with their right answers, or recorded sample numbers.

    `name` is that of the pipeline, by default its operator's. Without labels, the strongest
    model's answers count as right.
    """
    from gearshift.load_generator.sources import source_from_records, source_from_samples
    from gearshift.models.samples import load_samples

    if emulated:
        return source_from_records(profile.predictions, name or profile.operator)
    path = _project_of(profile, folder, project)
    read = read_project(path)
    served = (name or profile.operator) if len(read.served) > 1 else None
    samples = load_samples(read, path.parent, served)
    labels: Any = samples.labels
    if labels is None:
        answers = profile.predictions.prediction
        require(answers is not None, "the samples have no labels to judge answers by", where=str(path))
        labels = answers[profile.predictions.rows((strongest_model(profile.whole_curves),))[0]]  # type: ignore[index]
    return source_from_samples(samples.arrays, labels, name or profile.operator)


def _project_of(profile: Profile, folder: Path, project: PathLike | None) -> Path:
    if project is None and profile.project is None:
        raise InvalidInput(
            "the profile was imported and names no project to take samples from",
            remedy="replay against emulated devices with --emulated, or name a project",
        )
    return project_file(Path(project)) if project is not None else folder / str(profile.project)
