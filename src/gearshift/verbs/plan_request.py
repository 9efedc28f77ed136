"""The verbs of the command line as Python functions."""

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gearshift.errors import InvalidInput, require
from gearshift.gear import GearPlan, SourceFile
from gearshift.hardware import HOST, MOST_POOL_CORES, Device, Hardware, identical_devices
from gearshift.models.config import PROJECT_FILE, project_file
from gearshift.objective import Objective, Scope
from gearshift.planner.planners import DEFAULT as DEFAULT_PLANNER
from gearshift.planner.space.ways import bytes_side_by_side
from gearshift.plans.hardware_file import read_hardware
from gearshift.plans.plan_diff import PlanDiff
from gearshift.plans.plan_diff import diff as diff_plans
from gearshift.plans.plan_file import read_plan, write_plan
from gearshift.plans.plan_folder import choose_plan, plan_name, require_plans_replaceable, write_plans
from gearshift.plans.plan_tables import only_pipeline, plan_tables
from gearshift.profiles.backlog import backlog_of
from gearshift.profiles.profile import PART_B, Profile
from gearshift.profiles.store import NAME_IT, read_profile, require_replaceable, write_profile
from gearshift.support.files import PathLike
from gearshift.support.processors import usable_processors
from gearshift.traces.read import read_as_for, read_trace
from gearshift.verbs.doctor import Machine, examine
from gearshift.workload import Trace, Workload, draw_workload

if TYPE_CHECKING:
    from gearshift.planner.compare import Comparison
    from gearshift.planner.explain import Explanation
    from gearshift.planner.largest_alone import LargestAlone
    from gearshift.planner.space.request import LoadDistribution, PlanRequest
    from gearshift.policies.cores.demand import Scaling
    from gearshift.simulator.simulate import Simulation
    from gearshift.traces.network import Uplink

Progress = Callable[[str, float], None]
Notice = Callable[[str], None]

log = logging.getLogger(__name__)


def _silent(what: str, share: float) -> None:
    pass


def _unheard(text: str) -> None:
    pass


def profile(
    project: PathLike = PROJECT_FILE,
    *,
    out: PathLike | None = None,
    cores: Sequence[int] = (1,),
    core_share: float = 1.0,
    seed: int = 0,
    progress: Progress = _silent,
    notice: Notice = _unheard,
) -> Profile:
    """Measure a project's models on the real serving path; write the profile to `out` if given.

    `project` is a `gearshift.toml` or its folder. With several counts of `cores`, run times are
    fitted by batch size and cores (`Profile.performance`). Each core is `core_share` of a
    processor, held by a quota below 1.

    Answers of remote endpoints are kept in a folder named like `out` with `.partial` added until
    the profile is written, so that the same call can resume after an error; `notice` reports this.
    Raises `InvalidInput` before measuring where `out` holds anything but a profile.
    """
    from gearshift.measuring.beside import front_end_beside
    from gearshift.measuring.measure import profile_project
    from gearshift.measuring.paid import forget, kept_files, partial_folder

    folder = None if out is None else Path(out)
    if folder is not None:
        require_replaceable(folder)
    try:
        made = profile_project(
            project_file(Path(project)),
            progress=progress,
            seed=seed,
            folder=folder,
            front_end=front_end_beside,
            cores=cores,
            core_share=core_share,
            notice=notice,
        )
    except BaseException:
        if folder is not None and kept_files(folder):
            where = partial_folder(folder)
            notice(f"what endpoints have answered is kept in {where}: the same command goes on from there")
        raise
    if folder is None:
        return made
    written = write_profile(made, folder)
    forget(folder)
    return written


