"""Plan cascades and cores per load range on one host.

The planner finds the fewest core-seconds within an accuracy and a latency objective.
"""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp

from gearshift.errors import Infeasible, InvalidInput
from gearshift.gear import Gear, GearPlan, alone
from gearshift.planner.contract.planner import SoFar
from gearshift.planner.cores.core_splits import CoreSplits, Split, on_every_count, one_of_each
from gearshift.planner.evaluate.assemble import assemble
from gearshift.planner.evaluate.spike_recovery import confirmed_to_recover
from gearshift.planner.search.capacities import UNVISITED_WEIGHT
from gearshift.planner.search.optimal import CERTIFICATES, claimed, too_few_samples
from gearshift.planner.search.slo_search import ALPHAS
from gearshift.planner.space.cascade_search import CandidateCascade, pareto_cascades, single_models, work_per_request_s
from gearshift.planner.space.metered import range_weights, time_and_requests_of_ranges
from gearshift.planner.space.request import LARGEST_MARGIN, PlanRequest, Progress, least_margin, load_ranges, silent
from gearshift.profiles.profile import PART_B
from gearshift.support.numbers import plain
from gearshift.support.processors import usable_processors

# Assign cascades to load ranges on the fewest core-seconds, as an integer programme.

EXACTLY = {"disp": False, "mip_rel_gap": 0.0}
SAME_COST = 5e-7
"""Above the solver's rounding errors, and below one core in a range of the least weight."""


@dataclass(frozen=True, slots=True)
class Option:
    """A cascade in a load range: its number, its models' numbers, accuracy, and total cores."""

    candidate: int
    models: tuple[int, ...]
    accuracy: float
    cores: int


def fewest_core_seconds(
    options: Sequence[Sequence[Option]],
    time: NDArray[np.float64],
    requests: NDArray[np.float64],
    *,
    most_cores: int,
    accuracy: float | None,
) -> list[Option] | None:
    """One option for each range, with the fewest core-seconds that reach the accuracy.

    `time` (ranges,) weighs cores, `requests` (ranges,) accuracy. Of equal costs the most accurate
    choice is taken; without `accuracy`, the most accurate of all. A model that any range uses holds
    at least one core in all ranges; no range has more than `most_cores`. None if no choice does.

    One variable per option, then one per model, all 0 or 1:

        minimise  sum over ranges of
                  time x (models loaded + cores of its option beyond one for each of its models)

    and then once more, for the highest accuracy at that cost.
    """
    models = 1 + max(model for row in options for option in row for model in option.models)
    flat = [(r, option) for r, row in enumerate(options) for option in row]
    n, ranges = len(flat), len(options)
    of_range, used = np.zeros((ranges, n + models)), np.zeros((ranges * models, n + models))
    for i, (r, option) in enumerate(flat):
        of_range[r, i] = 1.0
        for model in option.models:
            used[r * models + model, i] = 1.0
    used[:, n:] = -np.tile(np.eye(models), (ranges, 1))
    beyond = np.array([option.cores - len(option.models) for _, option in flat], dtype=np.float64)
    held = np.concatenate([of_range[:, :n] * beyond, np.ones((ranges, models))], axis=1)
    right = np.concatenate([[requests[r] * option.accuracy for r, option in flat], np.zeros(models)])
    cost = time @ held
    whole: Any = {"integrality": np.ones(n + models, dtype=np.int64), "bounds": Bounds(0, 1), "options": EXACTLY}
    constraints = [
        LinearConstraint(of_range, 1, 1),
        LinearConstraint(used, -np.inf, 0),
        LinearConstraint(held, -np.inf, most_cores),
    ]
    if accuracy is not None:
        constraints.append(LinearConstraint(right[None, :], accuracy * requests.sum(), np.inf))
        cheapest = milp(cost, constraints=constraints, **whole)
        if cheapest.x is None:
            return None
        constraints.append(LinearConstraint(cost[None, :], -np.inf, cheapest.fun + SAME_COST))
    found = milp(-right, constraints=constraints, **whole)
    if found.x is None and accuracy is not None:  # the solver rounded the cost
        found = cheapest
    if found.x is None:
        return None
    return [row[int(np.argmax(found.x[[i for i in range(n) if flat[i][0] == r]]))] for r, row in enumerate(options)]


def worth_asking(options: Sequence[Option]) -> list[Option]:
    """Drop options for which another of the same models is as accurate on as few cores."""
    kept: dict[tuple[int, ...], list[Option]] = {}
    for option in sorted(options, key=lambda o: (o.cores, -o.accuracy, o.candidate)):
        rivals = kept.setdefault(option.models, [])
        if not rivals or rivals[-1].accuracy < option.accuracy:
            rivals.append(option)
    return [option for rivals in kept.values() for option in rivals]


PLANNER = "cores"
MARGIN_STEP = 1.15
"""Factor from one margin to the next, while the trace does not hold."""
MOST_RAISED = 6
"""How many times steady state is asked for more accuracy, for one margin and alpha."""
SAME_ACCURACY = 1e-6
NEAREST_STEPS = (0.0, 0.003, 0.01, 0.03)
"""Subtracted from the accuracy that steady state promises; the first confirmed is offered."""


