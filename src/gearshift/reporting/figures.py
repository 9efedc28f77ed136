"""What Plotly figures of a page are made of; colours are names of CSS variables, which the page fills in."""

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Figure = dict[str, Any]

SERIES = ("--s1", "--s2", "--s3", "--s4", "--s5", "--s6")


@dataclass(frozen=True, slots=True)
class Chart:
    """A figure with its identifier in the page, its title and one sentence that explains it; heights in pixels."""

    id: str
    title: str
    explanation: str
    figure: Figure
    height: int = 380


def escaped(text: str) -> str:
    """Text for Plotly, which reads tags and the entities of `&`, `<` and `>` but not of quotes."""
    return html.escape(text, quote=False)


def scaled_axis(title: str, values: Sequence[float]) -> Figure:
    """An axis from zero; where positive values span more than a factor of twenty, logarithmic with ticks 1, 2, 5."""
    low, high = min(values), max(values)
    if low <= 0 or high / low <= 20:
        return axis(title, type="linear", rangemode="tozero")
    steps = (1, 2, 5) if high / low <= 1000 else (1,)
    decades = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    ticks = [step * 10.0**decade for decade in decades for step in steps]
    ends = [float(np.log10(low / 1.2)), float(np.log10(high * 1.2))]
    return axis(title, type="log", range=ends, tickvals=ticks, ticktext=[_tick(t) for t in ticks])


def _tick(value: float) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def rounded(values: NDArray[Any]) -> list[float]:
    """Six significant digits: enough for the eye, and a smaller page."""
    return [float(f"{v:.6g}") for v in values.tolist()]


def axis(title: str, **more: Any) -> Figure:
    """An axis with its title."""
    return {
        "title": {"text": title, "standoff": 8},
        "automargin": True,
        "gridcolor": "--grid",
        "linecolor": "--axis",
        "zeroline": False,
        "ticks": "outside",
        "ticklen": 4,
        "tickcolor": "--axis",
        **more,
    }


def plain_layout(**more: Any) -> Figure:
    """A layout without a frame, its legend above."""
    return {
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "system-ui, sans-serif", "size": 12, "color": "--muted"},
        "margin": {"l": 10, "r": 10, "t": 10, "b": 10},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "xanchor": "left"},
        "hoverlabel": {
            "bgcolor": "--card",
            "bordercolor": "--axis",
            "font": {"color": "--ink", "family": "system-ui, sans-serif"},
            "align": "left",
        },
        "shapes": [],
        "annotations": [],
        **more,
    }
