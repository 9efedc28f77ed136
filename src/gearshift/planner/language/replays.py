"""Choices replayed on the whole trace by simulation, each once."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from gearshift.clock import NS_PER_S
from gearshift.language_workload import LanguageWorkload
from gearshift.objective import Metric, Objective
from gearshift.planner.evaluate.confirm import least_objective_s, share_late_bound, shares_late, slowest_of
from gearshift.planner.language.candidates import BY_ID
from gearshift.planner.language.choices import Choice, PlanMaker
from gearshift.planner.language.request import LanguageRequest
from gearshift.profiles.engines.engine_tables import EngineTables
from gearshift.result import percentile_rank
from gearshift.simulator.engines.language_simulation import LanguageSimulation
from gearshift.simulator.engines.simulate_language import simulate_language

SEEDS = 3
FEW_REQUESTS = 20_000
"""Traces with more requests than this are replayed once."""
MOST_KEPT_BYTES = 64 << 20
"""Replays of one placement and part take about so much memory; others are made again when they are asked for."""

Floats = NDArray[np.float64]
Found = TypeVar("Found")


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


class OneReplay(NamedTuple):
    """One seed's slowest times, rising; its mean quality, and the share of each gear."""

    slowest_s: Floats
    quality: float
    used: Floats


class Kept(Generic[Found]):
    """Results of replays by choice. The oldest leave when they take more than `MOST_KEPT_BYTES`."""

    def __init__(self) -> None:
        self._found: dict[Choice, tuple[Found, int]] = {}
        self._bytes = 0

    def get(self, choice: Choice) -> Found | None:
        if choice not in self._found:
            return None
        found, size_bytes = self._found.pop(choice)
        self._found[choice] = found, size_bytes
        return found

    def keep(self, choice: Choice, found: Found, times_s: Sequence[Floats]) -> Found:
        self.drop(choice)
        size_bytes = sum(each.nbytes for each in times_s)
        self._found[choice], self._bytes = (found, size_bytes), self._bytes + size_bytes
        while self._bytes > MOST_KEPT_BYTES and len(self._found) > 1:
            self.drop(next(iter(self._found)))
        return found

    def drop(self, choice: Choice) -> None:
        if choice in self._found:
            self._bytes -= self._found.pop(choice)[1]

    def clear(self) -> None:
        self._found.clear()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._found)


@dataclass(frozen=True, eq=False)
class Replays:
    """Replays of choices of `maker` on the trace, with the prompts of a part; whatever the latency asked for."""

    maker: PlanMaker
    workloads: tuple[LanguageWorkload, ...]
    seen: Kept[Replayed] = field(default_factory=Kept)
    begun: Kept[OneReplay] = field(default_factory=Kept)
    """First seeds alone, of choices that were not worth the others."""

    @property
    def request(self) -> LanguageRequest:
        return self.maker.request

    def of(self, choice: Choice) -> Replayed:
        if (known := self.seen.get(choice)) is not None:
            return known
        first, tables = self._first(choice), self.maker.tables(choice)
        more = [one_replay(self.request, tables, workload) for workload in self.workloads[1:] if self._drawn(choice)]
        found = together([first, *more], len(self.workloads[0]))
        self.begun.drop(choice)
        return self.seen.keep(choice, found, found.slowest_s)

    def of_first(self, choice: Choice) -> Replayed:
        """With the first seed alone, which costs a part; with all where they are known."""
        if (known := self.seen.get(choice)) is not None:
            return known
        return together([self._first(choice)], len(self.workloads[0]))

    def _first(self, choice: Choice) -> OneReplay:
        if (known := self.begun.get(choice)) is not None:
            return known
        first = one_replay(self.request, self.maker.tables(choice), self.workloads[0])
        return self.begun.keep(choice, first, [first.slowest_s])

    def _drawn(self, choice: Choice) -> bool:
        """Whether seeds differ for a choice: where prompts are given, ids do alone, which not all cascades look at."""
        stages = self.maker.candidates.stages
        return self.request.records is None or any(
            stage.at == BY_ID for gear in choice for stage in stages[gear.candidate][:-1]
        )


def workloads_of(request: LanguageRequest, part: int) -> tuple[LanguageWorkload, ...]:
    """The trace's requests once for each seed; once where the trace is long.

    Where the request has its prompts, seeds are other ids of its requests: who plans does not know
    those that come.
    """
    alone = len(request.trace) > FEW_REQUESTS
    return tuple(request.workload(part, seed=seed) for seed in range(1 if alone else SEEDS))


def one_replay(request: LanguageRequest, tables: EngineTables, workload: LanguageWorkload) -> OneReplay:
    run = simulate_language(tables, request.profile, workload)
    slowest_s = slowest_of(times_s(run, request.metric), request.objective.percentile)
    used = np.bincount(run.gear, minlength=len(tables.stage_count)) / len(workload)
    return OneReplay(slowest_s, float(run.quality(request.profile).mean()), used)


def together(runs: Sequence[OneReplay], requests: int) -> Replayed:
    used = np.mean([run.used for run in runs], axis=0)
    quality = float(np.mean([run.quality for run in runs]))
    return Replayed(tuple(run.slowest_s for run in runs), requests, quality, tuple(used.tolist()))


def replayed(request: LanguageRequest, tables: EngineTables, workloads: Sequence[LanguageWorkload]) -> Replayed:
    return together([one_replay(request, tables, workload) for workload in workloads], len(workloads[0]))
