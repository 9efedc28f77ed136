"""Confirmation: replaying the full trace on several arrival seeds before a plan is believed."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy import stats

from gearshift.gear import GearPlan
from gearshift.profiles.profile import Profile
from gearshift.result import LatencySummary, ServingResult, wilson_interval
from gearshift.result import percentile as percentile_of
from gearshift.simulator.simulate import simulate
from gearshift.workload import Trace, Workload, draw_workload

SEEDS = 5
REDRAW_WINDOW_NS = 100_000_000


@dataclass(frozen=True, slots=True)
class Confirmation:
    """Share late and percentile latency per seed (seeds,), and the figures of all runs together."""

    share_late: NDArray[np.float64]
    latency_s: NDArray[np.float64]
    result: ServingResult

    def share_late_bound(self) -> float:
        """Upper 95 % confidence bound (Student's t) of the mean share late."""
        n = len(self.share_late)
        if n == 1:
            return float(self.share_late[0])
        spread = float(self.share_late.std(ddof=1)) / n**0.5
        return float(self.share_late.mean() + stats.t.ppf(0.95, n - 1) * spread)


def redrawn(trace: Trace, seed: int) -> Trace:
    """The trace with every arrival moved at random within its 100 ms; seed 0 leaves it as it is.

    Bursts keep their place and size at the scale at which load is metered; only the order within is drawn anew.
    """
    if seed == 0:
        return trace
    generator = np.random.default_rng([seed, 2])
    windows = trace.arrivals_ns // REDRAW_WINDOW_NS
    moved = windows * REDRAW_WINDOW_NS + generator.integers(0, REDRAW_WINDOW_NS, len(trace))
    end_ns = int(max(trace.arrivals_ns[-1], trace.duration_s * 1e9 - 1))
    return Trace(arrivals_ns=np.minimum(np.sort(moved), end_ns), duration_s=trace.duration_s)


def workload_of(trace: Trace, profile: Profile, *, part: int, seed: int) -> Workload:
    """The trace redrawn with `seed`, carrying samples of a part."""
    return draw_workload(redrawn(trace, seed), profile.predictions.indices(part), seed=seed)


def confirm(
    plan: GearPlan,
    profile: Profile,
    trace: Trace,
    *,
    part: int,
    latency_objective_s: float,
    percentile: float,
    seeds: int,
) -> Confirmation:
    """Replay `trace` under `plan` with the samples of `part`, once per seed, side by side."""

    def replay(seed: int) -> tuple[ServingResult, float]:
        run = simulate(plan, profile, workload_of(trace, profile, part=part, seed=seed))
        result = run.result(profile, latency_objective_s=latency_objective_s)
        return result, percentile_of(run.latency_s, percentile)

    with ThreadPoolExecutor(max_workers=2) as pool:
        runs = list(pool.map(replay, range(seeds)))
    results = [result for result, _ in runs]
    return Confirmation(
        share_late=np.array([r.share_late for r in results]),
        latency_s=np.array([latency_s for _, latency_s in runs]),
        result=_together(results, independent=len(profile.predictions.indices(part))),
    )


def _together(results: list[ServingResult], *, independent: int) -> ServingResult:
    """Means over the runs; the accuracy interval from the recorded samples, the latency interval from the spread."""

    def mean(values: list[float]) -> float:
        return float(np.mean(values))

    first = results[0]
    accuracy = mean([r.accuracy for r in results])
    p95s = [r.latency_s.p95 for r in results]
    latency = {name: mean([getattr(r.latency_s, name) for r in results]) for name in ("mean", "p50", "p95", "p99")}
    return msgspec.structs.replace(
        first,
        accuracy=accuracy,
        accuracy_interval=wilson_interval(accuracy, min(independent, first.requests)),
        latency_s=LatencySummary(**latency),
        latency_p95_interval_s=(min(p95s), max(p95s)),
        share_late=mean([r.share_late for r in results]),
        share_refused=mean([r.share_refused for r in results]),
        goodput_qps=mean([r.goodput_qps for r in results]),
        utilisation={d: mean([r.utilisation[d] for r in results]) for d in first.utilisation},
    )
