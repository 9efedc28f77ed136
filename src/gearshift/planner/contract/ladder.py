"""The driver of all planners: from a search for a latency to an accuracy, both, the frontier, the fewest devices.

Each kind of request brings its candidates, and what the ladder asks of them (`WithinLatency`). The fewest
devices are those of CascadeServe 6.3, Figure 7.
"""

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from gearshift.errors import Infeasible, InvalidInput, require
from gearshift.gear import GearPlan
from gearshift.hardware import Hardware
from gearshift.planner.contract.median import within_median
from gearshift.planner.contract.planner import OutOfTime, Planner, Search, SoFar, all_so_far
from gearshift.planner.evaluate.assemble import with_pipeline
from gearshift.planner.evaluate.bottleneck import refusal
from gearshift.planner.evaluate.confirm import replay, seeds_for
from gearshift.planner.space.bisection import first_found, geometric, narrowed
from gearshift.planner.space.cascade_search import CandidateCascade
from gearshift.planner.space.hosts import narrowest_ways
from gearshift.planner.space.pareto import undominated
from gearshift.planner.space.request import OfLatency, PlanRequest, Progress, Request, silent
from gearshift.profiles.profile import PART_A
from gearshift.support.numbers import milliseconds, plain

FRONTIER_STEP = 1.5
ACCURACY_STEP = 2.0
LATENCY_PRECISION = 0.05
LONGEST_IN_BATCHES = 8.0
"""The ladder's top, in batches of the slowest model: more latency gains hardly anything."""
SAME_ACCURACY = 1e-4

R = TypeVar("R", bound=OfLatency)


class WithinLatency(ABC, Generic[R]):
    """A search on the devices of one request, for any latency."""

    precision: float
    """To which share the lowest latency is found."""

    @abstractmethod
    def best_within(self, so_far: Search[R]) -> GearPlan:
        """The plan with the best accuracy within the latency of `so_far.request`, its only objective."""

    def require_within_reach(self, accuracy: float) -> None:
        """Raise `Infeasible` where no plan has the accuracy, as far as that is known before a search."""

    @abstractmethod
    def judged(self, made: GearPlan) -> float:
        """The accuracy that is held against the one asked for."""

    @abstractmethod
    def refused(self, made: GearPlan, latency_s: float, accuracy: float) -> Infeasible | None:
        """Why a plan for this latency is none for an accuracy, too."""

    @abstractmethod
    def rungs_s(self) -> tuple[float, float]:
        """The first latency of the frontier's ladder, and the last but for one step."""

    def rung_s(self, latency_s: float) -> float:
        """A rung of the frontier's ladder at about this latency."""
        return latency_s

    @abstractmethod
    def has_all(self, made: list[GearPlan]) -> bool:
        """Whether more latency cannot give more accuracy than the last plan has."""

    @abstractmethod
    def span_s(self, accuracy: float) -> tuple[float, float, float]:
        """A latency below which none has the accuracy, the first to try, and the last; raises `Infeasible`."""

    @abstractmethod
    def beyond(self, accuracy: float) -> Infeasible:
        """Why no plan up to the last latency has the accuracy."""

    def next_after(self, error: Infeasible, latency_s: float, step: float) -> float:
        if error.nearest_latency_s is None:
            raise error
        return max(latency_s * step, error.nearest_latency_s)


@dataclass(frozen=True, slots=True)
class OfCascades(WithinLatency[PlanRequest]):
    """A search among cascades of one operator, none of which is more accurate than `most_accurate`."""

    request: PlanRequest
    search: Callable[[SoFar], GearPlan]
    most_accurate: CandidateCascade
    precision = LATENCY_PRECISION

    def best_within(self, so_far: SoFar) -> GearPlan:
        return self.search(so_far)

    def judged(self, made: GearPlan) -> float:
        return accuracy_on_part_a(made, self.request)

    def refused(self, made: GearPlan, latency_s: float, accuracy: float) -> Infeasible | None:
        if made.unfinished or (best := self.judged(made)) >= accuracy:
            return None
        reason = f"within {plain(latency_s * 1e3)} ms the best accuracy is {best:.4f}, not {accuracy:.4g}"
        return refusal(self.request, reason, nearest_accuracy=best)

    def rungs_s(self) -> tuple[float, float]:
        curves = self.request.profile.whole_curves
        return min(c.median_s[0] for c in curves), LONGEST_IN_BATCHES * max(c.median_s[-1] for c in curves)

    def has_all(self, made: list[GearPlan]) -> bool:
        """Whether the last plan uses the most accurate candidate, and is as accurate.

        A replay draws its samples: by chance a plan without that candidate may look as accurate.
        """
        gears = made[-1].pipelines[self.request.profile.operator].gears
        if all(gear.cascade.models != self.most_accurate.cascade.models for gear in gears):
            return False
        return self.judged(made[-1]) >= self.most_accurate.accuracy - SAME_ACCURACY

    def require_within_reach(self, accuracy: float) -> None:
        require_accuracy_within_reach(accuracy, self.most_accurate.accuracy)

    def span_s(self, accuracy: float) -> tuple[float, float, float]:
        self.require_within_reach(accuracy)
        low, top_s = self.rungs_s()
        return low, low, top_s * ACCURACY_STEP

    def beyond(self, accuracy: float) -> Infeasible:
        _, top_s = self.rungs_s()
        return refusal(self.request, f"no plan within {plain(top_s * 1e3)} ms has an accuracy of {accuracy:.4g}")


