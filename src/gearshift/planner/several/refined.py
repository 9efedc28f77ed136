"""Several operators whose rows are refined while there is time, on devices that all of them share.

Each has a pair of models; where all fit together, on every device. Ways are those of one operator
(`refine/search.py`), the same for all: batches run no longer than a share of the shortest latency,
and the level of a load counts the rows of all operators. `docs/planners/several.md`.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from heapq import nlargest
from itertools import product

import msgspec
import numpy as np
from msgspec import UNSET

from gearshift.errors import Infeasible, require
from gearshift.gear import GearPlan
from gearshift.planner.contract.planner import Planner, Search
from gearshift.planner.evaluate.assemble import with_pipeline
from gearshift.planner.evaluate.confirm import confirmed, seeds_for, workload_of
from gearshift.planner.refine.choice import LEAST_BETTER, chosen, ways_of
from gearshift.planner.refine.search import Found, in_order, ways, with_steady_load
from gearshift.planner.refine.way import Floats, Pair, Way, alone_of, pairs_of
from gearshift.planner.several.coordinate import beside, together_in_order
from gearshift.planner.several.plan import finished, require_accuracies, require_possible
from gearshift.planner.several.request import SeveralRequest
from gearshift.planner.space.hosts import place_everywhere
from gearshift.planner.space.request import PlanRequest, Progress, load_ranges, silent
from gearshift.profiles.profile import PART_A, PART_B
from gearshift.simulator.simulate import Simulation, prepare
from gearshift.support.numbers import plain
from gearshift.workload import merge_workloads

PAIRS = 3
"""The most promising pairs of each operator that are put together."""
TUPLES = 3
"""The most promising tuples of pairs whose plans are replayed."""
SECONDS = 12
"""Loads of the traces, from the lowest to the highest, for which tuples are compared before any replay."""


@dataclass(frozen=True, eq=False)
class PairsTogether:
    """A pair of models for each operator, all on all devices."""

    several: SeveralRequest
    pairs: Mapping[str, Pair]

    def sizes(self, way: Way) -> dict[str, dict[str, int]]:
        """By operator and replica, the largest batch: short enough for the operator whose latency is shortest."""
        shortest_s = min(request.latency_s for request in self.several.requests.values())
        return {name: pair.sizes(way.longest * shortest_s) for name, pair in self.pairs.items()}

    @cached_property
    def rows(self) -> tuple[Floats, dict[str, Floats]]:
        """The gains (n,) of all operators' rows times worth, falling; by operator its part of a row at each (n,)."""
        gains = np.concatenate([self.several.worth_of(name) * pair.gains for name, pair in self.pairs.items()])
        order = np.argsort(-gains, kind="stable")
        of = np.repeat(np.arange(len(self.pairs)), [len(pair.gains) for pair in self.pairs.values()])[order]
        parts = {name: (of == k) / len(pair.gains) for k, (name, pair) in enumerate(self.pairs.items())}
        return gains[order], parts

    def reached(self, loads_qps: Mapping[str, float], sizes: Mapping[str, Mapping[str, int]]) -> int:
        """How many of the rows, greatest gains first, the devices reach beside screening all."""
        left, work = 1.0, np.zeros(len(self.rows[0]))
        for name, pair in self.pairs.items():
            rates = pair.rates(sizes[name])
            left -= loads_qps[name] / rates[pair.first]
            if pair.later is not None:
                work += self.rows[1][name] * (loads_qps[name] / rates[pair.later])
        return int(np.searchsorted(np.cumsum(work), left)) if left > 0 else 0

    def level(self, loads_qps: Mapping[str, float], sizes: Mapping[str, Mapping[str, int]]) -> float:
        """The gain times worth of the last row that the devices reach at these loads."""
        gains, place = self.rows[0], self.reached(loads_qps, sizes)
        return max(0.0, float(gains[place])) if place < len(gains) else 0.0

    def promise(self, way: Way) -> float:
        """The mean accuracy, times worth, over some seconds of the traces, if batches were always full."""
        sizes, (gains, parts) = self.sizes(way), self.rows
        counts = _counts_per_second(self.several)
        total = np.sum(list(counts.values()), axis=0)
        seconds = np.argsort(total, kind="stable")[np.linspace(0, len(total) - 1, SECONDS).astype(int)]
        gained = {name: np.concatenate([[0.0], np.cumsum(part * np.maximum(gains, 0))]) for name, part in parts.items()}
        summed = weight = 0.0
        for second in seconds.tolist():
            loads_qps = {name: float(of[second]) for name, of in counts.items()}
            place = self.reached(loads_qps, sizes)
            for name, pair in self.pairs.items():
                worth = self.several.worth_of(name)
                summed += loads_qps[name] * (worth * pair.accuracy + float(gained[name][place]))
                weight += loads_qps[name] * worth
        return summed / weight if weight else 0.0

    def plans(self, way: Way) -> dict[str, GearPlan]:
        """A plan without predictions for each operator: at each load while the others have their busy ones."""
        sizes, busy_qps, made = self.sizes(way), self.several.busy_qps, {}
        for name, pair in self.pairs.items():
            ends = self.several.requests[name].upper_ends()
            gears, worth = [], self.several.worth_of(name)
            for load_range, qps in zip(load_ranges(ends), ends.tolist(), strict=True):
                least_gain = way.factor * self.level({**busy_qps, name: qps}, sizes) / worth
                gears.append(pair.gear_of(load_range, least_gain, sizes[name], way))
            made[name] = with_pipeline(pair.of_gears(gears), worth=UNSET if worth == 1 else worth)
        return made

    def plan(self, way: Way) -> GearPlan:
        return together_in_order(self.plans(way))


