"""What a page shows of one pipeline of a plan, and how it is found in the plan, its profile and its runs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from gearshift.cascade import Cascade
from gearshift.gear import GearPlan, GearPrediction, LoadRange, PipelinePlan
from gearshift.load_generator.replay_result import Replay
from gearshift.planner.largest_alone import LargestAlone
from gearshift.planner.one_alone import OneAlone
from gearshift.planner.space.cascade_search import evaluate_cascade, search_cascades, work_per_request_s
from gearshift.profiles.profile import PART_A, PART_B, Profile, RunTimeCurve
from gearshift.reporting.gear_rows import GearRow, gear_rows
from gearshift.reporting.headline import percentile_name
from gearshift.reporting.runs import RunSeries, measured_series, predicted_series
from gearshift.simulator.flow import PipelineFlow, flows
from gearshift.simulator.simulate import Simulation
from gearshift.support.numbers import digits
from gearshift.workload import Trace

MOST_DOTS = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidatePoint:
    """A cascade that the planner considered: accuracy in [0, 1], mean seconds per sample.

    `on_front`: no other is both more accurate and cheaper. `gears` are the numbers of those that
    serve it, such as "3-7"; `alone` is a cascade of one model.
    """

    cascade: str
    accuracy: float
    mean_run_s: float
    on_front: bool = False
    gears: str = ""
    alone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RangePoint:
    """One load range, and what is predicted there.

    `gear` are gear numbers, such as "3-7". `answered` is the share of requests that each model
    answers there. `cores` are those of its models, where they change with load. `at_qps` is the load
    of the prediction, where that is not the range's upper end; such a range is beyond the planned load.
    """

    gear: str
    load: LoadRange
    cascade: str
    predicted: GearPrediction | None
    answered: Mapping[str, float] = field(default_factory=dict)
    cores: str = ""
    at_qps: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What a page shows of the pipeline `name` of a plan; what is missing leaves its chart or table out.

    `models` are from cheap to expensive, `measured` their run times and accuracies on part B. `largest` is what
    the largest model alone would need, `alone` what the plan's devices would do with one model in
    place of a node's cascades. `assumed` are facts by name.
    """

    plan: GearPlan
    name: str
    candidates: Sequence[CandidatePoint] = ()
    ranges: Sequence[RangePoint] = ()
    models: Sequence[str] = ()
    measured: Sequence[tuple[RunTimeCurve, float]] = ()
    runs: Sequence[RunSeries] = ()
    flow: PipelineFlow | None = None
    largest: LargestAlone | None = None
    alone: Sequence[OneAlone] = ()
    labelled: bool = True
    assumed: Sequence[tuple[str, str]] = ()
    warnings: Sequence[str] = ()

    @property
    def pipeline(self) -> PipelinePlan:
        return self.plan.pipelines[self.name]

    @property
    def slo_s(self) -> float | None:
        return self.pipeline.objective.latency_s

    @property
    def percentile(self) -> str:
        return percentile_name(self.pipeline.objective)


def shown_of(
    plan: GearPlan,
    profile: Profile,
    *,
    simulations: Sequence[tuple[str, Simulation]] = (),
    replays: Sequence[tuple[str, Replay]] = (),
    others: Sequence[RunSeries] = (),
    largest: LargestAlone | None = None,
    trace: Trace | None = None,
) -> Shown:
    """A plan of one operator. The first simulation and replay are of it; more are of systems to compare with.

    `others` are runs that were read from files.
    """
    slo_s, of_gears = plan.pipeline.objective.latency_s, accuracy_of_gears(plan.pipeline)
    predicted = [
        predicted_series(name, run, profile, slo_s, of_gears=None if n else of_gears)
        for n, (name, run) in enumerate(simulations)
    ]
    measured = [measured_series(name, run, None if n else of_gears) for n, (name, run) in enumerate(replays)]
    models = list(_measured(plan, profile))
    return Shown(
        plan=plan,
        name=plan.name,
        candidates=candidate_points(plan, profile),
        ranges=range_points(plan, plan.name, profile, simulations[0][1] if simulations else None),
        models=[curve.model for curve, _ in models],
        measured=models,
        runs=[*predicted, *measured, *others],
        largest=largest,
        labelled=profile.predictions.labelled,
        assumed=assumed(plan, profile, trace),
        warnings=profile.warnings,
    )


def shown_of_each(
    plan: GearPlan,
    profiles: Mapping[str, Profile],
    run: Simulation | None = None,
    alone: Mapping[str, Sequence[OneAlone]] | None = None,
) -> list[Shown]:
    """Each pipeline of a plan, as it was simulated; `profiles` are by operator, `alone` by pipeline."""
    flow = {} if run is None else flows(plan, profiles, run)
    return [
        Shown(
            plan=plan,
            name=name,
            ranges=range_points(plan, name),
            runs=() if run is None else [_series_of(name, run, profiles, pipeline)],
            flow=flow.get(name),
            alone=(alone or {}).get(name, ()),
        )
        for name, pipeline in plan.pipelines.items()
    ]


def _series_of(name: str, run: Simulation, profiles: Mapping[str, Profile], pipeline: PipelinePlan) -> RunSeries:
    slo_s, of_gears = pipeline.objective.latency_s, accuracy_of_gears(pipeline)
    return predicted_series(name, run, profiles, slo_s, pipeline=name, of_gears=of_gears)


