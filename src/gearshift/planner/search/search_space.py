"""The space of one request's searches: its candidates and placements, and cells and replays that are shared."""

import dataclasses
import math
from collections.abc import Callable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from gearshift.cascade import Cascade
from gearshift.errors import Infeasible
from gearshift.gear import Gear, GearPlan, ReplicaSettings
from gearshift.hardware import Hardware
from gearshift.placement import Placement, Replica
from gearshift.planner.evaluate.bottleneck import refusal
from gearshift.planner.evaluate.confirm import Replays
from gearshift.planner.evaluate.spike_recovery import confirmed_to_recover
from gearshift.planner.evaluate.steady_state import SAMPLES, SteadyState, steady_of
from gearshift.planner.search.slo_search import SloSearch
from gearshift.planner.space.cascade_search import (
    CandidateCascade,
    evaluate_cascade,
    pareto_cascades,
    single_models,
    work_per_request_s,
)
from gearshift.planner.space.metered import metered_loads, seldom_exceeded_qps, shares_of_ranges
from gearshift.planner.space.placement_search import PlacementSearch
from gearshift.planner.space.request import LARGEST_MARGIN, PlanRequest, Progress
from gearshift.profiles.profile import PART_A
from gearshift.workload import Trace

# Plan for a slice of very many identical devices, then widen the plan to all of them.
#
# Under round robin a slice of one in k devices sees every k-th request. So the slice is planned for
# the trace thinned to every k-th arrival; the whole is k slices, each with its part of every load
# share, and its ranges begin at k times the slice's load. The whole is confirmed on the whole trace.

LARGEST_SLICE = 64
MARGIN_STEP = 1.05
DEFAULT_MARGIN = 1.15


def slices_of(request: PlanRequest) -> int:
    """Number of slices: 1 up to `LARGEST_SLICE` devices, or where devices or replicas differ."""
    devices = request.hardware.devices
    alike = {(d.node, d.kind, d.cores, d.memory_bytes, d.price_to_compare) for d in devices}
    wide = any(c.tensor_parallel > 1 for c in request.profile.whole_curves)
    return 1 if len(alike) > 1 or wide else math.ceil(len(devices) / LARGEST_SLICE)


def plan_by_slices(
    request: PlanRequest,
    slices: int,
    plan_slice: Callable[[PlanRequest], GearPlan],
    *,
    on_time: Callable[[], None] = lambda: None,
) -> GearPlan:
    """The confirmed plan for all devices; raises `Infeasible`, and what `on_time` raises."""
    margin = request.least_margin
    while True:
        made = widened(plan_slice(slice_of(request, slices, margin)), request, slices)
        if (found := confirmed_to_recover(made, request, seeds=1, on_time=on_time)) is not None:
            return found
        margin = (margin or DEFAULT_MARGIN) * MARGIN_STEP
        if margin > LARGEST_MARGIN:
            raise Infeasible(f"a plan for one of {slices} slices of the devices does not hold on all of them")


