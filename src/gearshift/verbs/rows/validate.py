"""Serve the pipelines of a plan, replay their traces, simulate the same requests, and compare."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType
from numpy.typing import NDArray

from gearshift.clock import NS_PER_S, to_ns
from gearshift.gear import GearPlan
from gearshift.profiles.backlog import backlog_of
from gearshift.profiles.profile import Overheads, Profile, overheads_of
from gearshift.profiles.run_times import expected_ns
from gearshift.profiles.several import as_one
from gearshift.profiles.tuples import JointRecords
from gearshift.request import NO_DEADLINE_NS
from gearshift.result import ServingResult
from gearshift.support.files import PathLike
from gearshift.verbs.common.inputs import Notice, noted, traces_of
from gearshift.verbs.common.options import Backend
from gearshift.verbs.common.sending import Traces
from gearshift.verbs.common.served_apart import served_apart
from gearshift.verbs.rows.replay import objectives_s, recorded_for, sender, streams_of, task_at
from gearshift.workload import Workload, merge_workloads

if TYPE_CHECKING:
    from gearshift.load_generator.replay_result import Replay
    from gearshift.simulator.as_ran import LatencySplit
    from gearshift.simulator.simulate import Prepared, Simulation

ASKED_FOR_CLOCK = 5


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
    share_by_time: float | UnsetType = UNSET
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
    traces: Traces,
    *,
    backend: Backend = "local",
    profile: PathLike | None = None,
    project: PathLike | None = None,
    seed: int | None = None,
    server_cores: frozenset[int] | None = None,
    generator_cores: frozenset[int] | None = None,
    notice: Notice = noted,
    **how: Any,
) -> dict[str, Validation]:
    """As `gearshift.validate`, by pipeline; `how` is as of `sender`."""
    from gearshift.runtime.backends.local import router_cores
    from gearshift.serving.rows.make_passing import joint_records_of
    from gearshift.simulator.simulate import prepare
    from gearshift.support.processors import pinned

    path = Path(plan)
    task = task_at(path, backend, profile, project, server_cores)
    made, joint = task.plan, joint_records_of(task)
    prepared, arrivals = prepare(made, task.profiles, joint), traces_of(made, path, traces, seed=seed, notice=notice)
    streams = streams_of(recorded_for(task), arrivals, objectives_s(made), seed=seed)
    send = sender(streams, devices=len(made.hardware.devices), **how)
    if generator_cores is None and backend == "local":
        generator_cores = router_cores(made.hardware)
    server = served_apart(path, backend=backend, profile=profile, project=project, cores=server_cores)
    with server, pinned(generator_cores):
        began_ns = server_began_ns(server.url)
        runs = send(server.url)
    workloads = {name: stream.workload for name, stream in streams.items()}
    return validations(made, task.profiles, prepared, workloads, runs, began_ns, joint=joint)


def validations(
    plan: GearPlan,
    profiles: Mapping[str, Profile],
    prepared: "Prepared",
    workloads: Mapping[str, Workload],
    runs: "Mapping[str, Replay]",
    began_ns: int,
    *,
    joint: Mapping[str, JointRecords] = {},
) -> dict[str, Validation]:
    """Simulate what was sent to all pipelines at once, and compare it with what was measured of each.

    `profiles` are by operator, `workloads` and `runs` by pipeline in the plan's order, `joint` the
    records of graphs; the server's clock began at `began_ns`.
    """
    from gearshift.simulator.as_ran import as_ran, run_time_ratios, split_latency

    profile, tables = as_one(profiles), prepared.tables
    sent = {name: _as_sent(workloads[name], runs[name], began_ns) for name in workloads}
    first = next(iter(runs.values()))
    bounds = [backlog_of(plan, tables, profiles, joint=joint, pipeline=name) for name in workloads]
    most_waiting = [bound.most_waiting for bound in bounds]
    origin_ns = first.effort.began_ns - began_ns
    joined, lateness_s = _joined(list(sent.values()))
    lasts_s = max(each.duration_s for each in workloads.values()) + origin_ns / NS_PER_S

    def simulated(of: "Prepared") -> "Simulation":
        ran = of.run(joined, most_waiting=most_waiting)
        lasted = replace(joined, duration_s=lasts_s)  # figures per second are over the trace's time
        return replace(ran, workload=lasted, communication_s=lateness_s).counted_from(origin_ns)

    simulation = simulated(prepared)
    ratios = {}
    if prepared.core_run_ns is None:
        ran = {model: (one.batches, one.samples, one.run_s) for model, one in first.runs.items()}
        ratios = run_time_ratios(simulation, expected_ns(plan, tables, profile), ran)
    due, _ = _joined([(each, None) for each in workloads.values()])
    planned = prepared.run(due, most_waiting=most_waiting)
    as_measured = simulated(as_ran(prepared, ratios))
    counted = _samples_and_batches(simulation)
    made = {}
    for name, run in runs.items():
        objective_s = plan.pipelines[name].objective.latency_s
        predicted = simulation.result(profiles, latency_objective_s=objective_s, pipeline=name)
        own = tables.models_used_by(tables.pipeline_named(name).number)
        made[name] = Validation(
            predicted=predicted,
            measured=run.result,
            errors=_errors(predicted, run.result, {model: counted[model] for model in counted if model in own}, run),
            split=split_latency(
                planned.of(name), simulation.of(name), as_measured.of(name), run.result.latency_s, ratios
            ),
            overheads=overheads_of(profile, [model for model in tables.models if model in own]),
            simulation=simulation.of(name),
            replay=run,
        )
    return made


Lateness = NDArray[np.float64] | None


def _joined(sent: Sequence[tuple[Workload, Lateness]]) -> tuple[Workload, Lateness]:
    """The workloads of all pipelines as one, and the lateness of its requests."""
    if len(sent) == 1:
        return sent[0]
    workloads = [workload for workload, _ in sent]
    order = np.argsort(np.concatenate([workload.arrivals_ns for workload in workloads]), kind="stable")
    lateness_s = [late_s for _, late_s in sent if late_s is not None]
    return merge_workloads(workloads), np.concatenate(lateness_s)[order] if lateness_s else None


def server_began_ns(url: str) -> int:
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
        share_by_time=_by_time(predicted, measured),
        accuracy=predicted.accuracy - measured.accuracy,
        models=models,
    )


def _by_time(predicted: ServingResult, measured: ServingResult) -> float | UnsetType:
    if predicted.share_by_time is UNSET:
        return UNSET
    return predicted.share_by_time - (0.0 if measured.share_by_time is UNSET else measured.share_by_time)


def _relative(predicted: float, measured: float) -> float:
    if predicted == measured:
        return 0.0
    return predicted / measured - 1 if measured else float("inf")
