"""What a plan, a simulation, a result and a comparison show of themselves in a notebook.

It is HTML that stands alone: no script, no style sheet, and the notebook's own colours.
"""

from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from gearshift.clock import NS_PER_S
from gearshift.gear import GearPlan, PipelinePlan
from gearshift.reporting.drawing.charts import path_of
from gearshift.reporting.drawing.scales import Scale
from gearshift.reporting.gear_rows import by_node
from gearshift.reporting.headline import counted
from gearshift.result import ServingResult, percentiles
from gearshift.support.numbers import digits, load_in_words, milliseconds, percent

if TYPE_CHECKING:
    from gearshift.planner.compare import Comparison
    from gearshift.simulator.simulation import Simulation

FIGURES = ("", "requests", "accuracy", "p50", "p95", "p99", "late", "goodput")
MOST_ROWS = 40
MOST_SHIFTS = 600
WIDTH, HEIGHT, LEFT, BOTTOM = 640, 150, 56, 22
COLOUR = "#2a7f9e"
_CELL = "padding:2px 10px;text-align:{};border-bottom:1px solid #8884"

# What is shown ------------------------------------------------------------------------------------


def plan_html(plan: GearPlan) -> str:
    replicas, devices = len(plan.placement.replicas), len(plan.hardware.devices)
    parts = [said(f"{counted(replicas, 'replica')} on {counted(devices, 'device')}; planner {plan.planner}")]
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
        shown = map(milliseconds, percentiles(answered, (0.5, 0.95, 0.99))) if len(answered) else ["", "", ""]
        row = [pipeline.name, f"{len(latency_s):,}", *shown, f"{len(latency_s) - len(answered):,}"]
        parts.append(html_table(("", "requests", "p50", "p95", "p99", "refused"), [row]))
        parts.append(_over_time(one))
    return block("Simulation", *parts)


def comparison_html(comparison: "Comparison") -> str:
    from gearshift.reporting.comparison import planned

    runs = planned(comparison)
    rows = [cells if run.error is None else [*cells[:-1], str(run.error["kind"])] for run, cells in runs.cells()]
    more = [said(f"and {len(rows) - MOST_ROWS} more")] if len(rows) > MOST_ROWS else []
    table = html_table(runs.titles, rows[:MOST_ROWS])
    return block(f"Comparison of {', '.join(comparison.planners)}", table, *more)


def _results(results: Iterable[tuple[str, ServingResult]]) -> str:
    rows = []
    for name, result in results:
        times = map(milliseconds, (result.latency_s.p50, result.latency_s.p95, result.latency_s.p99))
        late, goodput = percent(result.share_late), f"{digits(result.goodput_qps)}/s"
        rows.append([name, f"{result.requests:,}", percent(result.accuracy), *times, late, goodput])
    return html_table(FIGURES, rows)


def _gears(pipeline: PipelinePlan) -> str:
    rows = []
    for number, gear in enumerate(pipeline.gears):
        found, load = gear.predicted, load_in_words(gear.load_range.from_, gear.load_range.to)
        figures = ["", ""] if found is None else [percent(found.accuracy), milliseconds(found.latency_p95_s)]
        rows.append([f"{number}: {by_node(gear.cascades)}", load, *figures])
    return html_table(("gear", "load", "accuracy", f"p{100 * pipeline.objective.percentile:g}"), rows)


def _by_load(title: str, pipeline: PipelinePlan) -> str:
    """Steps from the start of each gear's range; the last one has no end, and gets as much again."""
    known = [(gear.load_range.from_, gear.predicted.accuracy) for gear in pipeline.gears if gear.predicted is not None]
    if len(known) < 2:
        return ""
    starts, accuracies = zip(*known, strict=True)
    ends, right = (*starts, 1.15 * starts[-1]), (*accuracies, accuracies[-1])
    return chart(title, pipeline.load_unit.replace("_", " "), ends, right, stepped=True, least=None, share=True)


