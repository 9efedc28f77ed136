"""The most accurate plan that refines within a latency: pairs of models, and how greedily each load refines.

Ways are compared by replaying the trace on part A, with few rows late; of those about as accurate
as the best, the one with the lowest median latency is taken. For an accuracy, plans are made on the
cheapest part of the devices, or at the lowest latency; with a confidence, the mean over part B's rows
of each row's expected quality in the trace's replay is shown to reach it. `docs/planners/refine.md`.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import msgspec

from gearshift.cascade import Cascade
from gearshift.errors import Infeasible, require
from gearshift.gear import Gear, GearPlan, GearPrediction
from gearshift.planner.contract import ladder
from gearshift.planner.contract.median import keeps_median, median_of
from gearshift.planner.contract.planner import Planner, SoFar
from gearshift.planner.evaluate.assemble import with_pipeline
from gearshift.planner.evaluate.bottleneck import refusal
from gearshift.planner.evaluate.cells import SteadyOthers, random_arrivals
from gearshift.planner.evaluate.confirm import confirmed, quality_of_records, replay, together
from gearshift.planner.refine.way import Pair, Way, pairs_of
from gearshift.planner.search.optimal import CERTIFICATES, OnDevices, claimed, too_few_samples
from gearshift.planner.search.plan_search import NOISE
from gearshift.planner.search.search_space import evaluated
from gearshift.planner.space.beside import at_all_loads
from gearshift.planner.space.cascade_search import most_accurate_model
from gearshift.planner.space.request import PlanRequest, least_margin
from gearshift.profiles.profile import PART_A, PART_B
from gearshift.simulator.simulate import prepare
from gearshift.support.numbers import plain
from gearshift.workload import draw_workload


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


PAIRS = 4
"""The most promising pairs whose plans are replayed."""
LONGEST = (0.25, 0.5, 1.0)
FACTORS = (0.0, 0.5, 0.8, 1.0, 1.25)
LATE_SHARE = 0.1
"""The share of the objective's late requests that a plan may have on part A."""
MEDIAN_WORTH = 0.001
"""The accuracy that a lower median latency is worth."""
STEADY_REQUESTS = 4_000


