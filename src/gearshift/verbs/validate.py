"""Replay a trace against a server, and compare with the simulation of the same requests."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from gearshift.clock import NS_PER_S, to_ns
from gearshift.errors import InvalidInput, require
from gearshift.models.config import project_file, read_project
from gearshift.plans.plan_file import read_plan
from gearshift.plans.plan_tables import only_pipeline
from gearshift.profiles.backlog import backlog_of
from gearshift.profiles.measure import strongest_model
from gearshift.profiles.overheads import Overheads, overheads_of
from gearshift.profiles.profile import Profile
from gearshift.profiles.run_times import expected_ns
from gearshift.profiles.store import NAME_IT, read_profile
from gearshift.request import NO_DEADLINE_NS
from gearshift.result import ServingResult
from gearshift.support.files import PathLike
from gearshift.verbs.plan_request import plan_and_profile, trace_for, workload_of
from gearshift.workload import Trace, Workload

if TYPE_CHECKING:
    from gearshift.load_generator.replay_result import Replay
    from gearshift.load_generator.sender import Progress
    from gearshift.load_generator.sources import SampleSource
    from gearshift.simulator.as_ran import LatencySplit
    from gearshift.simulator.simulate import Prepared, Simulation
    from gearshift.traces.network import Uplink

ASKED_FOR_CLOCK = 5


def replay(
    target: PathLike,
    trace: Trace | PathLike | None = None,
    profile: Profile | PathLike | None = None,
    *,
    project: PathLike | None = None,
    emulated: bool = False,
    slo_s: float | None = None,
    seed: int | None = None,
    processes: int = 1,
    largest_lateness_s: float | None = None,
    devices: int = 0,
    progress: "Progress | None" = None,
    uplink: "Uplink | None" = None,
    **sending: Any,
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
    with its requests. `sending` holds the fields of `gearshift.load_generator.targets.Sending`.
    """
    from gearshift.load_generator.in_process import InProcessTarget
    from gearshift.load_generator.replay import run_replay
    from gearshift.load_generator.targets import Sending
    from gearshift.serving.operate.task import read_task
    from gearshift.serving.serve import pinned

    plan = plan_at(target)
    arrivals = trace_for(None if plan is None else read_plan(plan), target, trace, seed=seed)
    if sending.get("ca_file") is not None:
        sending["ca_file"] = str(sending["ca_file"])
    how = Sending(**sending)
    options: dict[str, Any] = {
        "sending": how, "processes": processes, "slo_s": slo_s, "largest_lateness_s": largest_lateness_s,
        "devices": devices, "progress": progress,
    }  # fmt: skip

    def arriving(profile: Profile) -> Workload:
        workload = workload_of(profile, arrivals, seed=seed)
        if uplink is None:
            return workload
        arrived = replace(uplink, slo_s=None).carry(workload)  # only the trace's own deadlines are sent
        options["under_way_s"] = arrived.communication_s
        return arrived.workload

    if plan is None:
        measured, folder = _profile_of(profile)
        source = source_of(measured, folder, project=project, emulated=emulated)
        workload = arriving(measured)
        return run_replay(str(target), workload, source, **options)
    require(not isinstance(profile, Profile), "a plan file is served with a profile on disk", remedy="name its folder")
    task = read_task(
        plan,
        "emulated" if emulated else "local",
        profile_path=None if profile is None else Path(profile),  # type: ignore[arg-type]
        project_path=None if project is None else Path(project),
    )
    source = source_of(task.profile, Path(), project=task.project, emulated=emulated)
    workload = arriving(task.profile)
    with pinned(task.router_cores):
        return run_replay(InProcessTarget(task, source.output, how), workload, source, **options)


def plan_at(target: PathLike) -> Path | None:
    if "://" in str(target):
        return None
    require(
        Path(target).is_file(), "is neither a plan file nor a URL", where=str(target), remedy="give http://HOST:PORT"
    )
    return Path(target)


def source_of(profile: Profile, folder: Path, *, project: PathLike | None, emulated: bool) -> "SampleSource":
    """The samples of a profile in `folder` with their right answers, or recorded sample numbers.

    Without labels, the strongest model's answers count as right.
    """
    from gearshift.load_generator.sources import source_from_records, source_from_samples
    from gearshift.models.samples import load_samples

    if emulated:
        return source_from_records(profile.predictions, profile.operator)
    if project is None and profile.project is None:
        raise InvalidInput(
            "the profile was imported and names no project to take samples from",
            remedy="replay against emulated devices with --emulated, or name a project",
        )
    path = project_file(Path(project)) if project is not None else folder / str(profile.project)
    samples = load_samples(read_project(path), path.parent)
    labels: Any = samples.labels
    if labels is None:
        answers = profile.predictions.prediction
        require(answers is not None, "the samples have no labels to judge answers by", where=str(path))
        labels = answers[profile.predictions.rows((strongest_model(profile.whole_curves),))[0]]  # type: ignore[index]
    return source_from_samples(samples.arrays, labels, profile.operator)


