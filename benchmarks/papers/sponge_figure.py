"""Sponge's Figure 4 anew, as SVG: for each scaler a strip of violations per second, and below all of them cores."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from numpy.typing import NDArray

COLORS = ("#1f6fd1", "#d1571f", "#2a8f4f", "#8a3fb0", "#6b7280")
WIDTH, LEFT, RIGHT, STRIP, GAP, CORES_HEIGHT = 900, 150, 20, 34, 14, 170


@dataclass(frozen=True)
class Line:
    """Of a scaler: violations in each second (n,), and the cores held from these seconds on (k, 2)."""

    name: str
    violations: NDArray[np.int64]
    cores: NDArray[np.float64]


def figure(title: str, lines: Sequence[Line], *, most_violations: int, most_cores: int) -> str:
    """The picture, of as many seconds as there are violations of."""
    seconds = len(lines[0].violations)
    per_second = (WIDTH - LEFT - RIGHT) / seconds
    floor = 40 + len(lines) * (STRIP + GAP) + 30 + CORES_HEIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {floor + 40}" role="img" '
        f'aria-label="{escape(title)}" font-family="system-ui, sans-serif" font-size="13">',
        f'<rect width="{WIDTH}" height="{floor + 40}" fill="#fbfbfd"/>',
        _text(LEFT, 22, f"{title}: violations per second, each strip up to {most_violations}"),
    ]
    for i, (line, color) in enumerate(zip(lines, COLORS, strict=True)):
        base = 40 + i * (STRIP + GAP) + STRIP
        bars = "".join(
            f"M{LEFT + second * per_second:.1f} {base}v{-STRIP * count / most_violations:.1f}"
            for second, count in enumerate(line.violations.tolist())
            if count
        )
        parts.append(_path(f"M{LEFT} {base}H{WIDTH - RIGHT}", "#c3c8d0", 1))
        parts.append(_path(bars, color, max(1.0, per_second)))
        parts.append(_text(LEFT - 10, base - 4, line.name, anchor="end", color=color))
    parts.append(_text(LEFT, floor - CORES_HEIGHT - 12, "cores"))
    for cores in range(0, most_cores + 1, 4):
        y = floor - CORES_HEIGHT * cores / most_cores
        parts.append(_path(f"M{LEFT} {y:.1f}H{WIDTH - RIGHT}", "#e3e6ea", 1))
        parts.append(_text(LEFT - 10, y + 4, str(cores), anchor="end"))
    for line, color in zip(lines, COLORS, strict=True):
        steps = "".join(
            f"{'H' if k else 'M'}{LEFT + at * per_second:.1f}{'V' if k else ' '}"
            f"{floor - CORES_HEIGHT * held / most_cores:.1f}"
            for k, (at, held) in enumerate(line.cores.tolist())
        )
        parts.append(_path(f"{steps}H{WIDTH - RIGHT}", color, 1.5))
    ticks = range(0, seconds + 1, 100)
    parts += [_text(LEFT + tick * per_second, floor + 20, f"{tick} s", anchor="middle") for tick in ticks]
    return "\n".join([*parts, "</svg>\n"])


def _path(steps: str, color: str, width: float) -> str:
    return f'<path d="{steps}" fill="none" stroke="{color}" stroke-width="{width:g}"/>'


def _text(x: float, y: float, text: str, *, anchor: str = "start", color: str = "#20242c") -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="{color}">{escape(text)}</text>'