Of = TypeVar("Of")
"""A pair of models, or one pair for each of several operators: it makes a plan for each way."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Found(Generic[Of]):
    """A way of a pair, or of several operators, and what its plan gives on part A."""

    of: Of
    way: Way
    accuracy: float
    share_late: float
    median_s: float


def best_within(so_far: SoFar, *, median_worth: float = MEDIAN_WORTH) -> GearPlan:
    """Raises `Infeasible` where no plan that refines keeps the latency."""
    request = so_far.request
    require(request.beside is None, "plans that refine are made for one operator at a time")
    pairs = sorted(pairs_of(request), key=lambda pair: -pair.promise(Way()))[:PAIRS]
    if not pairs:
        raise refusal(request, "no two models, the second more accurate, fit the devices")
    found: list[Found[Pair]] = []
    for tried, pair in enumerate(pairs):
        for each in ways_of(so_far, pair):
            found.append(each)
            so_far.tell("replaying plans that refine", (tried + 0.5) / len(pairs))
    for each in in_order(found, request, median_worth=median_worth):
        so_far.check()
        made = confirmed(each.of.plan(each.way), request, on_time=so_far.check)
        if made is None or not keeps_median(made, request):
            continue
        if (made := with_steady_load(made, request)) is not None:
            so_far.keep(made, each.accuracy)
            return made
    median_s = median_of(request.objective)
    within = "" if median_s is None else f" with a median within {plain(median_s * 1e3)}"
    reason = f"no plan that refines keeps {plain(request.latency_s * 1e3)} ms{within}"
    cheapest = min(pairs, key=lambda pair: pair.screening_s)
    raise refusal(request, reason, model=cheapest.first, nearest_latency_s=_nearest_s(request))


def ways_of(so_far: SoFar, pair: Pair) -> Iterator[Found[Pair]]:
    """Ways of a pair, one thing changed at a time for the better."""
    request = so_far.request

    def tried(way: Way) -> Found[Pair]:
        so_far.check()
        result = replay(pair.plan(way), request, part=PART_A, seeds=1, on_time=so_far.check).result
        return Found(
            of=pair,
            way=way,
            accuracy=result.accuracy,
            share_late=result.share_late,
            median_s=result.latency_s.p50,
        )

    return ways(tried, request)


def ways(tried: Callable[[Way], Found[Of]], request: PlanRequest) -> Iterator[Found[Of]]:
    best: Found[Of] | None = None
    for longest in LONGEST:
        each = tried(Way(longest=longest))
        yield each
        best = better(best, each, request)
    assert best is not None
    each = tried(replace(best.way, refine_for="gain"))
    yield each
    best = better(best, each, request)
    for factor in FACTORS:
        if factor != best.way.factor:
            yield tried(replace(best.way, factor=factor))


def better(one: Found[Of] | None, other: Found[Of], request: PlanRequest) -> Found[Of]:
    return other if one is None or _worth(other, request) > _worth(one, request) else one


def _worth(each: Found[Any], request: PlanRequest) -> tuple[bool, float]:
    keeps = keeps_on_part_a(each, request)
    return keeps, each.accuracy if keeps else -each.share_late


def keeps_on_part_a(each: Found[Any], request: PlanRequest) -> bool:
    objective = request.objective
    median_s = median_of(objective)
    kept = median_s is None or each.median_s <= median_s
    return kept and each.share_late <= LATE_SHARE * (1 - objective.percentile)


def in_order(
    found: Sequence[Found[Of]], request: PlanRequest, *, median_worth: float = MEDIAN_WORTH
) -> list[Found[Of]]:
    """Those that keep the objective on part A: about as accurate as the best by the median, then by accuracy."""
    keeps = sorted((each for each in found if keeps_on_part_a(each, request)), key=lambda each: -each.accuracy)
    if not keeps:
        return []
    alike = [each for each in keeps if each.accuracy >= keeps[0].accuracy - median_worth]
    return [*sorted(alike, key=lambda each: each.median_s), *keeps[len(alike) :]]


def with_steady_load(
    made: GearPlan, request: PlanRequest, *, on_time: Callable[[], None] = lambda: None
) -> GearPlan | None:
    """The plan with its gears' predictions in steady load; None where a range misses the objective.

    As in scope `every-range`, each range is tried at the least margin times its upper end. Pipelines
    beside it must keep theirs, too.
    """
    gears, objective = [], request.objective
    for gear, qps in zip(made.pipeline.gears, request.upper_ends().tolist(), strict=True):
        on_time()
        if objective.scope == "every-range":
            tight, others_kept = steady(made, gear, least_margin(request) * qps, request)
            if not others_kept or tight.share_late > 1 - objective.percentile:
                return None
        predicted, _ = steady(made, gear, qps, request)
        gears.append(msgspec.structs.replace(gear, predicted=predicted))
    return with_pipeline(made, gears=tuple(gears))


def steady(made: GearPlan, gear: Gear, qps: float, request: PlanRequest) -> tuple[GearPrediction, bool]:
    """A gear alone at a steady load on part A, and whether pipelines beside it, at their busy loads, are kept."""
    others = None if request.beside is None else SteadyOthers(request.beside, request.seed)
    plan = msgspec.structs.replace(made, pipelines={made.name: at_all_loads(made.pipeline, gear)}, predictions={})
    trace = random_arrivals(qps, STEADY_REQUESTS / qps, seed=[request.seed, 5])
    workload = draw_workload(trace, request.profile.predictions.indices(PART_A), seed=request.seed)
    if others is None:
        run = prepare(plan, request.profile).run(workload)
    else:
        run = others.prepare(plan).run(others.beside_own(workload, qps))
    result = run.result(together(request), latency_objective_s=request.latency_s, pipeline=made.name)
    predicted = GearPrediction(
        load_qps=qps,
        accuracy=result.accuracy,
        latency_p95_s=result.latency_s.at(request.objective.percentile),
        share_late=result.share_late,
        utilisation=max(result.utilisation.values()),
    )
    return predicted, others is None or others.kept_in(run)


def _nearest_s(request: PlanRequest) -> float | None:
    """Some latency that is longer, for a search by latency to go on from."""
    slowest_s = max(curve.median_s[-1] for curve in request.profile.whole_curves)
    return None if request.latency_s > 8 * slowest_s else 1.5 * request.latency_s


def _prepare(request: PlanRequest, *, median_worth: float) -> ladder.OfCascades:
    strongest = evaluated(request, Cascade(models=(most_accurate_model(request.profile),)))
    most = max((pair.most for pair in pairs_of(request)), default=0.0)
    strongest = replace(strongest, accuracy=max(strongest.accuracy, most))
    return ladder.OfCascades(request, lambda so_far: best_within(so_far, median_worth=median_worth), strongest)


def planner(*, median_worth: float = MEDIAN_WORTH) -> Planner[PlanRequest]:
    """The planner that gives up `median_worth` of accuracy for a lower median."""

    def prepared(so_far: SoFar) -> ladder.OfCascades:
        return _prepare(so_far.request, median_worth=median_worth)

    return Planner(
        name="refine",
        best_within=lambda so_far: best_by_objective(so_far, prepared(so_far)),
        undominated=lambda so_far: ladder.frontier_by_ladder(so_far, prepared(so_far)),
        certifies=True,
        counts_devices=True,
    )


PLANNER = planner()
