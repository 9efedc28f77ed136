"""Runs as series over time and over percentiles: simulated, replayed here, or read from a file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gearshift.clock import NS_PER_S
from gearshift.errors import require
from gearshift.load_generator.replay_result import Replay
from gearshift.profiles.profile import Profile
from gearshift.result import ServingResult, percentile
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


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyQuantiles:
    """Latency in seconds (k,) at rising shares (k,) of the answered requests."""

    share: Floats
    latency_s: Floats

    def __post_init__(self) -> None:
        require(len(self.share) == len(self.latency_s), "latency quantiles: shares and latencies differ in number")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSeries:
    """One run of a system: its figures, its latencies, and series (n,) over bins from `seconds` (n,) on.

    `bin_s` is the width of the bins. `in_force` is the accuracy that the plan predicts for the gears
    in force, `accuracy` that of the answers to what arrived then, `p95_s` their latency; NaN where
    there were too few. Two runs of one `name`, one predicted and one measured, stand together.
    """

    name: str
    kind: Kind
    result: ServingResult
    seconds: Floats | None = None
    bin_s: float = 1.0
    load_qps: Floats | None = None
    in_force: Floats | None = None
    accuracy: Floats | None = None
    p95_s: Floats | None = None
    latency_quantiles: LatencyQuantiles | None = None

    def __post_init__(self) -> None:
        points = 0 if self.seconds is None else len(self.seconds)
        for name in ("load_qps", "in_force", "accuracy", "p95_s"):
            array = getattr(self, name)
            require(array is None or len(array) == points, f"run {self.name!r}: {name} does not fit its seconds")


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
    """Put the answers into bins of whole seconds; `latency_s` are all latencies, for the quantiles."""
    lasts_s = float(answers.arrivals_s.max(initial=0.0))
    bin_s = next((width for width in BINS_S if lasts_s / width <= MOST_BINS), BINS_S[-1])
    bins = int(lasts_s / bin_s) + 1
    counts = np.bincount((answers.arrivals_s / bin_s).astype(np.int64), minlength=bins)
    seconds: Floats = np.arange(bins, dtype=np.float64) * bin_s
    judged = ~np.isnan(answers.quality)
    accuracy = mean_over_time(answers.answered_s[judged], answers.quality[judged], bins, bin_s)
    return RunSeries(
        name=name,
        kind=kind,
        result=result,
        seconds=seconds,
        bin_s=float(bin_s),
        load_qps=counts / bin_s,
        in_force=None if of_gears is None else in_force(answers.shifts, of_gears, seconds, bin_s),
        accuracy=None if np.isnan(accuracy).all() else accuracy,
        p95_s=p95_over_time(answers.answered_s, answers.latency_s, bins, bin_s),
        latency_quantiles=latency_quantiles(latency_s),
    )


def latency_quantiles(latency_s: Floats) -> LatencyQuantiles:
    """Quantiles of the latencies (n,) of answered requests, dense towards the 99.9th."""
    if len(latency_s) == 0:
        return LatencyQuantiles(share=np.zeros(0), latency_s=np.zeros(0))
    highest = max(0.5, 1 - 1 / len(latency_s))
    shares = _NINES[highest >= _NINES]
    rising = np.sort(latency_s)
    return LatencyQuantiles(share=shares, latency_s=np.array([percentile(rising, float(p)) for p in shares]))


def gear_series(gears: Sequence[tuple[float, int]], seconds: Floats) -> NDArray[np.int64]:
    """The gear in force at each of `seconds` (n,); gear 0 before the first shift."""
    times = np.array([time for time, _ in gears], dtype=np.float64)
    values = np.array([0, *(gear for _, gear in gears)], dtype=np.int64)
    return values[np.searchsorted(times, seconds, side="right")]


def in_force(shifts: Sequence[tuple[float, int]], of_gears: Sequence[float], seconds: Floats, bin_s: float) -> Floats:
    """The mean accuracy of the gears in force in each bin: gears that are alike make no steps."""
    fine = (seconds[:, None] + (np.arange(FINE) + 0.5) * bin_s / FINE).ravel()
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


def p95_over_time(arrivals_s: Floats, latency_s: Floats, bins: int, bin_s: float) -> Floats | None:
    """The 95th percentile of latency in a window about each bin; NaN where it has too few answers."""
    known = ~np.isnan(latency_s)
    order = np.argsort(arrivals_s[known], kind="stable")
    arrivals_s, latency_s = arrivals_s[known][order], latency_s[known][order]
    if not len(latency_s):
        return None
    middles, half = (np.arange(bins) + 0.5) * bin_s, _window(bins, len(latency_s)) * bin_s / 2
    from_, to = (np.searchsorted(arrivals_s, middles + side * half) for side in (-1, 1))
    return np.array(
        [
            percentile(latency_s[a:b], 0.95) if b - a >= LEAST_IN_WINDOW else np.nan
            for a, b in zip(from_, to, strict=True)
        ]
    )


def _window(bins: int, answers: int) -> int:
    return max(1, -(-bins // WINDOWS), -(-bins * IN_WINDOW // max(1, answers)))
