"""Plan several pipelines on one placement: each in turn, while the others stay as they are."""

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce

import msgspec
import numpy as np

from gearshift.cascade import Cascade
from gearshift.clock import NS_PER_S
from gearshift.errors import Infeasible
from gearshift.gear import GearPlan, LoadRange
from gearshift.placement import Placement
from gearshift.planner.contract.planner import Search
from gearshift.planner.evaluate.assemble import assemble, curves_of
from gearshift.planner.evaluate.cells import Batching, random_arrivals
from gearshift.planner.evaluate.confirm import prepared_together, replay, seeds_for, together_workload
from gearshift.planner.evaluate.steady_state import steady_of
from gearshift.planner.search.plan_search import PlanSearch, holds_every_range
from gearshift.planner.search.search_space import SearchSpace
from gearshift.planner.several.layouts import OperatorTuple
from gearshift.planner.several.request import SeveralRequest
from gearshift.planner.space.beside import Beside, WorkLimit, in_steady_load, joined, part_of
from gearshift.planner.space.cascade_search import CandidateCascade, evaluate_cascade
from gearshift.planner.space.request import PlanRequest, Progress
from gearshift.profiles.profile import PART_A, Profile, RunTimeCurve
from gearshift.simulator.simulate import prepare
from gearshift.workload import draw_workload, merge_workloads

GAIN = 1e-4
"""Less accuracy gained in a round ends the rounds."""
RESERVES = 1.0, 1.15, 1.3, 1.6, 2.0
"""Multiples of the others' load that a pipeline leaves room for, tried in this order."""
BUSY_REQUESTS = 20_000
BATCH_SHARE = 0.25
"""The share of the latency objective that a batch of a guess may take."""