def _over_time(run: "Simulation") -> str:
    """Arrivals, the gear, and p95 about when requests came."""
    from gearshift.reporting.runs import Answers, course_of

    sent_s, latency_s = run.workload.arrivals_ns / NS_PER_S, run.latency_s
    if run.workload.continues is not None:
        sent_s = sent_s[~run.workload.continues]
    if not len(sent_s):
        return ""
    answers = Answers(arrivals_s=sent_s, answered_s=sent_s, latency_s=latency_s, quality=np.full(len(sent_s), np.nan))
    course = course_of(answers, latency_s[~np.isnan(latency_s)])
    middle = [second + course.bin_s / 2 for second in course.seconds]
    p95_ms = [p95_s if p95_s is None else 1e3 * p95_s for p95_s in course.p95_s]
    shifts = [(at / NS_PER_S, float(gear)) for at, gear in run.shifts[-MOST_SHIFTS:].tolist()]
    if not shifts or shifts[0][0] > 0:
        shifts = [(0.0, float(run.gear[0])), *shifts]
    shifts.append((max(float(run.workload.duration_s), shifts[-1][0]), shifts[-1][1]))
    at_s, gears = zip(*shifts, strict=True)
    return "".join(
        (
            chart("arrivals per second", "s", middle, course.load_qps),
            chart("gear", "s", at_s, gears, stepped=True),
            chart("p95 in milliseconds, by when requests were sent", "s", middle, p95_ms),
        )
    )


_SHOWN: dict[str, Callable[[Any], str]] = {
    "GearPlan": plan_html,
    "ServingResult": result_html,
    "Simulation": simulation_html,
    "Comparison": comparison_html,
}
"""By class, whose modules are not loaded for the others."""


def html_of(shown: object) -> str:
    return _SHOWN[type(shown).__name__](shown)


# How it is drawn ----------------------------------------------------------------------------------


def block(title: str, *parts: str) -> str:
    head = f'<div style="font-weight:600;margin:4px 0">{escape(title)}</div>'
    return f'<div style="max-width:{WIDTH}px">{head}{"".join(parts)}</div>'


def said(text: str) -> str:
    return f'<div style="margin:2px 0">{escape(text)}</div>'


def html_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The first column stands left, the others right."""
    sides = ["left", *["right"] * (len(columns) - 1)]
    head = "".join(f'<th style="{_CELL.format(s)}">{escape(c)}</th>' for c, s in zip(columns, sides, strict=True))
    body = "".join(
        "<tr>"
        + "".join(f'<td style="{_CELL.format(s)}">{escape(c)}</td>' for c, s in zip(row, sides, strict=True))
        + "</tr>"
        for row in rows
    )
    style = "border-collapse:collapse;font-size:90%"
    table = f'<table style="{style}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    return f'<div style="overflow-x:auto;margin:6px 0 10px">{table}</div>'


def chart(
    title: str,
    x_name: str,
    x: Sequence[float],
    y: Sequence[float | None],
    *,
    stepped: bool = False,
    least: float | None = 0.0,
    share: bool = False,
) -> str:
    """A line of `y` over `x`, where None is no value; `stepped` holds each value until the next.

    `least` is the lower end of y, None for the least value; with `share` its ends are in per cent.
    """
    across, up = np.array(x, dtype=np.float64), np.array(y, dtype=np.float64)
    known = ~np.isnan(up)
    if not known.any():
        return ""
    right, top = float(across[known].max()) or 1.0, float(up[known].max())
    bottom = float(up[known].min()) if least is None else least
    top = top if top > bottom else bottom + 1
    path = path_of(Scale(0.0, right, ()).at(across), 1 - Scale(bottom, top, ()).at(up), stepped=stepped)
    shown = [percent(value) if share else digits(value) for value in (top, bottom)]
    base = HEIGHT - BOTTOM
    inside = f"translate({LEFT} 8) scale({(WIDTH - LEFT - 8) / 1000:g} {(base - 8) / 1000:g})"
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT + 16}" width="100%" role="img" aria-label="{escape(title)}" '
        f'font-size="11" fill="currentColor"><g transform="translate(0 16)">'
        f'<text x="0" y="-5">{escape(title)}</text>'
        f'<path d="M{LEFT} 4V{base}H{WIDTH}" fill="none" stroke="currentColor" stroke-opacity=".3"/>'
        f'<text x="{LEFT - 4}" y="14" text-anchor="end">{shown[0]}</text>'
        f'<text x="{LEFT - 4}" y="{base}" text-anchor="end">{shown[1]}</text>'
        f'<path d="{path}" transform="{inside}" fill="none" stroke="{COLOUR}" stroke-width="1.5" '
        f'vector-effect="non-scaling-stroke"/><text x="{LEFT}" y="{HEIGHT - 6}">0</text>'
        f'<text x="{WIDTH}" y="{HEIGHT - 6}" text-anchor="end">{digits(right)} {escape(x_name)}</text></g></svg>'
    )
