"""Learned caches as one self-contained page: all explored variants, the chosen ones, and why."""

import html

from gearshift.caches.store.manifest import Manifest, Variant
from gearshift.reporting.figures import SERIES, Chart, Figure, axis, escaped, plain_layout, scaled_axis
from gearshift.reporting.page import chart_place, html_page, html_table, milliseconds, section

COLUMNS = ("block", "variant", "level", "hits", "accuracy", "lookup", "memory", "chosen", "why")


def caches_page(manifest: Manifest, *, title: str) -> str:
    charts = [hits_chart(manifest), exits_chart(manifest)]
    note = (
        f"{milliseconds(manifest.latency_s)} instead of {milliseconds(manifest.base_s)} a row, by segments and lookups "
        f"as timed, agreeing with the base model on {manifest.accuracy:.2%} of {manifest.samples} samples; "
        f"{manifest.target:.2%} was asked for."
    )
    if (measured := manifest.measured) is not None:
        note += (
            f" Run one by one, {measured.rows} of them took {milliseconds(measured.cached_s)} each, the module "
            f"{milliseconds(measured.module_s)}, and {milliseconds(measured.folded_s)} with batch norms folded."
        )
    sentence = "What each method chooses, and its figures on the validation samples."
    return html_page(
        title,
        note,
        [
            *(section(chart.title, chart.explanation, chart_place(chart)) for chart in charts),
            section("Compositions", sentence, _choices(manifest)),
            section("Variants", "Each is judged on samples that it was not trained on.", _variants(manifest)),
        ],
        charts,
    )


def hits_chart(manifest: Manifest) -> Chart:
    reached = [sum(manifest.segment_s[: k + 1]) for k in range(len(manifest.blocks))]

    def points(name: str, entries: list[Variant], marker: Figure) -> Figure:
        return {
            "type": "scatter",
            "mode": "markers",
            "name": escaped(name),
            "x": [round(1e3 * (reached[entry.layer] + entry.lookup_s), 6) for entry in entries],
            "y": [round(100 * entry.hit_rate, 3) for entry in entries],
            "text": [escaped(f"{entry.variant} after {entry.block}, {entry.accuracy:.2%} right") for entry in entries],
            "marker": marker,
            "hovertemplate": "%{text}<br>%{y:.1f} % hit, answered after %{x:.4g} ms<extra></extra>",
        }

    kinds = list(dict.fromkeys(entry.variant.partition("(")[0] for entry in manifest.variants))
    traces = [
        points(
            kind,
            [entry for entry in manifest.variants if entry.variant.partition("(")[0] == kind],
            {"color": SERIES[i % len(SERIES)], "size": 6},
        )
        for i, kind in enumerate(kinds)
    ]
    ring = {"color": "rgba(0,0,0,0)", "size": 14, "line": {"color": "--ink", "width": 2}}
    traces.append(points("chosen", list(manifest.chosen), ring))
    layout = plain_layout(
        xaxis=scaled_axis("answered after (ms)", [1e3 * manifest.base_s, *(x for t in traces for x in t["x"])]),
        yaxis=axis("hits (%)", rangemode="tozero"),
        hovermode="closest",
    )
    return Chart(
        "hits",
        "Variants: how much they hit, and how soon",
        "Each dot is a variant after a block at one strictness; the base model answers everything after "
        f"{milliseconds(manifest.base_s)}.",
        {"data": traces, "layout": layout},
    )


def exits_chart(manifest: Manifest) -> Chart:
    bars = {
        "type": "bar",
        "x": [escaped(name) for name in manifest.blocks],
        "y": [round(100 * share, 3) for share in manifest.exits],
        "marker": {"color": "--s1"},
        "hovertemplate": "%{y:.1f} % leave after %{x}<extra></extra>",
    }
    layout = plain_layout(xaxis=axis("block", type="category"), yaxis=axis("samples (%)", rangemode="tozero"))
    return Chart(
        "exits", "Where samples leave", "The last block is the model's end.", {"data": [bars], "layout": layout}
    )


def _choices(manifest: Manifest) -> str:
    cells = [
        [
            choice.method,
            ", ".join(f"{manifest.variants[v].variant} after {manifest.variants[v].block}" for v in choice.chosen),
            milliseconds(choice.latency_s),
            f"{choice.accuracy:.2%}",
            f"{choice.memory_bytes / 2**20:.2f} MiB",
            milliseconds(choice.gap_s),
            "yes" if choice is manifest.choices[-1] else "",
        ]
        for choice in manifest.choices
    ]
    columns = ("method", "caches", "latency", "accuracy", "memory", "may be lower by", "in use")
    return _rows(columns, cells, text=("caches", "in use"))


def _variants(manifest: Manifest) -> str:
    cells = [
        [
            entry.block,
            entry.variant,
            f"{entry.level:.2%}",
            f"{entry.hit_rate:.2%}",
            f"{entry.accuracy:.2%}",
            milliseconds(entry.lookup_s),
            f"{entry.memory_bytes / 2**20:.2f} MiB",
            "yes" if entry.chosen else "",
            entry.why,
        ]
        for entry in manifest.variants
    ]
    return _rows(COLUMNS, cells, text=("variant", "why"))


def _rows(names: tuple[str, ...], cells: list[list[str]], *, text: tuple[str, ...]) -> str:
    def cell(name: str, value: str) -> str:
        return f"<td class='text'>{html.escape(value)}</td>" if name in text else f"<td>{html.escape(value)}</td>"

    rows = ("".join(map(cell, names, row)) for row in cells)
    return html_table(names, "".join(f"<tr>{row}</tr>" for row in rows), text=text)