class Coordination:
    """The pipelines' plans, each with replicas of its own models.

    Those that are neither fixed nor planned yet are guesses: a cascade of `start` at all loads.
    `accuracy` is the mean over all requests on part A; minus infinity until all pipelines hold.
    """

    def __init__(self, several: SeveralRequest, placement: Placement, so_far: Search[SeveralRequest]) -> None:
        self.several, self.so_far = several, so_far
        self.accuracy = -math.inf
        self.plans: dict[str, GearPlan] = {}
        self._planned: set[str] = set()
        self._limits: dict[str, WorkLimit] = {}
        self._placements = {name: _of_models(placement, several.requests[name].profile) for name in several.requests}

    def draft(self, start: OperatorTuple) -> float:
        """Plan all in turn from guesses, unconfirmed; the mean accuracy on part A (0 where only one is planned).

        Where nothing is left for a pipeline, again with more room for those that are not planned.
        Raises `Infeasible` for the first pipeline without a plan.
        """
        self._limits = self._limits_of(start)
        self.guess_all(start)
        if len(self.several.free) == 1:
            return 0.0
        why: Infeasible | None = None
        for reserve in RESERVES:
            try:
                for name in self.several.free:
                    self._draft(name, reserve)
            except Infeasible as error:
                why = why or error
                self.guess_all(start)
                continue
            return self._accuracy_of(self.plans)
        raise why or Infeasible("nothing is left for a pipeline")

    def begin_with(self, plans: Mapping[str, GearPlan]) -> bool:
        """Begin with these plans if they hold together; says whether they do."""
        self.plans, self._planned = dict(plans), set(plans)
        holds = all(self._holds(name, plans) for name in plans) and self._others_hold(None, plans)
        if holds:
            self.accuracy = self._accuracy_of(plans)
        return holds

    def _holds(self, name: str, plans: Mapping[str, GearPlan]) -> bool:
        """Whether one of the plans keeps its latency on its trace, with the others beside it."""
        request = self._request(name, 1.0, plans=plans)
        share_late = replay(plans[name], request, part=PART_A, on_time=self.so_far.check).result.share_late
        return share_late <= 1 - request.objective.percentile

    def improve(self) -> None:
        """Plan each in turn until nothing changes; raises `Infeasible` where they do not hold together.

        Until all hold, each round leaves the others more room.
        """
        for reserve in RESERVES:
            before = self.accuracy
            for name in self.several.free:
                self._improve(name, 1.0 if before >= 0 else reserve)
            if before >= 0 and self.accuracy - before < GAIN:
                return
        if self.accuracy < 0:
            raise Infeasible("no plan was found that keeps the objectives of all pipelines together", by_load=False)

    def guess_all(self, start: OperatorTuple) -> None:
        fixed = self.several.fixed
        self._planned = set(self.several.requests) - set(self.several.free)
        for name in self.several.requests:
            if name in self.several.free:
                self.plans[name] = self._guess(name, start.members[name])
            elif fixed is not None:
                self.plans[name] = part_of(fixed, [name])

    def _draft(self, name: str, reserve: float) -> None:
        """Replace a guess by a plan that is not confirmed, with room for `reserve` times the other guesses."""
        self.so_far.tell(f"drafting {name}", 0.1)
        request = self._request(name, reserve, reserved=set(self.plans) - self._planned)
        space = SearchSpace(self._tell(name), self.so_far.check, placement=self._placements[name])
        with of_pipeline(name):
            search = space.searches(request, quick=True)[0]
            self.plans[name] = search.plan_of(search.choices()[0])
        self._planned.add(name)

    def _improve(self, name: str, reserve: float) -> None:
        """Search for a plan of this pipeline, with room for `reserve` times the others' load.

        Once all hold it must be better, and all must still hold in every range. Beside fixed
        pipelines alone, which may have taken all that there is, it also searches as if they were as
        busy as they are without it, which leaves more room for their peaks.
        """
        why: Infeasible | None = None
        found = False
        for as_alone in (False, True) if len(self.several.free) == 1 else (False,):
            request = self._request(name, reserve, reserved=self.plans, as_alone=as_alone)
            so_far = self.so_far.part(request, self._tell(name))
            try:
                with of_pipeline(name):
                    made = PlanSearch(so_far, placement=self._placements[name]).most_accurate(so_far.request)
            except Infeasible as error:
                why = why or error
                continue
            found = True
            self._planned.add(name)
            tried = self.plans | {name: made}
            if self._others_hold(name, tried):
                self._accept(tried)
            elif self.accuracy < 0:
                self.plans = tried
        if why is not None and not found and self.accuracy < 0:
            raise why

    def _accept(self, tried: Mapping[str, GearPlan]) -> None:
        accuracy = self._accuracy_of(tried)
        if accuracy > self.accuracy:
            self.plans, self.accuracy = dict(tried), accuracy

    def _others_hold(self, name: str | None, tried: Mapping[str, GearPlan]) -> bool:
        """Whether each other pipeline holds in each of its ranges; the replay has shown the trace."""
        for other in tried:
            request = self._request(other, 1.0, plans=tried)
            if other == name or request.objective.scope == "trace":
                continue
            self.so_far.check()
            if not holds_every_range(tried[other], request):
                return False
        return True

    def _accuracy_of(self, plans: Mapping[str, GearPlan]) -> float:
        name = next(iter(plans))
        request = self._request(name, 1.0, plans=plans)
        prepared, found = prepared_together(plans[name], request), []
        for seed in range(seeds_for(self.several.trace)):
            run = prepared.run(together_workload(request, part=PART_A, seed=seed))
            found.append(float(run.quality(self.several.together).mean()))
        return float(np.mean(found))

    def _request(
        self,
        name: str,
        reserve: float,
        *,
        reserved: Iterable[str] = (),
        plans: Mapping[str, GearPlan] | None = None,
        as_alone: bool = False,
    ) -> PlanRequest:
        """The request of a pipeline, with the others beside it, of which those `reserved` have more load."""
        plans = self.plans if plans is None else plans
        return replace(
            self.several.requests[name],
            beside=beside(
                self.several,
                plans,
                name,
                reserve=reserve,
                reserved=set(reserved),
                kept=self._planned,
                limit=self._limits.get(name),
                as_alone=as_alone,
            ),
        )

    def _limits_of(self, start: OperatorTuple) -> dict[str, WorkLimit]:
        if len(self.several.free) == 1:
            return {}
        busy = self.several.busy_qps
        return {name: WorkLimit(busy[name], one.work_s) for name, one in start.members.items()}

    def _tell(self, name: str) -> Progress:
        return lambda what, share: self.so_far.tell(f"{name}: {what}", share)

    def _guess(self, name: str, candidate: CandidateCascade) -> GearPlan:
        """One cascade at all loads, in batches that fit well within the latency."""
        request, mine = self.several.requests[name], self._placements[name]
        steady = steady_of(request, request.hardware, mine)
        curves = [c for c in request.profile.whole_curves if c.model in candidate.models]
        size = max(
            (s for s in steady.batch_sizes() if all(_within(c, s, BATCH_SHARE * request.latency_s) for c in curves)),
            default=1,
        )
        gear = steady.gear(LoadRange(from_=0.0), candidate.cascade, Batching(size))
        return assemble(request, mine, [gear])