def plan(request: PlanRequest, *, progress: Progress = silent) -> GearPlan:
    """Plan for a host whose `pool_cores` the models share; raises `Infeasible`.

    Raises `InvalidInput` where a latency or an accuracy is missing, or models were not measured on
    several core counts.
    """
    objective = request.objective
    if objective.latency_s is None or objective.accuracy is None:
        raise InvalidInput("the fewest cores need two objectives", remedy="give a latency and an accuracy")
    made = SoFar(request, progress).run(lambda so_far: _Search(so_far).run())
    return msgspec.structs.replace(made, planner=PLANNER)


@dataclass(slots=True)
class _Cell:
    """A cascade at a load: splits (n, models) by rising cores; those before `at` do not hold."""

    candidate: CandidateCascade
    load_qps: float
    splits: NDArray[np.int16]
    at: int = 0
    sure: bool = False

    @property
    def split(self) -> Split | None:
        """The first split that holds or, while not `sure`, may hold; None where none does."""
        return tuple(self.splits[self.at].tolist()) if self.at < len(self.splits) else None

    def find_out(self, splits: CoreSplits) -> None:
        """Simulate splits with the same total of cores until one holds.

        Where none holds, larger ones follow at the next turn.
        """
        cores = sum(self.split or ())
        while not self.sure and (split := self.split) is not None and sum(split) == cores:
            self.sure = splits.holds(self.candidate, split, self.load_qps)
            self.at += not self.sure


