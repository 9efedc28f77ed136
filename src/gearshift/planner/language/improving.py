"""Local search on the replayed trace: simulated annealing over gears, from several starts of which fewer go on.

All choices are replayed with the same arrivals, prompts and ids, so that differences are the choices' own.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import NamedTuple

import numpy as np

from gearshift.objective import Objective
from gearshift.planner.language.choices import Choice, GearChoice, PlanMaker
from gearshift.planner.language.replays import Replayed, Replays

# Moves from one plan to another like it: an edge, a cascade, a range more or less, what engines may have.

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


ROUNDS = ((8, 0.4), (3, 0.3), (1, 0.3))
"""How many starts each round has, the best of the one before, and its share of all tries."""
HOTTEST, COLDEST = 0.012, 0.001
"""Temperatures, as shares of the difference between the best and the worst candidate."""
OVER_LIMIT = 0.3
"""A plan whose time is e times the limit counts as worse by this part of the spread, best to worst candidate."""
HOPELESS = 0.03
"""A choice is hopeless if its first replay is worse by more than this share; it gets no replay with other seeds."""
DIGITS = 6
"""The least difference of quality that counts: among choices that differ by less, the faster is better."""

Score = tuple[bool, float, float]


@dataclass(frozen=True, eq=False)
class Annealing:
    """Searches on one placement for one objective. `check` may raise to end it."""

    replays: Replays
    objective: Objective
    moves: Moves
    check: Callable[[], None]

    def score(self, choice: Choice) -> Score:
        """Whether it holds, its quality where it does, and its latency, the lower the better."""
        self.check()
        found = self.replays.of(choice)
        holds = found.holds(self.objective)
        return holds, round(found.quality, DIGITS) if holds else 0.0, -found.worst_s(self.objective.percentile)

    def from_(self, choice: Choice, tries: int, generator: np.random.Generator, *, hottest: float) -> Choice:
        """The best choice that is found in so many tries, no worse than `choice`."""
        spread = float(np.ptp(self.replays.maker.candidates.quality[list(self.moves.among)])) or 1.0
        now, best = choice, choice
        worth, at_first, most = self._worth(now, spread), self._first_worth(now, spread), self.score(now)
        for place in range(tries):
            temperature = spread * hottest * (COLDEST / hottest) ** (place / tries)
            tried = self.moves.drawn(now, generator)
            admitted = temperature * math.log(1 - generator.random())
            self.check()
            if (first := self._first_worth(tried, spread)) - at_first < admitted - HOPELESS * spread:
                continue
            if (found := self._worth(tried, spread)) - worth >= admitted:
                now, worth, at_first = tried, found, first
            if (score := self.score(tried)) > most:
                best, most = tried, score
        return best

    def _worth(self, choice: Choice, spread: float) -> float:
        self.check()
        return self._less_lateness(self.replays.of(choice), spread)

    def _first_worth(self, choice: Choice, spread: float) -> float:
        return self._less_lateness(self.replays.of_first(choice), spread)

    def _less_lateness(self, found: Replayed, spread: float) -> float:
        """The quality; less where it is late, so that the search may go through such choices."""
        if found.holds(self.objective) or self.objective.latency_s is None:
            return found.quality
        late = math.log(found.least_s(self.objective.percentile) / self.objective.latency_s)
        return found.quality - OVER_LIMIT * spread * max(late, 1e-3)


class Start(NamedTuple):
    """A choice to begin with, and the search on its placement."""

    annealing: Annealing
    choice: Choice

    @property
    def score(self) -> Score:
        return self.annealing.score(self.choice)


def improved(starts: Sequence[Start], tries: int, seed: int, kept: Callable[[Start], None]) -> list[Start]:
    """All starts and what was found from them, the best first; the hopeless ones are given up early."""
    every, going = list(starts), _best(starts, len(starts))
    for number, (count, share) in enumerate(ROUNDS):
        each = max(1, round(tries * share / max(1, min(count, len(going)))))
        for place, start in enumerate(going[:count]):
            generator = np.random.default_rng([seed, number, place, 0x1F])
            choice = start.annealing.from_(start.choice, each, generator, hottest=HOTTEST / 2**number)
            going[place] = start._replace(choice=choice)
            kept(going[place])
        going = _best(going, count)
        every += going
    for start in starts:
        start.annealing.replays.begun.clear()
    return _best(every, len(every))


def _best(starts: Sequence[Start], count: int) -> list[Start]:
    unlike = {(id(start.annealing.replays), start.choice): start for start in starts}
    return sorted(unlike.values(), key=lambda start: start.score, reverse=True)[:count]
