"""The verbs as functions: what the command line does, for programs."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gearshift.config import PROJECT_FILE, project_file, read_project
from gearshift.doctor import Machine, examine
from gearshift.errors import InvalidInput, require
from gearshift.gear import GearPlan, SourceFile
from gearshift.hardware import Hardware, identical_devices
from gearshift.objective import Objective, Scope
from gearshift.plan_file import read_plan, write_plan
from gearshift.plan_tables import only_operator
from gearshift.profiles.profile import PART_B, Profile
from gearshift.profiles.store import NAME_IT, read_profile, require_replaceable, write_profile
from gearshift.traces.read import read_trace
from gearshift.workload import Trace, Workload, draw_workload

if TYPE_CHECKING:
    from gearshift.serving.replay_result import Replay
    from gearshift.simulator.simulate import Simulation

Progress = Callable[[str, float], None]
PathLike = Path | str


def _silent(what: str, share: float) -> None:
    """Progress that nobody watches."""


def profile(
    project: PathLike = PROJECT_FILE, *, out: PathLike | None = None, seed: int = 0, progress: Progress = _silent
) -> Profile:
    """Measure the models of a project through the real path; writes the profile into the folder `out` if given.

    `project` is a `gearshift.toml` or its folder.  Raises `InvalidInput` before measuring where `out` holds anything
    else than a profile.
    """
    from gearshift.runtime.measure import profile_project
    from gearshift.serving.beside import front_end_beside

    folder = None if out is None else Path(out)
    if folder is not None:
        require_replaceable(folder)
    made = profile_project(
        project_file(Path(project)), progress=progress, seed=seed, folder=folder, front_end=front_end_beside
    )
    return made if folder is None else write_profile(made, folder)


def profile_from_records(
    folder: PathLike, *, out: PathLike | None = None, operator: str = "default", seed: int = 0
) -> Profile:
    """Import recorded predictions and run times (`predictions` and `runtimes`, CSV or Parquet) instead of measuring."""
    from gearshift.profiles import records

    if out is not None:
        require_replaceable(Path(out))
    made = records.profile_from_records(Path(folder), operator=operator, seed=seed)
    return made if out is None else write_profile(made, Path(out))


def plan(
    profile: Profile | PathLike,
    trace: Trace | PathLike,
    *,
    planner: str = "optimal",
    devices: int | Hardware = 1,
    latency_s: float | None = None,
    accuracy: float | None = None,
    percentile: float = 0.95,
    confidence: float | None = None,
    scope: Scope = "every-range",
    ranges: int | None = None,
    max_qps: float | None = None,
    least_margin: float | None = None,
    seed: int = 0,
    out: PathLike | None = None,
    profile_source: SourceFile | None = None,
    trace_source: SourceFile | None = None,
    progress: Progress = _silent,
) -> GearPlan:
    """The best accuracy with `percentile` of requests within `latency_s`, confirmed by replaying the whole trace.

    Paths are read; `out` is written.  A plan names the profile and trace it was made from, by their paths relative to
    `out`, or as `profile_source` and `trace_source` say.

    Raises `Infeasible`, with the nearest feasible objective, when there is none.
    """
    from gearshift.planner import planners
    from gearshift.planner.request import RANGES, PlanRequest

    measured = profile if isinstance(profile, Profile) else read_profile(Path(profile))
    arrivals = trace if isinstance(trace, Trace) else read_trace(Path(trace))
    request = PlanRequest(
        profile=measured,
        trace=arrivals,
        hardware=devices if isinstance(devices, Hardware) else profiled_devices(measured, devices),
        objective=Objective(
            percentile=percentile, latency_s=latency_s, accuracy=accuracy, confidence=confidence, scope=scope
        ),
        ranges=RANGES if ranges is None else ranges,
        max_qps=max_qps,
        least_margin=least_margin,
        seed=seed,
        profile_source=profile_source or source_file(profile, out, measured.sha256),
        trace_source=trace_source or source_file(trace, out, arrivals.sha256),
    )
    made = planners.plan(planner, request, progress=progress)
    if out is not None:
        write_plan(made, Path(out))
    return made


def source_file(source: object, out: PathLike | None, sha256: str) -> SourceFile:
    """A source as a plan file at `out` names it: by its relative path, which is empty where the source was no path."""
    if not isinstance(source, (str, Path)):
        return SourceFile(path="", sha256=sha256)
    path = str(source) if out is None else os.path.relpath(Path(source).resolve(), Path(out).resolve().parent)
    return SourceFile(path=path, sha256=sha256)


def profiled_devices(profile: Profile, count: int, *, memory_bytes: int | None = None) -> Hardware:
    """`count` devices of the kind and cores on which the profile was measured, with memory for all its models."""
    first = profile.curves[0]
    place = first.device_kind, first.tensor_parallel, first.cores
    alike = [c for c in profile.curves if (c.device_kind, c.tensor_parallel, c.cores) == place]
    needed = sum({curve.model: curve.memory_bytes for curve in alike}.values())
    require(1 <= count <= 10_000, f"{count} devices asked for", remedy="ask for 1 to 10000")
    if memory_bytes is None:
        memory_bytes = max(1 << 30, needed)
    require(memory_bytes >= 1, f"memory_bytes is {memory_bytes}", remedy="give a positive number of bytes")
    return identical_devices(count, kind=first.device_kind, cores=first.cores, memory_bytes=memory_bytes)


def workload_of(profile: Profile, trace: Trace, *, seed: int = 0) -> Workload:
    """The trace carrying the samples on which accuracy is reported: what `simulate` and `replay` both serve."""
    return draw_workload(trace, profile.predictions.indices(PART_B), seed=seed)


def simulate(
    plan: GearPlan | PathLike, trace: Trace | PathLike, *, profile: Profile | PathLike | None = None, seed: int = 0
) -> "Simulation":
    """What serving `trace` by `plan` would come to: a `Simulation`, whose `result(...)` holds the figures.

    A plan file names its profile; `profile` says where it is now.  Raises `InvalidInput` for another profile than the
    one that the plan was made from.
    """
    from gearshift.simulator.simulate import simulate as run

    made, measured = plan_and_profile(plan, profile)
    arrivals = trace if isinstance(trace, Trace) else read_trace(Path(trace))
    return run(made, measured, workload_of(measured, arrivals, seed=seed))


def plan_and_profile(plan: GearPlan | PathLike, profile: Profile | PathLike | None) -> tuple[GearPlan, Profile]:
    """A plan and the profile it was made from, read where paths are given."""
    made = plan if isinstance(plan, GearPlan) else read_plan(Path(plan))
    if isinstance(profile, Profile):
        measured = profile
    elif profile is not None:
        measured = read_profile(Path(profile), remedy=NAME_IT)
    elif isinstance(plan, GearPlan):
        raise InvalidInput("a plan that was not read from a file needs its profile", remedy="give profile=")
    else:
        measured = read_profile(Path(plan).parent / made.profile.path, remedy=NAME_IT)
    require(
        measured.sha256 == made.profile.sha256,
        "the plan was made from another profile",
        where=str(plan) if not isinstance(plan, GearPlan) else "plan",
        remedy="make the plan anew with `gearshift plan`, or name its profile",
    )
    return made, measured


def inspect(path: PathLike) -> GearPlan | Profile:
    """The plan or the profile at `path`, read and checked; a plan is also checked against its profile, if found."""
    place = Path(path)
    if place.is_dir():
        return read_profile(place)
    made = read_plan(place)
    if (place.parent / made.profile.path).is_dir():
        plan_and_profile(place, None)
    return made


def report(
    plan: PathLike, out: PathLike, *, trace: Trace | PathLike | None = None, profile: PathLike | None = None
) -> Path:
    """Write one self-contained page about a plan file, with a simulation of `trace` if given."""
    from gearshift.reporting.compose import compose
    from gearshift.reporting.page import write_report

    made, measured = plan_and_profile(plan, profile)
    arrivals = read_trace(Path(trace)) if isinstance(trace, (str, Path)) else trace
    runs = () if arrivals is None else (("gear plan", simulate(made, arrivals, profile=measured)),)
    write_report(Path(out), compose(made, measured, title=f"Gear plan for {only_operator(made)}", simulations=runs))
    return Path(out)


def serve(plan: PathLike, **options: Any) -> int:
    """Serve a plan file until a signal ends it; options as in `gearshift.serving.serve.serve`."""
    from gearshift.serving.serve import serve as run
    from gearshift.serving.settings import ServerSettings

    fields = ServerSettings.__struct_fields__
    settings = ServerSettings(**{name: options.pop(name) for name in list(options) if name in fields})
    return run(Path(plan), settings=settings, **options)


def replay(
    url: str,
    trace: Trace | PathLike,
    profile: Profile | PathLike,
    *,
    project: PathLike | None = None,
    emulated: bool = False,
    slo_s: float | None = None,
    seed: int = 0,
    **options: Any,
) -> "Replay":
    """Send the trace to a server in an open loop; a `Replay` with the figures and a log of every request.

    Samples come from the project that the profile names, or from `project`; with `emulated` they are the numbers of
    recorded samples, for a server with emulated devices.
    """
    from gearshift.loading import load_samples
    from gearshift.serving.replay import run_replay
    from gearshift.serving.sources import SampleSource, source_from_records, source_from_samples

    measured = profile if isinstance(profile, Profile) else read_profile(Path(profile))
    arrivals = trace if isinstance(trace, Trace) else read_trace(Path(trace))
    source: SampleSource
    if emulated:
        source = source_from_records(measured.predictions, measured.operator)
    else:
        path = _project_of(measured, profile, project)
        samples = load_samples(read_project(path), path.parent)
        require(samples.labels is not None, "the samples have no labels to judge answers by", where=str(path))
        source = source_from_samples(samples.arrays, samples.labels, measured.operator)  # type: ignore[arg-type]
    return run_replay(url, workload_of(measured, arrivals, seed=seed), source, slo_s=slo_s, **options)


def doctor() -> Machine:
    """What this machine offers."""
    return examine()


def _project_of(measured: Profile, profile: Profile | PathLike, project: PathLike | None) -> Path:
    if project is not None:
        return project_file(Path(project))
    if measured.project is None:
        raise InvalidInput(
            "the profile was imported and names no project to take samples from",
            remedy="replay against emulated devices with --emulated, or name a project",
        )
    base = Path() if isinstance(profile, Profile) else Path(profile)
    return base / measured.project
