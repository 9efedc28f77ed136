"""The content of a report, and how it is put together from a plan, its profile, and runs.

Every part is optional, and a missing part leaves its chart out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from gearshift.cascade import Cascade
from gearshift.gear import GearPlan, PipelinePlan
from gearshift.load_generator.replay_result import Replay
from gearshift.planner.largest_alone import LargestAlone
from gearshift.planner.space.cascade_search import evaluate_cascade, search_cascades, work_per_request_s
from gearshift.profiles.profile import PART_A, PART_B, Profile
from gearshift.reporting.gear_rows import GearRow, gear_rows
from gearshift.reporting.headline import percentile_name
from gearshift.reporting.runs import RunSeries, measured_series, predicted_series
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
    """The prediction for one load range `[from_qps, to_qps)`; the last has no upper end.

    `gear` are gear numbers, such as "3-7". `answered` is the share of requests that each model
    answers there. `cores` are those of its models, where they change with load. `at_qps` is the load
    of the prediction, where that is not the range's upper end; such a range is beyond the planned load.
    """

    from_qps: float
    to_qps: float | None
    cascade: str
    accuracy: float
    p95_s: float
    share_late: float
    answered: Mapping[str, float] = field(default_factory=dict)
    cores: str = ""
    gear: str = ""
    at_qps: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """A model: measured batch sizes (n,) and their seconds (n,), its memory, and its accuracy on part B."""

    name: str
    batch_sizes: tuple[int, ...]
    median_s: tuple[float, ...]
    p95_s: tuple[float, ...]
    memory_bytes: int
    accuracy: float
    device: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportContent:
    """The content of a page.

    `note` is shown under the title; `slo_s` is the latency objective in seconds. `percentile` names
    the predicted latency of the ranges. `models` are from cheap to expensive; `assumed` are facts by
    name, and `machines` where and when things were measured.
    """

    title: str
    note: str = ""
    plan: GearPlan | None = None
    candidates: Sequence[CandidatePoint] = field(default=())
    ranges: Sequence[RangePoint] = field(default=())
    models: Sequence[ModelFacts] = field(default=())
    runs: Sequence[RunSeries] = field(default=())
    slo_s: float | None = None
    percentile: str = "p95"
    largest: LargestAlone | None = None
    labelled: bool = True
    judged: int = 0
    assumed: Sequence[tuple[str, str]] = field(default=())
    warnings: Sequence[str] = field(default=())


def compose(
    plan: GearPlan,
    profile: Profile,
    *,
    title: str,
    note: str = "",
    simulations: Sequence[tuple[str, Simulation]] = (),
    replays: Sequence[tuple[str, Replay]] = (),
    others: Sequence[RunSeries] = (),
    largest: LargestAlone | None = None,
    trace: Trace | None = None,
) -> ReportContent:
    """The first simulation and the first replay are of `plan`; more are of systems to compare with.

    `others` are runs that were read from files.
    """
    pipeline = plan.pipeline
    slo_s = pipeline.objective.latency_s
    of_gears = accuracy_of_gears(pipeline)
    predicted = [
        predicted_series(name, run, profile, slo_s, of_gears=None if n else of_gears)
        for n, (name, run) in enumerate(simulations)
    ]
    measured = [measured_series(name, run, None if n else of_gears) for n, (name, run) in enumerate(replays)]
    return ReportContent(
        title=title,
        note=note,
        plan=plan,
        candidates=candidate_points(plan, profile),
        ranges=range_points(plan, plan.name, profile, simulations[0][1] if simulations else None),
        models=model_facts(plan, profile),
        runs=[*predicted, *measured, *others],
        slo_s=slo_s,
        percentile=percentile_name(pipeline.objective),
        largest=largest,
        labelled=profile.predictions.labelled,
        judged=len(profile.predictions.indices(PART_B)),
        assumed=assumed(plan, profile, trace),
        warnings=profile.warnings,
    )


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
    shares = partial(_answered_in, profile=profile, run=run)
    return [
        RangePoint(
            from_qps=row.load_range.from_,
            to_qps=row.load_range.to,
            cascade=row.cascade,
            accuracy=row.predicted.accuracy,
            p95_s=row.predicted.latency_p95_s,
            share_late=row.predicted.share_late,
            answered=shares(row),
            cores=row.cores,
            gear=row.numbers,
            at_qps=row.predicted_elsewhere_qps,
        )
        for row in gear_rows(plan, pipeline)
        if row.predicted is not None
    ]


def _answered_in(row: GearRow, *, profile: Profile | None, run: Simulation | None) -> dict[str, float]:
    if profile is None:
        return {}
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


def model_facts(plan: GearPlan, profile: Profile) -> list[ModelFacts]:
    """The models by rising cost, as measured on devices like the plan's."""
    device, records = plan.hardware.devices[0], profile.predictions
    work_s, facts = work_per_request_s(profile, device), []
    for model in sorted(profile.models, key=lambda m: (work_s[m], m)):
        curves = [curve for curve in profile.whole_curves if curve.model == model]
        of_device = [c for c in curves if (c.device_kind, c.cores) == (device.kind, device.cores)]
        curve = (of_device or curves)[0]
        quality = records.quality[records.rows((model,))[0], records.indices(PART_B)]
        facts.append(
            ModelFacts(
                name=model,
                batch_sizes=curve.batch_sizes,
                median_s=curve.median_s,
                p95_s=curve.p95_s,
                memory_bytes=curve.memory_bytes,
                accuracy=float(quality.mean()),
                device=f"{curve.device_kind} x{curve.cores}",
            )
        )
    return facts


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
