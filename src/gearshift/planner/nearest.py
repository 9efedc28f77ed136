"""Offer feasible objectives near an infeasible request, each planned by the same planner."""

import dataclasses
import math
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET

from gearshift.errors import Infeasible, InvalidInput
from gearshift.gear import GearPlan
from gearshift.objective import Objective
from gearshift.planner import planners
from gearshift.planner.contract.ladder import MOST_DEVICES, accuracy_on_part_a, devices_like
from gearshift.planner.contract.planner import OutOfTime, SoFar
from gearshift.planner.evaluate.bottleneck import refusal
from gearshift.planner.search.infeasible import MOST_OFFERED, enough_devices
from gearshift.planner.search.plan_search import PlanSearch
from gearshift.planner.space.bisection import least_that
from gearshift.planner.space.cascade_search import CandidateCascade, cascade_front, single_models
from gearshift.planner.space.request import PlanRequest, Progress, silent
from gearshift.simulator.warm_up import warm_up

LATENCY_STEPS = (1.0, 1.1, 1.3, 1.6, 2.0)
"""Multiples of the estimated latency; the first that is feasible is offered."""
ACCURACY_STEPS = (0.0, 0.003, 0.01, 0.03)
"""Subtracted from the estimated accuracy; the first that is feasible is offered."""
DEVICE_STEPS = (1.0, 1.5, 2.0, 3.0, 5.0)
HIGHEST_UTILISATION = 0.9
ANY_LATENCY_S = 1e4
OFFERS_S = 60.0
"""Time to look for offers where the request has no budget."""
FAR = 10.0
"""A latency this many times the one asked for is not offered where more devices are enough."""

T = TypeVar("T", GearPlan, list[GearPlan])
Find = Callable[..., T]


def feasible_or_nearest(find: Find[T], planner: str, request: PlanRequest, *, progress: Progress = silent) -> T:
    """Plan with `find`, a function of `planners`; raises `Infeasible` with nearby offers.

    Offers are searched until the request's budget is spent, or for `OFFERS_S` where it has none.
    """
    began_s = time.monotonic()
    try:
        made = find(planner, request, progress=progress)
        if not made:
            raise refusal(request, f"planner {planner!r} found no plan")
    except Infeasible as error:
        if request.budget_s is None:
            warm_up()  # does not count against the time
        ends_s = time.monotonic() + OFFERS_S if request.budget_s is None else began_s + request.budget_s
        raise _Nearest(find, planner, request, error, ends_s, progress).offered() from None
    return made


class _OutOfTime(Exception):
    """The search for offers ended."""


