"""Explain a plan: for each load range, what the next more accurate cascade would break."""

from concurrent.futures import ThreadPoolExecutor
from typing import Literal

import msgspec
import numpy as np

from gearshift.clock import NS_PER_S
from gearshift.errors import require
from gearshift.gear import Gear, GearPlan, GearPrediction, LoadRange, alone
from gearshift.objective import Objective
from gearshift.planner.cores.core_splits import CoreSplits, Split, on_every_count
from gearshift.planner.evaluate.assemble import with_pipeline
from gearshift.planner.evaluate.cells import Cell
from gearshift.planner.evaluate.confirm import replays_at_once, workload_of
from gearshift.planner.evaluate.steady_state import SteadyState
from gearshift.planner.refine.search import steady
from gearshift.planner.space.beside import at_all_loads
from gearshift.planner.space.cascade_search import (
    CandidateCascade,
    evaluate_cascade,
    pareto_cascades,
    work_per_request_s,
)
from gearshift.planner.space.hosts import room_for
from gearshift.planner.space.request import (
    LARGEST_MARGIN,
    LEAST_MARGIN,
    MOST_CANDIDATES,
    PlanRequest,
    Progress,
    silent,
)
from gearshift.planner.what_if import Neighbour, asked_for, neighbours
from gearshift.profiles.profile import PART_A, PART_B, Profile
from gearshift.profiles.run_times import expected_ns
from gearshift.result import ServingResult
from gearshift.simulator.simulate import Simulation, simulate
from gearshift.workload import Trace, draw_workload

STEADY_REQUESTS = 20_000
MOST_SPLITS = 32
"""Ways to split cores that are tried for a cascade in a range: this many with the fewest cores,
and with the most."""

MARGIN_STEP = 1.05

Breaks = Literal["load", "latency", "trace", "open_end", "margin", "cores", "nothing"]


class NextCascade(msgspec.Struct, frozen=True, kw_only=True):
    """The next more accurate cascade at a range's upper end, and what it `breaks` first.

    `load`: queues grow without end. `latency`: the percentile exceeds the limit. `trace`: it holds
    in steady load, but with it in this range too many requests of the trace are late
    (`share_late_on_trace`). `open_end`: it holds, but the last range has no upper end. `margin`:
    it holds up to `capacity_qps`, less than `LARGEST_MARGIN` times the upper end. `cores`: where
    cores change with the gear, it would hold on `cores` in all. `model` and `device` are the
    busiest then.
    """

    cascade: str
    predicted: GearPrediction
    breaks: Breaks
    share_late_on_trace: float | None = None
    capacity_qps: float | None = None
    cores: int | None = None
    model: str
    device: str


class Unplaced(msgspec.Struct, frozen=True, kw_only=True):
    """A cascade that needs models which are on no device, with its accuracy on part A.

    `room` names for each of these models the devices with enough free memory.
    """

    cascade: str
    accuracy: float
    room: dict[str, tuple[str, ...]]


class RangeExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """The range of gear `gear`: its cascade, with the prediction at the upper end.

    `next` is the next more accurate cascade of placed models; `unplaced` the next more accurate of
    all where it needs other models. Where both are None no cascade is more accurate. `cores` are
    those of the cascade's models, where they change with the gear.
    """

    gear: int
    load_range: LoadRange
    cascade: str
    predicted: GearPrediction
    cores: str = ""
    next: NextCascade | None = None
    unplaced: Unplaced | None = None


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """A plan explained.

    `asked` is the objective that was asked for, `objective` the one that the plan keeps, which may
    have a latency that was found. `limit_s` is the latency objective, or without one the p95 that
    the plan predicts. `replayed` is the trace under the plan, with the utilisation of every
    device. `same_trace` tells whether it is the trace that the plan was made from.
    """

    planner: str
    asked: Objective
    objective: Objective
    limit_s: float
    ranges: tuple[RangeExplanation, ...]
    replayed: ServingResult
    same_trace: bool
    neighbours: tuple[Neighbour, ...] = ()


def explain(
    plan: GearPlan, profile: Profile, trace: Trace, *, devices_too: bool = False, progress: Progress = silent
) -> Explanation:
    """Explain a plan on a trace.

    With `devices_too` also plan for one device fewer and one more, which takes longer.
    """
    pipeline = plan.pipeline
    require(
        plan.hardware.pool_cores is None or not devices_too,
        "the plan is for a host of cores, not for a number of devices",
        remedy="leave --devices-too out, and plan for other --cores",
    )
    progress("replaying the trace", 0.0)
    run = simulate(plan, profile, workload_of(trace, profile, part=PART_B, seed=plan.seed))
    replayed = run.result(profile, latency_objective_s=pipeline.objective.latency_s)
    limit_s = pipeline.objective.latency_s or replayed.latency_s.p95
    searches = _RefinedRanges if pipeline.refines else _Search if plan.hardware.pool_cores is None else _CoreSearch
    search = searches(plan, profile, trace, limit_s)
    ranges: list[RangeExplanation] = []
    with ThreadPoolExecutor(replays_at_once(len(trace))) as pool:
        for found in pool.map(search.range, range(len(pipeline.gears))):
            ranges.append(found)
            share = len(ranges) / len(pipeline.gears) * (0.3 if devices_too else 1.0)
            progress("trying the next cascade of each range", share)
    return Explanation(
        planner=plan.planner,
        asked=pipeline.objective if pipeline.asked is None else pipeline.asked.objective,
        objective=pipeline.objective,
        limit_s=limit_s,
        ranges=tuple(ranges),
        replayed=replayed,
        same_trace=trace.sha256 == plan.trace.sha256,
        neighbours=neighbours(plan, profile, trace, progress=progress) if devices_too else (),
    )