def _best_within(so_far: Search[SeveralRequest]) -> GearPlan:
    """The most accurate plan found in which all operators refine.

    Raises `Infeasible` where none keeps all latencies.
    """
    several = so_far.request
    require(
        several.fixed is None,
        "a plan to add to is given, and operators that refine are planned together",
        remedy="plan all of them anew, or leave the policy out",
    )
    require_possible(several)
    made = finished(several, _best(several, so_far))
    require_accuracies(several, made)
    so_far.report("planned", 1.0)
    return made


PLANNER = Planner(name="refine", best_within=_best_within)


def _best(several: SeveralRequest, so_far: Search[SeveralRequest]) -> dict[str, GearPlan]:
    tuples = nlargest(TUPLES, _in_time(tuples_of(several), so_far), key=lambda each: each.promise(Way()))
    if not tuples:
        raise Infeasible("the devices do not hold two models of each operator, all on every device", by_load=False)
    found: list[Found[PairsTogether]] = []
    for number, each in enumerate(tuples):
        for one in ways(lambda way, each=each: _tried(each, way, so_far), several.first):  # type: ignore[misc]
            found.append(one)
            so_far.tell("replaying plans that refine", (number + 0.5) / len(tuples))
    for one in in_order(found, several.first):
        if (plans := _confirmed(several, one.of.plans(one.way), so_far)) is not None:
            return plans
    latencies = ", ".join(f"{name} {plain(r.latency_s * 1e3)} ms" for name, r in several.requests.items())
    raise Infeasible(f"no plan that refines keeps the latencies of all operators ({latencies})")


def _in_time(tuples: Iterator[PairsTogether], so_far: Search[SeveralRequest]) -> Iterator[PairsTogether]:
    for each in tuples:
        so_far.check()
        yield each


def tuples_of(several: SeveralRequest) -> Iterator[PairsTogether]:
    """Promising pairs of all operators that fit every device together; a model alone where an operator has no pair."""
    offered = {}
    for name, request in several.requests.items():
        pairs = sorted(pairs_of(request), key=lambda pair: -pair.promise(Way()))[:PAIRS]
        offered[name] = pairs or alone_of(request)
    for tried in product(*offered.values()):
        models = [model for pair in tried for model in pair.models]
        placement = place_everywhere(several.together, several.hardware, models=models)
        if len(placement.replicas) < sum(len(pair.placement.replicas) for pair in tried):
            continue
        yield PairsTogether(several, dict(zip(offered, tried, strict=True)))


def _tried(refining: PairsTogether, way: Way, so_far: Search[SeveralRequest]) -> Found[PairsTogether]:
    """A way on part A, replayed once: of its requests late those of the pipeline with the most."""
    so_far.check()
    several = refining.several
    run = run_of(several, refining.plan(way), part=PART_A, seed=0)
    results = {
        name: run.result(several.together, latency_objective_s=request.latency_s, pipeline=name)
        for name, request in several.requests.items()
    }
    return Found(
        of=refining,
        way=way,
        accuracy=mean_accuracy(several, {name: result.accuracy for name, result in results.items()}),
        share_late=max(result.share_late for result in results.values()),
        median_s=sum(several.share_of_requests[name] * result.latency_s.p50 for name, result in results.items()),
    )


