"""Replays of the trace as it is, on part A: one for each plan, however many searches come by it."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass

from gearshift.gear import GearPlan
from gearshift.planner.confirm import workload_of
from gearshift.planner.request import PlanRequest
from gearshift.profiles.profile import PART_A
from gearshift.result import percentile
from gearshift.simulator.simulate import simulate


@dataclass(frozen=True, slots=True)
class Replayed:
    """Seconds at the objective's percentile, accuracy on part A, and the share of arrivals in each gear."""

    latency_s: float
    accuracy: float
    arrived_in_gear: tuple[float, ...]


class Replays:
    """What was replayed, by what decides how a plan serves; `on_time` may raise before each replay to end a search."""

    def __init__(self, on_time: Callable[[], None] = lambda: None) -> None:
        self._on_time = on_time
        self._known: dict[Hashable, Replayed] = {}

    def of(self, key: Hashable, make: Callable[[], GearPlan], request: PlanRequest) -> Replayed:
        """The replay of the plan that `make` makes, unless it is known."""
        if key not in self._known:
            self._on_time()
            workload = workload_of(request.trace, request.profile, part=PART_A, seed=0)
            run = simulate(make(), request.profile, workload)
            self._known[key] = Replayed(
                latency_s=percentile(run.latency_s, request.objective.percentile),
                accuracy=float(run.quality(request.profile).mean()),
                arrived_in_gear=tuple((run.arrived_in_gear / len(workload)).tolist()),
            )
        return self._known[key]
