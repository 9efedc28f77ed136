"""Steady load on one placement: up to which rate a candidate keeps the objective, and the load that is then metered.

Load is outstanding work, which depends on the gear that serves it. So each candidate is simulated
alone at a rate, with as many gears as the meter is to be read in, all of that candidate: the gear
in which a request is answered says what the meter read.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gearshift.clock import NS_PER_S
from gearshift.gear import LoadUnit
from gearshift.language_workload import LanguageWorkload, numbers_by_id
from gearshift.objective import Objective
from gearshift.planner.evaluate.confirm import slowest_of
from gearshift.planner.language.choices import Choice, GearChoice, PlanMaker
from gearshift.planner.language.replays import times_s
from gearshift.planner.space.bisection import geometric, split
from gearshift.result import percentile_rank
from gearshift.simulator.engines.simulate_language import simulate_language

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