def run_of(several: SeveralRequest, plan: GearPlan, *, part: int, seed: int) -> Simulation:
    """The replay of all traces at once."""
    each = [workload_of(one.trace, one.profile, part=part, seed=seed) for one in several.requests.values()]
    return prepare(plan, several.together).run(merge_workloads(each))


def accuracy_of(several: SeveralRequest, plan: GearPlan, *, part: int) -> float:
    """The mean over all requests, each times the worth of its operator."""
    runs = [run_of(several, plan, part=part, seed=seed) for seed in range(seeds_for(several.trace))]
    each = [{name: float(run.of(name).quality(several.together).mean()) for name in several.requests} for run in runs]
    return float(np.mean([mean_accuracy(several, of_run) for of_run in each]))


def mean_accuracy(several: SeveralRequest, accuracies: Mapping[str, float]) -> float:
    weights = {name: share * several.worth_of(name) for name, share in several.share_of_requests.items()}
    return sum(weights[name] * accuracy for name, accuracy in accuracies.items()) / sum(weights.values())


def _confirmed(
    several: SeveralRequest, plans: dict[str, GearPlan], so_far: Search[SeveralRequest]
) -> dict[str, GearPlan] | None:
    """The plans with their gears' predictions, if all keep their latencies: on the traces, and in each range."""
    first = next(iter(plans))
    so_far.tell(f"confirming {first}", 0.9)
    if confirmed(plans[first], _among(several, plans, first), on_time=so_far.check) is None:
        return None
    told = {}
    for name, plan in plans.items():
        if (made := with_steady_load(plan, _among(several, plans, name), on_time=so_far.check)) is None:
            return None
        told[name] = made
    return told


def _among(several: SeveralRequest, plans: Mapping[str, GearPlan], name: str) -> PlanRequest:
    return replace(several.requests[name], beside=beside(several, plans, name, kept=plans.keys()))


def _counts_per_second(several: SeveralRequest) -> dict[str, Floats]:
    """The arrivals (seconds,) of each operator, on the clock of all."""
    seconds = math.ceil(several.trace.duration_s)
    return {
        name: np.pad(counts := request.trace.counts_per_second(), (0, max(0, seconds - len(counts))))
        for name, request in several.requests.items()
    }


# Whether several operators are served better by a plan in which all refine, or by gears as the papers have them.


def plan_several_by_policy(
    planner: Planner[SeveralRequest], several: SeveralRequest, *, progress: Progress = silent
) -> GearPlan:
    """The plan of `planner`, one that refines, or of both the one that is more accurate over all requests.

    Each pipeline says why it is that one. Raises `Infeasible` without any.
    """
    if several.policy == "gears":
        return planner.plan(several, progress=progress)
    ways = ways_of(planner, PLANNER, several.policy)
    part = _with_budget(several, 1 / len(ways))
    finds = {way.name: partial(way.plan, part, progress=progress) for way in ways}
    made, why = chosen(finds, part.budget_s, lambda refining, gears: _better(refining, gears, several))
    return _because(made, several, why)


def _better(refining: GearPlan, gears: GearPlan, several: SeveralRequest) -> tuple[bool, str]:
    """By part A, and no less accurate by part B, as for one operator."""
    on_a, other_a = (accuracy_of(several, made, part=PART_A) for made in (refining, gears))
    on_b, other_b = (accuracy_of(several, made, part=PART_B) for made in (refining, gears))
    return on_a - other_a >= LEAST_BETTER and on_b >= other_b, (
        f"over all operators {100 * on_a:.2f} % are right with refining, {100 * other_a:.2f} with gears alone, "
        f"replayed with part A; {100 * on_b:.2f} and {100 * other_b:.2f} with part B"
    )


def _with_budget(several: SeveralRequest, share: float) -> SeveralRequest:
    requests = {
        name: replace(one, budget_s=None if one.budget_s is None else share * one.budget_s)
        for name, one in several.requests.items()
    }
    return replace(several, requests=requests)


def _because(made: GearPlan, several: SeveralRequest, why: str) -> GearPlan:
    pipelines = dict(made.pipelines)
    for name, request in several.requests.items():
        if (asked := pipelines[name].asked) is not None:
            asked = msgspec.structs.replace(asked, chosen_because=why, budget_s=request.budget_s)
            pipelines[name] = msgspec.structs.replace(pipelines[name], asked=asked)
    return msgspec.structs.replace(made, pipelines=pipelines)
