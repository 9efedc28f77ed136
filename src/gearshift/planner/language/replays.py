"""Choices judged by simulation: replayed on the whole trace, each once, and candidates in steady load.

Load is outstanding work, which depends on the gear that serves it. So each candidate is simulated
alone at a rate, with as many gears as the meter is to be read in, all of that candidate: the gear
in which a request is answered says what the meter read. Steady load says up to which rate a
candidate keeps the objective; gears are assigned by that.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from gearshift.clock import NS_PER_S
from gearshift.gear import LoadUnit
from gearshift.language_workload import LanguageWorkload, numbers_by_id
from gearshift.objective import Metric, Objective
from gearshift.planner.evaluate.confirm import least_objective_s, share_late_bound, shares_late, slowest_of
from gearshift.planner.language.candidates import BY_ID
from gearshift.planner.language.choices import Choice, GearChoice, PlanMaker
from gearshift.planner.language.request import LanguageRequest
from gearshift.planner.space.bisection import geometric, split
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


READINGS: dict[LoadUnit, tuple[float, float]] = {
    "drain_s": (1e-3, 1e4),
    "outstanding_requests": (1.0, 1e5),
    "queued_tokens": (1.0, 1e7),
}
"""The lowest and the highest load that is told apart."""
STEPS = 80
LOAD_SHARE = 0.9
"""The metered load that this share of requests is at or below."""
LEAST_REQUESTS, MOST_REQUESTS = 400, 6000
WARM_UP = 0.25
MEAN_DURATIONS = 8
RATE_PRECISION = 1.06
LOWEST_UTILISATION = 0.01
HIGHEST_UTILISATION = 1.1


@dataclass(frozen=True, slots=True, kw_only=True)
class SteadyCell:
    """A candidate alone at a steady rate; `load` is in the unit of the request's ranges."""

    rate_qps: float
    slowest_s: NDArray[np.float64]
    requests: int
    quality: float
    load: float
    utilisation: float

    def share_late(self, latency_s: float) -> float:
        return float(np.count_nonzero(self.slowest_s > latency_s)) / self.requests

    def latency_s(self, percentile: float) -> float:
        return float(self.slowest_s[percentile_rank(percentile, self.requests) - self.requests])


