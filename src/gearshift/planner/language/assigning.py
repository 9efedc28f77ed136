"""Gears from steady load: each load has the best candidate whose own steady load, by a margin, is above it."""

import itertools
from collections.abc import Sequence

import numpy as np

from gearshift.planner.language.choices import Choice, GearChoice
from gearshift.planner.language.steady import Steady


def limit_of(steady: Steady, candidate: int, margin: float) -> float:
    """Up to which load a candidate may serve; 0 where it keeps the objective at no rate."""
    cell = steady.capacity(candidate)
    return 0.0 if cell is None else cell.load / margin


def assigned(steady: Steady, margin: float, among: Sequence[int]) -> Choice:
    """The gears of some candidates: quality and work fall as load rises, and the cheapest has no upper end."""
    maker, ends = steady.maker, {c: limit_of(steady, c, margin) for c in among}
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