def slice_of(request: PlanRequest, slices: int, margin: float | None) -> PlanRequest:
    trace = request.trace
    devices = request.hardware.devices
    return dataclasses.replace(
        request,
        trace=Trace(arrivals_ns=trace.arrivals_ns[::slices], duration_s=trace.duration_s),
        hardware=Hardware(devices=devices[: len(devices) // slices]),
        max_qps=None if request.max_qps is None else request.max_qps / slices,
        least_margin=margin,
    )


def widened(made: GearPlan, request: PlanRequest, slices: int) -> GearPlan:
    """Copy the slice's plan to all devices: device i repeats device i modulo the slice."""
    ids = [d.id for d in request.hardware.devices]
    size = len(made.hardware.devices)
    place = {d.id: i for i, d in enumerate(made.hardware.devices)}
    copies = [
        (
            replica,
            Replica(id=f"{replica.model}@{ids[i]}", model=replica.model, device_ids=(ids[i],), cores=replica.cores),
        )
        for replica in made.placement.replicas
        for i in range(place[replica.device_ids[0]], len(ids), size)
    ]
    name, pipeline = next(iter(made.pipelines.items()))
    gears = tuple(_widened_gear(gear, copies, slices) for gear in pipeline.gears)
    return msgspec.structs.replace(
        made,
        hardware=request.hardware,
        placement=Placement(replicas=tuple(copy for _, copy in copies)),
        pipelines={name: msgspec.structs.replace(pipeline, gears=gears)},
    )


def _widened_gear(gear: Gear, copies: list[tuple[Replica, Replica]], slices: int) -> Gear:
    settings = {s.replica: s for s in gear.replicas}
    total: dict[str, float] = {}
    for replica, copy in copies:
        total[copy.model] = total.get(copy.model, 0.0) + settings[replica.id].load_share

    def settings_of(replica: Replica, copy: Replica) -> ReplicaSettings:
        share = settings[replica.id].load_share
        part = share / total[copy.model] if share > 0 else 0.0
        return msgspec.structs.replace(settings[replica.id], replica=copy.id, load_share=part)

    to = gear.load_range.to
    predicted = gear.predicted
    return msgspec.structs.replace(
        gear,
        load_range=msgspec.structs.replace(
            gear.load_range, from_=gear.load_range.from_ * slices, to=None if to is None else to * slices
        ),
        replicas=tuple(settings_of(replica, copy) for replica, copy in copies),
        predicted=None
        if predicted is None
        else msgspec.structs.replace(predicted, load_qps=predicted.load_qps * slices),
    )


LAYOUTS = 3
QUICK_SAMPLES = SAMPLES // 2
BOUND_SLACK = 0.02
"""Slack above the placements' accuracy bound: a replay meets other loads than the bound assumes."""


class SearchSpace:
    """Candidates and placements, restricted to `candidates` and `placement` where given."""

    def __init__(
        self,
        progress: Progress,
        on_time: Callable[[], None],
        *,
        candidates: Sequence[CandidateCascade] | None = None,
        placement: Placement | None = None,
    ) -> None:
        self._progress, self._on_time = progress, on_time
        self._given_candidates, self._given_placement = candidates, placement
        self._candidates: dict[tuple[str, ...], list[CandidateCascade]] = {}
        self._steady: dict[tuple[Hardware, Placement, int | None], SteadyState] = {}
        self._replays = Replays(on_time)

    @property
    def restricted(self) -> bool:
        return self._given_candidates is not None or self._given_placement is not None

    def single_models(self, request: PlanRequest) -> list[CandidateCascade]:
        return [] if self.restricted else single_models(request)

    def sliced(self, request: PlanRequest) -> bool:
        return self._given_placement is None and slices_of(request) > 1

    def searches(
        self, request: PlanRequest, among: Sequence[CandidateCascade] | None = None, *, quick: bool = False
    ) -> list[SloSearch]:
        """One search per promising placement, over the candidates `among` or all.

        Two where the metered load reaches the last range: they extend the ranges in different
        ways.
        """
        ends, searches = request.upper_ends(), []
        reached = seldom_exceeded_qps(request.trace) > float(ends[-1] - ends[0])
        for placement in self._placements(request, among):
            steady = self.steady_on(request, placement, QUICK_SAMPLES if quick else None)
            placed = self.placed(request, placement, among)
            for beyond in (False, True):
                if placed and (reached or not beyond):
                    search = SloSearch(
                        request,
                        steady,
                        placed,
                        replays=self._replays,
                        progress=self._progress,
                        on_time=self._on_time,
                        quick=quick,
                        beyond=beyond,
                    )
                    searches.append(search)
        if not searches:
            raise refusal(request, "none of the cascades has all its models on the devices")
        return searches

    def steady_on(self, request: PlanRequest, placement: Placement, samples: int | None = None) -> SteadyState:
        key = (request.hardware, placement, samples)
        if key not in self._steady:
            self._steady[key] = steady_of(request, request.hardware, placement, samples=samples)
        return self._steady[key].judged_by(request.objective)

    def placed(
        self, request: PlanRequest, placement: Placement, among: Sequence[CandidateCascade] | None
    ) -> list[CandidateCascade]:
        models = set(placement.models)
        offered = self.candidates(request, placement.models) if among is None else among
        return [c for c in offered if models.issuperset(c.cascade.models)]

    def candidates(self, request: PlanRequest, models: tuple[str, ...]) -> list[CandidateCascade]:
        if self._given_candidates is not None:
            return list(self._given_candidates)
        if models not in self._candidates:
            self._progress("searching cascades", 0.0)
            work_s = work_per_request_s(request.profile, request.hardware.devices[0])
            front = pareto_cascades(request.profile, {m: work_s[m] for m in models}, most=request.most_candidates)
            single = [c for c in single_models(request) if c.cascade.models[0] in models]
            offered = {c.cascade: c for c in [*front, *single]}.values()
            self._candidates[models] = sorted(offered, key=lambda c: (c.work_s, c.accuracy))
        return self._candidates[models]

    def fitting(self, request: PlanRequest) -> tuple[str, ...]:
        search = PlacementSearch(request.profile, request.hardware)
        return tuple(sorted({m for c in search.classes for p in c.patterns for m, _ in p}))

    def _placements(self, request: PlanRequest, among: Sequence[CandidateCascade] | None) -> list[Placement]:
        if self._given_placement is not None:
            return [self._given_placement]
        search = PlacementSearch(request.profile, request.hardware)
        offered = self.candidates(request, self.fitting(request)) if among is None else among
        loads, weights = _metered_loads(request)
        layouts = search.best(offered, loads, weights, latency_s=request.latency_s, most=LAYOUTS)
        return [search.placement(layout) for layout in layouts]

    def reachable(self, request: PlanRequest) -> float:
        offered = self.candidates(request, self.fitting(request))
        search = PlacementSearch(request.profile, request.hardware)
        loads, weights = _metered_loads(request)
        found = search.climbed(offered, loads, weights, latency_s=request.latency_s)
        return min(1.0, max(accuracy for accuracy, _ in found.values()) + BOUND_SLACK)

    def ceiling(self, request: PlanRequest) -> float:
        return max(c.accuracy for c in self.candidates(request, self.fitting(request)))


def evaluated(request: PlanRequest, cascade: Cascade) -> CandidateCascade:
    work_s = work_per_request_s(request.profile, request.hardware.devices[0])
    return evaluate_cascade(cascade, request.profile.predictions, work_s, part=PART_A)


def _metered_loads(request: PlanRequest) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The trace's metered loads (32,) in requests/s, and the share of requests at each."""
    rates, _ = metered_loads(request.trace)
    ends = max(1.0, float(rates.max())) * np.arange(1, 33) / 32
    return ends, shares_of_ranges(request.trace, ends)
