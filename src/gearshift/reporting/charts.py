"""The report's charts as Plotly figures; colours are CSS variables, which the page fills in."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gearshift.reporting.content import CandidatePoint, LatencyQuantiles, RangePoint, ReportContent, RunSeries
from gearshift.reporting.figures import SERIES, Chart, Figure, axis, escaped, plain_layout, rounded, scaled_axis

MOST_DOTS = 3000
MOST_POINTS = 4000
FASTEST_SHOWN = 0.05
GAP = 0.08
"""Between panels, as a share of the height."""
PERCENTILES = (0.0, 0.5, 0.9, 0.95, 0.99, 0.999)


def charts_of(content: ReportContent, *, of: str = "", number: int = 0) -> list[Chart]:
    """The charts; those of one pipeline, `of` that name, have its `number` in their identifiers."""
    made = (_front_chart(content), _ranges_chart(content), _time_chart(content), _latency_chart(content))
    charts = [chart for chart in made if chart is not None]
    return [replace(one, id=f"{one.id}-{number}", title=f"{one.title}: {of}") for one in charts] if of else charts


def _front_chart(content: ReportContent) -> Chart | None:
    if not content.candidates:
        return None
    others = [c for c in content.candidates if not c.on_front and not c.used]
    shown = others[:: max(1, -(-len(others) // MOST_DOTS))]
    front = sorted((c for c in content.candidates if c.on_front), key=lambda c: c.mean_run_s)
    used = sorted((c for c in content.candidates if c.used), key=lambda c: c.mean_run_s)
    traces = [
        _points(shown, "other cascades", mode="markers", marker={"color": "--dots", "size": 4}, opacity=0.6),
        _points(
            front,
            "Pareto front",
            mode="lines+markers",
            line={"color": "--s1", "width": 2},
            marker={"color": "--s1", "size": 5},
        ),
        _points(
            used,
            "used by a gear",
            mode="markers",
            marker={"color": "--s2", "size": 11, "line": {"color": "--card", "width": 2}},
        ),
    ]
    thinned = f" {len(shown):,} of {len(others):,} other cascades are drawn." if len(shown) < len(others) else ""
    layout = plain_layout(
        xaxis=scaled_axis("mean run time per sample (ms)", [c.mean_run_s * 1e3 for c in content.candidates]),
        yaxis=axis("accuracy (%)"),
        hovermode="closest",
    )
    return Chart(
        "front",
        "Cascades: accuracy against work",
        "Each dot is a cascade; on the line, no other is both more accurate and cheaper, and gears use the marked ones."
        + thinned,
        {"data": [t for t in traces if t["x"]], "layout": layout},
    )


def _points(points: Sequence[CandidatePoint], name: str, **style: Any) -> Figure:
    return {
        "type": "scatter",
        "name": name,
        "x": [p.mean_run_s * 1e3 for p in points],
        "y": [p.accuracy * 100 for p in points],
        "text": [escaped(p.cascade) for p in points],
        "hovertemplate": "%{text}<br>%{y:.2f} % at %{x:.4g} ms<extra></extra>",
        **style,
    }


def _ranges_chart(content: ReportContent) -> Chart | None:
    if not content.ranges:
        return None
    layout = _panels(
        axis("load (requests per second)", rangemode="tozero"),
        axis("accuracy (%)"),
        axis(f"{content.percentile} (ms)", rangemode="tozero"),
    )
    traces = [
        _steps(content.ranges, lambda r: r.accuracy * 100, name="accuracy", colour="--s1", yaxis="y"),
        _steps(
            content.ranges, lambda r: r.p95_s * 1e3, name=f"predicted {content.percentile}", colour="--s2", yaxis="y2"
        ),
    ]
    if content.slo_s is not None:
        _mark_slo(layout, content.slo_s, yref="y2", xref="x domain")
        peak = max(content.slo_s, *(r.p95_s for r in content.ranges if r.p95_s < np.inf)) * 1e3
        layout["yaxis2"]["range"] = [0, peak * 1.15]
    return Chart(
        "ranges",
        "Gears: what serves each load",
        "As load rises the plan gives up accuracy to keep latency; point at a step to see its cascade.",
        {"data": traces, "layout": layout},
        height=440,
    )


def _steps(
    ranges: Sequence[RangePoint], value: Callable[[RangePoint], float], *, name: str, colour: str, yaxis: str
) -> Figure:
    x: list[float] = []
    y: list[float] = []
    text: list[str] = []
    for i, r in enumerate(ranges):
        width = r.from_qps - ranges[i - 1].from_qps if i else 1.0
        to = r.from_qps + width if r.to_qps is None else r.to_qps
        shown = f"{r.from_qps:.4g} and more" if r.to_qps is None else f"{r.from_qps:.4g} to {r.to_qps:.4g}"
        label = f"gear {r.gear or i}, {shown} requests/s<br>{escaped(r.cascade)}<br>{r.share_late:.2%} late"
        label += "" if r.at_qps is None else f", predicted at {r.at_qps:.4g} requests/s"
        x += [r.from_qps, (r.from_qps + to) / 2, to]
        y += [value(r)] * 3
        text += [label] * 3
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": x,
        "y": y,
        "text": text,
        "yaxis": yaxis,
        "line": {"color": colour, "width": 2.5},
        "hovertemplate": "%{text}<br>" + name + " %{y:.4g}<extra></extra>",
        "showlegend": False,
    }


def _time_chart(content: ReportContent) -> Chart | None:
    colours = _colours(content.runs)
    traces: list[Figure] = []
    for run in content.runs:
        if run.seconds is None or len(run.seconds) == 0:
            continue
        percent = None if run.accuracy is None else 100 * run.accuracy
        for what, values, yaxis in (("load", run.load_qps, "y"), ("gear", run.gear, "y2"), ("accuracy", percent, "y3")):
            if values is not None:
                line = {"color": colours[run.name], "width": 1.75, "shape": "hv", "dash": _dash(run)}
                legend = what == "gear" or run.gear is None
                trace = _over_time(run, run.seconds, values, what)
                traces.append({**trace, "yaxis": yaxis, "line": line, "showlegend": legend})
    if not traces:
        return None
    highest = max((int(run.gear.max(initial=0)) for run in content.runs if run.gear is not None), default=0)
    judged = any(run.accuracy is not None for run in content.runs)
    layout = _panels(
        axis("time (s)"),
        axis("load (requests/s)", rangemode="tozero"),
        axis("gear (number)", dtick=max(1, -(-highest // 8)), rangemode="tozero"),
        *([axis("accuracy (%)")] if judged else []),
    )
    of_accuracy = "; accuracy is that of the answers to what arrived within about a second" if judged else ""
    return Chart(
        "time",
        "Load, gear and accuracy over time" if judged else "Load and gear over time",
        "When load rises the system shifts to a higher, cheaper gear, and back when it falls; gear 0 is the most"
        f" accurate{of_accuracy} (solid measured, dashed predicted).",
        {"data": traces, "layout": layout},
        height=600 if judged else 460,
    )


def _over_time(run: RunSeries, seconds: NDArray[np.float64], values: NDArray[Any], what: str) -> Figure:
    chosen = _changes(values) if what == "gear" else np.arange(len(values))
    chosen = chosen[:: max(1, -(-len(chosen) // MOST_POINTS))]
    label = escaped(f"{run.name}, {run.kind}")
    return {
        "type": "scatter",
        "mode": "lines",
        "name": label,
        "legendgroup": label,
        "x": rounded(seconds[chosen]),
        "y": rounded(values[chosen]),
        "hovertemplate": f"{label}<br>%{{x:.4g}} s: {what} %{{y:.4g}}<extra></extra>",
    }


def _latency_chart(content: ReportContent) -> Chart | None:
    quantiles = [(r, q) for r in content.runs if (q := r.latency_quantiles) is not None and len(q.share) > 0]
    if not quantiles:
        return None
    colours = _colours(content.runs)
    traces = [_percentiles(run, q, colours[run.name]) for run, q in quantiles]
    shown_ms = [float(v) for _, q in quantiles for v in q.latency_s[q.share >= FASTEST_SHOWN] * 1e3]
    y = scaled_axis("latency (ms)", shown_ms + ([content.slo_s * 1e3] if content.slo_s else []))
    end = max(float(_nines(q.share).max()) for _, q in quantiles)
    ticks = np.array([p for p in PERCENTILES if _nines(np.array([p]))[0] <= end + 0.05])
    layout = plain_layout(
        xaxis=axis(
            "percentile of answered requests",
            tickvals=rounded(_nines(ticks)),
            ticktext=[f"{100 * p:g}" for p in ticks],
            range=[0, end * 1.02],
        ),
        yaxis=y,
        hovermode="closest",
    )
    if content.slo_s is not None:
        _mark_slo(layout, content.slo_s, yref="y", xref="paper", log=y["type"] == "log")
    return Chart(
        "latency",
        "Latency, predicted and measured",
        "How long the slowest requests take: the axis widens towards the tail, and a curve under the SLO line at 95"
        " meets a p95 objective (solid measured, dashed predicted).",
        {"data": traces, "layout": layout},
    )


def _percentiles(run: RunSeries, quantiles: LatencyQuantiles, colour: str) -> Figure:
    label = escaped(f"{run.name}, {run.kind}")
    return {
        "type": "scatter",
        "mode": "lines",
        "name": label,
        "x": rounded(_nines(quantiles.share)),
        "y": rounded(quantiles.latency_s * 1e3),
        "text": [f"{100 * p:.4g}" for p in quantiles.share],
        "line": {"color": colour, "width": 2, "dash": _dash(run)},
        "hovertemplate": f"{label}<br>%{{text}} % of answers within %{{y:.4g}} ms<extra></extra>",
    }


def _nines(share: NDArray[np.float64]) -> NDArray[np.float64]:
    """Axis position of a percentile: 0 at 0, 1 at 90, 2 at 99, 3 at 99.9."""
    return -np.log10(np.maximum(1 - share, 1e-6))


def _changes(values: NDArray[Any]) -> NDArray[np.int64]:
    changed = np.flatnonzero(values[1:] != values[:-1]) + 1
    return np.unique(np.concatenate([[0], changed, [len(values) - 1]])).astype(np.int64)


def _colours(runs: Sequence[RunSeries]) -> dict[str, str]:
    names = list(dict.fromkeys(run.name for run in runs))
    return {name: SERIES[i % len(SERIES)] for i, name in enumerate(names)}


def _dash(run: RunSeries) -> str:
    return "dash" if run.kind == "predicted" else "solid"


def _panels(x: Figure, *panels: Figure) -> Figure:
    """Panels from the top down, which share the axis `x` below them."""
    part, placed = (1 + GAP) / len(panels), {}
    for number, panel in enumerate(panels):
        top = 1 - number * part
        placed[f"yaxis{number + 1}" if number else "yaxis"] = {**panel, "domain": [max(0.0, top + GAP - part), top]}
    return plain_layout(xaxis={**x, "anchor": f"y{len(panels)}"}, **placed, hovermode="closest")


def _mark_slo(layout: Figure, slo_s: float, *, yref: str, xref: str, log: bool = False) -> None:
    slo_ms = slo_s * 1e3
    layout["shapes"].append(
        {
            "type": "line",
            "xref": xref,
            "x0": 0,
            "x1": 1,
            "yref": yref,
            "y0": slo_ms,
            "y1": slo_ms,
            "line": {"color": "--warn", "width": 1.5, "dash": "dot"},
        }
    )
    layout["annotations"].append(
        {
            "xref": xref,
            "x": 0,
            "xanchor": "left",
            "yref": yref,
            "y": float(np.log10(slo_ms)) if log else slo_ms,
            "yanchor": "bottom",
            "text": f"SLO {slo_ms:.4g} ms",
            "showarrow": False,
            "bgcolor": "--card",
            "font": {"color": "--warn", "size": 12},
        }
    )