class _Search:
    """Solve the programme on lower bounds of cores, and simulate what it chose.

    This repeats until all that it chooses is simulated: then no other choice can have fewer
    core-seconds.
    """

    def __init__(self, so_far: SoFar) -> None:
        self.so_far, self.request = so_far, so_far.request
        self.pool = self.request.hardware.pool_cores or 1
        self.profile = on_every_count(self.request.profile, self.pool)
        self.models = {model: i for i, model in enumerate(self.profile.models)}
        work_s = work_per_request_s(self.profile, self.request.hardware.devices[0])
        front = pareto_cascades(self.profile, work_s, most=self.request.most_candidates)
        # also off the front: a single model needs no cores for other models
        alone = single_models(dataclasses.replace(self.request, profile=self.profile))
        self.candidates = list({c.cascade: c for c in [*front, *alone]}.values())
        self.candidates.sort(key=lambda c: (c.work_s, c.accuracy))
        self.upper_ends = self.request.upper_ends()
        self.time, self.requests = (weights + UNVISITED_WEIGHT for weights in _weights(self.request))
        self.splits = CoreSplits(self.profile, self.request.objective, self.pool, self.request.seed)
        self.tables: dict[float, list[list[_Cell]]] = {}

    def run(self) -> GearPlan:
        target = self.request.objective.accuracy or 0.0
        margin = least_margin(self.request)
        if (made := self.confirmed(target)) is not None:
            return made
        best = self.most_accuracy(margin)
        if best is None:
            raise self.overloaded(margin)
        nearest = (math.floor(1e4 * (min(best, target) - less)) / 1e4 for less in NEAREST_STEPS)
        raise self.out_of_reach(next((near for near in nearest if self.confirmed(near) is not None), None), best)

    def confirmed(self, target: float) -> GearPlan | None:
        """The plan on the fewest core-seconds with accuracy `target`, at the least confirmed margin.

        Where a replay is less accurate than steady state promised, steady state is asked for more.
        With a confidence, only `CERTIFICATES` plans are tried, which share its level.
        """
        looks = math.inf if self.request.objective.confidence is None else CERTIFICATES
        for margin in self.margins():
            self.so_far.tell(f"finding cores for {margin:.3g} times the load", 0.3)
            most = self.most_accuracy(margin)
            if most is None:
                continue
            at_first = 2 * target - self.certain(target)
            first = self.chosen(margin, min(at_first, most))  # the same for every alpha
            for alpha in ALPHAS:
                needed = at_first
                for raised in range(MOST_RAISED):
                    chosen = self.chosen(margin, min(needed, most)) if raised else first
                    made = None if chosen is None else self.tried(chosen, margin, alpha)
                    if chosen is None or made is None:
                        break
                    kept = self.certain(made.predictions[self.profile.operator].accuracy)
                    if kept >= target:
                        return made
                    self.so_far.keep(made, kept)
                    looks -= 1
                    if looks == 0:
                        return None
                    promised = self.accuracy_of(chosen)
                    if promised >= most - SAME_ACCURACY:
                        break
                    needed = max(needed + target - kept, promised + SAME_ACCURACY)
        return None

    def tried(self, chosen: Sequence[Option], margin: float, alpha: float) -> GearPlan | None:
        self.so_far.tell("confirming", 0.7)
        return confirmed_to_recover(self.plan_of(chosen, margin, alpha), self.request, on_time=self.so_far.check)

    def most_accuracy(self, margin: float) -> float | None:
        chosen = self.chosen(margin, None)
        return None if chosen is None else self.accuracy_of(chosen)

    def accuracy_of(self, chosen: Sequence[Option]) -> float:
        return float(sum(w * o.accuracy for w, o in zip(self.requests, chosen, strict=True)) / self.requests.sum())

    def margins(self) -> Iterator[float]:
        margin = least_margin(self.request)
        while margin <= LARGEST_MARGIN:
            yield margin
            margin *= MARGIN_STEP

    def chosen(self, margin: float, accuracy: float | None) -> list[Option] | None:
        """Options with the fewest core-seconds; without `accuracy`, the most accurate."""
        table = self.table(margin)
        while True:
            self.so_far.check()
            options = [worth_asking([*self.options(row)]) for row in table]
            if not all(options):
                return None
            found = fewest_core_seconds(options, self.time, self.requests, most_cores=self.pool, accuracy=accuracy)
            if found is None:
                return None
            by_candidate: dict[int, list[_Cell]] = {}
            for row, option in zip(table, found, strict=True):
                by_candidate.setdefault(option.candidate, []).append(row[option.candidate])
            if all(cell.sure for cells in by_candidate.values() for cell in cells):
                return found
            with ThreadPoolExecutor(usable_processors()) as threads:
                list(threads.map(self.find_out, by_candidate.values()))

    def find_out(self, cells: Sequence[_Cell]) -> None:
        """Simulate a cascade's loads one after the other, as one tells about others."""
        for cell in cells:
            cell.find_out(self.splits)

    def table(self, margin: float) -> list[list[_Cell]]:
        if margin not in self.tables:
            loads = (self.upper_ends * margin).tolist()
            self.tables[margin] = [
                [_Cell(each, qps, self.splits.promising(each, qps)) for each in self.candidates] for qps in loads
            ]
        return self.tables[margin]

    def options(self, row: Sequence[_Cell]) -> Iterator[Option]:
        for number, cell in enumerate(row):
            if (split := cell.split) is not None:
                models = tuple(self.models[model] for model in cell.candidate.cascade.models)
                yield Option(number, models, cell.candidate.accuracy, sum(split))

    def plan_of(self, chosen: Sequence[Option], margin: float, alpha: float) -> GearPlan:
        used = {model for option in chosen for model in option.models}
        models = [model for model, i in self.models.items() if i in used]
        hardware, placement = one_of_each(self.profile, dict.fromkeys(models, 1), pool_cores=self.pool)
        gears = []
        for r, (load_range, option) in enumerate(zip(load_ranges(self.upper_ends), chosen, strict=True)):
            known, load_qps = self.table(margin)[r][option.candidate], float(self.upper_ends[r])
            split = known.split
            assert split is not None
            cell, size = self.splits.chosen(known.candidate, split, load_qps)
            gears.append(
                Gear(
                    load_range=load_range,
                    cascades=alone(self.profile.operator, known.candidate.cascade),
                    replicas=self.splits.settings(known.candidate, split, size, placement),
                    predicted=cell.prediction(load_qps, known.candidate.accuracy),
                )
            )
        request = dataclasses.replace(self.request, hardware=hardware)
        return assemble(request, placement, gears, alpha=alpha)

    def certain(self, accuracy: float) -> float:
        n = len(self.profile.predictions.indices(PART_B))
        return claimed(accuracy, n, self.request.objective.confidence)

    def overloaded(self, margin: float) -> Infeasible:
        table = self.table(margin)
        failing = next((r for r, row in enumerate(table) if not any(True for _ in self.options(row))), -1)
        return Infeasible(
            f"no cascade keeps {self.request.objective.percentile:.4g} of requests within "
            f"{plain(self.request.latency_s * 1e3)} ms on {self.pool} cores",
            load_range=str(load_ranges(self.upper_ends)[failing]),
            bottleneck=self.splits.bottleneck(self.candidates[0]),
        )

    def out_of_reach(self, nearest: float | None, best: float) -> Infeasible:
        objective, n = self.request.objective, len(self.profile.predictions.indices(PART_B))
        certain = "" if objective.confidence is None else f" with confidence {objective.confidence:g}"
        reason = (
            f"no plan on {self.pool} cores has an accuracy of {objective.accuracy:g}{certain} within "
            f"{plain(self.request.latency_s * 1e3)} ms; steady loads allow {best:.4f}"
        )
        most_accurate = max(self.candidates, key=lambda c: c.accuracy)
        highest = most_accurate.accuracy
        if few := too_few_samples(n, objective.accuracy or 0.0, highest, self.certain(highest)):
            return Infeasible(reason + few, nearest_accuracy=nearest, by_load=False)
        return Infeasible(
            reason,
            load_range=str(load_ranges(self.upper_ends)[-1]),
            bottleneck=self.splits.bottleneck(most_accurate),
            nearest_accuracy=nearest,
        )


def _weights(request: PlanRequest) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Shares (ranges,) of time and of requests in each range, by the trace or Zipf's law."""
    upper_ends = request.upper_ends()
    if request.load != "zipf":
        return time_and_requests_of_ranges(request.trace, upper_ends)
    time = range_weights(request)
    requests = time * (upper_ends - upper_ends[0] / 2)
    return time, requests / requests.sum()
