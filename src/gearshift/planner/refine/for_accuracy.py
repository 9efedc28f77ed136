"""Plans that refine and keep an accuracy: on the cheapest part of the devices, or at the lowest latency.

With a confidence, the mean over part B's rows of each row's expected quality in the trace's replay is shown to reach
the accuracy: `docs/planners/refine.md`.
"""

import math
from collections.abc import Callable

import msgspec

from gearshift.errors import Infeasible
from gearshift.gear import GearPlan
from gearshift.planner.contract import ladder
from gearshift.planner.contract.planner import SoFar
from gearshift.planner.evaluate.assemble import with_pipeline
from gearshift.planner.evaluate.bottleneck import refusal
from gearshift.planner.evaluate.confirm import quality_of_records
from gearshift.planner.refine.way import Way, pairs_of
from gearshift.planner.search.accuracy_objective import CERTIFICATES, OnDevices, claimed, too_few_samples
from gearshift.planner.search.plan_search import NOISE
from gearshift.planner.space.request import PlanRequest
from gearshift.profiles.profile import PART_B


def best_by_objective(so_far: SoFar, search: ladder.OfCascades) -> GearPlan:
    """The best plan for a latency, an accuracy, or both, certified where there is a confidence."""
    objective = so_far.request.objective
    if objective.accuracy is not None and objective.latency_s is not None:
        return OnDevices(_Refining(so_far, search.best_within)).fewest()
    if objective.confidence is None:
        return ladder.best_by_ladder(so_far, search)
    return _fastest_certified(so_far, search)


class _Refining:
    """The search for the most accurate plan that refines, on any part of the hardware."""

    def __init__(self, so_far: SoFar, best_within: Callable[[SoFar], GearPlan]) -> None:
        self.so_far, self.request, self._best_within = so_far, so_far.request, best_within
        self._made: dict[tuple[object, ...], GearPlan] = {}

    def most_accurate(self, request: PlanRequest) -> GearPlan:
        key = request.hardware, request.objective
        if key not in self._made:
            made = self.so_far.part(request, self.so_far.report).run(self._best_within)
            if made.unfinished:
                self.so_far.end_with(made)
            self._made[key] = made
        return self._made[key]

    def better_where_unvisited(self, made: GearPlan, request: PlanRequest) -> GearPlan:
        return made

    def reachable(self, request: PlanRequest) -> float:
        """Rows are refined until their latency is over, so that a busy second has some of the next one, too.

        Where devices differ, one may screen and another refine: only the models bound them together.
        """
        pairs = pairs_of(request)
        alike = len({(d.kind, d.cores) for d in request.hardware.devices}) == 1
        longest, longer_s = Way(longest=1.0), request.latency_s
        bounds = [pair.promise(longest, longer_s=longer_s) if alike else pair.most for pair in pairs]
        return max(bounds) + NOISE / math.sqrt(len(request.trace)) if bounds else -1.0

    def highest_accuracy(self) -> float:
        return max((pair.most for pair in pairs_of(self.request)), default=0.0)

    def kept(self, made: GearPlan) -> tuple[float, int]:
        if self.request.objective.confidence is None:
            result = made.predictions[self.request.profile.operator]
            return result.accuracy, result.requests
        return expected_on_part_b(made, self.request, self.so_far)


def expected_on_part_b(made: GearPlan, request: PlanRequest, so_far: SoFar) -> tuple[float, int]:
    """The mean over part B's rows of each row's mean quality in replays of the trace, and how many rows they drew."""
    quality = quality_of_records(made, request, part=PART_B, on_time=so_far.check)
    return float(quality.mean()) if len(quality) else 0.0, len(quality)


def _fastest_certified(so_far: SoFar, search: ladder.OfCascades) -> GearPlan:
    """The plan with the lowest latency that is found on part A, and held against part B.

    What part B lacks is added to the accuracy needed on part A, `CERTIFICATES` times at most.
    """
    request, objective = so_far.request, so_far.request.objective
    target, confidence = objective.accuracy or 0.0, objective.confidence or 0.0
    samples = min(len(request.trace), len(request.profile.predictions.indices(PART_B)))

    def certain(accuracy: float, n: int) -> float:
        return claimed(accuracy, n, confidence)

    needed, best = target, 0.0
    for _ in range(CERTIFICATES):
        accuracy = _least_accuracy(lambda mean: certain(mean, samples) >= needed)  # noqa: B023
        if accuracy > search.most_accurate.accuracy:
            break
        try:
            made = ladder.lowest_latency(so_far, accuracy, search)
        except Infeasible:
            so_far.check()
            break
        kept = certain(*expected_on_part_b(made, request, so_far))
        if kept >= target:
            kept_s = made.pipeline.objective.latency_s
            return with_pipeline(made, objective=msgspec.structs.replace(objective, latency_s=kept_s))
        best = max(best, kept)
        needed = max(needed, certain(ladder.accuracy_on_part_a(made, request), samples)) + target - kept
    highest = search.most_accurate.accuracy
    most = certain(highest, samples)
    told = f"; the best that was found has {best:.4f}" if best else ""
    reason = f"no plan that refines was shown to have an accuracy of {target:g} with confidence {confidence:g}{told}"
    if few := too_few_samples(samples, target, highest, most):
        raise Infeasible(reason + few, nearest_accuracy=math.floor(best * 1e4) / 1e4 or None, by_load=False)
    raise refusal(request, reason, nearest_accuracy=best)


def _least_accuracy(holds: Callable[[float], bool]) -> float:
    """The least accuracy that holds, to a millionth; above 1 where none does."""
    if not holds(1.0):
        return math.inf
    low, high = 0.0, 1.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