class _RefinedRanges:
    """Ranges of a plan that refines: no cascade would break anything, as rows are answered in time whatever is left."""

    def __init__(self, plan: GearPlan, profile: Profile, trace: Trace, limit_s: float) -> None:
        self.plan, self.gears = plan, plan.pipeline.gears
        self.request = PlanRequest(
            profile=profile, trace=trace, hardware=plan.hardware, objective=plan.pipeline.objective, seed=plan.seed
        )

    def range(self, k: int) -> RangeExplanation:
        gear = self.gears[k]
        qps = gear.load_range.to or gear.load_range.from_ or self.request.trace.peak_qps
        predicted = gear.predicted or steady(self.plan, gear, qps, self.request)[0]
        return RangeExplanation(gear=k, load_range=gear.load_range, cascade=str(gear.cascade), predicted=predicted)


class _Search:
    def __init__(self, plan: GearPlan, profile: Profile, trace: Trace, limit_s: float) -> None:
        self.plan, self.profile, self.limit_s = plan, profile, limit_s
        self.pipeline = plan.pipeline
        self.work_s = work_per_request_s(profile, plan.hardware.devices[0])
        self.placed = frozenset(plan.placement.models)
        placed_s = {model: self.work_s[model] for model in plan.placement.models}
        self.front = pareto_cascades(profile, placed_s, most=MOST_CANDIDATES)
        self.front_of_all = pareto_cascades(profile, self.work_s, most=MOST_CANDIDATES)
        limited = msgspec.structs.replace(self.pipeline.objective, latency_s=limit_s)
        self.steady = SteadyState(profile, plan.hardware, plan.placement, limited, seed=plan.seed)
        self.workload = workload_of(trace, profile, part=PART_A, seed=plan.seed)

    def range(self, k: int) -> RangeExplanation:
        gear = self.pipeline.gears[k]
        used = evaluate_cascade(gear.cascade, self.profile.predictions, self.work_s, part=PART_A)
        predicted = gear.predicted or self.predicted(used, self.load_qps(k))
        better = next((c for c in self.front if c.accuracy > used.accuracy), None)
        best = next((c for c in self.front_of_all if c.accuracy > used.accuracy), None)
        return RangeExplanation(
            gear=k,
            load_range=gear.load_range,
            cascade=str(gear.cascade),
            predicted=predicted,
            cores="" if self.plan.hardware.pool_cores is None else self.plan.cores_in(gear),
            next=None if better is None else self.next(k, better, predicted.load_qps),
            unplaced=None if best is None or self.placed.issuperset(best.cascade.models) else self.unplaced(best),
        )

    def unplaced(self, candidate: CandidateCascade) -> Unplaced:
        missing = [model for model in candidate.cascade.models if model not in self.placed]
        return Unplaced(
            cascade=str(candidate.cascade),
            accuracy=candidate.accuracy,
            room=room_for(missing, self.plan.placement, self.plan.hardware, self.profile),
        )

    def load_qps(self, k: int) -> float:
        gears = self.pipeline.gears
        _, top_qps = asked_for(gears)
        return gears[k].load_range.to or top_qps or len(self.workload) / self.workload.duration_s

    def predicted(self, candidate: CandidateCascade, load_qps: float) -> GearPrediction:
        return self.steady.best(candidate.cascade, load_qps)[1].prediction(load_qps, candidate.accuracy)

    def next(self, k: int, candidate: CandidateCascade, load_qps: float) -> NextCascade:
        batching, cell = self.steady.best(candidate.cascade, load_qps)
        prediction = cell.prediction(load_qps, candidate.accuracy)
        settings = self.steady.settings(candidate.cascade, batching)
        gear = Gear(
            load_range=self.pipeline.gears[k].load_range,
            cascades=alone(self.pipeline.output, candidate.cascade),
            replicas=settings,
        )
        on_trace, capacity_qps = None, None
        breaks: Breaks = "load" if not cell.stable else "latency"
        if cell.stable and cell.latency_s <= self.limit_s:
            on_trace = self.share_late_on_trace(k, gear)
            most_qps = LARGEST_MARGIN * load_qps
            capacity_qps = self.steady.capacity_qps(candidate.cascade, least_qps=load_qps, most_qps=most_qps)
            capacity_qps = max(load_qps, capacity_qps)  # capacities lie on a grid
            if on_trace > 1 - self.pipeline.objective.percentile:
                breaks = "trace"
            elif gear.load_range.to is None:
                breaks = "open_end"
            else:
                breaks = "margin" if capacity_qps < most_qps else "nothing"
        model, device = self.busiest(gear, load_qps)
        return NextCascade(
            cascade=str(candidate.cascade),
            predicted=prediction,
            breaks=breaks,
            share_late_on_trace=on_trace,
            capacity_qps=capacity_qps,
            model=model,
            device=device,
        )

    def share_late_on_trace(self, k: int, gear: Gear) -> float:
        gears = (*self.pipeline.gears[:k], gear, *self.pipeline.gears[k + 1 :])
        run = simulate(self.with_gears(gears), self.profile, self.workload)
        return float(np.mean(run.latency_s > self.limit_s))

    def busiest(self, gear: Gear, load_qps: float) -> tuple[str, str]:
        made = with_pipeline(self.plan, gears=at_all_loads(self.pipeline, gear).gears, planned_load=None)
        gaps_s = np.random.default_rng([self.plan.seed, 1]).exponential(1 / load_qps, STEADY_REQUESTS)
        arrivals_ns = np.cumsum(np.rint(gaps_s * NS_PER_S).astype(np.int64))
        trace = Trace(arrivals_ns=arrivals_ns, duration_s=float(arrivals_ns[-1]) / NS_PER_S)
        run = simulate(
            made, self.profile, draw_workload(trace, self.profile.predictions.indices(PART_A), seed=self.plan.seed)
        )
        return busiest_model(made, self.profile, run)

    def with_gears(self, gears: tuple[Gear, ...]) -> GearPlan:
        return with_pipeline(self.plan, gears=gears, planned_load=None)


