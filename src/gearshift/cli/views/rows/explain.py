"""Why a plan of rows is as it is, as tables and sentences."""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Protocol, TypeVar

from msgspec import UNSET

from gearshift.cli.common.output import Output, table
from gearshift.cli.common.tables import (
    NO_LABELS,
    beyond_the_top,
    flow_table,
    milliseconds,
    percent,
    predicted_latency,
    results_table,
)
from gearshift.gear import LoadRange
from gearshift.objective import Objective
from gearshift.planner.explain import Explanation, NextCascade, RangeExplanation, Unplaced
from gearshift.planner.explain_together import NextTuple, PipelineRange, TogetherExplanation
from gearshift.planner.joint.tried import Bottleneck
from gearshift.planner.what_if import Neighbour
from gearshift.reporting.gear_rows import GearRow, gear_rows
from gearshift.reporting.headline import counted, percentile_name
from gearshift.result import ServingResult
from gearshift.support.numbers import digits
from gearshift.verbs.kinds.kind import Inputs


class OfRange(Protocol):
    """A load range, as both kinds of explanation have it."""

    @property
    def gear(self) -> int: ...

    @property
    def load_range(self) -> LoadRange: ...


R = TypeVar("R", bound=OfRange)


def show(output: Output, explained: Explanation | TogetherExplanation, inputs: Inputs) -> None:
    if isinstance(explained, TogetherExplanation):
        _show_together(output, explained)
        return
    _show_one(output, explained, gear_rows(inputs.plan, inputs.plan.name))
    if not inputs.records.only.predictions.labelled:
        output.say(NO_LABELS)


# One operator -------------------------------------------------------------------------------------


def _show_one(output: Output, explained: Explanation, gears: Sequence[GearRow]) -> None:
    if explained.asked != explained.objective:
        output.say(f"asked for {_wanted(explained.asked)}, and made for {_wanted(explained.objective)}")
    pooled = ("cores",) if any(found.cores for found in explained.ranges) else ()
    columns = ("gear", "cascade", "load to", "accuracy", percentile_name(explained.objective), "late", "busy", *pooled)
    rows = table("At the upper end of each range", *columns)
    rows.columns[1].justify = "left"
    for row in gears:
        found = explained.ranges[row.last]
        predicted = found.predicted
        rows.add_row(
            row.numbers,
            row.cascade,
            _load(found),
            percent(predicted.accuracy),
            predicted_latency(row) or milliseconds(predicted.latency_p95_s),
            percent(predicted.share_late),
            percent(predicted.utilisation),
            *(found.cores for _ in pooled),
        )
    output.show(rows)
    if (beyond := beyond_the_top(gears)) is not None:
        output.say(beyond)
    output.say("")
    _say_of_gears(output, explained.ranges, _told, lambda last: sentence(last, explained.limit_s), explained.replayed)
    output.say("")
    output.show(results_table("The trace", [("gear plan", explained.replayed)]))
    busy = ", ".join(f"{device} {100 * share:.0f} %" for device, share in explained.replayed.utilisation.items())
    output.say(f"devices busy: {busy}")
    if not explained.same_trace:
        output.say("this is not the trace that the plan was made from")
    for neighbour in explained.neighbours:
        output.say(_neighbour(neighbour))


def _told(found: RangeExplanation) -> tuple[object, ...]:
    following = found.next and (found.next.cascade, found.next.breaks, found.next.model, found.next.device)
    return found.cascade, found.cores, following, found.unplaced


def sentence(found: RangeExplanation, limit_s: float) -> str:
    parts = [] if found.next is None else [_broken(found.next, limit_s)]
    if found.unplaced is not None:
        parts.append(_lacking(found.unplaced))
    return "; ".join(parts) or "no cascade is more accurate"


def _lacking(unplaced: Unplaced) -> str:
    models, are = ("models", "are") if len(unplaced.room) > 1 else ("model", "is")
    needed = f"{models} {' and '.join(unplaced.room)}"
    room = ", ".join(_room(unplaced))
    return f"{unplaced.cascade} ({percent(unplaced.accuracy)}) needs {needed}, which {are} on no device: {room}"


def _broken(following: NextCascade, limit_s: float) -> str:
    where = f"model {following.model} on device {following.device}"
    broken = _breaks(following, limit_s, where).get(following.breaks) or f"would take {following.cores} cores"
    return f"{following.cascade} ({percent(following.predicted.accuracy)}) {broken}"


def _wanted(objective: Objective) -> str:
    limit_s, accuracy = objective.latency_s, objective.accuracy
    parts = [] if limit_s is None else [f"{percentile_name(objective)} within {milliseconds(limit_s)}"]
    if objective.median_s is not UNSET:
        parts.append(f"p50 within {milliseconds(objective.median_s)}")
    return " and ".join([*parts, *([] if accuracy is None else [f"accuracy of at least {percent(accuracy)}"])])


def _neighbour(neighbour: Neighbour) -> str:
    on = f"with {counted(neighbour.devices, 'device')}"
    if neighbour.predicted is None:
        return f"{on}: {neighbour.reason or 'nothing is predicted'}"
    predicted = neighbour.predicted
    return f"{on}: accuracy {percent(predicted.accuracy)}, p95 {milliseconds(predicted.latency_s.p95)}"


