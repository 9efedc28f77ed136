"""Choices replayed on the whole trace by simulation, each once."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gearshift.clock import NS_PER_S
from gearshift.language_workload import LanguageWorkload
from gearshift.objective import Metric, Objective
from gearshift.planner.evaluate.confirm import least_objective_s, share_late_bound, shares_late, slowest_of
from gearshift.planner.language.choices import Choice, PlanMaker
from gearshift.planner.language.request import LanguageRequest
from gearshift.profiles.engines.engine_tables import EngineTables
from gearshift.result import percentile_rank
from gearshift.simulator.engines.language_simulation import LanguageSimulation
from gearshift.simulator.engines.simulate_language import simulate_language

SEEDS = 3
FEW_REQUESTS = 20_000
"""Traces with more requests than this are replayed once."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Replayed:
    """The slowest times for each seed, rising; the mean quality, and the share of each gear, over all seeds."""

    slowest_s: tuple[Floats, ...]
    requests: int
    quality: float
    used: tuple[float, ...]

    def share_late(self, latency_s: float) -> Floats:
        """For each seed (seeds,); too low where more are late than `slowest_s` has, and no limit admits that."""
        return shares_late(self.slowest_s, self.requests, latency_s)

    def holds(self, objective: Objective) -> bool:
        if objective.latency_s is None:
            return True
        return share_late_bound(self.share_late(objective.latency_s)) <= 1 - objective.percentile + 1e-12

    def least_s(self, percentile: float) -> float:
        """About the lowest latency that it holds."""
        return least_objective_s(self.slowest_s, self.requests, percentile)

    def latency_s(self, percentile: float) -> Floats:
        """At the percentile, of each seed (seeds,)."""
        place = percentile_rank(percentile, self.requests) - self.requests
        return np.array([slowest[place] for slowest in self.slowest_s])

    def worst_s(self, percentile: float) -> float:
        return float(self.latency_s(percentile).max())


def times_s(run: LanguageSimulation, metric: Metric, *, since_s: float = 0.0) -> Floats:
    """The metric (n,) of requests that arrive at `since_s` or later; 0 for answers of one token per token."""
    counted = run.workload.arrivals_ns >= since_s * NS_PER_S
    if metric == "per_token":
        return np.nan_to_num(run.per_token_s[counted], nan=0.0)
    ns = run.ttft_ns if metric == "ttft" else run.total_ns
    return np.asarray(ns[counted] / NS_PER_S)


@dataclass(frozen=True, eq=False)
class Replays:
    """Replays of choices of `maker` on the trace, with the prompts of a part; whatever the latency asked for."""

    maker: PlanMaker
    workloads: tuple[LanguageWorkload, ...]
    seen: dict[Choice, Replayed] = field(default_factory=dict)

    @property
    def request(self) -> LanguageRequest:
        return self.maker.request

    def of(self, choice: Choice) -> Replayed:
        if choice not in self.seen:
            self.seen[choice] = replayed(self.request, self.maker.tables(choice), self.workloads)
        return self.seen[choice]


def workloads_of(request: LanguageRequest, part: int) -> tuple[LanguageWorkload, ...]:
    """The trace's requests once for each seed; once where prompts are given, or the trace is long."""
    alone = request.records is not None or len(request.trace) > FEW_REQUESTS
    return tuple(request.workload(part, seed=seed) for seed in range(1 if alone else SEEDS))


def replayed(request: LanguageRequest, tables: EngineTables, workloads: tuple[LanguageWorkload, ...]) -> Replayed:
    slowest, quality = [], []
    used = np.zeros(len(tables.stage_count))
    for workload in workloads:
        run = simulate_language(tables, request.profile, workload)
        slowest.append(slowest_of(times_s(run, request.metric), request.objective.percentile))
        quality.append(float(run.quality(request.profile).mean()))
        used += np.bincount(run.gear, minlength=len(used)) / len(workload)
    shares = tuple((used / len(workloads)).tolist())
    return Replayed(tuple(slowest), len(workloads[0]), float(np.mean(quality)), shares)
