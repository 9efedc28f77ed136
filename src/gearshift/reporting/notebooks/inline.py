"""Tables and charts as HTML that stands alone: no script, no style sheet, and the notebook's own colours."""

from collections.abc import Sequence
from html import escape

import numpy as np

from gearshift.reporting.drawing.charts import path_of
from gearshift.reporting.drawing.scales import Scale
from gearshift.support import numbers
from gearshift.support.numbers import digits

WIDTH, HEIGHT, LEFT, BOTTOM = 640, 150, 56, 22
COLOUR = "#2a7f9e"
_CELL = "padding:2px 10px;text-align:{};border-bottom:1px solid #8884"


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
    percent: bool = False,
) -> str:
    """A line of `y` over `x`, where None is no value; `stepped` holds each value until the next.

    `least` is the lower end of y, None for the least value.
    """
    across, up = np.array(x, dtype=np.float64), np.array(y, dtype=np.float64)
    known = ~np.isnan(up)
    if not known.any():
        return ""
    right, top = float(across[known].max()) or 1.0, float(up[known].max())
    bottom = float(up[known].min()) if least is None else least
    top = top if top > bottom else bottom + 1
    path = path_of(Scale(0.0, right, ()).at(across), 1 - Scale(bottom, top, ()).at(up), stepped=stepped)
    shown = [numbers.percent(value) if percent else digits(value) for value in (top, bottom)]
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