def _of_models(placement: Placement, profile: Profile) -> Placement:
    return Placement(replicas=tuple(replica for replica in placement.replicas if replica.model in profile.models))


def _within(curve: RunTimeCurve, size: int, seconds: float) -> bool:
    return size <= curve.largest_batch_size and curve.seconds(size) <= seconds


def together_in_order(plans: Mapping[str, GearPlan]) -> GearPlan:
    """One plan of all; the replicas of models that none uses are left out later."""
    return reduce(joined, plans.values())


def beside(
    several: SeveralRequest,
    plans: Mapping[str, GearPlan],
    name: str,
    *,
    kept: Iterable[str],
    reserve: float = 1.0,
    reserved: Iterable[str] = (),
    limit: WorkLimit | None = None,
    as_alone: bool = False,
) -> Beside:
    """All pipelines but one; those `reserved` have `reserve` times their load, and are as busy `as_alone`."""
    others = {other: plan for other, plan in plans.items() if other != name}
    loads_qps = {other: several.busy_qps[other] * (reserve if other in reserved else 1.0) for other in others}
    plan = together_in_order(others)
    return Beside(
        plan=plan,
        profiles={other: several.requests[other].profile for other in others},
        traces={other: several.requests[other].trace for other in others},
        together=several.together,
        loads_qps=loads_qps,
        busy=(_busy_alone if as_alone else _busy)(several, plan, loads_qps),
        kept=frozenset(kept) & others.keys(),
        limit=limit,
    )


def _busy(several: SeveralRequest, plan: GearPlan, loads_qps: Mapping[str, float]) -> dict[str, float]:
    """The least share of time for which steady loads keep each device busy: in the most efficient batches.

    In small batches they take more of it, as long as it is there: beside others batches grow.
    """
    curves = curves_of(several.together, several.hardware, plan.placement)
    devices = {replica.id: replica.device_ids for replica in plan.placement.replicas}
    busy = {device.id: 0.0 for device in several.hardware.devices}
    for name, pipeline in plan.pipelines.items():
        (gear,) = in_steady_load(pipeline, loads_qps[name]).gears
        items_qps = _items_qps(gear.cascade, several.requests[name].profile, loads_qps[name])
        for settings in gear.replicas:
            curve = curves[settings.replica]
            times_s = curve.table_ns()[1 : settings.largest_batch_size + 1] / NS_PER_S
            least_s = float((times_s / np.arange(1, len(times_s) + 1)).min())
            for device in devices[settings.replica]:
                busy[device] += settings.load_share * items_qps.get(curve.model, 0.0) * least_s
    return busy


def _busy_alone(several: SeveralRequest, plan: GearPlan, loads_qps: Mapping[str, float]) -> dict[str, float]:
    """The share of time for which steady loads keep each device busy, as simulated without another pipeline."""
    steady = {name: in_steady_load(pipeline, loads_qps[name]) for name, pipeline in plan.pipelines.items()}
    duration_s = BUSY_REQUESTS / sum(loads_qps.values())
    workloads = []
    for number, (name, load_qps) in enumerate(loads_qps.items()):
        arrivals = random_arrivals(load_qps, duration_s, seed=[several.requests[name].seed, 5, number])
        workloads.append(draw_workload(arrivals, several.requests[name].profile.predictions.indices(PART_A), seed=0))
    run = prepare(msgspec.structs.replace(plan, pipelines=steady), several.together).run(merge_workloads(workloads))
    return dict(zip(run.tables.device_ids, (run.busy_s / run.duration_s).tolist(), strict=True))


def _items_qps(cascade: Cascade, profile: Profile, load_qps: float) -> dict[str, float]:
    nothing = dict.fromkeys(cascade.models, 0.0)
    reach = evaluate_cascade(cascade, profile.predictions, nothing, part=PART_A).reach
    return {model: share * load_qps for model, share in zip(cascade.models, reach, strict=True)}


@contextmanager
def of_pipeline(name: str) -> Iterator[None]:
    """Name the pipeline in an `Infeasible` that is raised within."""
    try:
        yield
    except Infeasible as error:
        raise Infeasible(
            f"pipeline {name!r}: {error.reason}",
            load_range=error.load_range,
            bottleneck=error.bottleneck,
            device=error.device,
            by_load=error.by_load,
        ) from None