def profile_from_records(
    folder: PathLike,
    *,
    out: PathLike | None = None,
    operator: str = "default",
    seed: int = 0,
    raw_run_times: bool = False,
) -> Profile:
    """Import recorded predictions and run times instead of measuring.

    `folder` holds `predictions` and `runtimes`, as CSV or Parquet. With `raw_run_times` each row
    of `runtimes` is one batch; median and p95 are computed per batch size.
    """
    from gearshift.profiles import records

    if out is not None:
        require_replaceable(Path(out))
    made = records.profile_from_records(Path(folder), operator=operator, seed=seed, raw_run_times=raw_run_times)
    return made if out is None else write_profile(made, Path(out))


def plan(
    profile: Profile | PathLike,
    trace: Trace | PathLike,
    *,
    planner: str = DEFAULT_PLANNER,
    fewest: bool = False,
    cores: int | None = None,
    out: PathLike | None = None,
    progress: Progress = _silent,
    **asked: Any,
) -> GearPlan:
    """Plan for an objective and confirm by replaying the whole trace; write to `out` if given.

    With `fewest` the plan uses as few devices, like the first of `devices`, as meet both a latency
    and an accuracy. With `cores`, in place of `devices`, models share that many cores of one host:
    each gear sets a cascade and its cores, for the fewest core-seconds that keep a latency and an
    accuracy. Models must then have been measured on several core counts.

    Objectives and the other options are those of `plan_request`. Raises `Infeasible` when there is
    no plan, with the nearest feasible objectives; each of these is planned for, which takes time
    within `budget_s`.
    """
    from gearshift.planner import planners
    from gearshift.planner.nearest import feasible_or_nearest

    if cores is not None:
        for name, given in (("planner", planner != DEFAULT_PLANNER), ("fewest", fewest)):
            require(not given, f"{name} is given beside cores, for which one search plans", remedy="give one of them")
    request = plan_request(profile, trace, out=out, cores=cores, **asked)
    if cores is None:
        find = planners.fewest if fewest else planners.plan
        made = feasible_or_nearest(find, planner, request, progress=progress)
    else:
        made = planners.on_cores(request, progress=progress)
    if out is not None:
        write_plan(made, Path(out))
    return made


def largest_alone(plan: GearPlan, profile: Profile | PathLike, trace: Trace | PathLike) -> "LargestAlone":
    """Count the devices that the largest model alone would need to serve the plan's load.

    It must keep the plan's latency at the loads of all ranges; accuracy does not matter.
    """
    from gearshift.planner.largest_alone import largest_alone as find

    measured = profile if isinstance(profile, Profile) else read_profile(Path(profile))
    return find(plan, measured, trace_for(plan, plan, trace))


def plan_frontier(
    profile: Profile | PathLike,
    trace: Trace | PathLike,
    *,
    planner: str = DEFAULT_PLANNER,
    out: PathLike | None = None,
    progress: Progress = _silent,
    **asked: Any,
) -> list[GearPlan]:
    """Find all undominated plans, by rising latency; write them to the folder `out` if given.

    Options are those of `plan_request` without latency, accuracy and confidence (use `plan` for
    these). Latencies are those at `percentile`. Raises `InvalidInput` where one of the three is
    given, and `Infeasible` when there is no plan.
    """
    from gearshift.planner import planners
    from gearshift.planner.nearest import feasible_or_nearest

    require(asked.get("cores") is None, "cores are given for a frontier", remedy="give devices, or call `plan`")
    for name in ("latency_s", "accuracy", "confidence"):
        require(
            asked.get(name) is None,
            f"{name} is given for a frontier, which has plans for every latency and accuracy",
            remedy="leave it out, or call `plan`",
        )
    if out is not None:
        require_plans_replaceable(Path(out))
    beside = None if out is None else Path(out) / plan_name(0)
    request = plan_request(profile, trace, out=beside, **asked)
    made = feasible_or_nearest(planners.frontier, planner, request, progress=progress)
    if out is not None:
        write_plans(made, Path(out))
    return made


