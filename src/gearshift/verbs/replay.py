"""Send a trace to a server, and measure."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypedDict, Unpack

import msgspec
import numpy as np
from numpy.typing import NDArray

from gearshift.errors import InvalidInput, require
from gearshift.load_generator.targets import DEFAULT_CONNECTIONS, LONGEST_S, Sending
from gearshift.models.config import project_file, read_project
from gearshift.plans.plan_file import read_plan
from gearshift.profiles.curves import strongest_model
from gearshift.profiles.pipelines.profile_folder import Profiles, holds_profiles, read_profiles
from gearshift.profiles.profile import PART_B, Profile
from gearshift.profiles.store import NAME_IT, read_profile
from gearshift.support.files import PathLike
from gearshift.verbs.inputs import trace_for, traces_for, workload_on
from gearshift.verbs.options import MILLISECONDS, Option
from gearshift.verbs.plan_pipeline import pipeline_of
from gearshift.workload import Trace

if TYPE_CHECKING:
    from gearshift.load_generator.replay import Stream
    from gearshift.load_generator.replay_result import Replay
    from gearshift.load_generator.sources import SampleSource
    from gearshift.load_generator.targets import Target
    from gearshift.serving.rows.task import ServingTask
    from gearshift.traces.network import Uplink

_NAME_IT = f"{NAME_IT}; a server of models without a plan has it in `--keep FOLDER`, as FOLDER/profile"

Traces = Mapping[str, Trace | PathLike]

Sent = Callable[[int, int], None]
"""Called with the number of requests that are done, and of all."""


class LoadOptions(TypedDict, total=False):
    """How load is generated."""

    processes: Annotated[int, Option("Send from this many processes.", default=1)]
    connections: Annotated[int, Option("The most requests that are under way at a time.", default=DEFAULT_CONNECTIONS)]
    longest_s: Annotated[float, Option("Give a request up after this many seconds.", default=LONGEST_S)]
    largest_lateness_s: Annotated[
        float | None,
        Option(
            "How late the generator may send at p50, p95 and p99, instead of a tenth of the latency there.",
            "--largest-lateness-ms",
            unit=MILLISECONDS,
        ),
    ]


class SendingOptions(LoadOptions, total=False):
    """How requests are sent, as in `gearshift.load_generator.targets.Sending`."""

    binary: Annotated[bool, Option("Send tensors as bytes; gRPC always does.", default=False)]
    priority: Annotated[int, Option("Send this priority; 1 is the most urgent.", default=0)]
    ca_file: Annotated[PathLike | None, Option("Trust the certificates in this PEM file.")]
    deadline_s: float | None
    facts: bool
    api_key: str | None


def replay(
    target: PathLike,
    trace: Trace | PathLike | None = None,
    profile: Annotated[
        Profile | PathLike | None,
        Option("The profile whose samples to send.  [default: profile, or the plan's]"),
    ] = None,
    *,
    project: Annotated[PathLike | None, Option("The gearshift.toml with the samples, where it has moved.")] = None,
    emulated: Annotated[bool, Option("The devices are emulated: send numbers of recorded samples.")] = False,
    model: Annotated[str | None, Option("The pipeline to send to, if not the one that the profile names.")] = None,
    slo_s: Annotated[
        float | None, Option("Requests answered later than this are late.", "--slo-ms", unit=MILLISECONDS)
    ] = None,
    seed: int | None = None,
    devices: int = 0,
    progress: Sent | None = None,
    uplink: "Uplink | None" = None,
    **how: Unpack[SendingOptions],
) -> "Replay":
    """Send the trace to a server in an open loop; returns the figures and a log of every request.

    `target` is the URL of a V2 server (http, https, grpc, grpcs), or a plan file, which is then
    served within this process, without sockets; by default the trace is the one that this plan
    names. Samples come from the project that the profile names, or from `project`; with `emulated`
    they are the numbers of recorded samples, for emulated devices. `seed` draws samples and
    arrivals, by default as for the plan. The profile is by default the plan's, or the folder
    `profile`.

    With an `uplink` the trace holds the times of sending: requests reach the server when the
    network has carried them, stamped with their time of sending. The trace's deadlines are sent
    with its requests. `model` is the name that the pipeline has there, by default that of the
    profile's operator.

    Of a graph, whole recorded requests are sent; they are judged by the recorded quality of each
    model that answered an item, as in simulation.
    """
    from gearshift.load_generator.in_process import InProcessServer, InProcessTarget
    from gearshift.load_generator.replay import run_replay
    from gearshift.support.processors import pinned

    plan = plan_at(target)
    arrivals = trace_for(None if plan is None else read_plan(plan), target, trace, seed=seed)
    options: dict[str, Any] = {name: str(value) if isinstance(value, Path) else value for name, value in how.items()}
    of_load = {name: options.pop(name) for name in ("processes", "largest_lateness_s") if name in options}
    sending = Sending(**options)
    if plan is None:
        drawn = recorded_in(profile, project, emulated=emulated, name=model)
        to: str | InProcessTarget = str(target)
        cores = None
    else:
        task = _task_at(plan, profile, project, emulated=emulated)
        served = task.tables.pipeline.name
        require(model in (None, served), f"there is no model {model!r}", where=str(plan), remedy=f"name {served!r}")
        drawn, cores = recorded_for(task)[served], task.router_cores
        to = InProcessTarget(InProcessServer(task), served, drawn.source.output, sending)
    workload, under_way_s = workload_on(drawn.records, arrivals, seed=seed), None
    if uplink is not None:
        arrived = replace(uplink, slo_s=None).carry(workload)  # only the trace's own deadlines are sent
        workload, under_way_s = arrived.workload, arrived.communication_s
    with pinned(cores):
        return run_replay(
            to,
            workload,
            drawn.source,
            sending=sending,
            slo_s=slo_s,
            devices=devices,
            progress=progress,
            under_way_s=under_way_s,
            **of_load,
        )


def _task_at(
    plan: Path, profile: Profile | PathLike | None, project: PathLike | None, *, emulated: bool
) -> "ServingTask":
    from gearshift.serving.rows.task import read_task

    if isinstance(profile, Profile):
        raise InvalidInput("a plan file is served with a profile on disk", remedy="name its folder")
    return read_task(
        plan,
        "emulated" if emulated else "local",
        profile_path=None if profile is None else Path(profile),
        project_path=None if project is None else Path(project),
    )


def plan_at(target: PathLike) -> Path | None:
    if "://" in str(target):
        return None
    require(
        Path(target).is_file(), "is neither a plan file nor a URL", where=str(target), remedy="give http://HOST:PORT"
    )
    return Path(target)


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


class Recorded(NamedTuple):
    """A pipeline's recorded samples, or tuples, and the numbers of those of part B."""

    source: "SampleSource"
    records: NDArray[np.int32]