def accuracy_of_gears(pipeline: PipelinePlan) -> list[float] | None:
    """The predictions for each gear; None where some gear has none."""
    known = [gear.predicted.accuracy for gear in pipeline.gears if gear.predicted is not None]
    return known if len(known) == len(pipeline.gears) else None


def range_points(
    plan: GearPlan, pipeline: str, profile: Profile | None = None, run: Simulation | None = None
) -> list[RangePoint]:
    """The rows of gears; with the profile of a plan of one node also which model answers how much.

    Thresholds alone say this of gears that order by arrival; of gears that refine while there is
    time only the `run` does.
    """
    return [
        RangePoint(
            gear=row.numbers,
            load=row.load_range,
            cascade=row.cascade,
            predicted=row.predicted,
            answered={} if profile is None else _answered_in(row, profile, run),
            cores=row.cores,
            at_qps=row.predicted_elsewhere_qps,
        )
        for row in gear_rows(plan, pipeline)
        if row.predicted is not None
    ]


def _answered_in(row: GearRow, profile: Profile, run: Simulation | None) -> dict[str, float]:
    if all(gear.order != "gain" for gear in row.gears):
        return answered_by(row.gears[0].cascade, profile)
    return {} if run is None else answered_in(run, row.first, row.last)


def answered_in(run: Simulation, first: int, last: int) -> dict[str, float]:
    """The share that each model answered while gears `first` to `last` were in force; nothing without answers."""
    there = (run.finished_ns >= 0) & (run.gear >= first) & (run.gear <= last)
    counts = np.bincount(run.model[there], minlength=len(run.tables.models))
    return {model: float(n / counts.sum()) for model, n in zip(run.tables.models, counts, strict=True) if n}


def answered_by(cascade: Cascade, profile: Profile) -> dict[str, float]:
    """The share of part A's samples that each model of the cascade answers."""
    no_work = dict.fromkeys(cascade.models, 0.0)
    reach = (*evaluate_cascade(cascade, profile.predictions, no_work, part=PART_A).reach, 0.0)
    return {model: reach[n] - reach[n + 1] for n, model in enumerate(cascade.models)}


def candidate_points(plan: GearPlan, profile: Profile) -> list[CandidatePoint]:
    """The front, the cascades in use, models alone, and a sample of the other candidates."""
    work_s, records = work_per_request_s(profile, plan.hardware.devices[0]), profile.predictions
    space = search_cascades(records, work_s)
    front = {int(i) for i in space.front()}
    dots = np.unique(np.linspace(0, len(space) - 1, MOST_DOTS).astype(np.int64))
    used: dict[Cascade, list[str]] = {}
    for row in gear_rows(plan, plan.name):
        used.setdefault(row.gears[0].cascade, []).append(row.numbers)
    points = [
        CandidatePoint(
            cascade=str(space.cascade(i)),
            accuracy=float(space.accuracy[i]),
            mean_run_s=float(space.work_s[i]),
            on_front=i in front,
        )
        for i in sorted(front | {int(i) for i in dots})
    ]
    for cascade in dict.fromkeys([*used, *(Cascade(models=(model,)) for model in profile.models)]):
        found = evaluate_cascade(cascade, records, work_s, part=PART_A)
        points.append(
            CandidatePoint(
                cascade=str(cascade),
                accuracy=found.accuracy,
                mean_run_s=found.work_s,
                gears=", ".join(used.get(cascade, [])),
                alone=len(cascade.models) == 1,
            )
        )
    return points


def _measured(plan: GearPlan, profile: Profile) -> Iterator[tuple[RunTimeCurve, float]]:
    """The models by rising cost, as measured on devices like the plan's, and their accuracies on part B."""
    device, records = plan.hardware.devices[0], profile.predictions
    work_s = work_per_request_s(profile, device)
    for model in sorted(profile.models, key=lambda m: (work_s[m], m)):
        curves = [curve for curve in profile.whole_curves if curve.model == model]
        of_device = [c for c in curves if (c.device_kind, c.cores) == (device.kind, device.cores)]
        quality = records.quality[records.rows((model,))[0], records.indices(PART_B)]
        yield (of_device or curves)[0], float(quality.mean())


def assumed(plan: GearPlan, profile: Profile, trace: Trace | None) -> list[tuple[str, str]]:
    """The grounds of the predictions, besides run times: traffic, answers, when and where."""
    facts = []
    if trace is not None:
        facts.append(
            (
                "traffic",
                f"{len(trace):,} requests in {trace.duration_s:,.0f} s, {digits(trace.mean_qps)}/s on average, "
                f"{trace.peak_qps:,.0f} in the busiest second",
            )
        )
    judged = "labels" if profile.predictions.labelled else "the answers of the strongest model, as there are no labels"
    facts.append(
        ("recorded answers", f"{len(profile.predictions.part):,} samples, half to plan on; judged by {judged}")
    )
    told = {"machine": "measured on", "date": "measured at", "source": "run times from"}
    facts += [(told[name], profile.notes[name]) for name in told if name in profile.notes]
    return facts
