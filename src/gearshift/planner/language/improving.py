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
STEPS = (1, -1, 2, -2, 4, -4)
BOUNDS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256)
LEAST_GAIN = 1e-6


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
        """The best choice that is found, each step keeping the objective where the first does."""
        generator = np.random.default_rng([self.seed, 0x1F])
        best, score = choice, self.score(choice)
        tried, improved, seen = 0, True, {choice}
        while improved and tried < self.most_tried:
            improved = False
            moves = list(self.moves(best))
            for place in generator.permutation(len(moves)):
                move = moves[place]
                if move in seen or not self.allowed(move):
                    continue
                self.check()
                seen.add(move)
                tried += 1
                found = self.score(move)
                if found > (score[0], score[1] + LEAST_GAIN):
                    best, score, improved = move, found, True
                    if score[0]:
                        self.kept(best)
                    break
                if tried >= self.most_tried:
                    break
        return best

    def score(self, choice: Choice) -> tuple[bool, float]:
        found = self.replays.of(choice)
        holds = found.holds(self.objective)
        return holds, found.quality if holds else -found.worst_s(self.objective.percentile)

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
        by_quality = [int(c) for c in np.argsort(self.replays.maker.candidates.quality, kind="stable")]
        for i, gear in enumerate(choice):
            place = by_quality.index(gear.candidate)
            others = [by_quality[place + step] for step in STEPS if 0 <= place + step < count]
            yield from (_with(choice, i, gear._replace(candidate=other)) for other in others)
            if i > 0:
                yield from (_with(choice, i, gear._replace(begins=gear.begins * factor)) for factor in EDGE_FACTORS)
            if len(choice) > 1:
                yield _without(choice, i)
            yield from self._split(choice, i, others)
            yield from self._bounded(choice, i)
        for model in self.replays.maker.rates.models:
            for bound in (0, *BOUNDS):
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
            now = gear.most[model]
            place = BOUNDS.index(now) if now else len(BOUNDS)
            for step in (-1, 1, -3, 3):
                if 0 <= place + step <= len(BOUNDS):
                    bound = (*BOUNDS, 0)[place + step]
                    yield _with(choice, i, gear._replace(most=_changed(gear.most, model, bound)))


def _with(choice: Choice, i: int, gear: GearChoice) -> Choice:
    return (*choice[:i], gear, *choice[i + 1 :])


def _without(choice: Choice, i: int) -> Choice:
    left = (*choice[:i], *choice[i + 1 :])
    return (left[0]._replace(begins=0.0), *left[1:])


def _changed(most: tuple[int, ...], model: int, bound: int) -> tuple[int, ...]:
    return (*most[:model], bound, *most[model + 1 :])
