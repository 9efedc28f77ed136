"""Explain a plan of graphs, or of several pipelines: what the next more accurate tuple of each range would break."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from gearshift.cascade import Cascade
from gearshift.gear import Gear, GearPlan, GearPrediction, LoadRange
from gearshift.objective import Objective
from gearshift.planner.explain import Unplaced
from gearshift.planner.joint.candidates import candidate_with, candidates_of, query_of
from gearshift.planner.joint.steady import Candidate, SteadyTuples
from gearshift.planner.joint.tried import Bottleneck, Tried, Trying
from gearshift.planner.one_alone import OneAlone, each_alone
from gearshift.planner.space.bisection import climbed
from gearshift.planner.space.hosts import room_for
from gearshift.planner.space.request import LARGEST_MARGIN, Progress, silent
from gearshift.profiles.profile import PART_A, PART_B, Profile
from gearshift.profiles.tuples import JointRecords
from gearshift.result import ServingResult
from gearshift.simulator.flow import PipelineFlow, flows
from gearshift.workload import Trace

MARGIN_STEP = 1.1
ALONE_SHARE = 0.3
"""About the share of the work that is for models alone."""

Breaks = Literal["load", "latency", "trace", "others", "open_end", "margin", "nothing"]


class NextTuple(msgspec.Struct, frozen=True, kw_only=True):
    """The next more accurate tuple at a range's upper end, and what it `breaks` first.

    As `NextCascade`, of a cascade for each node; `changed` are the nodes whose cascade differs.
    The other pipelines have the load of their traces' 95th percentile. `others`: with it another
    pipeline, `late`, misses its objective, in steady load or on the traces. `binds` is the
    bottleneck then.
    """

    cascades: dict[str, str]
    changed: tuple[str, ...]
    predicted: GearPrediction
    breaks: Breaks
    binds: Bottleneck
    late: str = ""
    share_late_on_trace: float | None = None
    capacity_qps: float | None = None


class PipelineRange(msgspec.Struct, frozen=True, kw_only=True):
    """The range of gear `gear`: the cascades of each node, and the prediction at the upper end.

    Several cascades of a node are parted by " | ". `next` and `unplaced` are as those of
    `RangeExplanation`, of tuples.
    """

    gear: int
    load_range: LoadRange
    cascades: dict[str, str]
    predicted: GearPrediction
    next: NextTuple | None = None
    unplaced: Unplaced | None = None


class PipelineExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """A pipeline explained; `replayed` and `flow` are of the replay of all traces at once.

    `alone` has each model of a node that has several, alone there on the same devices.
    """

    objective: Objective
    limit_s: float
    ranges: tuple[PipelineRange, ...]
    replayed: ServingResult
    flow: PipelineFlow
    same_trace: bool
    alone: tuple[OneAlone, ...] = ()


class TogetherExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """A plan of graphs, or of several pipelines, explained; `binds` is the bottleneck on the traces."""

    planner: str
    pipelines: dict[str, PipelineExplanation]
    binds: Bottleneck


def explain_together(
    plan: GearPlan,
    profiles: Mapping[str, Profile],
    joint: Mapping[str, JointRecords],
    traces: Mapping[str, Trace],
    *,
    progress: Progress = silent,
) -> TogetherExplanation:
    """Explain each pipeline among the others, on all traces at once; `joint` are records of graphs."""
    progress("replaying the traces", 0.0)
    trying = Trying(plan, profiles, joint, traces)
    run = trying.replay(plan, part=PART_B)
    results = {
        name: run.result(profiles, latency_objective_s=one.objective.latency_s, pipeline=name)
        for name, one in plan.pipelines.items()
    }
    alone = each_alone(plan, profiles, joint, traces, progress=lambda what, share: progress(what, ALONE_SHARE * share))
    flow, explained = flows(plan, profiles, run), dict[str, PipelineExplanation]()
    for done, (name, pipeline) in enumerate(plan.pipelines.items()):
        limit_s = pipeline.objective.latency_s or results[name].latency_s.p95
        progress(
            f"trying the next tuple of each range of {name}",
            ALONE_SHARE + (1 - ALONE_SHARE) * done / len(plan.pipelines),
        )
        explained[name] = PipelineExplanation(
            objective=pipeline.objective,
            limit_s=limit_s,
            ranges=_refined_ranges(trying, name, limit_s) if pipeline.refines else _Ranges(trying, name, limit_s).all(),
            replayed=results[name],
            flow=flow[name],
            same_trace=traces[name].sha256 == plan.traces[name].sha256,
            alone=alone[name],
        )
    return TogetherExplanation(planner=plan.planner, pipelines=explained, binds=trying.bottleneck(plan, run))


def _load_of(trying: Trying, name: str, gear: Gear) -> float:
    """The load at which a range is explained."""
    planned_qps = None if gear.predicted is None else gear.predicted.load_qps
    return gear.load_range.to or planned_qps or trying.traces[name].peak_qps


def _refined_ranges(trying: Trying, name: str, limit_s: float) -> tuple[PipelineRange, ...]:
    """Ranges of a pipeline that refines: no tuple would break anything, as rows are answered in time anyway."""
    found = []
    for k, gear in enumerate(trying.plan.pipelines[name].gears):
        predicted = gear.predicted
        if predicted is None:
            load_qps = _load_of(trying, name, gear)
            tried = trying.steady(name, gear, load_qps, limit_s)
            right = float(tried.run.of(name).quality(trying.together).mean())
            predicted = tried.cell.prediction(load_qps, right)
        found.append(
            PipelineRange(gear=k, load_range=gear.load_range, cascades=in_words(gear.cascades), predicted=predicted)
        )
    return tuple(found)


class _Ranges:
    def __init__(self, trying: Trying, name: str, limit_s: float) -> None:
        self.trying, self.name, self.limit_s = trying, name, limit_s
        self.request = trying.request(name, limit_s)
        self.pipeline = trying.plan.pipelines[name]
        self.placed = frozenset(trying.plan.placement.models)
        self.query = query_of(self.request, self.request.profiles, self.request.records, part=PART_A)
        self.front = candidates_of(self.request, query=self.query, models=self.placed)
        models = {model for node in self.query.operators.values() for model in trying.profiles[node].models}
        whole = self.placed >= models
        self.front_of_all = self.front if whole else candidates_of(self.request, query=self.query)
        self.steady = SteadyTuples(self.request, trying.plan.placement)

    def all(self) -> tuple[PipelineRange, ...]:
        return tuple(self.range(k, gear) for k, gear in enumerate(self.pipeline.gears))

    def range(self, k: int, gear: Gear) -> PipelineRange:
        dearest = {node: of_node[-1] for node, of_node in gear.cascades.items()}
        used = candidate_with(self.request, dearest, query=self.query)
        load_qps = _load_of(self.trying, self.name, gear)
        predicted = gear.predicted
        if predicted is None:
            predicted = self.trying.steady(self.name, gear, load_qps, self.limit_s).cell.prediction(
                load_qps, used.quality
            )
        better = next((each for each in self.front if each.quality > used.quality), None)
        best = next((each for each in self.front_of_all if each.quality > used.quality), None)
        return PipelineRange(
            gear=k,
            load_range=gear.load_range,
            cascades=in_words(gear.cascades),
            predicted=predicted,
            next=None if better is None else self.next(k, gear, better, load_qps),
            unplaced=None if best is None or self.placed >= best.models else self.unplaced(best),
        )

    def next(self, k: int, gear: Gear, candidate: Candidate, load_qps: float) -> NextTuple:
        found = self.best(gear, candidate, load_qps)
        late_on_trace, capacity_qps, late = None, None, ""
        breaks: Breaks = "load"
        if found.cell.stable:
            breaks = "latency"
        if found.cell.stable and found.cell.latency_s <= self.limit_s:
            breaks, late, late_on_trace, capacity_qps = self.held(k, found, candidate, load_qps)
        chosen = {node: cascade for node, (cascade, *_) in found.gear.cascades.items()}
        return NextTuple(
            cascades={node: str(cascade) for node, cascade in chosen.items()},
            changed=tuple(node for node, cascade in chosen.items() if gear.cascades[node] != (cascade,)),
            predicted=found.cell.prediction(load_qps, candidate.quality),
            breaks=breaks,
            binds=self.trying.bottleneck(found.plan, found.run),
            late=late,
            share_late_on_trace=late_on_trace,
            capacity_qps=capacity_qps,
        )

    def held(
        self, k: int, found: Tried, candidate: Candidate, load_qps: float
    ) -> tuple[Breaks, str, float | None, float | None]:
        """For a tuple that holds in steady load: what it breaks, which pipeline is late, its share, its capacity."""
        if found.late:
            return "others", found.late, None, None
        shares = self.trying.late_on_traces(self.name, k, found.gear, self.limit_s)
        own = shares.pop(self.name)
        if own > 1 - self.pipeline.objective.percentile:
            return "trace", "", own, None
        allowed = {name: 1 - self.trying.plan.pipelines[name].objective.percentile for name in shares}
        late = next((name for name, share in shares.items() if share > allowed[name]), "")
        if late:
            return "others", late, shares[late], None
        if self.pipeline.gears[k].load_range.to is None:
            return "open_end", "", own, None
        capacity_qps = self.capacity_qps(found, candidate, load_qps)
        return ("margin" if capacity_qps < LARGEST_MARGIN * load_qps else "nothing"), "", own, capacity_qps

    def capacity_qps(self, found: Tried, candidate: Candidate, load_qps: float) -> float:
        """The highest load that it holds, in steps, up to `LARGEST_MARGIN` times this one."""
        most_qps = LARGEST_MARGIN * load_qps
        while load_qps < most_qps:
            more_qps = min(MARGIN_STEP * load_qps, most_qps)
            tried = self.best(found.gear, candidate, more_qps)
            if not self.holds(tried):
                break
            load_qps = more_qps
        return load_qps

    def best(self, gear: Gear, candidate: Candidate, load_qps: float) -> Tried:
        """The tuple at this load with the best of the batch sizes, climbed from that of `gear`."""
        sizes = self.steady.sizes()
        used = max((s.largest_batch_size for s in gear.replicas if s.load_share > 0), default=sizes[-1])
        at, known = min(range(len(sizes)), key=lambda i: abs(sizes[i] - used)), dict[int, Tried]()

        def tried(i: int) -> Tried:
            if i not in known:
                settings = self.steady.settings(candidate, sizes[i])
                made = self.request.gear(gear.load_range, candidate.cascades, settings)
                known[i] = self.trying.steady(self.name, made, load_qps, self.limit_s)
            return known[i]

        return tried(climbed(at, len(sizes), lambda i: tried(i).rank, lambda i: self.holds(tried(i))))

    def holds(self, tried: Tried) -> bool:
        return tried.cell.stable and tried.cell.latency_s <= self.limit_s and not tried.late

    def unplaced(self, candidate: Candidate) -> Unplaced:
        plan, missing = self.trying.plan, sorted(candidate.models - self.placed)
        words = "; ".join(f"{node}: {cascade}" for node, cascade in candidate.cascades.items())
        return Unplaced(
            cascade=words if self.pipeline.is_graph else str(candidate.cascades[self.pipeline.output]),
            accuracy=candidate.quality,
            room=room_for(missing, plan.placement, plan.hardware, self.trying.together),
        )


def in_words(cascades: Mapping[str, tuple[Cascade, ...]]) -> dict[str, str]:
    return {node: " | ".join(map(str, of_node)) for node, of_node in cascades.items()}
