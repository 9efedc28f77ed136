"""Tables and charts as HTML that stands alone: no script, no style sheet, and the notebook's own colours."""

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from gearshift.support import numbers
from gearshift.support.numbers import digits

WIDTH, HEIGHT, LEFT, BOTTOM = 640, 150, 56, 22
COLOURS = ("#2a7f9e", "#c8752b", "#7a5aa6")
MOST_POINTS = 600
_CELL = "padding:2px 10px;text-align:{};border-bottom:1px solid #8884"


class Line(NamedTuple):
    """A line of `y` over `x`; `steps` holds each value until the next; None is no value."""

    name: str
    x: Sequence[float]
    y: Sequence[float | None]
    steps: bool = False


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


def chart(title: str, x_name: str, *lines: Line, least: float | None = 0.0, percent: bool = False) -> str:
    """Lines over a shared axis; `least` is the lower end of y, None for the least value."""
    points = [(x, y) for line in lines for x, y in zip(line.x, line.y, strict=True) if y is not None]
    if not points:
        return ""
    right = max(x for x, _ in points) or 1.0
    top, bottom = max(y for _, y in points), min(y for _, y in points) if least is None else least
    top = top if top > bottom else bottom + 1

    def at(x: float, y: float) -> tuple[str, str]:
        across = LEFT + x / right * (WIDTH - LEFT - 8)
        down = 8 + (top - y) / (top - bottom) * (HEIGHT - BOTTOM - 8)
        return f"{across:.1f}", f"{down:.1f}"

    drawn = []
    for line, colour in zip(lines, COLOURS, strict=False):
        path, open_ = "", False
        for x, y in zip(line.x, line.y, strict=True):
            if y is None:
                open_ = False
                continue
            across, down = at(x, y)
            path += f"H{across}V{down}" if open_ and line.steps else f"{'L' if open_ else 'M'}{across} {down}"
            open_ = True
        drawn.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
    shown = [numbers.percent(value) if percent else digits(value) for value in (top, bottom)]
    named = " ".join(
        f'<tspan fill="{colour}">{escape(line.name)}</tspan>' for line, colour in zip(lines, COLOURS, strict=False)
    )
    base = HEIGHT - BOTTOM
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT + 16}" width="100%" role="img" aria-label="{escape(title)}" '
        f'font-size="11" fill="currentColor"><g transform="translate(0 16)">'
        f'<text x="0" y="-5">{escape(title)} {named}</text>'
        f'<path d="M{LEFT} 4V{base}H{WIDTH}" fill="none" stroke="currentColor" stroke-opacity=".3"/>'
        f'<text x="{LEFT - 4}" y="14" text-anchor="end">{shown[0]}</text>'
        f'<text x="{LEFT - 4}" y="{base}" text-anchor="end">{shown[1]}</text>{"".join(drawn)}'
        f'<text x="{LEFT}" y="{HEIGHT - 6}">0</text>'
        f'<text x="{WIDTH}" y="{HEIGHT - 6}" text-anchor="end">{digits(right)} {escape(x_name)}</text></g></svg>'
    )