def plan_request(
    profile: Profile | PathLike,
    trace: Trace | PathLike,
    *,
    devices: int | Hardware | PathLike | None = None,
    cores: int | None = None,
    latency_s: float | None = None,
    accuracy: float | None = None,
    percentile: float = 0.95,
    confidence: float | None = None,
    scope: Scope = "every-range",
    load: "LoadDistribution | None" = None,
    budget_s: float | None = None,
    ranges: int | None = None,
    max_qps: float | None = None,
    least_margin: float | None = None,
    seed: int = 0,
    out: PathLike | None = None,
    profile_source: SourceFile | None = None,
    trace_source: SourceFile | None = None,
) -> "PlanRequest":
    """Build a planner's request: `percentile` of requests within `latency_s`, `accuracy`, or both.

    Paths are read. `devices` is a number of devices like the profiled one (default 1), `Hardware`,
    or its file; alternatively `cores` are shared by all models on one host. With `confidence` the
    lower confidence bound must reach the accuracy. `load` says how often load ranges are visited;
    `budget_s` bounds the search. The plan names its profile and trace by paths relative to the
    plan file `out`, or as `profile_source` and `trace_source` say.
    """
    from gearshift.planner.space.request import RANGES, PlanRequest

    require(devices is None or cores is None, "devices and cores are both given", remedy="give one of them")
    measured = profile if isinstance(profile, Profile) else read_profile(Path(profile))
    arrivals = trace if isinstance(trace, Trace) else read_trace(Path(trace))
    return PlanRequest(
        profile=measured,
        trace=arrivals,
        hardware=hardware_of(1 if devices is None else devices, measured)
        if cores is None
        else host_of(measured, cores),
        objective=Objective(
            percentile=percentile, latency_s=latency_s, accuracy=accuracy, confidence=confidence, scope=scope
        ),
        ranges=RANGES if ranges is None else ranges,
        max_qps=max_qps,
        least_margin=least_margin,
        load=load,
        budget_s=budget_s,
        seed=seed,
        profile_source=profile_source or source_file(profile, out, measured.sha256),
        trace_source=trace_source or trace_file(trace, out, arrivals),
    )


def hardware_of(devices: int | Hardware | PathLike, profile: Profile, *, memory_bytes: int | None = None) -> Hardware:
    if isinstance(devices, Hardware):
        return devices
    if isinstance(devices, int):
        return profiled_devices(profile, devices, memory_bytes=memory_bytes)
    require(memory_bytes is None, "memory is given beside a hardware file", remedy="write memory_bytes into the file")
    return read_hardware(Path(devices))


def host_of(profile: Profile, cores: int) -> Hardware:
    require(1 <= cores <= MOST_POOL_CORES, f"{cores} cores asked for", remedy=f"ask for 1 to {MOST_POOL_CORES}")
    return Hardware(devices=(Device(id=HOST, kind=profile.curves[0].device_kind),), pool_cores=cores)


def source_file(source: object, out: PathLike | None, sha256: str) -> SourceFile:
    if not isinstance(source, (str, Path)):
        return SourceFile(path="", sha256=sha256)
    path = str(source) if out is None else os.path.relpath(Path(source).resolve(), Path(out).resolve().parent)
    return SourceFile(path=path, sha256=sha256)


def trace_file(source: object, out: PathLike | None, trace: Trace) -> SourceFile:
    named = source_file(source, out, trace.sha256)
    return msgspec.structs.replace(named, reading=trace.reading if named.path else None)


def profiled_devices(profile: Profile, count: int, *, memory_bytes: int | None = None) -> Hardware:
    """Return `count` devices like the profiled one, with memory for all models of the profile.

    For a model that only runs split over several devices, its part is counted.
    """
    first = profile.curves[0]
    require(1 <= count <= 10_000, f"{count} devices asked for", remedy="ask for 1 to 10000")
    if memory_bytes is None:
        memory_bytes = max(1 << 30, bytes_side_by_side(profile, kind=first.device_kind, cores=first.cores))
    require(memory_bytes >= 1, f"memory_bytes is {memory_bytes}", remedy="give a positive number of bytes")
    return identical_devices(count, kind=first.device_kind, cores=first.cores, memory_bytes=memory_bytes)


