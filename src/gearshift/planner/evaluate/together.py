"""Simulate a pipeline that is planned among others that stay as they are: one trace, and steady load."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from gearshift.clock import NS_PER_S
from gearshift.gear import GearPlan
from gearshift.planner.space.beside import Beside, in_steady_load, joined
from gearshift.profiles.profile import PART_A
from gearshift.result import percentile_rank
from gearshift.simulator.simulate import Prepared, Simulation, prepare
from gearshift.workload import Trace, Workload, draw_workload, merge_workloads

REQUESTS, LEAST_OWN = 36_000, 1_500
"""Steady load of several pipelines has about this many requests, and at least so many of the
pipeline that is planned."""
MOST_REQUESTS, VERY_LEAST_OWN = 300_000, 200
"""Bounds where the others have very much more load."""
WARM_UP_SHARE = 0.1
GROWS = 1.5
"""Another pipeline is not stable if its last third is this many times as slow as its middle third."""


@dataclass(frozen=True, slots=True, eq=False)
class SteadyOthers:
    """The others in steady load: each with the gear of its load alone."""

    beside: Beside
    seed: int

    def prepare(self, made: GearPlan) -> Prepared:
        plan = joined(made, self.beside.plan)
        steady = {
            name: in_steady_load(pipeline, self.beside.loads_qps[name]) if name in self.beside.names else pipeline
            for name, pipeline in plan.pipelines.items()
        }
        return prepare(msgspec.structs.replace(plan, pipelines=steady, predictions={}), self.beside.together)

    def beside_own(self, own: Workload, load_qps: float) -> Workload:
        """Own steady load and the others', which last as long; own is shortened to bound their requests."""
        others_qps = sum(self.beside.loads_qps.values())
        share = load_qps / (load_qps + others_qps)
        kept = min(max(LEAST_OWN, REQUESTS * share), MOST_REQUESTS * share)
        own = first_of(own, max(VERY_LEAST_OWN, math.ceil(kept)))
        return merge_workloads([own, *(self._of(number, own.duration_s) for number in range(len(self.beside.names)))])

    def _of(self, number: int, duration_s: float) -> Workload:
        name = self.beside.names[number]
        records = self.beside.profiles[name].predictions.indices(PART_A)
        arrivals = random_arrivals(self.beside.loads_qps[name], duration_s, seed=[self.seed, 6, number])
        return draw_workload(arrivals, records, seed=self.seed)

    def kept_in(self, run: Simulation) -> bool:
        """Whether the others keep their latencies, or only keep up where they need not."""
        for name in self.beside.names:
            objective = self.beside.plan.pipelines[name].objective
            latency_s = run.of(name).latency_s
            middle_s, last_s = (float(third.mean()) for third in np.array_split(latency_s, 3)[1:])
            limit_s = math.inf if objective.latency_s is None else objective.latency_s
            if last_s > GROWS * middle_s + 0.02 * min(limit_s, 1.0):
                return False
            settled_s = np.sort(latency_s[int(len(latency_s) * WARM_UP_SHARE) :])
            if name in self.beside.kept and settled_s[percentile_rank(objective.percentile, len(settled_s))] > limit_s:
                return False
        return True


def first_of(workload: Workload, count: int) -> Workload:
    if count >= len(workload):
        return workload
    arrivals_ns = workload.arrivals_ns[:count]
    return Workload(
        arrivals_ns=arrivals_ns, record=workload.record[:count], duration_s=float(arrivals_ns[-1]) / NS_PER_S
    )


def random_arrivals(load_qps: float, duration_s: float, *, seed: Sequence[int]) -> Trace:
    """Poisson arrivals, at least one."""
    generator = np.random.default_rng(seed)
    times = np.sort(generator.random(max(1, int(generator.poisson(load_qps * duration_s))))) * duration_s
    return Trace(arrivals_ns=(times * NS_PER_S).astype(np.int64), duration_s=duration_s)