def _profile_of(profile: Profile | PathLike | None) -> tuple[Profile, Path]:
    if isinstance(profile, Profile):
        return profile, Path()
    folder = Path("profile" if profile is None else profile)
    return read_profile(folder, remedy=NAME_IT), folder


# Predicted and measured ----------------------------------------------------------------------------------------------


class ModelErrors(msgspec.Struct, frozen=True, kw_only=True):
    """Prediction errors for one model.

    `samples_per_request` is a difference, `mean_batch` relative to the measured value.
    """

    samples_per_request: float
    mean_batch: float


class Errors(msgspec.Struct, frozen=True, kw_only=True):
    """Prediction errors, positive where the prediction was too high.

    Latency errors are relative to the measured value, errors of shares are differences.
    """

    p50: float
    p95: float
    p99: float
    share_late: float
    share_degraded: float
    share_refused: float
    accuracy: float
    models: dict[str, ModelErrors]


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """The same samples, simulated and served at the instants at which they were sent.

    Times are on the server's clock. Latencies of both count from when a request was due; late
    sending by the generator is part of both.
    """

    predicted: ServingResult
    measured: ServingResult
    errors: Errors
    split: "LatencySplit"
    overheads: Overheads
    simulation: "Simulation"
    replay: "Replay"

    def broken(self, *, within: float | None, within_points: float | None) -> list[str]:
        """Describe the bounds that do not hold, one sentence each.

        `within` bounds the error of p95, `within_points` those of shares.
        """
        errors = self.errors
        bounds = (
            ("p95", errors.p95, within, f"{100 * errors.p95:+.1f} %"),
            ("the share late", errors.share_late, within_points, f"{100 * errors.share_late:+.2f} points"),
            ("the share degraded", errors.share_degraded, within_points, f"{100 * errors.share_degraded:+.2f} points"),
            ("the share refused", errors.share_refused, within_points, f"{100 * errors.share_refused:+.2f} points"),
            ("accuracy", errors.accuracy, within_points, f"{100 * errors.accuracy:+.2f} points"),
        )
        return [
            f"{name} is off by {told}"
            for name, error, bound, told in bounds
            if bound is not None and abs(error) > bound
        ]

    def as_json(self) -> dict[str, object]:
        run = self.replay
        return {
            "predicted": self.predicted,
            "measured": self.measured,
            "errors": self.errors,
            "split": self.split,
            "overheads": self.overheads,
            "lateness_s": run.lateness,
            "failed": run.failed,
            "valid": run.valid,
            "why_invalid": run.why_invalid,
            "warnings": run.warnings,
        }


def validate(
    plan: PathLike,
    trace: Trace | PathLike | None = None,
    *,
    backend: Literal["local", "emulated", "ray"] = "local",
    profile: PathLike | None = None,
    project: PathLike | None = None,
    seed: int | None = None,
    server_cores: frozenset[int] | None = None,
    generator_cores: frozenset[int] | None = None,
    progress: "Progress | None" = None,
    **options: Any,
) -> Validation:
    """Serve a plan file in another process, replay a trace against it, and simulate the same.

    The trace is by default the plan's. Server and simulation get the same samples at the instants
    at which they were sent, on the server's clock, with the same bound on waiting requests, and
    count lateness by the plan's latency objective. While load is generated this process keeps to
    `generator_cores`, by default those that the devices leave; `options` are those of `replay`.
    """
    from gearshift.runtime.backends.local import router_cores
    from gearshift.serving.operate.child_server import ChildServer
    from gearshift.serving.serve import pinned
    from gearshift.simulator.as_ran import as_ran, run_time_ratios, split_latency
    from gearshift.simulator.simulate import prepare

    path = Path(plan)
    made, measured = plan_and_profile(path, profile)
    arrivals = trace_for(made, path, trace, seed=seed)
    workload, prepared = workload_of(measured, arrivals, seed=seed), prepare(made, measured)
    slo_s = made.pipelines[only_pipeline(made)].objective.latency_s
    flags = [f"--backend={backend}"]
    flags += [f"--{name}={place}" for name, place in (("profile", profile), ("project", project)) if place is not None]
    if generator_cores is None and backend == "local":
        generator_cores = router_cores(made.hardware)
    with ChildServer(path, *flags, cores=server_cores) as server, pinned(generator_cores):
        server_began_ns = _began_ns(server.url)
        run = replay(
            server.url,
            arrivals,
            path.parent / made.profile.path if profile is None else profile,
            project=project,
            emulated=backend == "emulated",
            slo_s=slo_s,
            seed=seed,
            devices=len(made.hardware.devices),
            progress=progress,
            **options,
        )
    sent, lateness_s = _as_sent(workload, run, server_began_ns)
    backlog = backlog_of(made, prepared.tables, measured)
    origin_ns = run.effort.began_ns - server_began_ns

    def simulated(of: "Prepared") -> "Simulation":
        ran = of.run(sent, most_waiting=backlog.most_waiting)
        lasts_s = workload.duration_s + origin_ns / NS_PER_S  # figures per second are over the trace's time
        lasted = replace(sent, duration_s=lasts_s)
        return replace(ran, workload=lasted, communication_s=lateness_s).counted_from(origin_ns)

    simulation = simulated(prepared)
    predicted = simulation.result(measured, latency_objective_s=slo_s)
    ratios = {}
    if prepared.core_run_ns is None:
        ran = {model: (one.batches, one.samples, one.run_s) for model, one in run.runs.items()}
        ratios = run_time_ratios(simulation, expected_ns(made, prepared.tables, measured), ran)
    return Validation(
        predicted=predicted,
        measured=run.result,
        errors=_errors(predicted, run.result, _samples_and_batches(simulation), run),
        split=split_latency(
            prepared.run(workload, most_waiting=backlog.most_waiting),
            simulation,
            simulated(as_ran(prepared, ratios)),
            run.result.latency_s,
            ratios,
        ),
        overheads=overheads_of(measured, prepared.tables.models),
        simulation=simulation,
        replay=run,
    )


