"""Our planner, the default: exact assignment on simulated tables, and every plan confirmed.

- a latency objective: the most accurate plan that keeps it (`slo_search`), on the best placements;
- an accuracy objective: the plan with the lowest latency that keeps it, by bisection;
- both: the fewest devices (the lowest price per hour) on which both are kept;
- `frontier`: plans for latency objectives from the fastest model's run time up.

One cascade at all loads, single models, and the plan for one device less are candidates for every
plan, so none of them is more accurate. `docs/planners/optimal.md` gives the reasons.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from itertools import pairwise, product
from typing import Protocol

import msgspec

from gearshift.cascade import Cascade
from gearshift.errors import Infeasible, InvalidInput
from gearshift.gear import GearPlan
from gearshift.hardware import Device, Hardware
from gearshift.placement import Placement
from gearshift.planner.contract.ladder import accuracy_on_part_a
from gearshift.planner.contract.planner import Planner, SoFar, all_so_far
from gearshift.planner.evaluate.assemble import DEFAULT_ALPHA, with_pipeline
from gearshift.planner.evaluate.bottleneck import refusal
from gearshift.planner.evaluate.confirm import with_predictions
from gearshift.planner.search.choices import Choice, PlanMaker
from gearshift.planner.search.plan_search import MOST_LESS, SAME_ACCURACY, PlanSearch
from gearshift.planner.search.search_space import evaluated
from gearshift.planner.space.bisection import first_found, least_that
from gearshift.planner.space.cascade_search import CandidateCascade
from gearshift.planner.space.pareto import undominated
from gearshift.planner.space.request import PlanRequest
from gearshift.profiles.profile import PART_B
from gearshift.result import lower_confidence_bound
from gearshift.support.numbers import plain

# Plans that keep an accuracy: at the lowest latency, or within a latency on the fewest devices.

PROBED = (1.0, 0.75, 0.5)
"""Places on the latency ladder to probe for the highest accuracy; a tighter latency can have a
better plan."""
MOST_PARTS = 4096
"""At most this many parts of the hardware are tried, one after the other."""
CERTIFICATES = 3
"""How many plans may be tested on part B; with a confidence each gets its part of the level."""


class Searching(Protocol):
    """A search for the most accurate plan within a latency, on any part of the hardware."""

    @property
    def request(self) -> PlanRequest: ...
    @property
    def so_far(self) -> SoFar: ...
    def most_accurate(self, request: PlanRequest) -> GearPlan: ...
    def better_where_unvisited(self, made: GearPlan, request: PlanRequest) -> GearPlan: ...
    def reachable(self, request: PlanRequest) -> float:
        """No plan of the request is more accurate; raises `InvalidInput` where no model runs on its devices."""

    def highest_accuracy(self) -> float:
        """No plan is more accurate, on any devices."""

    def kept(self, made: GearPlan) -> tuple[float, int]:
        """The accuracy on part B, and how many samples it was judged by."""


class OnDevices:
    """Plans on the cheapest part of the hardware that keeps a latency and an accuracy."""

    def __init__(self, search: Searching) -> None:
        self._search, self._request = search, search.request
        self._refused: Infeasible | None = None
        self._on_part_a: dict[Hardware, float] = {}

    def fewest(self) -> GearPlan:
        return self._fewest_kept() if self._request.objective.confidence is None else self._fewest_certified()

    def _fewest_kept(self) -> GearPlan:
        target, best = self._request.objective.accuracy or 0.0, 0.0

        def kept_on(hardware: Hardware) -> GearPlan | None:
            nonlocal best
            made = self._made_on(hardware, target)
            if made is None:
                return None
            kept = self._kept_accuracy(made)
            if kept > best:
                best, self._search.so_far.plan = kept, self._as_asked(made)
            return self._as_asked(made) if kept >= target else None

        made = _first(list(by_price(self._request.hardware)), kept_on)
        if made is not None:
            better = self._better(made, self._within_latency(made.hardware))
            return better if self._kept_accuracy(better) >= target else made
        if best == 0.0:  # the bound excluded every part: report the highest accuracy
            best = self._kept_accuracy(self._most_accurate())
        raise self._out_of_reach(best)

    def _fewest_certified(self) -> GearPlan:
        """Choose the hardware on part A, and test only that plan on part B.

        What part B lacks is added to the accuracy needed on part A. The last test goes to the
        least hardware that is as accurate as all of it.
        """
        target, parts = self._request.objective.accuracy or 0.0, list(by_price(self._request.hardware))
        needed, best, looked_at = target, 0.0, list[Hardware]()
        while True:
            made = None if len(looked_at) == CERTIFICATES - 1 else self._first_claiming(needed, parts)
            if last := made is None:
                needed = self._claimed(self._most_accurate()) - SAME_ACCURACY
                made = self._first_claiming(needed, parts) or self._most_accurate()
                if made.hardware in looked_at:
                    raise self._out_of_reach(best, looked_at)
            looked_at.append(made.hardware)
            made = self._better(made, self._within_latency(made.hardware))
            kept = self._kept_accuracy(made)
            if kept > best:
                best, self._search.so_far.plan = kept, self._as_asked(made)
            if kept >= target:
                return self._as_asked(made)
            if last:
                raise self._out_of_reach(best, looked_at)
            needed = max(needed, self._claimed(made)) + target - kept

    def _first_claiming(self, needed: float, parts: Sequence[Hardware]) -> GearPlan | None:
        def claiming(hardware: Hardware) -> GearPlan | None:
            made = self._made_on(hardware, needed)
            return made if made is not None and self._claimed(made) >= needed else None

        return _first(parts, claiming)

    def _made_on(self, hardware: Hardware, needed: float) -> GearPlan | None:
        self._search.so_far.check()
        request = self._within_latency(hardware)
        try:
            if self._certain(self._search.reachable(request), self._samples) < needed:
                return None
            made = self._search.most_accurate(request)
        except Infeasible as error:
            self._refused = error
            return None
        except InvalidInput:  # no model runs on this part of the hardware
            if hardware == self._request.hardware:
                raise
            return None
        self._search.so_far.plan = self._search.so_far.plan or self._as_asked(made)
        return made

    def _better(self, made: GearPlan, request: PlanRequest) -> GearPlan:
        """Improve the plan before part B certifies its accuracy, and not after."""
        return self._search.better_where_unvisited(made, request)

    def _within_latency(self, hardware: Hardware) -> PlanRequest:
        return dataclasses.replace(self._request.within(self._request.latency_s), hardware=hardware)

    def _most_accurate(self) -> GearPlan:
        if self._refused is not None and self._search.so_far.plan is None:
            raise self._refused
        return self._search.most_accurate(self._request.within(self._request.latency_s))

    def _claimed(self, made: GearPlan) -> float:
        if made.hardware not in self._on_part_a:
            self._on_part_a[made.hardware] = accuracy_on_part_a(made, self._request)
        return self._certain(self._on_part_a[made.hardware], self._samples)

    @property
    def _samples(self) -> int:
        return min(len(self._request.trace), len(self._request.profile.predictions.indices(PART_B)))

    def _certain(self, accuracy: float, n: int) -> float:
        return claimed(accuracy, n, self._request.objective.confidence)

    def _kept_accuracy(self, made: GearPlan) -> float:
        return self._certain(*self._search.kept(made))

    def _as_asked(self, made: GearPlan) -> GearPlan:
        latency_s = made.pipelines[self._request.profile.operator].objective.latency_s
        return with_pipeline(made, objective=msgspec.structs.replace(self._request.objective, latency_s=latency_s))

    def _out_of_reach(self, best: float, looked_at: Sequence[Hardware] = ()) -> Infeasible:
        objective = self._request.objective
        devices = len(self._request.hardware.devices)
        within = "" if objective.latency_s is None else f" within {plain(objective.latency_s * 1e3)} ms"
        certain = "" if objective.confidence is None else f" with confidence {objective.confidence:g}"
        has = "was shown to have" if looked_at else "has"
        reason = (
            f"no plan on {devices} device{'s' * (devices > 1)} {has} an accuracy of {objective.accuracy:g}{certain}"
            f"{within}; the best that was found has {best:.4f}"
        )
        if len(looked_at) == CERTIFICATES:
            counts = ", ".join(str(len(hardware.devices)) for hardware in looked_at)
            reason += (
                f"; a confidence allows {CERTIFICATES} plans to be held against the samples that judge, and those on "
                f"{counts} devices were"
            )
        request, n = self._request, self._samples
        highest = self._search.highest_accuracy()
        if few := too_few_samples(n, objective.accuracy or 0.0, highest, self._certain(highest, n)):
            return Infeasible(reason + few, nearest_accuracy=math.floor(best * 1e4) / 1e4 or None, by_load=False)
        return refusal(request, reason, nearest_accuracy=best)


class AccuracyObjective(OnDevices):
    def __init__(self, search: PlanSearch) -> None:
        super().__init__(search)
        self._plans = search

    def fastest(self) -> GearPlan:
        """The plan at the lowest latency objective that keeps the accuracy."""
        ladder = self._plans.ladder()
        target, n = self._request.objective.accuracy or 0.0, len(self._request.profile.predictions.indices(PART_B))
        known: dict[int, float] = {}

        def reached(step: int) -> float:
            if step not in known:
                known[step] = self._certain(self._plans.accuracy_within(ladder[step]), n)
            return known[step]

        top = len(ladder) - 1
        most = max((round(top * share) for share in PROBED), key=reached)
        needed = target
        for certificate in range(1, CERTIFICATES + 1):
            high = most
            if certificate < CERTIFICATES and reached(most) >= needed:
                high = least_that(lambda step, needed=needed: reached(step) >= needed, fails=-1, at_most=most)  # type: ignore[misc]
            request = self._request.within(ladder[high])
            made = self._better(self._plans.most_accurate(request, on_fewer=False), request)
            kept = self._kept_accuracy(made)
            if kept >= target and reached(high) >= target:
                return self._as_asked(made)
            if high == most:
                break
            needed = max(needed, reached(high)) + target - kept
        raise self._out_of_reach(max(0.0, min(kept, reached(most))))


def claimed(accuracy: float, n: int, confidence: float | None) -> float:
    """The accuracy to claim from `n` samples: its lower bound where a confidence is asked for."""
    if confidence is None or accuracy < 0:
        return accuracy
    return lower_confidence_bound(accuracy, n, 1 - (1 - confidence) / CERTIFICATES)


def too_few_samples(n: int, target: float, highest: float, certain: float) -> str:
    """Say what `n` samples certify, where a candidate has the accuracy but none is certified.

    More devices or more latency would not help then. `certain` is the claim for `highest`.
    """
    if not certain < target <= highest:
        return ""
    return (
        f", since {n} samples certify no more than {certain:.4f} of the most accurate cascade's {highest:.4f}: "
        "record more, or ask for less --confidence"
    )


def by_price(hardware: Hardware) -> list[Hardware]:
    """Parts of the hardware by rising price, then by number of devices.

    Above `MOST_PARTS`, only doublings of each kind are tried.
    """
    alike: dict[tuple[object, ...], list[Device]] = {}
    for d in hardware.devices:
        alike.setdefault((d.kind, d.cores, d.memory_bytes, d.price_to_compare), []).append(d)
    groups = list(alike.values())
    counts = [list(range(len(group) + 1)) for group in groups]
    if math.prod(map(len, counts)) > MOST_PARTS:
        counts = [sorted({0, *(2**i for i in range(len(g).bit_length())), len(g)}) for g in groups]
    options = []
    for chosen in product(*counts):
        if sum(chosen) > 0:
            price = sum(n * group[0].price_to_compare for n, group in zip(chosen, groups, strict=True))
            options.append((price, sum(chosen), chosen))
    return [
        Hardware(devices=tuple(d for n, group in zip(chosen, groups, strict=True) for d in group[:n]))
        for _, _, chosen in sorted(options)
    ]


def _first(parts: Sequence[Hardware], kept_on: Callable[[Hardware], GearPlan | None]) -> GearPlan | None:
    """The plan on the first of these parts that has one.

    Where each part extends the one before: found by doubling, then by bisection.
    """
    nested = all(set(a.devices) < set(b.devices) for a, b in pairwise(parts))
    if not nested or len(parts) <= MOST_LESS:
        return next((made for part in parts if (made := kept_on(part)) is not None), None)
    return first_found(lambda count: kept_on(parts[count - 1]), first=1, last=len(parts))


def restricted(
    *, candidates: Sequence[CandidateCascade] | None = None, placement: Placement | None = None
) -> Planner[PlanRequest]:
    """The planner among `candidates` (by rising work) and on `placement`, where given."""

    def searched(so_far: SoFar) -> PlanSearch:
        return PlanSearch(so_far, candidates=candidates, placement=placement)

    return Planner(
        name="optimal",
        best_within=lambda so_far: _best_within(searched(so_far)),
        undominated=lambda so_far: _undominated(searched(so_far)),
        certifies=True,
        counts_devices=True,
        any_within=lambda so_far: searched(so_far).cheapest(),
    )


PLANNER = restricted()


def _best_within(search: PlanSearch) -> GearPlan:
    objective = search.request.objective
    if objective.latency_s is None:
        made = AccuracyObjective(search).fastest()
    elif objective.accuracy is None:
        made = search.better_where_unvisited(search.most_accurate(search.request), search.request)
    else:
        made = AccuracyObjective(search).fewest()
    search.report("planned", 1.0)
    return made


def _undominated(search: PlanSearch) -> list[GearPlan]:
    from gearshift.planner.search.optimal_frontier import frontier_plans, with_better_where_unvisited

    found = all_so_far(frontier_plans(search))
    name = search.request.profile.operator
    results = [made.predictions[name] for made in found]
    points = [
        (made.pipelines[name].objective.latency_s or 0.0, r.accuracy) for made, r in zip(found, results, strict=True)
    ]
    front = [found[i] for i in undominated(points)]
    return with_better_where_unvisited(search, front, confirmed=len(found))


def single_model_plan(request: PlanRequest, model: str) -> GearPlan:
    """The baseline of one model at all loads with the best batch size, whatever the objective."""
    candidate = evaluated(request, Cascade(models=(model,)))
    search = PlanSearch(SoFar(dataclasses.replace(request, ranges=1)), candidates=[candidate])
    choice = Choice((0,), margin=1.0, alpha=DEFAULT_ALPHA, accuracy=candidate.accuracy)
    steady, ends = search.space.searches(search.request)[0].steady, search.request.upper_ends()
    made = PlanMaker(search.request, steady, [candidate], ends, ends).plan_of(choice)
    return with_predictions(msgspec.structs.replace(made, planner="single"), request)
