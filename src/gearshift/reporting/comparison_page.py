"""A comparison of planners as one self-contained page."""

import html
from collections.abc import Callable
from typing import Any

from gearshift.planner import planners as registry
from gearshift.planner.compare import COCKTAIL, Comparison, GridCell, Run, points
from gearshift.planner.space.pareto import undominated
from gearshift.reporting.charts import objective_rule
from gearshift.reporting.comparison_columns import Kind, cells, planned_in, titles, why_not
from gearshift.reporting.drawing import colours, scales
from gearshift.reporting.drawing.charts import Chart, Line, Panel, Rule
from gearshift.reporting.drawing.page import chart_section, html_page, html_table, section
from gearshift.reporting.headline import counted
from gearshift.support.numbers import digits, milliseconds, money, percent

FORMATS: dict[Kind, Callable[[Any], str]] = {"text": str, "share": percent, "seconds": milliseconds, "money": money}

LEAST_DOT, DOT_STEP = 5.0, 3.5
"""In pixels."""


def comparison_page(found: Comparison, *, title: str, note: str = "") -> str:
    charts = [chart for devices in found.device_counts if (chart := frontier_chart(found, devices)) is not None]
    costs = [chart for latency_s in found.latencies_s if (chart := cost_chart(found, latency_s)) is not None]
    return html_page(
        title,
        note,
        [
            *map(chart_section, [*charts, *costs]),
            section("Fewest devices", _grid_sentence(found), "".join(_grid(found, name) for name in found.columns)),
            section(
                "Hypervolume",
                "The area of latency (logarithmic) and accuracy that a planner's plans reach on a number of devices, "
                f"up to {milliseconds(found.reference[0])} and {percent(found.reference[1])}; more is better.",
                _volumes(found),
            ),
            section("Runs", "Each plan as predicted on the trace, or why there is none.", _runs(found)),
        ],
        [*charts, *costs],
    )


def frontier_chart(found: Comparison, devices: int) -> Chart | None:
    """A line for each planner, on the same axes for all numbers of devices."""
    shown, lines = colours.of_names(list(registry.for_()) + list(found.planners)), list[Line]()
    for place, name in enumerate(found.planners):
        front = _front(found, name, devices)
        if front:
            colour, style = shown[name]
            latency_ms, accuracy = [1e3 * s for s, _ in front], [100 * share for _, share in front]
            texts = [f"{percent(share)} within {milliseconds(s)}" for s, share in front]
            lines.append(
                Line(
                    name,
                    latency_ms,
                    accuracy,
                    colour,
                    style,
                    stepped=True,
                    texts=texts,
                    dots=True,
                    dot_size=_ring(found, place),
                )
            )
    if not lines:
        return None
    of_all = [point for name in found.planners for n in found.device_counts for point in _front(found, name, n)]
    x = scales.scaled([1e3 * latency_s for latency_s, _ in of_all])
    y = scales.linear([100 * accuracy for _, accuracy in of_all], zero=False, end=100)
    return Chart(
        f"frontier-{devices}",
        f"Frontier on {counted(devices, 'device')}",
        "Each point is a plan that no other of its planner beats in both, at the latency that it was made for; up and "
        "to the left is better. Planners with a point in common show as rings.",
        f"{_slo(found)} promised (ms)",
        (Panel("accuracy (%)", x, y, tuple(lines), height=280),),
    )


def cost_chart(found: Comparison, latency_s: float) -> Chart | None:
    """Accuracy and p95 against money, a line for each planner; None where fewer than two prices are known."""
    runs = [run for run in found.runs if run.latency_objective_s == latency_s and run.planner in found.planners]
    known = [run for run in runs if run.price_per_hour is not None and run.of_each]
    prices = sorted({run.price_per_hour or 0.0 for run in known})
    if len(prices) < 2:
        return None
    shown = colours.of_names(list(registry.for_()) + list(found.planners))
    accuracy, p95 = list[Line](), list[Line]()
    for name in found.planners:
        own = sorted((run for run in known if run.planner == name), key=lambda run: run.price_per_hour or 0.0)
        if not own:
            continue
        costs, (colour, style) = [run.price_per_hour or 0.0 for run in own], shown[name]
        right, ms = [100 * (run.accuracy or 0.0) for run in own], [1e3 * _p95(run) for run in own]
        texts = list(map(_cost_text, own))
        for lines, values in ((accuracy, right), (p95, ms)):
            lines.append(Line(name, costs, values, colour, style, texts=texts, dots=True))
    x = scales.scaled(prices)
    rules = (objective_rule(latency_s),)

    def panel(title: str, lines: list[Line], y: scales.Scale, rules: tuple[Rule, ...] = ()) -> Panel:
        return Panel(title, x, y, tuple(lines), rules, height=180)

    every = [[v for line in lines for v in line.y] for lines in (accuracy, p95)]
    return Chart(
        f"cost-{found.latencies_s.index(latency_s) + 1}",
        f"Accuracy and p95 against money, {_slo(found)} within {milliseconds(latency_s)}",
        "Each point is a planner's plan on a number of devices; a line that is higher above, and further left, costs"
        " less for the same.",
        "what the devices cost an hour",
        (
            panel("accuracy (%)", accuracy, scales.linear(every[0], zero=False, most=4, end=100)),
            panel("p95 (ms)", p95, scales.linear([*every[1], 1e3 * latency_s], most=4), rules),
        ),
    )


