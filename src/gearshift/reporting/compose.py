"""Put together the content of a report from a plan, its profile, and runs."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gearshift.clock import NS_PER_S
from gearshift.gear import GearPlan
from gearshift.load_generator.replay_result import Replay
from gearshift.planner.space.cascade_search import search_cascades, work_per_request_s
from gearshift.plans.plan_tables import only_pipeline
from gearshift.profiles.profile import Profile
from gearshift.reporting.content import (
    CandidatePoint,
    RangePoint,
    ReportContent,
    RunSeries,
    gear_series,
    latency_quantiles,
)
from gearshift.reporting.gear_rows import gear_rows
from gearshift.reporting.headline import percentile_name
from gearshift.simulator.simulate import Simulation

MOST_DOTS = 1500
STEP_S = 0.25


def compose(
    plan: GearPlan,
    profile: Profile,
    *,
    title: str,
    note: str = "",
    simulations: Sequence[tuple[str, Simulation]] = (),
    replays: Sequence[tuple[str, Replay]] = (),
) -> ReportContent:
    operator = plan.pipelines[only_pipeline(plan)]
    slo_s = operator.objective.latency_s
    predicted = [predicted_series(name, run, profile, slo_s) for name, run in simulations]
    return ReportContent(
        title=title,
        note=note,
        plan=plan,
        candidates=candidate_points(plan, profile),
        ranges=[
            RangePoint(
                from_qps=row.load_range.from_,
                to_qps=row.load_range.to,
                cascade=str(row.cascade),
                accuracy=row.predicted.accuracy,
                p95_s=row.predicted.latency_p95_s,
                share_late=row.predicted.share_late,
                cores=row.cores,
                gear=row.numbers,
                at_qps=row.predicted_elsewhere_qps,
            )
            for row in gear_rows(plan, only_pipeline(plan))
            if row.predicted is not None
        ],
        runs=[*predicted, *(measured_series(name, run) for name, run in replays)],
        slo_s=slo_s,
        percentile=percentile_name(operator.objective),
    )


def candidate_points(plan: GearPlan, profile: Profile) -> list[CandidatePoint]:
    """The front, the cascades in use, and a sample of the other candidates."""
    used = {gear.cascade for operator in plan.pipelines.values() for gear in operator.gears}
    work_s = work_per_request_s(profile, plan.hardware.devices[0])
    space = search_cascades(profile.predictions, work_s)
    front = {int(i) for i in space.front()}
    dots = np.unique(np.linspace(0, len(space) - 1, MOST_DOTS).astype(np.int64))
    points = []
    for candidate in sorted(front | {int(i) for i in dots}):
        cascade = space.cascade(candidate)
        points.append(
            CandidatePoint(
                cascade=str(cascade),
                accuracy=float(space.accuracy[candidate]),
                mean_run_s=float(space.work_s[candidate]),
                on_front=candidate in front,
                used=cascade in used,
            )
        )
    return points


def predicted_series(name: str, run: Simulation, profile: Profile, slo_s: float | None) -> RunSeries:
    latency_s = run.latency_s
    seconds, load_qps = load_over_time(run.workload.arrivals_ns / NS_PER_S)
    shifts = [(at / NS_PER_S, gear) for at, gear in run.shifts.tolist()]
    return RunSeries(
        name=name,
        kind="predicted",
        result=run.result(profile, latency_objective_s=slo_s),
        seconds=seconds,
        load_qps=load_qps,
        gear=gear_series(shifts, seconds),
        latency_quantiles=latency_quantiles(latency_s[~np.isnan(latency_s)]),
    )


def measured_series(name: str, run: Replay) -> RunSeries:
    seconds, load_qps = load_over_time(run.log.sent_s)
    return RunSeries(
        name=name,
        kind="measured",
        result=run.result,
        seconds=seconds,
        load_qps=load_qps,
        gear=gear_series(run.gears, seconds),
        latency_quantiles=latency_quantiles(run.log.latency_s[run.log.answered]),
    )


def load_over_time(arrivals_s: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    steps = int(arrivals_s.max() / STEP_S) + 1
    counts = np.bincount((arrivals_s / STEP_S).astype(np.int64), minlength=steps)
    seconds: NDArray[np.float64] = np.arange(len(counts), dtype=np.float64) * STEP_S + STEP_S / 2
    return seconds, counts / STEP_S
