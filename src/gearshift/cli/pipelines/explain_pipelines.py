"""`gearshift explain` for graphs, and for several pipelines."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from msgspec import UNSET

from gearshift.cli.common.options import take_traces
from gearshift.cli.common.output import Output, table
from gearshift.cli.common.tables import flow_table, milliseconds, percent, results_table
from gearshift.gear import GearPlan, LoadRange
from gearshift.planner.explain_together import (
    NextTuple,
    PipelineRange,
    TogetherExplanation,
)
from gearshift.planner.joint.tried import Bottleneck
from gearshift.reporting.headline import percentile_name
from gearshift.support.numbers import digits
from gearshift.verbs.explain import explain_pipelines as explain


def explain_pipelines(output: Output, path: Path, plan: GearPlan, trace_arguments: dict[str, Any]) -> None:
    traces = take_traces(output.say, plan, path, trace_arguments)
    with output.progress() as tell:
        explained = explain(path, traces, progress=tell)
    output.json(explained)
    show(output, explained)


def show(output: Output, explained: TogetherExplanation) -> None:
    for name, pipeline in explained.pipelines.items():
        rows = table(
            f"{name}, at the upper end of each range",
            *("gear", "cascades", "load to", "accuracy", percentile_name(pipeline.objective), "late", "busy"),
        )
        rows.columns[1].justify = "left"
        alike = list(_alike(pipeline.ranges, lambda found: found.cascades))
        for first, last in alike:
            predicted = last.predicted
            rows.add_row(
                str(first.gear) if first is last else f"{first.gear}-{last.gear}",
                tuple_in_words(last.cascades),
                _load(last.load_range),
                percent(predicted.accuracy),
                milliseconds(predicted.latency_p95_s),
                percent(predicted.share_late),
                percent(predicted.utilisation),
            )
        output.show(rows)
        by_time = pipeline.replayed.share_by_time
        for first, last in _alike(pipeline.ranges, _told) if by_time is UNSET else ():
            numbers = f"gear {first.gear}" if first is last else f"gears {first.gear} to {last.gear}"
            output.say(f"{numbers}, {_load(last.load_range)}: {sentence(last, pipeline.limit_s, name)}")
        if by_time is not UNSET:
            output.say(f"{percent(by_time)} of requests were answered with the first model because time ran out")
        output.say("")
    output.show(results_table("The traces, all at once", [(n, p.replayed) for n, p in explained.pipelines.items()]))
    for name, pipeline in explained.pipelines.items():
        known = [(one.name, one.predicted) for one in pipeline.alone if one.predicted is not None]
        if known:
            title = f"{name} with one model alone, on the same devices"
            output.show(results_table(title, [("this plan", pipeline.replayed), *known]))
        for one in pipeline.alone:
            if one.reason:
                output.say(f"{one.name}: {one.reason}")
    for name, pipeline in explained.pipelines.items():
        output.show(flow_table(name, pipeline.flow))
        if not pipeline.same_trace:
            output.say(f"{name}: this is not the trace that the plan was made from")
    only = explained.binds.pipeline if len(explained.pipelines) == 1 else ""
    output.say(f"on the traces {_bound(explained.binds, only)} is busiest, with {_busy(explained)}")


def sentence(found: PipelineRange, limit_s: float, pipeline: str) -> str:
    parts = [] if found.next is None else [_broken(found.next, limit_s, pipeline)]
    if found.unplaced is not None:
        room = "; ".join(
            f"there is room for {model} on {' and '.join(devices)}" if devices else f"no device has room for {model}"
            for model, devices in found.unplaced.room.items()
        )
        parts.append(
            f"{found.unplaced.cascade} ({percent(found.unplaced.accuracy)}) needs models that are on no device: {room}"
        )
    return "; ".join(parts) or "nothing is more accurate"


def tuple_in_words(cascades: dict[str, str]) -> str:
    """The cascade of each node; that of the only one without its name."""
    if len(cascades) == 1:
        return next(iter(cascades.values()))
    return "; ".join(f"{node}: {cascade}" for node, cascade in cascades.items())


def _broken(following: NextTuple, limit_s: float, pipeline: str) -> str:
    changed = {node: following.cascades[node] for node in following.changed}
    words = (
        tuple_in_words(changed) if len(following.cascades) == 1 else "; ".join(f"{n}: {c}" for n, c in changed.items())
    )
    capacity_qps, late = following.capacity_qps or 0.0, following.share_late_on_trace or 0.0
    where = _bound(following.binds, pipeline)
    broken = {
        "load": f"would not keep up: {where} is the bottleneck",
        "latency": f"would take {milliseconds(following.predicted.latency_p95_s)}, allowed are "
        f"{milliseconds(limit_s)}: {where} is the bottleneck",
        "trace": f"would hold in steady load, but make {percent(late)} of the trace late: {where} is busiest",
        "others": f"would hold, but make pipeline {following.late} miss its objective: {where} is busiest",
        "open_end": "would hold, but this range has no upper end",
        "margin": f"would hold, but only to {digits(capacity_qps)}/s, which leaves little room: {where} is busiest",
        "nothing": f"would hold, to {digits(capacity_qps)}/s and more: nothing that is simulated rules it out",
    }[following.breaks]
    return f"{words} ({percent(following.predicted.accuracy)}) {broken}"


def _bound(binds: Bottleneck, pipeline: str = "") -> str:
    of = "" if binds.pipeline == pipeline else f" of pipeline {binds.pipeline}"
    return f"node {binds.node}{of} (model {binds.model}, device {binds.device})"


def _busy(explained: TogetherExplanation) -> str:
    utilisation = next(iter(explained.pipelines.values())).replayed.utilisation
    return percent(utilisation[explained.binds.device])


def _told(found: PipelineRange) -> tuple[object, ...]:
    following = found.next and (found.next.cascades, found.next.breaks, found.next.binds)
    return found.cascades, following, found.unplaced


def _alike(ranges: Sequence[PipelineRange], key: Any) -> Iterator[tuple[PipelineRange, PipelineRange]]:
    for _, group in groupby(ranges, key):
        alike = list(group)
        yield alike[0], alike[-1]


def _load(load_range: LoadRange) -> str:
    return f"from {digits(load_range.from_)}/s" if load_range.to is None else f"to {digits(load_range.to)}/s"
