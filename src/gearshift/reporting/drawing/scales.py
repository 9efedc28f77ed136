"""Axes: what a number is on a line from 0 to 1, and where its ticks are."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gearshift.support.numbers import digits

LOG_FROM = 20
"""The ratio of largest to smallest from which an axis is logarithmic."""


@dataclass(frozen=True, slots=True)
class Scale:
    """An axis from `low` to `high` with its ticks; `log` where each step is a factor."""

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    log: bool = False

    def at(self, values: ArrayLike) -> NDArray[np.float64]:
        """Places (n,) between 0 and 1; what lies outside is drawn at the edge."""
        given = np.asarray(values, dtype=np.float64)
        low, high = self.low, self.high
        if self.log:
            given, low, high = np.log10(np.maximum(given, self.low)), math.log10(low), math.log10(high)
        return np.clip((given - low) / (high - low), 0.0, 1.0)

    def place(self, value: float) -> float:
        return float(self.at([value])[0])


def linear(
    values: Iterable[float], *, zero: bool = True, most: int = 5, whole: bool = False, end: float = math.inf
) -> Scale:
    """An axis in even steps that holds all values, from zero unless told otherwise; `whole` numbers only.

    Where all values are alike it goes on about them, but not beyond `end`, such as 100 %.
    """
    known = [v for v in values if math.isfinite(v)] or [0.0]
    low, high = min(known), max(known)
    if zero:
        low = min(0.0, low)
    if high <= low:
        low, high = (low, low + 1) if zero else (low - 0.5, max(low, min(end, low + 0.5)))
    step = _step(high - low, most)
    if whole:
        step = max(1.0, step)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    places = max(0, -math.floor(math.log10(step) + 1e-9))
    places += round(step * 10**places, places + 2) % 1 > 0  # a step of 0.25 has two places
    ticks = tuple((n * step, f"{n * step:,.{places}f}") for n in range(first, last + 1))
    return Scale(first * step, last * step, ticks)


def exact(low: float, high: float, *, most: int = 6) -> Scale:
    """An axis that begins and ends exactly there, such as one of time, with round ticks between."""
    wide = linear((low, high), zero=False, most=most)
    edge = 1e-9 * (high - low)
    return Scale(low, high, tuple(tick for tick in wide.ticks if low - edge <= tick[0] <= high + edge))


def logarithmic(values: Iterable[float]) -> Scale:
    """An axis of factors about all positive values."""
    known = [v for v in values if 0 < v < math.inf] or [1.0]
    low, high = min(known) / 1.15, max(known) * 1.15
    decades = math.log10(high / low)
    steps: Sequence[int] = (1, 2, 5) if decades < 2.5 else (1,)
    every = max(1, math.ceil(decades / 6))
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    ticks = [step * 10.0**decade for decade in range(first, last + 1) for step in steps if not decade % every]
    return Scale(low, high, tuple((t, digits(t)) for t in ticks if low <= t <= high), log=True)


def scaled(values: Iterable[float]) -> Scale:
    """An axis from zero, or one of factors where positive values differ by more than `LOG_FROM`."""
    known = [v for v in values if math.isfinite(v)]
    if not known or min(known) <= 0 or max(known) / min(known) <= LOG_FROM:
        return linear(known)
    return logarithmic(known)


def named(names: Sequence[str]) -> Scale:
    """An axis of names, one step each; value n is the middle of the n-th."""
    return Scale(-0.5, len(names) - 0.5, tuple((float(n), name) for n, name in enumerate(names)))


def _step(span: float, most: int) -> float:
    raw = span / most
    power = 10.0 ** math.floor(math.log10(raw))
    return next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw * (1 - 1e-9))
