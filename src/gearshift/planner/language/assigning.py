"""Gears from steady load: each load has the best candidate whose own steady load, by a margin, is above it."""

import itertools
from collections.abc import Sequence

import numpy as np

from gearshift.planner.language.choices import Choice, GearChoice
from gearshift.planner.language.steady import Steady


def limits(steady: Steady, margin: float) -> list[float]:
    """Up to which load (c,) each candidate may serve; 0 where it keeps the objective at no rate."""
    found = []
    for candidate in range(len(steady.maker.candidates.stages)):
        cell = steady.capacity(candidate)
        found.append(0.0 if cell is None else cell.load / margin)
    return found


def assigned(steady: Steady, margin: float, among: Sequence[int]) -> Choice:
    """The gears of some candidates: quality and work fall as load rises, and the cheapest has no upper end."""
    maker, ends = steady.maker, limits(steady, margin)
    work, quality = maker.bottleneck_s, maker.candidates.quality
    cheapest = min(among, key=lambda c: work[c])
    gears: list[GearChoice] = []
    begins, most_s = 0.0, np.inf
    while not gears or gears[-1].candidate != cheapest:
        able = [c for c in among if c == cheapest or (ends[c] > begins and work[c] <= most_s)]
        best = max(able, key=lambda c: (quality[c], -work[c]))
        gears.append(maker.free(best, begins))
        begins, most_s = ends[best], float(work[best])
    return fewer(tuple(gears), quality.tolist(), maker.request.most_gears)


def fewer(choice: Choice, quality: list[float], most: int) -> Choice:
    """At most `most` gears: those go whose range and loss of quality are smallest; the next cheaper takes over."""
    gears = list(choice)
    while len(gears) > most:
        lost = [
            (quality[gear.candidate] - quality[after.candidate]) * np.log((after.begins + 1e-9) / (gear.begins + 1e-9))
            for gear, after in itertools.pairwise(gears)
        ]
        place = int(np.argmin(lost))
        gears[place : place + 2] = [gears[place + 1]._replace(begins=gears[place].begins)]
    return tuple(gears)
