"""Looks for tuples off the joint front that hold a load where those next on the front do not.

The front is by mean work, and what holds is a percentile of the latency: a tuple with a little more work may hold,
because fewer of its requests go all the long ways. Tuples that differ at two nodes are looked at; which of them are
likely to hold is told by what was simulated at loads nearby, so that few are simulated in vain.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations, islice

import numpy as np
from numpy.typing import NDArray

from gearshift.planner.joint.answers import Answers
from gearshift.planner.joint.candidates import Tuples
from gearshift.planner.joint.composed import ComposedQuery
from gearshift.planner.joint.front import Doubles, Ints, chunks, picked
from gearshift.planner.joint.replay import replay
from gearshift.planner.joint.steady import Candidate, SteadyTuples

LEAST_GAIN = 2e-5
"""So much more accuracy is worth a simulation."""
MOST_TRIED = 2
"""So many tuples are simulated in vain for each range."""
LEAST_SEEN = 5
SLACK = 1.1
"""Plans expected within this multiple of the latency are tried."""
NEARBY = 0.2
"""Loads are nearby up to this share."""
LONGEST_S = 5.0
"""A longer latency is that of a queue which grows, and counts as this."""


def two_changed(numbers: Sequence[int], sizes: Sequence[int]) -> Ints:
    """All tuples (k, nodes) with up to two numbers other than `numbers`; of node i they are below `sizes[i]`."""
    found = [np.array([numbers], dtype=np.int64)]
    for i, j in combinations(range(len(sizes)), 2):
        both = np.tile(found[0], (sizes[i] * sizes[j], 1))
        both[:, i], both[:, j] = np.divmod(np.arange(len(both)), sizes[j])
        found.append(both)
    return np.unique(np.concatenate(found), axis=0)


def likely(of: Doubles, seen: Doubles, latency_s: Doubles, limit_s: float) -> NDArray[np.bool_]:
    """Those of n tuples that are expected to keep `limit_s`, from their traits `of` (n, traits).

    The logarithm of `latency_s` (m,) is fitted as linear in the traits `seen` (m, traits) by least squares.
    """
    one = np.ones((len(seen), 1))
    fit, *_ = np.linalg.lstsq(np.hstack([one, seen]), np.log(np.minimum(latency_s, LONGEST_S)), rcond=None)
    return np.asarray(fit[0] + of @ fit[1:] <= np.log(limit_s))


def tails_s(query: ComposedQuery, answers: dict[str, Answers], chosen: Ints, share: float) -> Doubles:
    """The `share` percentile (n,) over recorded requests of the work of tuples (n, nodes)."""
    found = [
        np.percentile(replay(query, picked(query, answers, chosen[rows])).work_s, 100 * share, axis=1)
        for rows in chunks(query, len(chosen))
    ]
    return np.broadcast_to(np.concatenate(found), (len(chosen),)).astype(np.float64)


@dataclass(slots=True, eq=False)
class OffFront:
    """Tuples of `tuples` beside those that a search has chosen."""

    tuples: Tuples
    _alone: dict[str, Answers] = field(default_factory=dict)
    """The answers of each node, with the run times of single items as their work."""
    _tails_s: dict[tuple[int, ...], float] = field(default_factory=dict)

    def better(self, steady: SteadyTuples, chosen: Candidate, load_qps: float, most_work_s: float) -> Candidate:
        """The most accurate found that holds `load_qps` with no more than `most_work_s`, else `chosen`."""
        some = islice(self._likely(steady, chosen, load_qps, most_work_s), MOST_TRIED)
        return next((each for each in some if steady.holding(each, load_qps) is not None), chosen)

    def _likely(
        self, steady: SteadyTuples, chosen: Candidate, load_qps: float, most_work_s: float
    ) -> Iterator[Candidate]:
        seen = steady.seen_near(load_qps, NEARBY)
        if len(seen) < LEAST_SEEN:
            return
        sizes = [len(of_node) for of_node in self.tuples.cascades.values()]
        near = two_changed(self._numbers(chosen), sizes)
        work_s, quality = self.tuples.judged(near)
        fits = np.flatnonzero((quality > chosen.quality + LEAST_GAIN) & (work_s <= most_work_s))
        if not len(fits):
            return
        known = self._of_all([self._numbers(candidate) for candidate, _, _ in seen], steady)
        traits = np.array([[c.work_s * qps, tail_s] for (c, qps, _), tail_s in zip(seen, known, strict=True)])
        tails = self._of_all([tuple(row) for row in near[fits].tolist()], steady)
        hold = likely(
            np.column_stack([work_s[fits] * load_qps, tails]),
            traits,
            np.array([latency_s for *_, latency_s in seen]),
            SLACK * steady.request.latency_s,
        )
        by_accuracy = fits[hold][np.argsort(-quality[fits[hold]], kind="stable")]
        done = {self._numbers(candidate) for candidate, qps, _ in seen if qps == load_qps}
        for place in by_accuracy.tolist():
            if tuple(near[place].tolist()) not in done:
                yield self.tuples.candidates(near[place : place + 1])[0]

    def _of_all(self, numbers: Sequence[tuple[int, ...]], steady: SteadyTuples) -> Doubles:
        new = [each for each in dict.fromkeys(numbers) if each not in self._tails_s]
        if new:
            if not self._alone:
                alone_s = {model: float(np.max(each)) for model, each in steady.run_s().items()}
                self._alone = self.tuples.answers_with(alone_s)
            share = steady.request.objective.percentile
            found = tails_s(self.tuples.query, self._alone, np.array(new, dtype=np.int64), share)
            self._tails_s.update(zip(new, found.tolist(), strict=True))
        return np.array([self._tails_s[each] for each in numbers])

    def _numbers(self, candidate: Candidate) -> tuple[int, ...]:
        return tuple(self.tuples.cascades[node].index(candidate.cascades[node]) for node in self.tuples.query.places)