class _CoreSearch(_Search):
    """Like `_Search`, where cores change with the gear: cascades get the fewest that hold."""

    def __init__(self, plan: GearPlan, profile: Profile, trace: Trace, limit_s: float) -> None:
        super().__init__(plan, profile, trace, limit_s)
        pool, objective, asked = plan.hardware.pool_cores or 1, self.pipeline.objective, self.pipeline.asked
        limited = msgspec.structs.replace(objective, latency_s=limit_s)
        self.splits = CoreSplits(on_every_count(profile, pool), limited, pool, plan.seed)
        self.margin = (asked and asked.least_margin) or LEAST_MARGIN[objective.scope]

    def split(self, candidate: CandidateCascade, load_qps: float) -> Split | None:
        offered = [tuple(split.tolist()) for split in self.splits.promising(candidate, load_qps)]
        tried = [*offered[:MOST_SPLITS], *offered[-MOST_SPLITS:]]
        return next((split for split in tried if self.splits.holds(candidate, split, load_qps)), None)

    def predicted(self, candidate: CandidateCascade, load_qps: float) -> GearPrediction:
        return self._on_fewest(candidate, load_qps)[0].prediction(load_qps, candidate.accuracy)

    def _on_fewest(self, candidate: CandidateCascade, load_qps: float) -> tuple[Cell, int]:
        held = self.split(candidate, self.margin * load_qps)
        cell, _ = self.splits.chosen(candidate, held or self.splits.even(candidate), load_qps)
        return cell, sum(held or ())

    def next(self, k: int, candidate: CandidateCascade, load_qps: float) -> NextCascade:
        cell, cores = self._on_fewest(candidate, load_qps)
        prediction = cell.prediction(load_qps, candidate.accuracy)
        breaks: Breaks = "load" if not cell.stable else "latency" if cell.latency_s > self.limit_s else "margin"
        held = sum(settings.cores for settings in self.pipeline.gears[k].replicas if settings.load_share > 0)
        margin = self.margin if cores else 1.0
        while 0 < cores <= held and margin < LARGEST_MARGIN:  # highest margin on its cores
            if sum(self.split(candidate, margin * MARGIN_STEP * load_qps) or (held + 1,)) > held:
                break
            margin *= MARGIN_STEP
        model = self.splits.bottleneck(candidate)
        return NextCascade(
            cascade=str(candidate.cascade),
            predicted=prediction,
            breaks="cores" if cores > held else breaks,
            capacity_qps=margin * load_qps if breaks == "margin" and cores <= held else None,
            cores=cores or None,
            model=model,
            device=next(r.device_ids[0] for r in self.plan.placement.replicas if r.model == model),
        )


def busiest_model(plan: GearPlan, profile: Profile, run: Simulation) -> tuple[str, str]:
    tables = run.tables
    device = tables.device_ids[int(np.argmax(run.busy_s))]
    run_ns = expected_ns(plan, tables, profile)
    busy_ns = (run.batches * run_ns[:, : run.batches.shape[1]]).sum(axis=1)
    replicas = {replica.id: replica for replica in plan.placement.replicas}
    there = [r for r, name in enumerate(tables.replica_ids) if device in replicas[name].device_ids]
    return replicas[tables.replica_ids[max(there, key=lambda r: int(busy_ns[r]))]].model, device