def workload_of(profile: Profile, trace: Trace, *, seed: int | None = None) -> Workload:
    """Attach to the trace the samples on which accuracy is reported (part B).

    `simulate` and `replay` both serve this workload. Samples are drawn by `seed`, by default the
    seed the trace was read with. The trace's deadlines are kept; planners ignore them.
    """
    if seed is None:
        seed = 0 if trace.reading is None else trace.reading.seed
    return replace(draw_workload(trace, profile.predictions.indices(PART_B), seed=seed), deadline_ns=trace.deadline_ns)


def simulate(
    plan: GearPlan | PathLike,
    trace: Trace | PathLike | None = None,
    *,
    profile: Profile | PathLike | None = None,
    seed: int | None = None,
    uplink: "Uplink | None" = None,
    scaling: "Scaling | None" = None,
    scaler_cores: int | None = None,
    most_waiting: int | None = None,
) -> "Simulation":
    """Predict by simulation how `plan` serves `trace`; `Simulation.result(...)` gives the figures.

    With an `uplink`, the trace holds the times of sending: requests arrive later, with the
    deadlines that the uplink gives them, and latencies count from sending. With `scaling` a scaler
    gives workers cores out of `scaler_cores` (default: all of the plan), at least the gear's where
    the plan was made with `cores`. When more than `most_waiting` samples wait, requests are
    refused (default: the server's bound).

    `profile` and `trace` replace the paths in the plan file. The plan's own trace is read as it
    was for the plan; a warning is logged where it may have changed. `seed` draws samples and
    arrivals, by default as for the plan. Raises `InvalidInput` for a profile other than the
    plan's.
    """
    from gearshift.simulator.compared.compared import COMPARED
    from gearshift.simulator.simulate import simulate as run

    made, measured = plan_and_profile(plan, profile)
    workload = workload_of(measured, trace_for(made, plan, trace, seed=seed), seed=seed)
    how: Any = {"scaling": scaling, "scaler_cores": scaler_cores}
    if scaling is None or scaling.scaler not in COMPARED:
        how["most_waiting"] = most_waiting or _most_waiting(made, measured, scaling, scaler_cores)
    if uplink is None:
        return run(made, measured, workload, **how)
    arrived = uplink.carry(workload)
    simulation = run(made, measured, arrived.workload, **how)
    return replace(simulation, communication_s=arrived.communication_s)


def _most_waiting(plan: GearPlan, profile: Profile, scaling: "Scaling | None", scaler_cores: int | None) -> int:
    tables = plan_tables(plan, only_pipeline(plan))
    cores = scaler_cores
    if scaling is not None and scaling.scaler != "static":
        cores = scaler_cores or sum(replica.cores for replica in plan.placement.replicas)
    return backlog_of(plan, tables, profile, scaler_cores=cores).most_waiting


def plan_and_profile(plan: GearPlan | PathLike, profile: Profile | PathLike | None) -> tuple[GearPlan, Profile]:
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
    """Read and check the plan or profile at `path`; check a plan against its profile, if found."""
    place = Path(path)
    if place.is_dir():
        return read_profile(place)
    made = read_plan(place)
    if (place.parent / made.profile.path).is_dir():
        plan_and_profile(place, None)
    return made


