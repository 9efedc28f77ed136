"""Replay the traces of several pipelines at once, and compare with one simulation of all."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import msgspec

from gearshift.errors import require
from gearshift.gear import GearPlan
from gearshift.load_generator.targets import Sending
from gearshift.plans.plan_file import read_plan
from gearshift.profiles.profile import Profile
from gearshift.profiles.store import NAME_IT, read_profile
from gearshift.support.files import PathLike
from gearshift.verbs.inputs import traces_for, workload_of
from gearshift.verbs.options import Backend
from gearshift.verbs.replay import SendingOptions, Sent, plan_at, source_of
from gearshift.verbs.validate import Validation, server_began_ns, validations
from gearshift.workload import Trace, Workload

if TYPE_CHECKING:
    from gearshift.load_generator.replay import Stream
    from gearshift.load_generator.replay_result import Replay
    from gearshift.load_generator.targets import Target
    from gearshift.serving.operate.task import ServingTask

Traces = Mapping[str, Trace | PathLike]


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
    from gearshift.serving.operate.task import read_task
    from gearshift.serving.serve import pinned

    sending, path = _sending(how), plan_at(target)
    if path is None:
        streams = _streams_to_url(str(target), traces, profiles, project, emulated=emulated, slo_s=slo_s, seed=seed)
        largest_s = how.get("largest_lateness_s")
        to = _at_url(str(target), streams, sending)
        return run_replay_together(to, streams, sending=sending, largest_lateness_s=largest_s, progress=progress)
    task = read_task(
        path,
        "emulated" if emulated else "local",
        profile_path=None if profiles is None else Path(profiles),
        project_path=None if project is None else Path(project),
    )
    workloads = _workloads(task.plan, path, task.profiles, traces, seed=seed, only=only)
    streams = _streams(task, workloads, slo_s=slo_s)
    server = InProcessServer(task)
    inside = {
        name: InProcessTarget(server, name, stream.source.output, sending_for(stream, sending))
        for name, stream in streams.items()
    }
    with pinned(task.router_cores):
        return run_replay_together(
            inside, streams, sending=sending, largest_lateness_s=how.get("largest_lateness_s"), progress=progress
        )


def validate_each(
    plan: PathLike,
    traces: Traces | None = None,
    *,
    backend: Backend = "local",
    profiles: PathLike | None = None,
    project: PathLike | None = None,
    seed: int | None = None,
    server_cores: frozenset[int] | None = None,
    generator_cores: frozenset[int] | None = None,
    progress: Sent | None = None,
    **how: Unpack[SendingOptions],
) -> dict[str, Validation]:
    """As `validate`, for all pipelines of a plan file at once: one server, one clock, one simulation.

    `traces` are by pipeline; others are those that the plan names. The folder `profiles` has one
    of each operator's name. Batches and devices are those of all pipelines together.
    """
    from gearshift.load_generator.replay import run_replay_together
    from gearshift.runtime.backends.local import router_cores
    from gearshift.serving.operate.child_server import ChildServer
    from gearshift.serving.operate.task import read_task
    from gearshift.serving.serve import pinned
    from gearshift.simulator.simulate import prepare

    path, sending = Path(plan), _sending(how)
    task = read_task(
        path,
        backend,
        profile_path=None if profiles is None else Path(profiles),
        project_path=None if project is None else Path(project),
    )
    made, prepared = task.plan, prepare(task.plan, task.profiles)
    workloads = _workloads(made, path, task.profiles, traces, seed=seed)
    streams = _streams(task, workloads, slo_s=None)
    flags = [f"--backend={backend}"]
    flags += [f"--{name}={place}" for name, place in (("profile", profiles), ("project", project)) if place is not None]
    if generator_cores is None and backend == "local":
        generator_cores = router_cores(made.hardware)
    with ChildServer(path, *flags, cores=server_cores) as server, pinned(generator_cores):
        began_ns = server_began_ns(server.url)
        runs = run_replay_together(
            _at_url(server.url, streams, sending),
            streams,
            sending=sending,
            devices=len(made.hardware.devices),
            largest_lateness_s=how.get("largest_lateness_s"),
            progress=progress,
        )
    return validations(made, task.profiles, prepared, workloads, runs, began_ns)


def sending_for(stream: "Stream", sending: Sending) -> Sending:
    """A target encodes no deadline where the workload has its own."""
    return sending if stream.deadline_s(sending) is None else msgspec.structs.replace(sending, deadline_s=None)


def _sending(how: SendingOptions) -> Sending:
    require(how.get("processes", 1) == 1, "several traces are sent by one process", remedy="leave --processes out")
    own = {name: value for name, value in how.items() if name not in ("processes", "largest_lateness_s")}
    options: dict[str, Any] = {name: str(value) if isinstance(value, Path) else value for name, value in own.items()}
    return Sending(**options)


def _at_url(url: str, streams: "Mapping[str, Stream]", sending: Sending) -> "dict[str, Target]":
    from gearshift.load_generator.http_target import target_at

    return {
        name: target_at(url, name, stream.source.output, sending_for(stream, sending))
        for name, stream in streams.items()
    }


def _workloads(
    plan: GearPlan,
    path: Path,
    profiles: Mapping[str, Profile],
    traces: Traces | None,
    *,
    seed: int | None,
    only: str | None = None,
) -> dict[str, Workload]:
    arrivals = traces_for(plan, path, traces, only=only, seed=seed)
    return {name: workload_of(profiles[_operator(plan, name)], trace, seed=seed) for name, trace in arrivals.items()}


def _operator(plan: GearPlan, pipeline: str) -> str:
    """The operator of the pipeline's only node."""
    nodes = list(plan.pipelines[pipeline].nodes.values())
    require(
        len(nodes) == 1,
        f"pipeline {pipeline!r} has {len(nodes)} nodes, and samples are drawn for pipelines of one",
        remedy="replay the others alone",
    )
    return nodes[0].operator


def _streams(task: "ServingTask", workloads: Mapping[str, Workload], *, slo_s: float | None) -> "dict[str, Stream]":
    """The streams to a plan's pipelines, with samples of their operators' projects."""
    from gearshift.load_generator.replay import Stream

    streams = {}
    for name, workload in workloads.items():
        operator = task.operators[_operator(task.plan, name)]
        source = source_of(
            operator.profile, operator.folder, project=operator.project, emulated=task.backend == "emulated", name=name
        )
        objective_s = task.plan.pipelines[name].objective.latency_s
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
    from gearshift.verbs.inputs import trace_for

    require(bool(traces), "no trace is given", where=url, remedy="give one of each with --trace NAME=FILE")
    streams = {}
    for name, trace in (traces or {}).items():
        folder = Path("profile" if profiles is None else profiles) / name
        profile = read_profile(folder, remedy=NAME_IT)
        workload = workload_of(profile, trace_for(None, url, trace, seed=seed), seed=seed)
        source = source_of(profile, folder, project=project, emulated=emulated, name=name)
        streams[name] = Stream(workload=workload, source=source, slo_s=slo_s)
    return streams


def is_of_several(target: PathLike) -> bool:
    """Whether a plan file has several pipelines; of a URL nothing is known."""
    path = plan_at(target)
    return path is not None and len(read_plan(path).pipelines) > 1
