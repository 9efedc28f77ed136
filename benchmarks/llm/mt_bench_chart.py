"""Draw MT-Bench on two GPUs from what `mt_bench_frontier.py --points` kept: our plans beside the published runs.

    python -m benchmarks.llm.mt_bench_chart --data DIR --points points.json --rate 0.15 --out docs/planners

It writes `mt-bench-ttft.svg` (Ken's Figure 8) and `mt-bench-total.svg` (its Figure 9), and prints a table.
The published runs are those of each model alone; of the published cascades no numbers are at hand,
and none of Medusa. What a replay of the published recordings gave within 1 s, before these scripts, are open
marks in the first.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.llm.mt_bench import single_runs
from benchmarks.shared.arguments import data_of, parser_of
from benchmarks.shared.tables import print_table

LEFT, TOP, WIDTH, HEIGHT, SIDE = 56, 34, 560, 340, 210
TICKS = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200)
Point = tuple[float, float]


Label = tuple[str, float, float]
"""A text, and the seconds and the score of its point."""
REPLAY = "replay of published recordings"
REPLAYED: tuple[Label, ...] = (
    ("certainty", 1.0, 7.87), ("permuted", 1.0, 7.79), ("switching", 1.0, 7.66), ("oracle", 1.0, 8.16),
)  # fmt: skip
"""Kinds of plan at p95 TTFT <= 1 s and rate 0.15; they are older than these scripts, and stand here as told."""


class Style(NamedTuple):
    colour: str
    line: str = ""
    """The dashes of the line; "none" draws dots alone."""
    open: bool = False


STYLES = {
    "oracle": Style("#999999", "2 3"),
    "certainty": Style("#0072b2"),
    "shares alone": Style("#56b4e9", "6 4"),
    "permuted": Style("#e69f00", "none"),
    "model switching": Style("#009e73"),
    "one cascade": Style("#cc79a7"),
    "walk (Ken)": Style("#d55e00"),
    "published, one model alone": Style("#000000", "none", open=True),
    REPLAY: Style("#aa3377", "none", open=True),
}
"""Okabe and Ito's colours, by the name of the series."""
FIGURES = (("mt-bench-ttft.svg", "p95_s", "ttft_p95_ms", "p95 of the time to the first token (s)"),
           ("mt-bench-total.svg", "total_p95_s", "total_p95_ms", "p95 of the total time (s)"))  # fmt: skip


def kind_of(point: dict[str, Any]) -> str:
    """The name of its series; all permutations are one."""
    return "permuted" if point["kind"].startswith("permuted") else str(point["kind"])


def series_of(points: list[dict[str, Any]], rate: str, time: str) -> dict[str, list[Point]]:
    """(seconds, score) of each kind of plan, by rising time asked for; all permutations are one series."""
    found: dict[str, list[Point]] = {name: [] for name in STYLES}
    for one in sorted(points, key=lambda point: point["asked_s"]):
        if one["rate"] == rate and "score" in one and (name := kind_of(one)) in found:
            found[name].append((one[time], one["score"]))
    return {name: each for name, each in found.items() if each}


def published(data: Path, rate: str, time: str) -> list[Label]:
    """(model, seconds, score) of each model alone; scores count the turn that has none as -1, as published."""
    runs = [run for run in single_runs(data) if run["rate_scale"] == rate]
    return [(run["model"], float(run[time]) / 1e3, float(run["score"])) for run in runs]