class _Nearest:
    def __init__(
        self, find: Find[Any], planner: str, request: PlanRequest, error: Infeasible, ends_s: float, progress: Progress
    ) -> None:
        self.find, self.planner, self.request, self.error = find, planner, request, error
        self.ends_s, self.progress = ends_s, progress
        self.objective = request.objective
        self.offers: dict[str, Any] = {}

    def offered(self) -> Infeasible:
        known = self.error
        if self.error.by_load:
            known = refusal(self.request, self.error.reason, model=self.error.bottleneck or None)
        offers, reason = self.offers, self.error.reason
        left_s = max(0.0, self.ends_s - time.monotonic())
        self.progress(f"infeasible: {reason}; what is feasible nearby is looked for, for up to {left_s:.0f} s", 0.99)
        try:
            for name, look in (("accuracy", self.accuracy), ("devices", self.devices), ("latency_s", self.latency_s)):
                self.progress(f"looking for the nearest feasible {name.removesuffix('_s')}", 0.99)
                with suppress(Infeasible, InvalidInput):  # about the offer only
                    offers[f"nearest_{name}"] = look()
            if not any(offers.values()):
                offers |= self.both()
        except _OutOfTime:
            if left_s > 0:
                reason += f"; looking for what is feasible nearby ended after {left_s:.0f} s: --budget-s gives more"
        except KeyboardInterrupt:
            pass
        if offers.get("nearest_devices") and (offers.get("nearest_latency_s") or 0.0) > FAR * self.request.latency_s:
            del offers["nearest_latency_s"]
        return Infeasible(
            reason,
            load_range=self.error.load_range or known.load_range,
            bottleneck=known.bottleneck,
            device=self.error.device or known.device,
            by_load=self.error.by_load,
            **offers,
        )

    def accuracy(self) -> float | None:
        if self.objective.accuracy is None:
            return None
        if (near := self._accuracy_near([self.error.nearest_accuracy])) is not None:
            return near
        latency_s = self.objective.latency_s or ANY_LATENCY_S
        made = self._on_most(self._objective(latency_s=latency_s, accuracy=None, confidence=None))
        return None if made is None else self._accuracy_near(self._accuracies(made))

    def latency_s(self) -> float | None:
        if self.objective.latency_s is None:
            return None
        near = self._latency_near(self.error.nearest_latency_s or self._least_latency_s())
        if near is not None or self.objective.accuracy is None:
            return near
        made = self._on_most(self._objective(latency_s=None))
        return None if made is None else self._latency_near(_latency_s(made, self.objective))

    def _least_latency_s(self) -> float | None:
        objective = self._objective(accuracy=None, confidence=None)
        least_s: float | None = self._found(dataclasses.replace(self.request, objective=objective), _least_latency_s)
        return least_s

    def both(self) -> dict[str, Any]:
        if self.objective.latency_s is None or self.objective.accuracy is None:
            return {}
        hinted_s, hinted = self.error.nearest_latency_s, self.error.nearest_accuracy
        if hinted_s and hinted and (found := self._latency_near(hinted_s, _rounded_down(hinted))):
            return {"nearest_latency_s": found, "nearest_accuracy": _rounded_down(hinted), "together": True}
        free = self._on_most(self._objective(latency_s=ANY_LATENCY_S, accuracy=None, confidence=None))
        for most in () if free is None else self._accuracies(free):
            for less in ACCURACY_STEPS:
                accuracy = _rounded_down(most - less)
                made = self._on_most(self._objective(latency_s=None, accuracy=accuracy))
                if made is not None and (found := self._latency_near(_latency_s(made, self.objective), accuracy)):
                    return {"nearest_latency_s": found, "nearest_accuracy": accuracy, "together": True}
        return {}

    def devices(self) -> int | None:
        fastest = self._cheapest_fast_enough() if self.error.by_load else None
        if fastest is None:
            return None
        now, top_qps = len(self.request.hardware.devices), float(self.request.upper_ends()[-1])
        needed = math.ceil(fastest.work_s * top_qps / HIGHEST_UTILISATION)
        if self.find is planners.fewest and needed <= MOST_DEVICES:
            return None  # `fewest` has already tried this many
        needed = max(now + 1, needed)
        counted = enough_devices(self.request, fastest, top_qps, needed) or needed
        low = now
        for step in DEVICE_STEPS:
            tried = math.ceil(step * counted)
            if tried > MOST_OFFERED:
                break
            if self._holds_on(tried):
                return least_that(self._holds_on, fails=low, at_most=tried)
            low = tried
        return None

    def _holds_on(self, count: int) -> bool:
        request = dataclasses.replace(self.request, hardware=devices_like(self.request.hardware, count))
        held = self._feasible(request, planners.plan if self.find is planners.fewest else self.find)
        if held:
            self.offers["nearest_devices"] = count  # if time ends before fewer are found
        return held

    def _cheapest_fast_enough(self) -> CandidateCascade | None:
        request, wanted = self.request, self.objective.accuracy or 0.0
        singles = single_models(request)
        offered = singles if planners.named(self.planner).single_models else [*singles, *cascade_front(request)]
        return min(
            (c for c in offered if c.accuracy >= wanted and self._alone_s(c) <= request.latency_s),
            key=lambda c: c.work_s,
            default=None,
        )

    def _alone_s(self, candidate: CandidateCascade) -> float:
        profile, first = self.request.profile, candidate.cascade.models[0]
        return profile.front_end_s + min(c.seconds(c.batch_sizes[0]) for c in profile.whole_curves if c.model == first)

    def _accuracy_near(self, guesses: Iterable[float | None]) -> float | None:
        for guess in guesses:
            for less in () if guess is None else ACCURACY_STEPS:
                accuracy = _rounded_down((guess or 0.0) - less)
                if 0 < accuracy < (self.objective.accuracy or 0.0) and self._holds(accuracy=accuracy):
                    return accuracy
        return None

    def _latency_near(self, guess_s: float | None, accuracy: float | None = None) -> float | None:
        for factor in () if guess_s is None else LATENCY_STEPS:
            latency_s = _rounded_up((guess_s or 0.0) * factor)
            kept = {} if accuracy is None else {"accuracy": accuracy}
            if latency_s > self.request.latency_s and self._holds(latency_s=latency_s, **kept):
                return latency_s
        return None

    def _accuracies(self, made: GearPlan) -> list[float]:
        predicted = made.predictions[self.request.profile.operator].accuracy
        return sorted({accuracy_on_part_a(made, self.request), predicted}, reverse=True)

    def _on_most(self, objective: Objective) -> GearPlan | None:
        hardware = self.request.hardware
        if self.find is planners.fewest:
            hardware = devices_like(hardware, MOST_DEVICES)
        request = dataclasses.replace(self.request, objective=objective, hardware=hardware)
        made: GearPlan | None = self._found(request, planners.plan)
        return made

    def _holds(self, **changed: float) -> bool:
        return self._feasible(dataclasses.replace(self.request, objective=self._objective(**changed)), self.find)

    def _objective(self, **changed: float | None) -> Objective:
        return msgspec.structs.replace(self.objective, **changed)

    def _feasible(self, request: PlanRequest, find: Find[Any]) -> bool:
        """Whether there is a plan; for a latency alone any plan is enough to know."""
        any_within = planners.named(self.planner).any_within
        alone = request.objective.accuracy is None and request.objective.median_s is UNSET
        if any_within is not None and find is planners.plan and alone and request.policy != "refine":
            find = _any_within
        return self._found(request, find) is not None

    def _found(self, request: PlanRequest, find: Find[Any]) -> Any:
        """Plan within the time that is left; None where the request is infeasible."""
        left_s = self.ends_s - time.monotonic()
        if left_s <= 0:
            raise _OutOfTime
        try:
            made = find(self.planner, dataclasses.replace(request, budget_s=left_s))
        except (Infeasible, InvalidInput):
            return None
        except OutOfTime:
            raise _OutOfTime from None
        if isinstance(made, GearPlan) and made.unfinished:
            raise _OutOfTime
        return made or None


def _any_within(planner: str, request: PlanRequest) -> GearPlan | None:
    planners.require_possible(request)
    any_within = planners.named(planner).any_within
    return None if any_within is None else any_within(SoFar(request))


def _least_latency_s(planner: str, request: PlanRequest) -> float | None:
    return PlanSearch(SoFar(request)).least_latency_s()


def _latency_s(made: GearPlan, objective: Objective) -> float:
    name, pipeline = made.name, made.pipeline
    in_ranges_s = [gear.predicted.latency_p95_s for gear in pipeline.gears if gear.predicted is not None]
    on_trace_s = made.predictions[name].latency_s.at(objective.percentile)
    return pipeline.objective.latency_s or max([on_trace_s, *in_ranges_s])


def _rounded_up(seconds: float) -> float:
    """Round up to four digits of milliseconds, at most whole microseconds, for a command line."""
    ms = seconds * 1e3
    digits = min(3, 3 - math.floor(math.log10(ms)))
    return float(f"{math.ceil(ms * 10.0**digits * (1 - 1e-9)) / 10.0**digits:.10g}") / 1e3


def _rounded_down(accuracy: float) -> float:
    return math.floor(accuracy * 1e4 + 1e-6) / 1e4