def _ring(found: Comparison, place: int) -> float:
    """Earlier planners have larger dots, so that one shows around a later one at the same point."""
    return LEAST_DOT + DOT_STEP * (len(found.planners) - 1 - place)


def _p95(run: Run) -> float:
    """The p95 of a plan, of several pipelines that of the slowest."""
    return max(each.predicted.latency_s.p95 for each in run.of_each)


def _cost_text(run: Run) -> str:
    devices = f"{digits(run.devices)} device{'' if run.devices == 1 else 's'}"
    return (
        f"{devices}, {money(run.price_per_hour or 0.0)} an hour\n"
        f"accuracy {percent(run.accuracy or 0.0)}, p95 {milliseconds(_p95(run))}"
    )


def _front(found: Comparison, name: str, devices: int) -> list[tuple[float, float]]:
    plans = points(found.runs, name, devices)
    return sorted(plans[k] for k in undominated(plans))


def cell_text(cell: GridCell) -> str:
    if cell.devices is None:
        return "none"
    if cell.saving is None:
        return digits(cell.devices)
    at_least = "≥" if cell.saving_at_least else ""
    return f"{digits(cell.devices)} ({at_least}{digits(cell.saving)}x)"


def _grid_sentence(found: Comparison) -> str:
    sentence = f"How many devices a planner needs for an accuracy (rows) within a {_slo(found)} (columns)"
    if found.baselines:
        sentence += f"; in brackets, how many times as many the best of {', '.join(found.baselines)} needs"
    if COCKTAIL in found.columns:
        sentence += ". Cocktail+ adds and removes devices with the load: its number is the average"
    return f"{sentence}."


def _slo(found: Comparison) -> str:
    return f"p{found.percentile * 100:g}"


def _grid(found: Comparison, planner: str) -> str:
    cells = {(cell.accuracy, cell.latency_s): cell for cell in found.grid if cell.planner == planner}
    rows = ""
    for accuracy in reversed(found.accuracies):
        row = "".join(_shaded(cells[accuracy, latency_s], found.device_counts[-1]) for latency_s in found.latencies_s)
        rows += f"<tr><th scope='row'>{percent(accuracy)}</th>{row}</tr>"
    names = [html.escape(planner), *(milliseconds(latency_s) for latency_s in found.latencies_s)]
    return f'<div class="even">{html_table(names, rows)}</div>'


def _shaded(cell: GridCell, most: int) -> str:
    strength = 0 if cell.devices is None else max(0, round(50 * (1 - (cell.devices - 1) / most)))
    style = f"background: color-mix(in srgb, var(--plan) {strength}%, transparent)"
    return f'<td style="{style}">{html.escape(cell_text(cell))}</td>'


def _volumes(found: Comparison) -> str:
    volumes = {(v.planner, v.devices): v.hypervolume for v in found.hypervolumes}
    rows = "".join(
        f"<tr><th scope='row'>{html.escape(name)}</th>"
        + "".join(f"<td>{digits(volumes[name, count])}</td>" for count in found.device_counts)
        + "</tr>"
        for name in found.planners
    )
    return html_table(["planner", *(counted(count, "device") for count in found.device_counts)], rows)


def _runs(found: Comparison) -> str:
    planned = [run for run in found.runs if run.planner in found.planners]
    rows = "".join(_run(run, shown, len(titles(planned))) for run, shown in cells(planned, FORMATS))
    return html_table((*titles(planned), "planned in"), rows)


def _run(run: Run, cells: list[str], columns: int) -> str:
    """A run without a plan has the reason in place of the figures."""
    why = why_not(run)
    while why and cells[-1] == "":
        cells = cells[:-1]
    shown = "".join(f"<td>{html.escape(cell)}</td>" for cell in cells)
    if why and len(cells) < columns:
        shown += f"<td class='text' colspan='{columns - len(cells)}'>{html.escape(why)}</td>"
    return f"<tr>{shown}<td>{planned_in(run)}</td></tr>"
