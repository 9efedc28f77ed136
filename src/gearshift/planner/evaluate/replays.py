"""Replays of the trace on part A, cached for each plan and shared by all searches.

A short trace is replayed on several arrival seeds, so that results do not depend on a few
requests.
"""

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass

import numpy as np

from gearshift.gear import GearPlan
from gearshift.planner.evaluate.confirm import SEEDS, least_objective_s, slowest_of, workload_of
from gearshift.planner.space.request import PlanRequest
from gearshift.profiles.profile import PART_A
from gearshift.simulator.simulate import prepare
from gearshift.workload import Trace

ENOUGH_REQUESTS = 20_000


@dataclass(frozen=True, slots=True)
class Replayed:
    """Seconds at the objective's percentile, accuracy on part A, and shares of arrivals per gear.

    For several seeds: the lowest latency objective that holds, as for a confirmation, and the
    means of the others. `careful_s` is the objective that holds if one standard error more of the
    recorded samples were late.
    """

    latency_s: float
    careful_s: float
    accuracy: float
    arrived_in_gear: tuple[float, ...]


def seeds_for(trace: Trace) -> int:
    return min(SEEDS, max(1, ENOUGH_REQUESTS // len(trace)))


class Replays:
    """Replays by a key of how a plan serves; `on_time` may raise before each to end a search."""

    def __init__(self, on_time: Callable[[], None] = lambda: None) -> None:
        self._on_time = on_time
        self._known: dict[Hashable, Replayed] = {}

    def of(self, key: Hashable, make: Callable[[], GearPlan], request: PlanRequest) -> Replayed:
        if key not in self._known:
            prepared, runs = prepare(make(), request.profile), []
            for seed in range(seeds_for(request.trace)):
                self._on_time()
                runs.append(prepared.run(workload_of(request.trace, request.profile, part=PART_A, seed=seed)))
            at, records = request.objective.percentile, len(request.profile.predictions.indices(PART_A))
            careful = at + math.sqrt(at * (1 - at) / records)
            slowest_s, requests = [slowest_of(run.latency_s, at) for run in runs], len(request.trace)
            self._known[key] = Replayed(
                latency_s=least_objective_s(slowest_s, requests, at),
                careful_s=least_objective_s(slowest_s, requests, min(careful, 1.0)),
                accuracy=float(np.mean([run.quality(request.profile).mean() for run in runs])),
                arrived_in_gear=tuple(np.mean([run.arrived_in_gear / len(run.workload) for run in runs], axis=0)),
            )
        return self._known[key]
