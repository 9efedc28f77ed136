"""`gearshift explain`."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import click
from msgspec import UNSET

from gearshift.cli.common.option_table import PATH, options_of
from gearshift.cli.common.options import plan_traces_options, require_none, take_trace
from gearshift.cli.common.output import Output, table, verb
from gearshift.cli.common.tables import (
    NO_LABELS,
    beyond_the_top,
    milliseconds,
    percent,
    predicted_latency,
    results_table,
)
from gearshift.cli.language.explain import explain_of_language
from gearshift.cli.pipelines.explain_pipelines import explain_pipelines
from gearshift.objective import Objective
from gearshift.planner.explain import Explanation, NextCascade, RangeExplanation, Unplaced
from gearshift.planner.what_if import Neighbour
from gearshift.plans.plan_file import read_plan
from gearshift.reporting.gear_rows import GearRow, gear_rows
from gearshift.reporting.headline import counted, percentile_name
from gearshift.support.numbers import digits
from gearshift.verbs.explain import explain
from gearshift.verbs.inputs import plan_and_profile
from gearshift.verbs.language.inputs import plans_language


@click.command("explain")
@click.argument("plan", type=PATH)
@plan_traces_options
@options_of(explain)
@verb
def command(output: Output, plan: Path, profile: Path | None, devices_too: bool, **trace_arguments: Any) -> None:
    """Say for each load range of PLAN why its cascade serves there.

    Also say what the next more accurate cascade would break.
    """
    known = read_plan(plan)
    if plans_language(known):
        explain_of_language(output, plan, profile, {"--devices-too": devices_too or None}, trace_arguments)
        return
    if not known.is_plain:
        require_none({"--profile": profile, "--devices-too": devices_too or None})
        explain_pipelines(output, plan, known, trace_arguments)
        return
    made, measured = plan_and_profile(plan, profile)
    arrivals = take_trace(output.say, made, plan, trace_arguments)
    with output.progress() as tell:
        explained = explain(made, arrivals, profile=measured, devices_too=devices_too, progress=tell)
    output.json(explained)
    show(output, explained, gear_rows(made, made.name))
    if not measured.predictions.labelled:
        output.say(NO_LABELS)


def show(output: Output, explained: Explanation, gears: Sequence[GearRow]) -> None:
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
    by_time = explained.replayed.share_by_time
    for first, last in _told_alike(explained.ranges) if by_time is UNSET else ():
        numbers = f"gear {first.gear}" if first is last else f"gears {first.gear} to {last.gear}"
        output.say(f"{numbers}, {_load(last)}: {sentence(last, explained.limit_s)}")
    if by_time is not UNSET:
        output.say(f"{percent(by_time)} of requests were answered with the first model because time ran out")
    output.say("")
    output.show(results_table("The trace", [("gear plan", explained.replayed)]))
    busy = ", ".join(f"{device} {100 * share:.0f} %" for device, share in explained.replayed.utilisation.items())
    output.say(f"devices busy: {busy}")
    if not explained.same_trace:
        output.say("this is not the trace that the plan was made from")
    for neighbour in explained.neighbours:
        output.say(_neighbour(neighbour))


def _told_alike(ranges: Sequence[RangeExplanation]) -> Iterator[tuple[RangeExplanation, RangeExplanation]]:
    def told(found: RangeExplanation) -> tuple[object, ...]:
        following = found.next and (found.next.cascade, found.next.breaks, found.next.model, found.next.device)
        return found.cascade, found.cores, following, found.unplaced

    for _, group in groupby(ranges, told):
        alike = list(group)
        yield alike[0], alike[-1]


def sentence(found: RangeExplanation, limit_s: float) -> str:
    parts = []
    if found.next is not None:
        parts.append(_broken(found.next, limit_s))
    if found.unplaced is not None:
        parts.append(_lacking(found.unplaced))
    return "; ".join(parts) or "no cascade is more accurate"


def _lacking(unplaced: Unplaced) -> str:
    room = [
        f"there is room for {model} on {' and '.join(devices)}" if devices else f"no device has room for {model}"
        for model, devices in unplaced.room.items()
    ]
    models, are = ("models", "are") if len(unplaced.room) > 1 else ("model", "is")
    needed = f"{models} {' and '.join(unplaced.room)}"
    return (
        f"{unplaced.cascade} ({percent(unplaced.accuracy)}) needs {needed}, which {are} on no device: {', '.join(room)}"
    )


def _broken(following: NextCascade, limit_s: float) -> str:
    p95, late = milliseconds(following.predicted.latency_p95_s), following.share_late_on_trace or 0.0
    capacity_qps = following.capacity_qps or 0.0
    where = f"model {following.model} on device {following.device}"
    broken = {
        "load": f"would not keep up: {where} is the bottleneck",
        "latency": f"would take {p95}, allowed are {milliseconds(limit_s)}: {where} is the bottleneck",
        "trace": f"would hold in steady load, but make {percent(late)} of the trace late: {where} is busiest",
        "open_end": "would hold, but this range has no upper end",
        "margin": f"would hold, but only to {digits(capacity_qps)}/s, which leaves little room: {where} is busiest",
        "cores": f"would take {following.cores} cores",
        "nothing": f"would hold, to {digits(capacity_qps)}/s and more: nothing that is simulated rules it out",
    }[following.breaks]
    return f"{following.cascade} ({percent(following.predicted.accuracy)}) {broken}"


def _wanted(objective: Objective) -> str:
    limit_s, accuracy = objective.latency_s, objective.accuracy
    parts = [] if limit_s is None else [f"{percentile_name(objective)} within {milliseconds(limit_s)}"]
    if objective.median_s is not UNSET:
        parts.append(f"p50 within {milliseconds(objective.median_s)}")
    return " and ".join([*parts, *([] if accuracy is None else [f"accuracy of at least {percent(accuracy)}"])])


def _load(found: RangeExplanation) -> str:
    end = found.load_range.to
    return f"from {digits(found.load_range.from_)}/s" if end is None else f"to {digits(end)}/s"


def _neighbour(neighbour: Neighbour) -> str:
    on = f"with {counted(neighbour.devices, 'device')}"
    if neighbour.predicted is None:
        return f"{on}: {neighbour.reason or 'nothing is predicted'}"
    predicted = neighbour.predicted
    return f"{on}: accuracy {percent(predicted.accuracy)}, p95 {milliseconds(predicted.latency_s.p95)}"
