"""Parts of Plotly figures; colours are names of CSS variables, which the page fills in."""

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
    """A figure with its identifier in the page, its title and an explanation; height in pixels."""

    id: str
    title: str
    explanation: str
    figure: Figure
    height: int = 380


def escaped(text: str) -> str:
    """Escape text for Plotly, which reads tags and `&`, `<` and `>` entities, but not quotes."""
    return html.escape(text, quote=False)


def scaled_axis(title: str, values: Sequence[float]) -> Figure:
    """An axis from zero; logarithmic where positive values span a factor above twenty."""
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
    return [float(f"{v:.6g}") for v in values.tolist()]


def axis(title: str, **more: Any) -> Figure:
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