def recorded_for(task: "ServingTask", *, only: str | None = None) -> dict[str, Recorded]:
    """The requests for each pipeline of a plan, or for `only` one."""
    from gearshift.load_generator.tuples_source import source_from_tuples
    from gearshift.serving.rows.make_passing import joint_records_of

    joint, emulated, drawn = joint_records_of(task, only), task.backend == "emulated", dict[str, Recorded]()
    for name, pipeline in task.plan.pipelines.items():
        operator = task.operators[pipeline.nodes[pipeline.output].operator]
        if only not in (None, name):
            continue
        if name in joint:
            own = source_from_tuples(name, pipeline.nodes, joint[name], task.profiles, operator.project)
            drawn[name] = Recorded(own, joint[name].indices(PART_B))
        else:
            profile, folder, project = operator.profile, operator.folder, operator.project
            source = source_of(profile, folder, project=project, emulated=emulated, name=name)
            drawn[name] = Recorded(source, profile.predictions.indices(PART_B))
    return drawn


def recorded_in(
    profile: Profile | PathLike | None, project: PathLike | None, *, emulated: bool, name: str | None
) -> Recorded:
    """The requests for pipeline `name`, or the only one, of a server whose profile is known."""
    folder = Path() if isinstance(profile, Profile) else Path("profile" if profile is None else profile)
    if not isinstance(profile, Profile) and holds_profiles(folder):
        return _recorded_among(read_profiles(folder), folder, project, emulated=emulated, name=name)
    read = profile if isinstance(profile, Profile) else read_profile(folder, remedy=_NAME_IT)
    source = source_of(read, folder, project=project, emulated=emulated, name=name or "")
    return Recorded(source, read.predictions.indices(PART_B))


def _recorded_among(
    measured: Profiles, folder: Path, project: PathLike | None, *, emulated: bool, name: str | None
) -> Recorded:
    from gearshift.load_generator.tuples_source import source_from_tuples

    if name is None and len(measured.pipelines) == 1:
        name = next(iter(measured.pipelines))
    known = measured.pipelines.get(name or "")
    if known is None or len(known.nodes) > 1:
        name = pipeline_of(measured, name)
    pipeline = measured.pipelines[str(name)]
    operator = pipeline.nodes[pipeline.output].operator
    profile, place = measured.operators[operator], folder / operator
    if len(pipeline.nodes) == 1:
        source = source_of(profile, place, project=project, emulated=emulated, name=str(name))
        return Recorded(source, profile.predictions.indices(PART_B))
    joint, code = measured.tuples[str(name)], None if emulated else _project_of(profile, place, project)
    graph = source_from_tuples(str(name), pipeline.nodes, joint, measured.operators, code)
    return Recorded(graph, joint.indices(PART_B))


