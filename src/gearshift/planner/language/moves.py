"""Moves from one plan to another like it: an edge, a cascade, a range more or less, what engines may have."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf

import numpy as np

from gearshift.planner.language.choices import Choice, GearChoice, PlanMaker

EDGE_SPREADS = (0.03, 0.1, 0.3, 0.7)
"""Edges move by a factor whose logarithm is normal, with one of these standard deviations."""
NEAR = (1, 2, 4, 12)
"""Cascades change to one at most so many places away by work; the last is for leaps."""
BOUND_STEPS = (-1, 1, -2, 2, -4, 4)
LOWEST_SPLIT = 1 / 32
"""A first range is split no lower than at this share of its end."""
TRIES = 50


@dataclass(frozen=True, eq=False)
class Moves:
    """Moves among the candidates `among`; `limit` tells up to which load a candidate may serve."""

    maker: PlanMaker
    among: Sequence[int]
    limit: Callable[[int], float] = lambda _: inf

    def drawn(self, choice: Choice, generator: np.random.Generator) -> Choice:
        """A choice one move away; the same where `TRIES` draws give none that is allowed."""
        kinds = (self._edge, self._edge, self._cascade, self._cascade, self._split, self._merged, self._bounded)
        for _ in range(TRIES):
            made = kinds[int(generator.integers(len(kinds)))](choice, generator)
            if made != choice and self.allowed(made):
                return made
        return choice

    def allowed(self, choice: Choice) -> bool:
        """Whether work and load are in order, and each candidate serves no more load than it may."""
        work = self.maker.bottleneck_s
        pairs = list(itertools.pairwise(choice))
        in_order = all(a.begins < b.begins and work[a.candidate] >= work[b.candidate] for a, b in pairs)
        few = len(choice) <= self.maker.request.most_gears
        return few and in_order and all(b.begins <= self.limit(a.candidate) for a, b in pairs)

    @cached_property
    def _by_work(self) -> list[int]:
        work, quality = self.maker.bottleneck_s, self.maker.candidates.quality
        return sorted(self.among, key=lambda c: (work[c], quality[c], self.maker.candidates.stages[c]))

    @cached_property
    def _place(self) -> dict[int, int]:
        return {candidate: place for place, candidate in enumerate(self._by_work)}

    def _near(self, candidate: int, generator: np.random.Generator) -> int:
        far = NEAR[int(generator.integers(len(NEAR)))]
        place = self._place[candidate] + int(generator.integers(-far, far + 1))
        return self._by_work[min(max(place, 0), len(self._by_work) - 1)]

    def _edge(self, choice: Choice, generator: np.random.Generator) -> Choice:
        if len(choice) == 1:
            return choice
        i = int(generator.integers(1, len(choice)))
        spread = EDGE_SPREADS[int(generator.integers(len(EDGE_SPREADS)))]
        return _with(choice, i, choice[i]._replace(begins=choice[i].begins * math.exp(spread * generator.normal())))

    def _cascade(self, choice: Choice, generator: np.random.Generator) -> Choice:
        i = int(generator.integers(len(choice)))
        return _with(choice, i, choice[i]._replace(candidate=self._near(choice[i].candidate, generator)))

    def _split(self, choice: Choice, generator: np.random.Generator) -> Choice:
        i = int(generator.integers(len(choice)))
        gear = choice[i]
        end = choice[i + 1].begins if i + 1 < len(choice) else 4 * max(gear.begins, 0.5)
        low = max(gear.begins, LOWEST_SPLIT * end)
        other, middle = self._near(gear.candidate, generator), low * (end / low) ** generator.random()
        if generator.random() < 0.5:
            parts = gear, GearChoice(other, middle, gear.most)
        else:
            parts = gear._replace(candidate=other), gear._replace(begins=middle)
        return (*choice[:i], *parts, *choice[i + 1 :])

    def _merged(self, choice: Choice, generator: np.random.Generator) -> Choice:
        if len(choice) == 1:
            return choice
        i = int(generator.integers(len(choice)))
        left = (*choice[:i], *choice[i + 1 :])
        return (left[0]._replace(begins=0.0), *left[1:])

    def _bounded(self, choice: Choice, generator: np.random.Generator) -> Choice:
        """Another bound for one model, in one gear or in all."""
        i = int(generator.integers(len(choice)))
        stages = self.maker.candidates.stages[choice[i].candidate]
        model = stages[int(generator.integers(len(stages)))].model
        bounds = self.maker.bounds(model)
        place = bounds.index(choice[i].most[model]) + BOUND_STEPS[int(generator.integers(len(BOUND_STEPS)))]
        bound = bounds[min(max(place, 0), len(bounds) - 1)]
        everywhere = generator.random() < 0.3
        return tuple(
            gear._replace(most=(*gear.most[:model], bound, *gear.most[model + 1 :])) if everywhere or at == i else gear
            for at, gear in enumerate(choice)
        )


def _with(choice: Choice, i: int, gear: GearChoice) -> Choice:
    return (*choice[:i], gear, *choice[i + 1 :])
