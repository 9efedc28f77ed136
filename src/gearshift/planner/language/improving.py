"""Local search on the replayed trace: simulated annealing over gears, from several starts of which fewer go on.

All choices are replayed with the same arrivals, prompts and ids, so that differences are the choices' own.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gearshift.objective import Objective
from gearshift.planner.language.choices import Choice
from gearshift.planner.language.moves import Moves
from gearshift.planner.language.replays import Replayed, Replays

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
