"""Charts of panels below each other, as HTML: lines, dots and blocks in SVG, all text beside it.

The SVG is stretched to the width of the page; lines keep their thickness, and dots are lines
without length, so that they stay round. Text stands in HTML at shares of the width, and keeps its
size on any screen and on paper.

    chart = Chart("work", "Work", "A sentence.", "load (requests/s)", (Panel("p95 (ms)", x, y, (Line(...),)),))
    Section(chart.title, chart.explanation, [chart])
"""

import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gearshift.reporting.drawing.colours import Style
from gearshift.reporting.drawing.scales import Scale

Floats = Sequence[float] | NDArray[np.float64]

NARROWEST, WIDE, LETTER, ROW = 270, 620, 6.6, 15
"""In pixels: the narrowest chart, one on a wide page, and a label's width for each letter and its height."""
DASHES = {"solid": "", "dash": ' stroke-dasharray="6 4"', "dot": ' stroke-dasharray="2 3"'}


@dataclass(frozen=True, slots=True)
class Line:
    """A line through points (n,), broken where y is NaN; `texts` (n,) are shown where one points at it.

    `stepped` lines keep their value until the next point; one of no `width` has `dots` alone. With
    `ringed` each of these has a ring about it.
    """

    name: str
    x: Floats
    y: Floats
    colour: str
    style: Style = "solid"
    stepped: bool = False
    texts: Sequence[str] = ()
    width: float = 2
    dots: bool = False
    dot_size: float = 6
    ringed: bool = False


def dots(
    name: str, x: Floats, y: Floats, colour: str, size: float = 8, texts: Sequence[str] = (), *, ringed: bool = False
) -> Line:
    """Points (n,) without a line, `size` pixels wide."""
    return Line(name, x, y, colour, texts=texts, width=0, dots=True, dot_size=size, ringed=ringed)


@dataclass(frozen=True, slots=True)
class Blocks:
    """Rectangles (n,) from (x0, y0) to (x1, y1)."""

    name: str
    x0: Floats
    x1: Floats
    y0: Floats
    y1: Floats
    colour: str
    texts: Sequence[str] = ()


Mark = Line | Blocks


@dataclass(frozen=True, slots=True)
class Rule:
    """A dotted line across the panel at `y`, such as an objective, with its label."""

    y: float
    label: str
    colour: str = "--warn"


@dataclass(frozen=True, slots=True)
class Label:
    """A name beside a point; of labels that would lie on each other only the first is drawn."""

    x: float
    y: float
    text: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One plot: its title, which says the unit, its axes, and what is drawn; `height` in pixels.

    Values of x from `beyond` on lie on grey ground.
    """

    title: str
    x: Scale
    y: Scale
    marks: tuple[Mark, ...]
    rules: tuple[Rule, ...] = ()
    labels: tuple[Label, ...] = ()
    height: int = 190
    beyond: float | None = None


@dataclass(frozen=True, slots=True)
class Chart:
    """Panels that share an axis `x_title` below the last, under a title and a sentence.

    `key` are lines of text below the chart, such as the names behind its labels.
    """

    id: str
    title: str
    explanation: str
    x_title: str
    panels: tuple[Panel, ...]
    key: tuple[str, ...] = ()

    @property
    def pointed(self) -> dict[str, list[dict[str, Any]]]:
        """By panel what the page's script shows where one points: places from 0 to 1, and words."""
        return {f"{self.id}-{n}": list(_pointed(panel)) for n, panel in enumerate(self.panels)}

    def __html__(self) -> str:
        """The chart without its title and sentence."""
        last = len(self.panels) - 1
        panels = "".join(_panel(f"{self.id}-{n}", panel, last=n == last) for n, panel in enumerate(self.panels))
        key = "".join(f"<li>{html.escape(line)}</li>" for line in self.key)
        return (
            f'<figure class="chart" id="{self.id}" role="img" aria-label="{html.escape(self.title)}">'
            f'{_legend(self)}{panels}<div class="xtitle">{html.escape(self.x_title)}</div>'
            f"{f'<ul class=key>{key}</ul>' if key else ''}</figure>"
        )


