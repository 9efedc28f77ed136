"""Local search on the replayed trace: edges of ranges, candidates, more and fewer gears, and what engines may have."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from gearshift.objective import Objective
from gearshift.planner.language.choices import Choice, GearChoice
from gearshift.planner.language.replays import Replays

EDGE_FACTORS = (0.5, 0.75, 0.9, 1.1, 1.35, 2.0)
IN_A_ROUND = 32
KICKS, MISSES, ALL = 3, 2, 1 << 30
DIGITS = 6
"""The least difference of quality that counts: among choices that differ by less, the faster is better."""

Score = tuple[bool, float, float]


@dataclass(frozen=True, eq=False)
class Improvement:
    """A search from a choice; `limits` (c,) bounds the load up to which each candidate may serve.

    `check` may raise to end it.
    """

    replays: Replays
    objective: Objective
    limits: Sequence[float]
    check: Callable[[], None]
    kept: Callable[[Choice], None]
    most_tried: int
    seed: int = 0

    def from_(self, choice: Choice) -> Choice:
        """The best choice that is found (iterated local search), no worse than `choice`.

        From the best so far, `KICKS` moves at random are made, and what follows is climbed again.
        """
        generator = np.random.default_rng([self.seed, 0x1F])
        self._tell(best := self._climbed(choice, generator, misses=ALL))
        until = len(self.replays.seen) + self.most_tried
        for _ in range(self.most_tried):
            if len(self.replays.seen) >= until:
                break
            found = self._climbed(self._kicked(best, generator), generator, misses=MISSES)
            if self.score(found) > self.score(best):
                self._tell(best := found)
        return best

    def _climbed(self, choice: Choice, generator: np.random.Generator, *, misses: int) -> Choice:
        """Rounds of some moves drawn at random, of which the best is made; ends after rounds without a better one."""
        best, score, seen, missed = choice, self._tried(choice), {choice}, 0
        while missed < misses:
            moves = [move for move in dict.fromkeys(self.moves(best)) if move not in seen and self.allowed(move)]
            if not moves:
                break
            picked = [moves[place] for place in generator.permutation(len(moves))[:IN_A_ROUND]]
            seen.update(picked)
            found, move = max((self._tried(move), move) for move in picked)
            missed += 1
            if found > score:
                best, score, missed = move, found, 0
        return best

    def _kicked(self, choice: Choice, generator: np.random.Generator) -> Choice:
        for _ in range(KICKS):
            moves = [move for move in self.moves(choice) if self.allowed(move)]
            if moves:
                choice = moves[int(generator.integers(len(moves)))]
        return choice

    def _tell(self, best: Choice) -> None:
        if self.score(best)[0]:
            self.kept(best)

    def _tried(self, choice: Choice) -> Score:
        self.check()
        return self.score(choice)

    def score(self, choice: Choice) -> Score:
        """Whether it holds, its quality where it does, and its latency, the lower the better."""
        found = self.replays.of(choice)
        holds = found.holds(self.objective)
        return holds, round(found.quality, DIGITS) if holds else 0.0, -found.worst_s(self.objective.percentile)

    def allowed(self, choice: Choice) -> bool:
        """Whether work and load are in order, and each candidate serves no more load than it may."""
        work = self.replays.maker.bottleneck_s
        ends = [*(gear.begins for gear in choice[1:]), inf]
        rising = all(a.begins < b.begins for a, b in itertools.pairwise(choice))
        falling = all(work[a.candidate] >= work[b.candidate] for a, b in itertools.pairwise(choice))
        within = all(end <= self.limits[gear.candidate] for gear, end in zip(choice[:-1], ends[:-1], strict=True))
        return rising and falling and within and len(choice) <= self.replays.request.most_gears

    def moves(self, choice: Choice) -> Iterator[Choice]:
        count = len(self.replays.maker.candidates.stages)
        for i, gear in enumerate(choice):
            others = [other for other in range(count) if other != gear.candidate]
            yield from (_with(choice, i, gear._replace(candidate=other)) for other in others)
            if i > 0:
                yield from (_with(choice, i, gear._replace(begins=gear.begins * factor)) for factor in EDGE_FACTORS)
            if len(choice) > 1:
                yield _without(choice, i)
            yield from self._split(choice, i, others)
            yield from self._bounded(choice, i)
        for model in self.replays.maker.rates.models:
            for bound in self.replays.maker.bounds(model):
                yield tuple(gear._replace(most=_changed(gear.most, model, bound)) for gear in choice)

    def _split(self, choice: Choice, i: int, others: Sequence[int]) -> Iterator[Choice]:
        gear = choice[i]
        if i + 1 < len(choice):
            end = choice[i + 1].begins
            middle = (max(gear.begins, end / 16) * end) ** 0.5
        else:
            middle = 2 * gear.begins or 1.0
        for other in others:
            yield (*choice[: i + 1], GearChoice(other, middle, gear.most), *choice[i + 1 :])

    def _bounded(self, choice: Choice, i: int) -> Iterator[Choice]:
        gear = choice[i]
        for model in {stage.model for stage in self.replays.maker.candidates.stages[gear.candidate]}:
            bounds = self.replays.maker.bounds(model)
            place = bounds.index(gear.most[model])
            for step in (-1, 1, -3, 3):
                if 0 <= place + step < len(bounds):
                    yield _with(choice, i, gear._replace(most=_changed(gear.most, model, bounds[place + step])))


def _with(choice: Choice, i: int, gear: GearChoice) -> Choice:
    return (*choice[:i], gear, *choice[i + 1 :])


def _without(choice: Choice, i: int) -> Choice:
    left = (*choice[:i], *choice[i + 1 :])
    return (left[0]._replace(begins=0.0), *left[1:])


def _changed(most: tuple[int, ...], model: int, bound: int) -> tuple[int, ...]:
    return (*most[:model], bound, *most[model + 1 :])
