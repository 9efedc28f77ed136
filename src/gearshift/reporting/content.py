"""The content of a report, and how it is put together from a plan, its profile, and runs.

Every part is optional, and a missing part leaves its chart out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gearshift.clock import NS_PER_S
from gearshift.errors import require
from gearshift.gear import GearPlan
from gearshift.load_generator.replay_result import Replay
from gearshift.planner.space.cascade_search import search_cascades, work_per_request_s
from gearshift.profiles.profile import Profile
from gearshift.reporting.gear_rows import gear_rows
from gearshift.reporting.headline import percentile_name
from gearshift.result import ServingResult, percentile
from gearshift.simulator.simulate import Simulation

Kind = Literal["predicted", "measured"]

MOST_DOTS = 1500
STEP_S = 0.25
WINDOW_S, WINDOWS = 1.0, 40
"""Accuracy over time is a mean over a second, or over a share of a longer trace."""
_NINES = 1 - 10 ** -np.linspace(0, 3, 121)


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidatePoint:
    """A cascade that the planner considered: accuracy in [0, 1], mean seconds per sample.

    `on_front`: no other is both more accurate and cheaper. `used`: some gear serves it.
    """

    cascade: str
    accuracy: float
    mean_run_s: float
    on_front: bool = False
    used: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RangePoint:
    """The prediction for one load range `[from_qps, to_qps)`; the last has no upper end.

    `gear` are gear numbers, such as "3-7". `cores` are those of its models, where they change with
    load. `at_qps` is the load of the prediction, where that is not the range's upper end.
    """

    from_qps: float
    to_qps: float | None
    cascade: str
    accuracy: float
    p95_s: float
    share_late: float
    cores: str = ""
    gear: str = ""
    at_qps: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyQuantiles:
    """Latency in seconds (k,) at rising shares (k,) of the answered requests."""

    share: NDArray[np.float64]
    latency_s: NDArray[np.float64]

    def __post_init__(self) -> None:
        require(len(self.share) == len(self.latency_s), "latency quantiles: shares and latencies differ in number")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSeries:
    """One run of a system: figures, latencies, and load, gear and accuracy (n,) at `seconds` (n,) if known.

    The accuracy is that of the answers to what arrived about then; NaN where there is none. Two runs
    of one `name`, one predicted and one measured, share a row of the summary.
    """

    name: str
    kind: Kind
    result: ServingResult
    seconds: NDArray[np.float64] | None = None
    load_qps: NDArray[np.float64] | None = None
    gear: NDArray[np.int64] | None = None
    accuracy: NDArray[np.float64] | None = None
    latency_quantiles: LatencyQuantiles | None = None

    def __post_init__(self) -> None:
        points = 0 if self.seconds is None else len(self.seconds)
        for name, array in (("load_qps", self.load_qps), ("gear", self.gear), ("accuracy", self.accuracy)):
            require(array is None or len(array) == points, f"run {self.name!r}: {name} does not fit its seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportContent:
    """The content of a page.

    `note` is shown under the title; `slo_s` is the latency objective in seconds. `percentile`
    names the predicted latency of the ranges.
    """

    title: str
    note: str = ""
    plan: GearPlan | None = None
    candidates: Sequence[CandidatePoint] = field(default=())
    ranges: Sequence[RangePoint] = field(default=())
    runs: Sequence[RunSeries] = field(default=())
    slo_s: float | None = None
    percentile: str = "p95"


def latency_quantiles(latency_s: NDArray[np.float64]) -> LatencyQuantiles:
    """Quantiles of the latencies (n,) of answered requests, dense towards the 99.9th."""
    if len(latency_s) == 0:
        return LatencyQuantiles(share=np.zeros(0), latency_s=np.zeros(0))
    highest = max(0.5, 1 - 1 / len(latency_s))
    shares = _NINES[highest >= _NINES]
    rising = np.sort(latency_s)
    return LatencyQuantiles(share=shares, latency_s=np.array([percentile(rising, float(p)) for p in shares]))


def gear_series(gears: Sequence[tuple[float, int]], seconds: NDArray[np.float64]) -> NDArray[np.int64]:
    times = np.array([time for time, _ in gears], dtype=np.float64)
    values = np.array([0, *(gear for _, gear in gears)], dtype=np.int64)
    return values[np.searchsorted(times, seconds, side="right")]


def accuracy_series(arrivals_s: NDArray[np.float64], quality: NDArray[np.float64], steps: int) -> NDArray[np.float64]:
    """The mean quality (n,) of answers in a window about each of `steps`; NaN where nothing was answered."""
    known = ~np.isnan(quality)
    at = (arrivals_s[known] / STEP_S).astype(np.int64)
    window = np.ones(max(1, round(WINDOW_S / STEP_S), steps // WINDOWS))
    sums, counts = (
        np.convolve(np.bincount(at, weights=weights, minlength=steps), window)[len(window) // 2 :][:steps]
        for weights in (quality[known], np.ones(len(at)))
    )
    return np.asarray(np.divide(sums, counts, out=np.full(steps, np.nan), where=counts > 0.5))


def compose(
    plan: GearPlan,
    profile: Profile,
    *,
    title: str,
    note: str = "",
    simulations: Sequence[tuple[str, Simulation]] = (),
    replays: Sequence[tuple[str, Replay]] = (),
) -> ReportContent:
    pipeline = plan.pipeline
    slo_s = pipeline.objective.latency_s
    predicted = [predicted_series(name, run, profile, slo_s) for name, run in simulations]
    return ReportContent(
        title=title,
        note=note,
        plan=plan,
        candidates=candidate_points(plan, profile),
        ranges=range_points(plan, plan.name),
        runs=[*predicted, *(measured_series(name, run) for name, run in replays)],
        slo_s=slo_s,
        percentile=percentile_name(pipeline.objective),
    )


def range_points(plan: GearPlan, pipeline: str) -> list[RangePoint]:
    return [
        RangePoint(
            from_qps=row.load_range.from_,
            to_qps=row.load_range.to,
            cascade=row.cascade,
            accuracy=row.predicted.accuracy,
            p95_s=row.predicted.latency_p95_s,
            share_late=row.predicted.share_late,
            cores=row.cores,
            gear=row.numbers,
            at_qps=row.predicted_elsewhere_qps,
        )
        for row in gear_rows(plan, pipeline)
        if row.predicted is not None
    ]


def candidate_points(plan: GearPlan, profile: Profile) -> list[CandidatePoint]:
    """The front, the cascades in use, and a sample of the other candidates."""
    used = {gear.cascade for pipeline in plan.pipelines.values() for gear in pipeline.gears}
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


def predicted_series(
    name: str,
    run: Simulation,
    profile: Profile | Mapping[str, Profile],
    slo_s: float | None,
    *,
    pipeline: str | None = None,
) -> RunSeries:
    """The series of a simulation, or of one of its pipelines; `profile` is by operator then."""
    result = run.result(profile, latency_objective_s=slo_s, pipeline=pipeline)
    run = run if pipeline is None else run.of(pipeline)
    shifts = [(at / NS_PER_S, gear) for at, gear in run.shifts.tolist()]
    latency_s, arrivals_s = run.latency_s, run.workload.arrivals_ns / NS_PER_S
    answered = run.finished_ns >= 0
    return _series(
        name,
        "predicted",
        result,
        arrivals_s,
        shifts,
        latency_s[~np.isnan(latency_s)],
        (arrivals_s[answered], run.quality(profile)),
    )


def measured_series(name: str, run: Replay) -> RunSeries:
    answered = run.log.answered
    judged = run.log.sent_s[answered], run.log.quality[answered]
    return _series(name, "measured", run.result, run.log.sent_s, run.gears, run.log.latency_s[answered], judged)


def _series(
    name: str,
    kind: Kind,
    result: ServingResult,
    arrivals_s: NDArray[np.float64],
    gears: Sequence[tuple[float, int]],
    latency_s: NDArray[np.float64],
    judged: tuple[NDArray[np.float64], NDArray[np.float64]],
) -> RunSeries:
    """`judged` are the instants of the answered requests and the quality of their answers."""
    steps = int(arrivals_s.max() / STEP_S) + 1
    counts = np.bincount((arrivals_s / STEP_S).astype(np.int64), minlength=steps)
    seconds: NDArray[np.float64] = np.arange(len(counts), dtype=np.float64) * STEP_S + STEP_S / 2
    return RunSeries(
        name=name,
        kind=kind,
        result=result,
        seconds=seconds,
        load_qps=counts / STEP_S,
        gear=gear_series(gears, seconds),
        accuracy=accuracy_series(*judged, len(seconds)),
        latency_quantiles=latency_quantiles(latency_s),
    )