def trace_for(
    plan: GearPlan | None,
    path: GearPlan | PathLike,
    trace: Trace | PathLike | None = None,
    *,
    notice: Notice = log.warning,
    **given: Any,
) -> Trace:
    """Read the plan's own trace as it was read for the plan, except for options in `given`.

    A `trace` that is the same file is read in the same way; a different one by the defaults.
    `path` is the plan file; where it is a URL, `plan` is None. `notice` is called where the plan's
    own trace may have changed. Raises `InvalidInput` where no trace is named.
    """
    if isinstance(trace, Trace):
        return trace
    if plan is None:
        remedy = "give one with --trace: a URL names none"
        require(trace is not None, "no trace is given", where=str(path), remedy=remedy)
        return read_as_for(None, Path(trace), the_same=False, **given)  # type: ignore[arg-type]
    place = None if isinstance(path, GearPlan) else Path(path).parent / plan.trace.path
    if trace is not None:
        made = read_as_for(plan.trace.reading, Path(trace), the_same=False, **given)
        own = place is not None and place.resolve() == Path(trace).resolve()
    elif place is None:
        raise InvalidInput("a plan that was not read from a file needs its trace", remedy="give trace=")
    else:
        require(bool(plan.trace.path), "the plan names no trace", where=str(path), remedy="give one with --trace")
        remedy = "name the plan's trace with --trace"
        made, own = read_as_for(plan.trace.reading, place, the_same=True, remedy=remedy, **given), True
    as_it_is = all(value is None for name, value in given.items() if name != "seed")
    if own and (doubt := _doubt_of(plan.trace, made, as_it_is=as_it_is)):
        notice(doubt)
    return made


def _doubt_of(source: SourceFile, made: Trace, *, as_it_is: bool) -> str | None:
    if source.reading is None:
        if as_it_is and made.sha256 != source.sha256:
            return (
                f"the plan does not say how {source.path} was read for it, and it is read as it is now, which is not "
                "what the plan was made from: give what was given to `gearshift plan` of --rate-scale, --start-s, "
                "--duration-s, --arrivals and --seed (from Python, the trace that `read_trace` makes with them)"
            )
    elif made.reading is not None and made.reading.file_sha256 != source.reading.file_sha256:
        return f"{source.path} has changed since the plan was made from it"
    return None


def explain(
    plan: GearPlan | PathLike,
    trace: Trace | PathLike | None = None,
    *,
    profile: Profile | PathLike | None = None,
    devices_too: bool = False,
    progress: Progress = _silent,
) -> "Explanation":
    """Explain each range's cascade, what the next more accurate one would break, and device use.

    `profile` and `trace` replace the paths in the plan file. `devices_too` also plans for one
    device fewer and one more.
    """
    from gearshift.planner.explain import explain as run

    made, measured = plan_and_profile(plan, profile)
    return run(made, measured, trace_for(made, plan, trace), devices_too=devices_too, progress=progress)


def diff(a: GearPlan | PathLike, b: GearPlan | PathLike) -> PlanDiff:
    """Return the differences between two plans or plan files."""
    return diff_plans(*(plan if isinstance(plan, GearPlan) else read_plan(Path(plan)) for plan in (a, b)))