def _legend(chart: Chart) -> str:
    shown: dict[str, str] = {}
    for mark in (mark for panel in chart.panels for mark in panel.marks):
        drawn = len(mark.x0 if isinstance(mark, Blocks) else mark.x)
        if drawn and mark.name and mark.name not in shown:
            shape = "block" if isinstance(mark, Blocks) else mark.style if mark.width else "round"
            shown[mark.name] = f'<i class="{shape}" style="color:var({mark.colour})"></i>{html.escape(mark.name)}'
    if len(shown) < 2:
        return ""
    return f'<ul class="legend">{"".join(f"<li>{each}</li>" for each in shown.values())}</ul>'


def _panel(name: str, panel: Panel, *, last: bool) -> str:
    x_ticks = [(panel.x.place(value), text) for value, text in panel.x.ticks]
    y_ticks = [(1 - panel.y.place(value), text) for value, text in panel.y.ticks]
    grid = "".join(f'<path class="grid" d="M0 {_c(y)}H1000"/>' for y, _ in y_ticks)
    grid += "".join(f'<path class="grid" d="M{_c(x)} 0V1000"/>' for x, _ in x_ticks)
    if panel.beyond is not None:
        left = _c(panel.x.place(panel.beyond))
        grid = f'<path class="beyond" d="M{left} 0H1000V1000H{left}z"/>{grid}'
    marks = "".join(_mark(panel, mark) for mark in panel.marks)
    rules = "".join(
        f'<path class="line" stroke="var({rule.colour})" stroke-width="1.5" stroke-dasharray="2 3" '
        f'd="M0 {_c(1 - panel.y.place(rule.y))}H1000"/>'
        for rule in panel.rules
    )
    words = "".join(f'<span class="yt" style="top:{_p(y)}">{html.escape(text)}</span>' for y, text in y_ticks)
    if last:
        words += _x_words(x_ticks)
    for rule in panel.rules:
        y = 1 - panel.y.place(rule.y)
        below = "" if y > 0.15 else " under"
        words += (
            f'<span class="rule{below}" style="top:{_p(y)};color:var({rule.colour})">{html.escape(rule.label)}</span>'
        )
    words += _labels(panel, NARROWEST, "slim") + _labels(panel, WIDE, "wide")
    return (
        f'<div class="ptitle">{html.escape(panel.title)}</div>'
        f'<div class="area{" last" if last else ""}" data-panel="{name}" style="height:{panel.height}px">'
        f'<svg viewBox="0 0 1000 1000" preserveAspectRatio="none" aria-hidden="true">{grid}{marks}{rules}</svg>'
        f"{words}</div>"
    )


def _x_words(ticks: Sequence[tuple[float, str]]) -> str:
    """Tick labels; every second is left out on narrow screens where they would touch."""
    widest = max((len(text) for _, text in ticks), default=0) * LETTER + 6
    gaps = [b[0] - a[0] for a, b in pairwise(ticks)]
    crowded = bool(gaps) and min(gaps) * NARROWEST < widest
    return "".join(
        f'<span class="xt{" odd" if crowded and n % 2 else ""}" style="left:{_p(x)}">{html.escape(text)}</span>'
        for n, (x, text) in enumerate(ticks)
    )


def _labels(panel: Panel, width: int, screen: str) -> str:
    """The labels that fit on a chart of this width, for pages at least as wide."""
    taken: list[tuple[float, float, float, float]] = []
    for mark in panel.marks:
        if isinstance(mark, Line) and not mark.width and mark.dot_size >= 7:
            for x, y in zip(panel.x.at(mark.x) * width, (1 - panel.y.at(mark.y)) * panel.height, strict=True):
                taken.append((x - 5, y - 5, x + 5, y + 5))
    words = ""
    for label in panel.labels:
        x, y = panel.x.place(label.x), 1 - panel.y.place(label.y)
        for side, box in _sides(x * width, y * panel.height, len(label.text) * LETTER + 4):
            inside = box[0] >= 0 and box[1] >= 0 and box[2] <= width and box[3] <= panel.height
            if inside and not any(_touch(box, other) for other in taken):
                taken.append(box)
                place = f"left:{_p(x)};top:{_p(y)}"
                words += f'<span class="label {side} {screen}" style="{place}">{html.escape(label.text)}</span>'
                break
    return words