def svg_of(
    series: dict[str, list[Point]], labels: Sequence[Label], x_title: str, *, beside: Sequence[Label] = ()
) -> str:
    """A chart with a logarithmic axis of time; `labels` are texts below points, `beside` those at their right."""
    every = [point for each in series.values() for point in each]
    x = np.log10([at for at, _ in every])
    y = [score for _, score in every]
    x0, x1, y0, y1 = x.min() - 0.06, x.max() + 0.06, min(y) - 0.15, max(y) + 0.15

    def place(at: float, score: float) -> Point:
        return LEFT + WIDTH * (np.log10(at) - x0) / (x1 - x0), TOP + HEIGHT * (1 - (score - y0) / (y1 - y0))

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + SIDE} {TOP + HEIGHT + 50}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{LEFT + WIDTH + SIDE}" height="{TOP + HEIGHT + 50}" fill="#fff"/>',
        f'<text x="8" y="{TOP - 16}">MT-Bench score</text>',
        f'<text x="{LEFT + WIDTH / 2}" y="{TOP + HEIGHT + 40}" text-anchor="middle">{x_title}</text>',
    ]
    for score in np.arange(np.ceil(y0 * 2) / 2, y1, 0.5):
        _, at_y = place(1.0, score)
        parts.append(f'<path d="M{LEFT} {at_y:.1f}h{WIDTH}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{at_y + 4:.1f}" text-anchor="end">{score:.1f}</text>')
    for at in TICKS:
        if x0 <= np.log10(at) <= x1:
            at_x, _ = place(at, y0)
            parts.append(f'<path d="M{at_x:.1f} {TOP}v{HEIGHT}" stroke="#eee"/>')
            parts.append(f'<text x="{at_x:.1f}" y="{TOP + HEIGHT + 18}" text-anchor="middle">{at:g}</text>')
    for i, (name, each) in enumerate(series.items()):
        style, placed = STYLES[name], [place(*point) for point in each]
        if style.line != "none" and len(placed) > 1:
            path = "L".join(f"{a:.1f} {b:.1f}" for a, b in placed)
            dashes = f' stroke-dasharray="{style.line}"' if style.line else ""
            parts.append(f'<path d="M{path}" fill="none" stroke="{style.colour}" stroke-width="1.5"{dashes}/>')
        fill = "#fff" if style.open else style.colour
        parts += [
            f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3.5" fill="{fill}" stroke="{style.colour}"/>' for a, b in placed
        ]
        at_y = TOP + 10 + 22 * i
        parts.append(f'<circle cx="{LEFT + WIDTH + 22}" cy="{at_y}" r="5" fill="{fill}" stroke="{style.colour}"/>')
        parts.append(f'<text x="{LEFT + WIDTH + 34}" y="{at_y + 4}">{name}</text>')
    for text, at, score in labels:
        a, b = place(at, score)
        parts.append(f'<text x="{a:.1f}" y="{b + 18:.1f}" text-anchor="middle">{text}</text>')
    for i, (text, at, score) in enumerate(beside):  # neighbours would touch
        a, b = place(at, score)
        parts.append(f'<text x="{a + 7:.1f}" y="{b + 7 * (i % 2):.1f}" font-size="9">{text}</text>')
    return "\n".join([*parts, "</svg>\n"])


def rows_of(points: list[dict[str, Any]], rate: str) -> list[list[str]]:
    """A row for each kind of plan, with score and both times for each time asked for; permutations as their mean."""
    asked = sorted({one["asked_s"] for one in points if one["rate"] == rate})
    rows = []
    for name in STYLES:
        cells = []
        for limit_s in asked:
            mine = [one for one in points if (one["rate"], one["asked_s"], kind_of(one)) == (rate, limit_s, name)]
            scores = [one["score"] for one in mine if "score" in one]
            if len(scores) > 1:
                cells.append(f"{np.mean(scores):.3f} ({min(scores):.3f} to {max(scores):.3f})")
            else:
                cells.append(f"{scores[0]:.3f}" if scores else "none" if mine else "")
        if any(cells):
            rows.append([name, *cells])
    return rows


def main() -> None:
    parser = parser_of(__doc__, data=True)
    parser.add_argument("--points", type=Path, action="append", required=True, help="what mt_bench_frontier.py kept")
    parser.add_argument("--rate", default="0.15")
    parser.add_argument("--out", type=Path, required=True, help="the folder for the charts")
    options = parser.parse_args()
    data = data_of(options)
    points = [point for path in options.points for point in json.loads(path.read_text())]
    for name, time, of_run, title in FIGURES:
        runs = published(data, options.rate, of_run)
        series = series_of(points, options.rate, time)
        series["published, one model alone"] = sorted((seconds, score) for _, seconds, score in runs)
        replayed = REPLAYED if (options.rate, time) == ("0.15", "p95_s") else ()
        if replayed:
            series[REPLAY] = [(seconds, score) for _, seconds, score in replayed]
        (options.out / name).write_text(svg_of(series, runs, title, beside=replayed))
    asked = sorted({one["asked_s"] for one in points if one["rate"] == options.rate})
    print_table(("plan", *(f"{limit_s:g} s" for limit_s in asked)), rows_of(points, options.rate))


if __name__ == "__main__":
    main()