def compare(
    profile: Profile | PathLike,
    trace: Trace | PathLike,
    *,
    planners: Sequence[str],
    devices: Sequence[int | Hardware | PathLike],
    latencies_s: Sequence[float],
    memory_bytes: int | None = None,
    accuracies: Sequence[float] | None = None,
    baselines: Sequence[str] | None = None,
    processes: int | None = None,
    progress: Progress = _silent,
    **asked: Any,
) -> "Comparison":
    """Run every planner for every number of devices and latency objective, in parallel processes.

    `devices` are as in `plan_request`, each with a different count; `memory_bytes` is each
    device's memory where only a count is given. `accuracies` are the rows of the grid of fewest
    devices, `baselines` the planners that savings are compared with, `processes` how many plan at
    a time (default: one per core). Other options are those of `plan_request`. A run that fails is
    a row with its `error`. `planners` may include `cocktail+`, which needs recorded predictions
    and is simulated for each cell of the grid.
    """
    from gearshift.planner.compare import (
        BASELINES,
        COCKTAIL,
        cocktail_jobs,
        compared,
        require_comparable,
        rows_of_grid,
    )
    from gearshift.planner.side_by_side import run_side_by_side

    measured = profile if isinstance(profile, Profile) else read_profile(Path(profile))
    require_comparable([*planners, *(baselines or ())], measured)
    for accuracy in accuracies or ():
        Objective(accuracy=accuracy)  # refuses bad ones at once
    plan_with = [name for name in dict.fromkeys(planners) if name != COCKTAIL]
    require(bool(plan_with and devices and latencies_s), "nothing to compare", remedy="name planners, devices and SLOs")
    arrivals = trace if isinstance(trace, Trace) else read_trace(Path(trace))
    hardware: dict[int, Hardware] = {}
    for each in devices:
        on = hardware_of(each, measured, memory_bytes=memory_bytes)
        count = len(on.devices)
        require(hardware.setdefault(count, on) == on, f"two hardwares of {count} devices", remedy="compare them apart")
    jobs = [
        (name, plan_request(measured, arrivals, devices=hardware[count], latency_s=latency_s, **asked))
        for name in plan_with
        for count in sorted(hardware)
        for latency_s in sorted(set(latencies_s))
    ]
    count = processes or usable_processors()
    runs = run_side_by_side(jobs, processes=count, progress=progress)
    if COCKTAIL in planners:
        rows = rows_of_grid(runs, measured, accuracies)
        cells = cocktail_jobs(jobs[0][1], rows, sorted(set(latencies_s)))
        runs += run_side_by_side(cells, processes=count, progress=progress)
    return compared(runs, measured, baselines=BASELINES if baselines is None else baselines, accuracies=accuracies)


def report(
    plan: PathLike, out: PathLike, *, trace: Trace | PathLike | None = None, profile: PathLike | None = None
) -> Path:
    """Write a self-contained HTML page about a plan, with a simulation of its trace or of `trace`.

    Without any trace the page has no simulation.
    """
    from gearshift.reporting.compose import compose
    from gearshift.reporting.page import write_report

    made, measured = plan_and_profile(plan, profile)
    arrivals = trace_for(made, plan, trace) if trace is not None or made.trace.path else None
    runs = () if arrivals is None else (("gear plan", simulate(made, arrivals, profile=measured)),)
    write_report(Path(out), compose(made, measured, title=f"Gear plan for {only_pipeline(made)}", simulations=runs))
    return Path(out)


def serve(plan: PathLike, *, latency_s: float | None = None, accuracy: float | None = None, **options: Any) -> int:
    """Serve a plan file until a signal ends it; options as in `gearshift.serving.serve.serve`.

    From a folder of plans, `chosen_plan` chooses one.
    """
    from gearshift.serving.door.settings import ServerSettings
    from gearshift.serving.serve import serve as run

    given = {name: options.pop(name) for name in ServerSettings.__struct_fields__ if name in options}
    named: dict[str, Any] = {name: str(one) if isinstance(one, Path) else one for name, one in given.items()}
    settings = ServerSettings(**named)
    return run(chosen_plan(plan, latency_s=latency_s, accuracy=accuracy), settings=settings, **options)


def chosen_plan(plan: PathLike, *, latency_s: float | None = None, accuracy: float | None = None) -> Path:
    """Choose a plan file from a folder by an objective; a plan file is returned unchanged.

    Chosen is the most accurate plan within `latency_s`, or the fastest that reaches `accuracy`.
    Raises `InvalidInput` where no plan of the folder meets the objective, and for an objective
    given with a single plan.
    """
    path = Path(plan)
    if path.is_dir():
        return choose_plan(path, latency_s=latency_s, accuracy=accuracy)
    require(
        (latency_s is None and accuracy is None) or not path.exists(),
        "is one plan, and an objective chooses from a folder of plans",
        where=str(path),
        remedy="leave the latency and the accuracy out",
    )
    return path


def doctor() -> Machine:
    """Report the hardware and software that this machine offers."""
    return examine()