def _sides(x: float, y: float, wide: float) -> Iterable[tuple[str, tuple[float, float, float, float]]]:
    for side, left, top in (
        ("right", x + 7, y - ROW / 2),
        ("left", x - 7 - wide, y - ROW / 2),
        ("above", x - wide / 2, y - 7 - ROW),
        ("below", x - wide / 2, y + 7),
    ):
        yield side, (left, top, left + wide, top + ROW)


def _touch(one: tuple[float, float, float, float], other: tuple[float, float, float, float]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _mark(panel: Panel, mark: Mark) -> str:
    if isinstance(mark, Blocks):
        left, right = panel.x.at(mark.x0), panel.x.at(mark.x1)
        top, bottom = 1 - panel.y.at(mark.y1), 1 - panel.y.at(mark.y0)
        edges = zip(left, right, top, bottom, strict=True)
        path = "".join(f"M{_c(x0)} {_c(y0)}H{_c(x1)}V{_c(y1)}H{_c(x0)}z" for x0, x1, y0, y1 in edges)
        return f'<path class="block" fill="var({mark.colour})" d="{path}"/>'
    x, y = panel.x.at(mark.x), 1 - panel.y.at(mark.y)
    line = spots = ""
    if mark.width:
        line = f'stroke="var({mark.colour})" stroke-width="{mark.width:g}"{DASHES[mark.style]}'
        line = f'<path class="line" {line} d="{path_of(x, y, stepped=mark.stepped)}"/>'
    if mark.dots:
        path = "".join(f"M{_c(a)} {_c(b)}h0" for a, b in zip(x, y, strict=True) if math.isfinite(b))
        rings = (("--ink", 4), ("--card", 2)) if mark.ringed else ()
        spots = "".join(
            f'<path class="dots" stroke="var({colour})" stroke-width="{mark.dot_size + more:g}" d="{path}"/>'
            for colour, more in (*rings, (mark.colour, 0))
        )
    return line + spots


def path_of(x: NDArray[np.float64], y: NDArray[np.float64], *, stepped: bool) -> str:
    """A line through places from 0 to 1, in thousandths, broken where y is NaN."""
    parts, down, before = [], False, ""
    for a, b in zip(x.tolist(), y.tolist(), strict=True):
        if not math.isfinite(b):
            down, before = False, ""
            continue
        at, height = _c(a), _c(b)
        if not down:
            parts.append(f"M{at} {height}")
        elif stepped:
            parts.append(f"H{at}" if height == before else f"H{at}V{height}")
        else:
            parts.append(f"L{at} {height}")
        down, before = True, height
    return "".join(parts)


def _pointed(panel: Panel) -> Iterable[dict[str, Any]]:
    for mark in panel.marks:
        if not mark.texts:
            continue
        if isinstance(mark, Blocks):
            x = (panel.x.at(mark.x0) + panel.x.at(mark.x1)) / 2
            y = (panel.y.at(mark.y0) + panel.y.at(mark.y1)) / 2
        else:
            x, y = panel.x.at(mark.x), panel.y.at(mark.y)
        kept = [n for n, b in enumerate(y.tolist()) if math.isfinite(b)]
        yield {
            "name": mark.name,
            "colour": mark.colour,
            "x": [round(float(x[n]), 4) for n in kept],
            "y": [round(float(1 - y[n]), 4) for n in kept],
            "text": [mark.texts[n] for n in kept],
        }


def _c(share: float) -> str:
    return f"{1000 * share:.1f}".removesuffix(".0")


def _p(share: float) -> str:
    return f"{100 * share:.2f}%"
