"""A comparison of planners as one self-contained page."""

import html

import numpy as np

from gearshift.planner.compare import COCKTAIL, Comparison, GridCell, Run, points
from gearshift.planner.space.pareto import undominated
from gearshift.reporting.figures import SERIES, Chart, Figure, axis, escaped, plain_layout, rounded, scaled_axis
from gearshift.reporting.html_tables import html_table, milliseconds
from gearshift.reporting.page import chart_place, html_page, section


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
        f"Frontier on {devices} device{'s' * (devices > 1)}",
        "Each point is a plan that no other of its planner beats in both, at the latency that it was made for; up and "
        "to the left is better.",
        {"data": traces, "layout": layout},
    )


def cell_text(cell: GridCell) -> str:
    if cell.devices is None:
        return "none"
    saving = "" if cell.saving is None else f" ({'≥' * cell.saving_at_least}{cell.saving:.3g}x)"
    return f"{cell.devices:.4g}{saving}"


def _grid_sentence(found: Comparison) -> str:
    saving = f"; in brackets how many times as many the best of {', '.join(found.baselines)} needs" * bool(
        found.baselines
    )
    cocktail = " Those of Cocktail+ come and go with load; theirs is the average." * (COCKTAIL in found.columns)
    return (
        f"How many devices a planner needs for an accuracy (rows) within a {_slo(found)} (columns){saving}.{cocktail}"
    )


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
    return html_table(["planner", *(f"{n} device{'s' * (n > 1)}" for n in found.device_counts)], rows)


def _runs(found: Comparison) -> str:
    names = ("planner", "devices", "SLO", "accuracy", "p95", "share late", "planned in", "why not")
    return html_table(
        names, "".join(_run(run) for run in found.runs if run.planner in found.planners), text=("why not",)
    )


def _run(run: Run) -> str:
    figures = ["", "", ""]
    if run.predicted is not None:
        predicted = run.predicted
        figures = [f"{predicted.accuracy:.2%}", milliseconds(predicted.latency_s.p95), f"{predicted.share_late:.2%}"]
    cells = [
        run.planner,
        str(run.devices),
        milliseconds(run.latency_objective_s),
        *figures,
        f"{run.planning_s:.1f} s{', unfinished' * run.unfinished}",
    ]
    why = "" if run.error is None else str(run.error.get("message", ""))
    return f"<tr>{''.join(f'<td>{html.escape(c)}</td>' for c in cells)}<td class='text'>{html.escape(why)}</td></tr>"
