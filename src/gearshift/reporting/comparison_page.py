"""A comparison of planners as one self-contained page."""

import html
from collections.abc import Callable
from typing import Any

import numpy as np

from gearshift.planner.compare import COCKTAIL, Comparison, GridCell, Run, points
from gearshift.planner.space.pareto import undominated
from gearshift.reporting.comparison_columns import Kind, cells, planned_in, titles, why_not
from gearshift.reporting.figures import SERIES, Chart, Figure, axis, escaped, plain_layout, rounded, scaled_axis
from gearshift.reporting.headline import counted
from gearshift.reporting.page import chart_place, html_page, html_table, milliseconds, section

FORMATS: dict[Kind, Callable[[Any], str]] = {"text": str, "share": "{:.2%}".format, "seconds": milliseconds}


def comparison_page(found: Comparison, *, title: str, note: str = "") -> str:
    charts = [chart for devices in found.device_counts if (chart := frontier_chart(found, devices)) is not None]
    return html_page(
        title,
        note,
        [
            section(
                "Hypervolume",
                "The area of latency (logarithmic) and accuracy that a planner's plans reach on a number of devices, "
                f"up to {milliseconds(found.reference[0])} and {found.reference[1]:.1%}; more is better.",
                _volumes(found),
            ),
            *(section(chart.title, chart.explanation, chart_place(chart)) for chart in charts),
            section("Fewest devices", _grid_sentence(found), "".join(_grid(found, name) for name in found.columns)),
            section("Runs", "Each plan as predicted on the trace, or why there is none.", _runs(found)),
        ],
        charts,
    )


def frontier_chart(found: Comparison, devices: int) -> Chart | None:
    traces: list[Figure] = []
    for i, name in enumerate(found.planners):
        plans = points(found.runs, name, devices)
        front = [plans[k] for k in undominated(plans)]
        if front:
            colour, dash = SERIES[i % len(SERIES)], "solid" if i < len(SERIES) else "dash"
            traces.append(
                {
                    "type": "scatter",
                    "mode": "lines+markers",
                    "name": escaped(name),
                    "x": rounded(1e3 * np.array([latency_s for latency_s, _ in front])),
                    "y": rounded(100 * np.array([accuracy for _, accuracy in front])),
                    "line": {"color": colour, "width": 2, "dash": dash, "shape": "hv"},
                    "marker": {"color": colour, "size": 7},
                    "hovertemplate": f"{escaped(name)}<br>%{{y:.2f}} % at %{{x:.4g}} ms<extra></extra>",
                }
            )
    if not traces:
        return None
    layout = plain_layout(
        xaxis=scaled_axis(f"{_slo(found)} promised (ms)", [x for trace in traces for x in trace["x"]]),
        yaxis=axis("accuracy (%)"),
        hovermode="closest",
    )
    return Chart(
        f"frontier-{devices}",
        f"Frontier on {counted(devices, 'device')}",
        "Each point is a plan that no other of its planner beats in both, at the latency that it was made for; up and "
        "to the left is better.",
        {"data": traces, "layout": layout},
    )


def cell_text(cell: GridCell) -> str:
    if cell.devices is None:
        return "none"
    if cell.saving is None:
        return f"{cell.devices:.4g}"
    at_least = "≥" if cell.saving_at_least else ""
    return f"{cell.devices:.4g} ({at_least}{cell.saving:.3g}x)"


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
        rows += f"<tr><th scope='row'>{accuracy:.1%}</th>{row}</tr>"
    names = [html.escape(planner), *(milliseconds(latency_s) for latency_s in found.latencies_s)]
    return html_table(names, rows)


def _shaded(cell: GridCell, most: int) -> str:
    strength = 0 if cell.devices is None else max(0, round(50 * (1 - (cell.devices - 1) / most)))
    style = f"background: color-mix(in srgb, var(--s1) {strength}%, transparent)"
    return f'<td style="{style}">{html.escape(cell_text(cell))}</td>'


def _volumes(found: Comparison) -> str:
    volumes = {(v.planner, v.devices): v.hypervolume for v in found.hypervolumes}
    rows = "".join(
        f"<tr><th scope='row'>{html.escape(name)}</th>"
        + "".join(f"<td>{volumes[name, count]:.4g}</td>" for count in found.device_counts)
        + "</tr>"
        for name in found.planners
    )
    return html_table(["planner", *(counted(count, "device") for count in found.device_counts)], rows)


def _runs(found: Comparison) -> str:
    planned = [run for run in found.runs if run.planner in found.planners]
    names = (*titles(planned), "planned in", "why not")
    return html_table(names, "".join(_run(run, shown) for run, shown in cells(planned, FORMATS)), text=("why not",))


def _run(run: Run, cells: list[str]) -> str:
    shown = "".join(f"<td>{html.escape(cell)}</td>" for cell in [*cells, planned_in(run)])
    return f"<tr>{shown}<td class='text'>{html.escape(why_not(run))}</td></tr>"
