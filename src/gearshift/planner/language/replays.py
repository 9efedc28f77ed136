"""Choices replayed on the whole trace by simulation, each once."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gearshift.clock import NS_PER_S
from gearshift.language_workload import LanguageWorkload
from gearshift.objective import Metric
from gearshift.planner.evaluate.confirm import share_late_bound
from gearshift.planner.language.choices import Choice, PlanMaker
from gearshift.planner.language.request import LanguageRequest
from gearshift.profiles.engines.engine_tables import EngineTables
from gearshift.result import percentile
from gearshift.simulator.engines.language_simulation import LanguageSimulation
from gearshift.simulator.engines.simulate_language import simulate_language

SEEDS = 3
FEW_REQUESTS = 20_000
"""Traces with more requests than this are replayed once."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Replayed:
    """Of each seed (seeds,): the latency at the percentile, and the share late; and the mean quality of all."""

    latency_s: Floats
    share_late: Floats
    quality: float
    used: tuple[float, ...]
    """The share of requests that each gear answered."""

    def holds(self, percentile: float) -> bool:
        return share_late_bound(self.share_late) <= 1 - percentile + 1e-12

    @property
    def worst_s(self) -> float:
        return float(self.latency_s.max())


def times_s(run: LanguageSimulation, metric: Metric, *, since_s: float = 0.0) -> Floats:
    """The metric (n,) of requests that arrive at `since_s` or later; 0 for answers of one token per token."""
    counted = run.workload.arrivals_ns >= since_s * NS_PER_S
    if metric == "per_token":
        return np.nan_to_num(run.per_token_s[counted], nan=0.0)
    ns = run.ttft_ns if metric == "ttft" else run.total_ns
    return np.asarray(ns[counted] / NS_PER_S)


@dataclass(frozen=True, eq=False)
class Replays:
    """Replays of choices of `maker` on the trace, with the prompts of a part."""

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
    objective, metric = request.objective, request.metric
    latency, late, quality = [], [], []
    used = np.zeros(len(tables.stage_count))
    for workload in workloads:
        run = simulate_language(tables, request.profile, workload)
        seconds = times_s(run, metric)
        latency.append(percentile(seconds, objective.percentile))
        late.append(float((seconds > request.latency_s).mean()))
        quality.append(float(run.quality(request.profile).mean()))
        used += np.bincount(run.gear, minlength=len(used)) / len(workload)
    return Replayed(np.array(latency), np.array(late), float(np.mean(quality)), tuple((used / len(workloads)).tolist()))