def planner(name: str, prepare: Callable[[Search[R]], WithinLatency[R]], *, single_models: bool = False) -> Planner[R]:
    """The planner that searches with what `prepare` gives for a request."""
    return Planner(
        name=name,
        best_within=lambda so_far: best_by_ladder(so_far, prepare(so_far)),
        undominated=lambda so_far: frontier_by_ladder(so_far, prepare(so_far)),
        single_models=single_models,
    )


def best_by_ladder(so_far: Search[R], search: WithinLatency[R]) -> GearPlan:
    """Plan for a latency, for an accuracy (the lowest latency, nearly), or for both."""
    accuracy, latency_s = so_far.request.objective.accuracy, so_far.request.objective.latency_s
    if accuracy is None:
        return search.best_within(so_far)
    if latency_s is None:
        return for_accuracy(lowest_latency(so_far, accuracy, search), accuracy)
    search.require_within_reach(accuracy)
    made = so_far.part(so_far.request.within(latency_s), so_far.report).run(search.best_within)
    if (why := search.refused(made, latency_s, accuracy)) is not None:
        raise why
    return for_accuracy(made, accuracy)


def frontier_by_ladder(so_far: Search[R], search: WithinLatency[R]) -> list[GearPlan]:
    """Undominated plans by rising latency, one tried for every latency objective of a ladder.

    The ladder ends where more latency leaves nothing to gain.
    """
    made = all_so_far(_rungs(so_far, search))
    so_far.report("planned", 1.0)
    return undominated_plans(made, so_far.request)


def _rungs(so_far: Search[R], search: WithinLatency[R]) -> Iterator[GearPlan]:
    latency_s, top_s = search.rungs_s()
    made, why = list[GearPlan](), None
    while latency_s < top_s * FRONTIER_STEP:
        latency_s = search.rung_s(latency_s)
        plans = f"{len(made)} plan{'s' * (len(made) != 1)} so far"
        so_far.tell(f"planning for {milliseconds(latency_s)}, {plans}", min(0.99, latency_s / top_s))
        try:
            found = so_far.part(so_far.request.within(latency_s)).run(search.best_within)
        except Infeasible as error:
            so_far.check()
            why, latency_s = error, search.next_after(error, latency_s, FRONTIER_STEP)
            continue
        yield found
        made.append(found)
        if found.unfinished:
            raise OutOfTime
        so_far.check()
        if search.has_all(made):
            return
        latency_s *= FRONTIER_STEP
    if not made and why is not None:
        raise why


def undominated_plans(made: list[GearPlan], request: R) -> list[GearPlan]:
    return [made[i] for i in undominated([predicted_point(plan, request) for plan in made])]


def predicted_point(made: GearPlan, request: R) -> tuple[float, float]:
    """Latency in seconds at the percentile (or the next higher recorded), and accuracy."""
    result = made.predictions[made.name]
    return result.latency_s.at(request.objective.percentile), result.accuracy


def accuracy_on_part_a(made: GearPlan, request: PlanRequest) -> float:
    return replay(made, request, part=PART_A, seeds=seeds_for(request.trace)).result.accuracy


def for_accuracy(made: GearPlan, accuracy: float) -> GearPlan:
    return with_pipeline(made, objective=msgspec.structs.replace(made.pipeline.objective, accuracy=accuracy))


def require_accuracy_within_reach(accuracy: float, highest: float) -> None:
    if highest < accuracy:
        reason = f"no candidate has an accuracy of {accuracy:.4g}, on any devices; the best has {highest:.4f}"
        raise Infeasible(reason, nearest_accuracy=math.floor(highest * 1e4) / 1e4 or None, by_load=False)


