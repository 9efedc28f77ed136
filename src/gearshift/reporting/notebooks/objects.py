"""HTML that a plan, a simulation, a result and a comparison show of themselves in a notebook.

Their `_repr_html_` look these functions up by name when a notebook asks, as nouns import nothing.
"""

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from gearshift.clock import NS_PER_S
from gearshift.gear import Gear, GearPlan, PipelinePlan
from gearshift.reporting.headline import counted
from gearshift.reporting.notebooks.inline import Line, block, chart, html_table, said
from gearshift.result import ServingResult
from gearshift.support.numbers import digits, load_in_words, milliseconds, percent

if TYPE_CHECKING:
    from gearshift.planner.compare import Comparison, Run
    from gearshift.simulator.simulation import Simulation

FIGURES = ("", "requests", "accuracy", "p50", "p95", "p99", "late", "goodput")
MOST_SECONDS = 600
"""Points of a chart; longer traces are shown in longer steps."""
MOST_ROWS = 40


def plan_html(plan: GearPlan) -> str:
    parts = [
        said(
            f"{counted(len(plan.placement.replicas), 'replica')} on {counted(len(plan.hardware.devices), 'device')}; "
            f"planner {plan.planner}"
        )
    ]
    if plan.unfinished:
        parts.append(said("the search was ended early: this is the best that it had found"))
    if plan.predictions:
        parts.append(_results(plan.predictions.items()))
    for name, pipeline in plan.pipelines.items():
        parts.append(_gears(pipeline))
        parts.append(_by_load(f"{name}: predicted accuracy by load", pipeline))
    return block(f"Gear plan of {', '.join(plan.pipelines)}", *parts)


def result_html(result: ServingResult) -> str:
    return block("Result", _results([("", result)]))


def simulation_html(run: "Simulation") -> str:
    parts = []
    for pipeline in run.tables.pipelines:
        one = run.of(pipeline.name)
        latency_s = one.latency_s
        answered = latency_s[~np.isnan(latency_s)]
        shown = [
            milliseconds(float(np.quantile(answered, share))) if len(answered) else "" for share in (0.5, 0.95, 0.99)
        ]
        refused = f"{len(latency_s) - len(answered):,}"
        row = [pipeline.name, f"{len(latency_s):,}", *shown, refused]
        parts.append(html_table(("", "requests", "p50", "p95", "p99", "refused"), [row]))
        parts.append(_over_time(one, latency_s))
    return block("Simulation", *parts)


def comparison_html(comparison: "Comparison") -> str:
    rows = [_row_of(run) for run in comparison.runs[:MOST_ROWS]]
    columns = ("planner", "devices", "objective", "accuracy", "p95", "late", "planning")
    more = len(comparison.runs) - MOST_ROWS
    parts = [html_table(columns, rows), *([said(f"and {more} more")] if more > 0 else [])]
    return block(f"Comparison of {', '.join(comparison.planners)}", *parts)


def _results(results: Iterable[tuple[str, ServingResult]]) -> str:
    rows = []
    for name, result in results:
        latency = result.latency_s
        times = (milliseconds(latency.p50), milliseconds(latency.p95), milliseconds(latency.p99))
        late, goodput = percent(result.share_late), f"{digits(result.goodput_qps)}/s"
        rows.append([name, f"{result.requests:,}", percent(result.accuracy), *times, late, goodput])
    return html_table(FIGURES, rows)


def _gears(pipeline: PipelinePlan) -> str:
    rows = []
    for number, gear in enumerate(pipeline.gears):
        predicted = gear.predicted
        figures = (
            ("", "") if predicted is None else (percent(predicted.accuracy), milliseconds(predicted.latency_p95_s))
        )
        rows.append(
            [f"{number}: {_cascades(gear)}", load_in_words(gear.load_range.from_, gear.load_range.to), *figures]
        )
    return html_table(("gear", "load", "accuracy", f"p{100 * pipeline.objective.percentile:g}"), rows)


def _cascades(gear: Gear) -> str:
    of_nodes = {node: " or ".join(map(str, cascades)) for node, cascades in gear.cascades.items()}
    return "; ".join(of_nodes.values() if len(of_nodes) == 1 else (f"{n}: {text}" for n, text in of_nodes.items()))


def _by_load(title: str, pipeline: PipelinePlan) -> str:
    """Steps from the start of each gear's range; the last one has no end, and gets as much again."""
    known = [(gear.load_range.from_, gear.predicted.accuracy) for gear in pipeline.gears if gear.predicted is not None]
    if len(known) < 2:
        return ""
    starts, accuracies = zip(*known, strict=True)
    end = 1.15 * starts[-1]
    line = Line("", (*starts, end), (*accuracies, accuracies[-1]), steps=True)
    return chart(title, pipeline.load_unit.replace("_", " "), line, least=None, percent=True)


def _over_time(run: "Simulation", latency_s: Any) -> str:
    """Arrivals, the gear, and p95 by when requests came, in steps of a second or longer."""
    sent_s = run.workload.arrivals_ns / NS_PER_S
    if run.workload.continues is not None:
        sent_s = sent_s[~run.workload.continues]
    if not len(sent_s):
        return ""
    step_s = max(1.0, math.ceil(run.workload.duration_s / MOST_SECONDS))
    step_of = (sent_s / step_s).astype(np.int64)
    steps = int(step_of.max()) + 1
    middle = [(step + 0.5) * step_s for step in range(steps)]
    rate = np.bincount(step_of, minlength=steps) / step_s
    order = np.argsort(step_of, kind="stable")
    parts = np.split(latency_s[order], np.searchsorted(step_of[order], np.arange(1, steps)))
    p95_ms = [
        1e3 * float(np.quantile(part[~np.isnan(part)], 0.95)) if (~np.isnan(part)).any() else None for part in parts
    ]
    shifts = run.shifts[-MOST_SECONDS:]
    end_s = float(run.workload.duration_s)
    gear_x, gear_y = [float(at) / NS_PER_S for at in shifts[:, 0]], [float(gear) for gear in shifts[:, 1]]
    first = float(run.gear[0]) if not gear_y or gear_x[0] > 0 else gear_y[0]
    gears = Line("", (0.0, *gear_x, max(end_s, *gear_x, 0.0)), (first, *gear_y, gear_y[-1] if gear_y else first), True)
    return "".join(
        (
            chart("arrivals per second", "s", Line("", middle, rate.tolist())),
            chart("gear", "s", gears),
            chart("p95 in milliseconds, by when requests were sent", "s", Line("", middle, p95_ms)),
        )
    )


def _row_of(run: "Run") -> list[str]:
    row = [run.planner, digits(run.devices), milliseconds(run.latency_objective_s)]
    planning = f"{run.planning_s:.1f} s"
    if run.predicted is None:
        kind = "" if run.error is None else str(run.error.get("kind", "failed"))
        accuracy = kind if run.accuracy is None else percent(run.accuracy)
        return [*row, accuracy, "", "" if run.share_late is None else percent(run.share_late), planning]
    result = run.predicted
    return [*row, percent(result.accuracy), milliseconds(result.latency_s.p95), percent(result.share_late), planning]