@dataclass(frozen=True, eq=False)
class Steady:
    """Simulations of steady load on part A, each once; `cells` are the same whatever the objective."""

    maker: PlanMaker
    objective: Objective
    check: Callable[[], None] = lambda: None
    """May raise to end the search."""
    cells: dict[tuple[int, float], SteadyCell] = field(default_factory=dict)
    capacities: dict[int, SteadyCell | None] = field(default_factory=dict)

    def capacity(self, candidate: int) -> SteadyCell | None:
        """The cell at the highest rate, to `RATE_PRECISION`, at which the objective is kept; None where at no rate."""
        if candidate not in self.capacities:
            self.capacities[candidate] = self._capacity(candidate)
        return self.capacities[candidate]

    def at_load(self, candidate: int, load: float) -> SteadyCell:
        """About the cell at whose rate the meter reads `load`, or that of its capacity where that is lower."""
        best = self.capacity(candidate)
        low, high = self._lowest_qps(candidate), self._lowest_qps(candidate) if best is None else best.rate_qps
        if best is not None and best.load <= load:
            return best
        return self._highest(candidate, low, high, lambda cell: not cell.load > load)

    def cell(self, candidate: int, rate_qps: float) -> SteadyCell:
        key = candidate, rate_qps
        if key not in self.cells:
            self.cells[key] = self._simulated(candidate, rate_qps)
        return self.cells[key]

    def _capacity(self, candidate: int) -> SteadyCell | None:
        low = self._lowest_qps(candidate)
        if not self._holds(self.cell(candidate, low)):
            return None
        high = HIGHEST_UTILISATION / float(self.maker.bottleneck_s[candidate])
        if self._holds(self.cell(candidate, high)):
            return self.cell(candidate, high)
        return self._highest(candidate, low, high, self._holds)

    def _highest(self, candidate: int, low: float, high: float, holds: Callable[[SteadyCell], bool]) -> SteadyCell:
        """The cell at the highest rate that holds, to `RATE_PRECISION`."""
        rate_qps, _ = split(
            lambda qps: holds(self.cell(candidate, qps)), low, high, precision=RATE_PRECISION, middle=geometric
        )
        return self.cell(candidate, rate_qps)

    def _holds(self, cell: SteadyCell) -> bool:
        latency_s = math.inf if self.objective.latency_s is None else self.objective.latency_s
        return cell.share_late(latency_s) <= 1 - self.objective.percentile

    def _lowest_qps(self, candidate: int) -> float:
        return LOWEST_UTILISATION / float(self.maker.bottleneck_s[candidate])

    def _simulated(self, candidate: int, rate_qps: float) -> SteadyCell:
        self.check()
        request = self.maker.request
        ends = readings(request.load_unit)
        workload = self._workload(candidate, rate_qps)
        probes: Choice = tuple(GearChoice(candidate, begins, self._most) for begins in (0.0, *ends.tolist()))
        run = simulate_language(self.maker.tables(probes), request.profile, workload)
        since_s = WARM_UP * workload.duration_s
        seconds = times_s(run, request.metric, since_s=since_s)
        counted = workload.arrivals_ns >= since_s * NS_PER_S
        gear = np.sort(run.gear[counted])[int(LOAD_SHARE * (len(seconds) - 1))]
        return SteadyCell(
            rate_qps=rate_qps,
            slowest_s=slowest_of(seconds, self.objective.percentile),
            requests=len(seconds),
            quality=float(run.quality(request.profile)[counted].mean()),
            load=float(ends[min(int(gear), len(ends) - 1)]),
            utilisation=float(run.busy_ns.max() / NS_PER_S / run.duration_s),
        )

    @property
    def _most(self) -> tuple[int, ...]:
        return (0,) * len(self.maker.candidates.models)

    def _workload(self, candidate: int, rate_qps: float) -> LanguageWorkload:
        """Poisson arrivals for several of the candidate's mean durations, after a warm-up."""
        request = self.maker.request
        whole_s = float(self.maker.alone_s[candidate])
        count = int(np.clip(MEAN_DURATIONS * whole_s * rate_qps / (1 - WARM_UP), LEAST_REQUESTS, MOST_REQUESTS))
        generator = np.random.default_rng([request.seed, 0x57])
        arrivals_ns = (np.cumsum(generator.exponential(1 / rate_qps, count)) * NS_PER_S).astype(np.int64)
        records = request.planned_on
        rounds = [generator.permutation(records) for _ in range(-(-count // len(records)))]
        picked = generator.integers(0, len(request.trace), count)
        given = {
            name: None if tokens is None else tokens[picked]
            for name, tokens in (("prompt_tokens", request.prompt_tokens), ("output_tokens", request.output_tokens))
        }
        return LanguageWorkload(
            arrivals_ns=arrivals_ns,
            record=np.concatenate(rounds)[:count].astype(np.int32),
            by_id=numbers_by_id(count, request.seed),
            duration_s=float(arrivals_ns[-1] + 1) / NS_PER_S,
            **given,
        )


def readings(unit: LoadUnit) -> NDArray[np.float64]:
    """The loads (`STEPS`,) at which the meter is read, evenly in logarithm."""
    low, high = READINGS[unit]
    return np.geomspace(low, high, STEPS)


def limit_of(steady: Steady, candidate: int, margin: float) -> float:
    """Up to which load a candidate may serve; 0 where it keeps the objective at no rate."""
    cell = steady.capacity(candidate)
    return 0.0 if cell is None else cell.load / margin


def assigned(steady: Steady, margin: float, among: Sequence[int]) -> Choice:
    """The gears of some candidates: quality and work fall as load rises, and the cheapest has no upper end."""
    maker, ends = steady.maker, {c: limit_of(steady, c, margin) for c in among}
    work, quality = maker.bottleneck_s, maker.candidates.quality
    cheapest = min(among, key=lambda c: work[c])
    gears: list[GearChoice] = []
    begins, most_s = 0.0, np.inf
    while not gears or gears[-1].candidate != cheapest:
        able = [c for c in among if c == cheapest or (ends[c] > begins and work[c] <= most_s)]
        best = max(able, key=lambda c: (quality[c], -work[c]))
        gears.append(maker.free(best, begins))
        begins, most_s = ends[best], float(work[best])
    return fewer(tuple(gears), quality.tolist(), maker.request.most_gears)


def fewer(choice: Choice, quality: list[float], most: int) -> Choice:
    """At most `most` gears: those go whose range and loss of quality are smallest; the next cheaper takes over."""
    gears = list(choice)
    while len(gears) > most:
        lost = [
            (quality[gear.candidate] - quality[after.candidate]) * np.log((after.begins + 1e-9) / (gear.begins + 1e-9))
            for gear, after in itertools.pairwise(gears)
        ]
        place = int(np.argmin(lost))
        gears[place : place + 2] = [gears[place + 1]._replace(begins=gears[place].begins)]
    return tuple(gears)