# Several pipelines -----------------------------------------------------------------------------------


def replay_each(
    target: PathLike,
    traces: Traces | None = None,
    *,
    profiles: PathLike | None = None,
    project: PathLike | None = None,
    emulated: bool = False,
    slo_s: float | None = None,
    seed: int | None = None,
    only: str | None = None,
    progress: Sent | None = None,
    **how: Unpack[SendingOptions],
) -> "dict[str, Replay]":
    """Send a trace to each of a server's pipelines, all on one clock; returns `replay`'s of each.

    `target` is the URL of a server, or a plan file to serve within this process; then a pipeline
    without one of `traces` gets that which the plan names for it. `profiles` is a folder with a
    profile of each name; a plan names its own. `only` is the one pipeline to send to. Without
    `slo_s` answers are late by the objective of their pipeline, if a plan says what that is.
    `project` has the samples of all.
    """
    from gearshift.load_generator.in_process import InProcessServer, InProcessTarget
    from gearshift.load_generator.replay import run_replay_together
    from gearshift.serving.rows.task import read_task
    from gearshift.support.processors import pinned

    sending, path = sending_of(how), plan_at(target)
    if path is None:
        streams = _streams_to_url(str(target), traces, profiles, project, emulated=emulated, slo_s=slo_s, seed=seed)
        largest_s = how.get("largest_lateness_s")
        to = targets_at(str(target), streams, sending)
        return run_replay_together(to, streams, sending=sending, largest_lateness_s=largest_s, progress=progress)
    task = read_task(
        path,
        "emulated" if emulated else "local",
        profile_path=None if profiles is None else Path(profiles),
        project_path=None if project is None else Path(project),
    )
    streams = streams_of(task, path, traces, seed=seed, only=only, slo_s=slo_s)
    server = InProcessServer(task)
    inside = {
        name: InProcessTarget(server, name, stream.source.output, sending_for(stream, sending))
        for name, stream in streams.items()
    }
    with pinned(task.router_cores):
        return run_replay_together(
            inside, streams, sending=sending, largest_lateness_s=how.get("largest_lateness_s"), progress=progress
        )


def sending_for(stream: "Stream", sending: Sending) -> Sending:
    """A target encodes no deadline where the workload has its own."""
    return sending if stream.deadline_s(sending) is None else msgspec.structs.replace(sending, deadline_s=None)


def sending_of(how: SendingOptions) -> Sending:
    require(how.get("processes", 1) == 1, "several traces are sent by one process", remedy="leave --processes out")
    own = {name: value for name, value in how.items() if name not in ("processes", "largest_lateness_s")}
    options: dict[str, Any] = {name: str(value) if isinstance(value, Path) else value for name, value in own.items()}
    return Sending(**options)


def targets_at(url: str, streams: "Mapping[str, Stream]", sending: Sending) -> "dict[str, Target]":
    from gearshift.load_generator.http_target import target_at

    return {
        name: target_at(url, name, stream.source.output, sending_for(stream, sending))
        for name, stream in streams.items()
    }


def streams_of(
    task: "ServingTask",
    path: Path,
    traces: Traces | None,
    *,
    seed: int | None,
    only: str | None = None,
    slo_s: float | None = None,
) -> "dict[str, Stream]":
    """The streams to a plan's pipelines, or to `only` one, with recorded samples or tuples of part B."""
    from gearshift.load_generator.replay import Stream

    arrivals, streams = traces_for(task.plan, path, traces, only=only, seed=seed), {}
    for name, (source, records) in recorded_for(task, only=only).items():
        objective_s = task.plan.pipelines[name].objective.latency_s
        workload = workload_on(records, arrivals[name], seed=seed)
        streams[name] = Stream(workload=workload, source=source, slo_s=objective_s if slo_s is None else slo_s)
    return streams


def _streams_to_url(
    url: str,
    traces: Traces | None,
    profiles: PathLike | None,
    project: PathLike | None,
    *,
    emulated: bool,
    slo_s: float | None,
    seed: int | None,
) -> "dict[str, Stream]":
    from gearshift.load_generator.replay import Stream

    require(bool(traces), "no trace is given", where=url, remedy="give one of each with --trace NAME=FILE")
    streams = {}
    for name, trace in (traces or {}).items():
        folder = Path("profile" if profiles is None else profiles)
        place = folder if holds_profiles(folder) else folder / name
        source, records = recorded_in(place, project, emulated=emulated, name=name)
        workload = workload_on(records, trace_for(None, url, trace, seed=seed), seed=seed)
        streams[name] = Stream(workload=workload, source=source, slo_s=slo_s)
    return streams