def lowest_latency(so_far: Search[R], accuracy: float, search: WithinLatency[R]) -> GearPlan:
    """The plan at about the lowest latency that has the accuracy; raises `Infeasible` without one."""

    def accurate(latency_s: float) -> GearPlan | None:
        so_far.check()
        so_far.tell(f"planning for {milliseconds(latency_s)}", 0.5)
        made = so_far.part(so_far.request.within(latency_s)).run(search.best_within)
        if made.unfinished:
            so_far.end_with(made)
        so_far.check()
        if (reached := search.judged(made)) < accuracy:
            return None
        so_far.keep(for_accuracy(made, accuracy), reached)
        return made

    low, high, most_s = search.span_s(accuracy)
    found = None
    while found is None:
        if high >= most_s:
            raise search.beyond(accuracy)
        try:
            found = accurate(high)
        except Infeasible as error:
            so_far.check()
            low, high = high, search.next_after(error, high, ACCURACY_STEP)
        else:
            if found is None:
                low, high = high, high * ACCURACY_STEP

    def feasible(latency_s: float) -> GearPlan | None:
        try:
            return accurate(latency_s)
        except Infeasible:
            return None

    return narrowed(feasible, found, fails=low, at_most=high, precision=search.precision, middle=geometric)


MOST_DEVICES = 64


def fewest_devices(
    planner: Planner[R], request: R, *, most: int = MOST_DEVICES, progress: Progress = silent
) -> GearPlan:
    """The plan on the fewest devices like the request's first; raises `Infeasible` beyond `most`.

    A planner meets both objectives with n devices when its plan for the latency has the accuracy, on
    rows by a replay of part A. n starts at the fewest that any model spans and is doubled until it
    does, then bisected: with one device fewer the planner was tried, and failed.
    """
    require(most >= 1, f"at most {most} devices asked for", remedy="allow at least one")
    return planner.finished(Search(request, progress).run(lambda so_far: _fewest(planner, so_far, most)), request)


def _fewest(planner: Planner[R], so_far: Search[R], most: int) -> GearPlan:
    request, best = so_far.request, 0.0
    refused: Infeasible | InvalidInput | None = None
    latency_s, accuracy = request.latency_s, request.objective.accuracy or 0.0

    def plan(asked: Any) -> GearPlan:
        part = so_far.part(asked)
        return planner.plan(part.request, progress=part.report)

    def met(count: int) -> GearPlan | None:
        nonlocal best, refused
        so_far.check()
        so_far.tell(f"planning for {count} device{'s' * (count > 1)}", min(0.99, count / most))
        asked = dataclasses.replace(request, hardware=devices_like(request.hardware, count)).within(latency_s)
        try:
            made = within_median(plan, asked) if isinstance(asked, PlanRequest) else plan(asked)
        except (Infeasible, InvalidInput) as error:
            so_far.check()
            refused = error
            return None
        made = for_accuracy(made, accuracy)
        if made.unfinished:
            so_far.end_with(made)
        found = _accuracy_of(made, asked, so_far)
        if found > best or found >= accuracy:
            best = max(best, found)
            so_far.keep(made, found)
        return made if found >= accuracy else None

    if (made := first_found(met, first=min(most, _least_devices(request)), last=most)) is None:
        if isinstance(refused, InvalidInput):
            raise refused
        raise _beyond(planner, request, most, best, refused)
    so_far.tell("planned", 1.0)
    return made


def _accuracy_of(made: GearPlan, asked: R, so_far: Search[R]) -> float:
    if not isinstance(asked, PlanRequest):
        return made.predictions[made.name].accuracy
    return replay(made, asked, part=PART_A, seeds=1, on_time=so_far.check).result.accuracy


def _least_devices(request: Request) -> int:
    """The fewest devices that any model spans."""
    if not isinstance(request, PlanRequest):
        return 1
    narrowest = narrowest_ways(request.profile, request.hardware.devices[0]).values()
    return min((way.tensor_parallel for way in narrowest), default=1)


def _beyond(planner: Planner[R], request: R, most: int, best: float, refused: Infeasible | None) -> Infeasible:
    accuracy, latency_s = request.objective.accuracy or 0.0, request.latency_s
    reason = f"its best accuracy is {best:.4f}" if best else "it has no plan within the latency"
    if refused is None and isinstance(request, PlanRequest):
        refused = refusal(request, "")
    return Infeasible(
        f"planner {planner.name!r} does not reach an accuracy of {accuracy:.4g} within "
        f"{plain(latency_s * 1e3)} ms on {most} device{'s' * (most > 1)}: {reason}",
        load_range=refused.load_range if refused else "",
        bottleneck=refused.bottleneck if refused else "",
        device=refused.device if refused else "",
        nearest_latency_s=refused.nearest_latency_s if refused and not best else None,
        nearest_accuracy=math.floor(best * 1e4) / 1e4 if best else None,
    )


def devices_like(hardware: Hardware, count: int) -> Hardware:
    first = hardware.devices[0]
    return Hardware(devices=tuple(msgspec.structs.replace(first, id=f"{first.kind}-{i}") for i in range(count)))