def _began_ns(url: str) -> int:
    """When the server's clock began, on this machine's clock, by the quickest of a few answers."""
    from gearshift.serving.operate.control_client import Operator

    operator, known = Operator(url), list[tuple[int, int]]()
    for _ in range(ASKED_FOR_CLOCK):
        before_ns = time.monotonic_ns()
        uptime_s = operator.status().uptime_s
        took_ns = time.monotonic_ns() - before_ns
        known.append((took_ns, before_ns + took_ns // 2 - to_ns(uptime_s)))
    return min(known)[1]


def _as_sent(workload: Workload, run: "Replay", server_began_ns: int) -> tuple[Workload, NDArray[np.float64]]:
    """The workload as sent, on the server's clock, and how late each request was (n,).

    The server's clock sets the meter's windows and the idle time before the first request.
    """
    order = np.argsort(run.log.sent_s, kind="stable")
    server_age_ns = run.effort.began_ns - server_began_ns
    arrivals_ns = server_age_ns + np.rint(run.log.sent_s[order] * NS_PER_S).astype(np.int64)
    deadline_ns = workload.deadline_ns
    if deadline_ns is not None:
        left_ns = np.where(deadline_ns < NO_DEADLINE_NS, deadline_ns - workload.arrivals_ns, NO_DEADLINE_NS)[order]
        deadline_ns = np.where(left_ns < NO_DEADLINE_NS, arrivals_ns + left_ns, NO_DEADLINE_NS)
    sent = replace(
        workload,
        arrivals_ns=arrivals_ns,
        record=workload.record[order],
        deadline_ns=deadline_ns,
        duration_s=workload.duration_s + server_age_ns / NS_PER_S,
    )
    return sent, run.log.lateness_s[order]


def _samples_and_batches(simulation: "Simulation") -> dict[str, tuple[int, int]]:
    counted = dict.fromkeys(simulation.tables.models, (0, 0))
    for replica, by_size in enumerate(simulation.batches.tolist()):
        model = simulation.tables.model_of(replica)
        samples, batches = counted[model]
        ran = sum(size * count for size, count in enumerate(by_size))
        counted[model] = samples + ran, batches + sum(by_size)
    return counted


def _errors(
    predicted: ServingResult, measured: ServingResult, simulated: Mapping[str, tuple[int, int]], run: "Replay"
) -> Errors:
    models = {}
    for model, (samples, batches) in simulated.items():
        ran = run.runs.get(model)
        ran_samples, ran_batches = (0, 0) if ran is None else (ran.samples, ran.batches)
        models[model] = ModelErrors(
            samples_per_request=(samples - ran_samples) / predicted.requests,
            mean_batch=_relative(samples / max(1, batches), ran_samples / max(1, ran_batches)),
        )
    return Errors(
        p50=_relative(predicted.latency_s.p50, measured.latency_s.p50),
        p95=_relative(predicted.latency_s.p95, measured.latency_s.p95),
        p99=_relative(predicted.latency_s.p99, measured.latency_s.p99),
        share_late=predicted.share_late - measured.share_late,
        share_degraded=predicted.share_degraded - measured.share_degraded,
        share_refused=predicted.share_refused - measured.share_refused,
        accuracy=predicted.accuracy - measured.accuracy,
        models=models,
    )


def _relative(predicted: float, measured: float) -> float:
    if predicted == measured:
        return 0.0
    return predicted / measured - 1 if measured else float("inf")
