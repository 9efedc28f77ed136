"""What several planner benchmarks judge plans by."""

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from gearshift.gear import GearPlan
from gearshift.planner import planners
from gearshift.planner.evaluate.confirm import replay
from gearshift.planner.evaluate.steady_state import SteadyState
from gearshift.planner.space.pareto import hypervolume
from gearshift.planner.space.request import PlanRequest
from gearshift.profiles.profile import PART_A, PART_B
from gearshift.simulator import simulate
from gearshift.simulator.simulate import Simulation

Point = tuple[float, float]
"""Seconds at the objective's percentile, and accuracy."""

PUBLISHED = ("coordinate", "frontier")


def registered(names: Sequence[str]) -> list[str]:
    """Those planners that there are."""
    return [name for name in names if name in planners.for_()]


def worst_model(request: PlanRequest, *, part: int = PART_A) -> float:
    """The accuracy of the worst model alone."""
    records = request.profile.predictions
    return float(records.quality[:, records.indices(part)].mean(axis=1).min())


def volume(points: Iterable[Point], request: PlanRequest, *, slo_s: float) -> float:
    """Hypervolume up to ten times the SLO and the worst single model's accuracy."""
    return hypervolume(points, reference=(10 * slo_s, worst_model(request)))


def judged(plans: Iterable[GearPlan], request: PlanRequest, *, part: int = PART_B, seeds: int = 5) -> list[Point]:
    """Each plan's latency and accuracy, replayed on the same arrival seeds and samples whoever made it."""
    replays = [replay(made, request, part=part, seeds=seeds) for made in plans]
    return [(float(r.latency_s.mean()), r.result.accuracy) for r in replays]


@dataclass(slots=True)
class Simulated:
    """What was simulated: requests at all, and runs with the requests that had been simulated once they were done."""

    requests: int = 0
    runs: list[tuple[int, Simulation]] = field(default_factory=list)


@contextmanager
def counting(*, keep_runs: bool = False) -> Iterator[Simulated]:
    """Count all that is simulated meanwhile: cells of steady state, replays of the trace, and tests of recovery."""
    counted, lock, cells = Simulated(), threading.Lock(), threading.local()
    simulate_tables, measure = simulate.simulate_tables, SteadyState._measure

    def run(*args: Any, **named: Any) -> Simulation:
        made = simulate_tables(*args, **named)
        with lock:
            counted.requests += len(made.workload)
            if keep_runs and not getattr(cells, "measured", False):
                counted.runs.append((counted.requests, made))
        return made

    def cell(*args: Any) -> Any:
        cells.measured = True
        try:
            return measure(*args)
        finally:
            cells.measured = False

    simulate.simulate_tables, SteadyState._measure = run, cell  # type: ignore[method-assign]
    try:
        yield counted
    finally:
        simulate.simulate_tables, SteadyState._measure = simulate_tables, measure  # type: ignore[method-assign]