# Graphs, and several pipelines --------------------------------------------------------------------


def _show_together(output: Output, explained: TogetherExplanation) -> None:
    for name, pipeline in explained.pipelines.items():
        rows = table(
            f"{name}, at the upper end of each range",
            *("gear", "cascades", "load to", "accuracy", percentile_name(pipeline.objective), "late", "busy"),
        )
        rows.columns[1].justify = "left"
        for first, last in _alike(pipeline.ranges, lambda found: found.cascades):
            predicted = last.predicted
            rows.add_row(
                str(first.gear) if first is last else f"{first.gear}-{last.gear}",
                tuple_in_words(last.cascades),
                _load(last),
                percent(predicted.accuracy),
                milliseconds(predicted.latency_p95_s),
                percent(predicted.share_late),
                percent(predicted.utilisation),
            )
        output.show(rows)

        def of_range(last: PipelineRange, limit_s: float = pipeline.limit_s, name: str = name) -> str:
            return tuple_sentence(last, limit_s, name)

        _say_of_gears(output, pipeline.ranges, _tuple_told, of_range, pipeline.replayed)
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
    utilisation = next(iter(explained.pipelines.values())).replayed.utilisation
    busy = percent(utilisation[explained.binds.device])
    output.say(f"on the traces {_bound(explained.binds, only)} is busiest, with {busy}")


def _tuple_told(found: PipelineRange) -> tuple[object, ...]:
    following = found.next and (found.next.cascades, found.next.breaks, found.next.binds)
    return found.cascades, following, found.unplaced


def tuple_sentence(found: PipelineRange, limit_s: float, pipeline: str) -> str:
    parts = [] if found.next is None else [_tuple_broken(found.next, limit_s, pipeline)]
    if found.unplaced is not None:
        accuracy, room = percent(found.unplaced.accuracy), "; ".join(_room(found.unplaced))
        parts.append(f"{found.unplaced.cascade} ({accuracy}) needs models that are on no device: {room}")
    return "; ".join(parts) or "nothing is more accurate"


def tuple_in_words(cascades: dict[str, str]) -> str:
    """The cascade of each node; that of the only one without its name."""
    if len(cascades) == 1:
        return next(iter(cascades.values()))
    return "; ".join(f"{node}: {cascade}" for node, cascade in cascades.items())


def _tuple_broken(following: NextTuple, limit_s: float, pipeline: str) -> str:
    changed = {node: following.cascades[node] for node in following.changed}
    one = len(following.cascades) == 1
    words = tuple_in_words(changed) if one else "; ".join(f"{node}: {cascade}" for node, cascade in changed.items())
    where = _bound(following.binds, pipeline)
    late = f"would hold, but make pipeline {following.late} miss its objective: {where} is busiest"
    broken = _breaks(following, limit_s, where).get(following.breaks) or late
    return f"{words} ({percent(following.predicted.accuracy)}) {broken}"


def _bound(binds: Bottleneck, pipeline: str = "") -> str:
    of = "" if binds.pipeline == pipeline else f" of pipeline {binds.pipeline}"
    return f"node {binds.node}{of} (model {binds.model}, device {binds.device})"


# Both ---------------------------------------------------------------------------------------------


def _say_of_gears(
    output: Output,
    ranges: Sequence[R],
    key: Callable[[R], object],
    sentence_of: Callable[[R], str],
    replayed: ServingResult,
) -> None:
    """Say one sentence for neighbouring ranges with the same explanation; where time decides, only its share."""
    if replayed.share_by_time is not UNSET:
        share = percent(replayed.share_by_time)
        output.say(f"{share} of requests were answered with the first model because time ran out")
        return
    for first, last in _alike(ranges, key):
        numbers = f"gear {first.gear}" if first is last else f"gears {first.gear} to {last.gear}"
        output.say(f"{numbers}, {_load(last)}: {sentence_of(last)}")


def _alike(ranges: Sequence[R], key: Callable[[R], object]) -> Iterator[tuple[R, R]]:
    for _, group in groupby(ranges, key):
        alike = list(group)
        yield alike[0], alike[-1]


def _breaks(following: NextCascade | NextTuple, limit_s: float, where: str) -> dict[str, str]:
    capacity_qps, late = following.capacity_qps or 0.0, following.share_late_on_trace or 0.0
    p95 = milliseconds(following.predicted.latency_p95_s)
    return {
        "load": f"would not keep up: {where} is the bottleneck",
        "latency": f"would take {p95}, allowed are {milliseconds(limit_s)}: {where} is the bottleneck",
        "trace": f"would hold in steady load, but make {percent(late)} of the trace late: {where} is busiest",
        "open_end": "would hold, but this range has no upper end",
        "margin": f"would hold, but only to {digits(capacity_qps)}/s, which leaves little room: {where} is busiest",
        "nothing": f"would hold, to {digits(capacity_qps)}/s and more: nothing that is simulated rules it out",
    }


def _room(unplaced: Unplaced) -> list[str]:
    return [
        f"there is room for {model} on {' and '.join(devices)}" if devices else f"no device has room for {model}"
        for model, devices in unplaced.room.items()
    ]


def _load(found: OfRange) -> str:
    end = found.load_range.to
    return f"from {digits(found.load_range.from_)}/s" if end is None else f"to {digits(end)}/s"
