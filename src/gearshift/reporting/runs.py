"""Runs as series over time and over percentiles: simulated, replayed here, or read from a file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from gearshift.clock import NS_PER_S
from gearshift.load_generator.replay_result import Replay
from gearshift.profiles.profile import Profile
from gearshift.result import ServingResult, percentile, percentiles
from gearshift.simulator.simulate import Simulation

Kind = Literal["predicted", "measured"]
Floats = NDArray[np.float64]

MOST_BINS = 400
BINS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 86400)
WINDOWS, IN_WINDOW, LEAST_IN_WINDOW = 40, 60, 20
"""Accuracy and latency over time are those of a window of this share of the trace, or of about this many answers."""
FINE = 20
"""A gear in force is looked at this often in each bin."""
_NINES = 1 - 10 ** -np.linspace(0, 3, 91)


class Course(msgspec.Struct, frozen=True, kw_only=True):
    """A run over time, in bins of `bin_s` from each of `seconds` (n,) on, and its latencies.

    `load_qps`, `p95_s`, `accuracy` and `gear` (n,) are of the requests that were due then; p95 and
    accuracy are unknown, NaN or null, where there were too few. `latency_s` (k,) are those at the
    rising shares `share` (k,) of the answered requests.
    """

    bin_s: float
    seconds: list[float]
    load_qps: list[float]
    p95_s: list[float | None]
    accuracy: list[float | None]
    gear: list[int]
    share: list[float]
    latency_s: list[float]

    def __post_init__(self) -> None:
        n = len(self.seconds)
        fits = all(len(each) == n for each in (self.load_qps, self.p95_s, self.accuracy, self.gear))
        if not (fits and 0 < n <= MOST_BINS + 1 and self.bin_s > 0 and len(self.share) == len(self.latency_s)):
            raise ValueError("its course over time has arrays of different lengths")
        if min(self.gear) < 0:
            raise ValueError("its course over time has a gear below 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSeries:
    """One run of a system: its figures, and its course over time.

    `in_force` is the accuracy that the plan predicts for the gears in force in each bin. Two runs of
    one `name`, one predicted and one measured, stand together.
    """

    name: str
    kind: Kind
    result: ServingResult
    course: Course | None = None
    in_force: Floats | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """The ends of requests: arrivals (n,) of all, and of the answered (m,) arrival, latency and quality.

    `shifts` are seconds and the gear from then on.
    """

    arrivals_s: Floats
    answered_s: Floats
    latency_s: Floats
    quality: Floats
    shifts: Sequence[tuple[float, int]] = ()


def predicted_series(
    name: str,
    run: Simulation,
    profile: Profile | Mapping[str, Profile],
    slo_s: float | None,
    *,
    pipeline: str | None = None,
    of_gears: Sequence[float] | None = None,
) -> RunSeries:
    """The series of a simulation, or of one of its pipelines; `profile` is by operator then.

    `of_gears` are the accuracies that the plan predicts for its gears.
    """
    result = run.result(profile, latency_objective_s=slo_s, pipeline=pipeline)
    run = run if pipeline is None else run.of(pipeline)
    arrivals_s, latency_s = run.workload.arrivals_ns / NS_PER_S, run.latency_s
    first = np.ones(len(arrivals_s), dtype=bool) if run.workload.continues is None else ~run.workload.continues
    answered = run.finished_ns >= 0
    whole = Answers(
        arrivals_s=arrivals_s[first],
        answered_s=arrivals_s[answered],
        latency_s=latency_s[answered] if len(latency_s) == len(answered) else np.full(int(answered.sum()), np.nan),
        quality=run.quality(profile),
        shifts=[(at / NS_PER_S, gear) for at, gear in run.shifts.tolist()],
    )
    return series(name, "predicted", result, whole, latency_s[~np.isnan(latency_s)], of_gears)


def measured_series(name: str, run: Replay, of_gears: Sequence[float] | None = None) -> RunSeries:
    """The series of a replay; requests count from the instant at which they were due."""
    answered = run.log.answered
    whole = Answers(
        arrivals_s=run.log.due_s,
        answered_s=run.log.due_s[answered],
        latency_s=run.log.latency_s[answered],
        quality=run.log.quality[answered],
        shifts=run.gears,
    )
    return series(name, "measured", run.result, whole, whole.latency_s, of_gears)


def series(
    name: str,
    kind: Kind,
    result: ServingResult,
    answers: Answers,
    latency_s: Floats,
    of_gears: Sequence[float] | None = None,
) -> RunSeries:
    course = course_of(answers, latency_s)
    by_gear = None if of_gears is None else in_force(answers.shifts, of_gears, course)
    return RunSeries(name=name, kind=kind, result=result, course=course, in_force=by_gear)


def course_of(answers: Answers, latency_s: Floats) -> Course:
    """Put the answers into bins of whole seconds; `latency_s` are all latencies, for the quantiles."""
    lasts_s = float(answers.arrivals_s.max(initial=0.0))
    bin_s = float(next((width for width in BINS_S if lasts_s / width <= MOST_BINS), lasts_s / MOST_BINS))
    bins = int(lasts_s / bin_s) + 1
    counts = np.bincount((answers.arrivals_s / bin_s).astype(np.int64), minlength=bins)
    seconds: Floats = np.arange(bins, dtype=np.float64) * bin_s
    judged = ~np.isnan(answers.quality)
    share, quantiles = latency_quantiles(latency_s)
    return Course(
        bin_s=bin_s,
        seconds=seconds.tolist(),
        load_qps=(counts / bin_s).tolist(),
        p95_s=p95_over_time(answers.answered_s, answers.latency_s, bins, bin_s),
        accuracy=mean_over_time(answers.answered_s[judged], answers.quality[judged], bins, bin_s).tolist(),
        gear=gear_series(answers.shifts, seconds).tolist(),
        share=share.tolist(),
        latency_s=quantiles,
    )


def latency_quantiles(latency_s: Floats) -> tuple[Floats, list[float]]:
    """Rising shares of the answered requests, dense towards the 99.9th, and the latencies (n,) at them."""
    highest = max(0.5, 1 - 1 / max(1, len(latency_s)))
    shares = _NINES[highest >= _NINES] if len(latency_s) else np.zeros(0)
    return shares, percentiles(latency_s, shares.tolist())


def gear_series(gears: Sequence[tuple[float, int]], seconds: Floats) -> NDArray[np.int64]:
    """The gear in force at each of `seconds` (n,); gear 0 before the first shift."""
    times = np.array([time for time, _ in gears], dtype=np.float64)
    values = np.array([0, *(gear for _, gear in gears)], dtype=np.int64)
    return values[np.searchsorted(times, seconds, side="right")]


def in_force(shifts: Sequence[tuple[float, int]], of_gears: Sequence[float], course: Course) -> Floats:
    """The mean accuracy of the gears in force in each bin: gears that are alike make no steps."""
    fine = (np.array(course.seconds)[:, None] + (np.arange(FINE) + 0.5) * course.bin_s / FINE).ravel()
    gears = np.minimum(gear_series(shifts, fine), len(of_gears) - 1)
    return np.asarray(np.asarray(of_gears, dtype=np.float64)[gears].reshape(-1, FINE).mean(axis=1))


def mean_over_time(arrivals_s: Floats, values: Floats, bins: int, bin_s: float) -> Floats:
    """The mean value (n,) in a window about each bin; NaN where fewer than a few answers are in it."""
    at, window = (arrivals_s / bin_s).astype(np.int64), np.ones(_window(bins, len(values)))
    sums, counts = (
        np.convolve(np.bincount(at, weights=weights, minlength=bins), window)[len(window) // 2 :][:bins]
        for weights in (values, np.ones(len(at)))
    )
    return np.asarray(np.divide(sums, counts, out=np.full(bins, np.nan), where=counts >= LEAST_IN_WINDOW - 0.5))


def p95_over_time(arrivals_s: Floats, latency_s: Floats, bins: int, bin_s: float) -> list[float | None]:
    """The 95th percentile of latency in a window about each bin; NaN where it has too few answers."""
    known = ~np.isnan(latency_s)
    order = np.argsort(arrivals_s[known], kind="stable")
    arrivals_s, latency_s = arrivals_s[known][order], latency_s[known][order]
    middles, half = (np.arange(bins) + 0.5) * bin_s, _window(bins, len(latency_s)) * bin_s / 2
    from_, to = (np.searchsorted(arrivals_s, middles + side * half) for side in (-1, 1))
    return [
        percentile(latency_s[a:b], 0.95) if b - a >= LEAST_IN_WINDOW else np.nan for a, b in zip(from_, to, strict=True)
    ]


def _window(bins: int, answers: int) -> int:
    return max(1, -(-bins // WINDOWS), -(-bins * IN_WINDOW // max(1, answers)))
