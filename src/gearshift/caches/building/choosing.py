"""Choose the learned caches of a model from what exploration found, and say why each was chosen."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from gearshift.caches.building.compose import Composition, compose_all, composed, joint
from gearshift.caches.building.problem import ROUNDING, Problem, joint_outcome, wrong_of
from gearshift.caches.network.chain import Chain
from gearshift.caches.network.train import Explored, Training
from gearshift.caches.store.manifest import LIKELY, Choice, Variant
from gearshift.errors import InvalidInput
from gearshift.result import share_bound

WHERE = "learned caches"
BY_PRICE = "by price"
PRICES = (
    *(0.0025, 0.005, 0.0075, 0.01, 0.0125, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.05, 0.06, 0.07, 0.08),
    *(0.1, 0.12, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.7, 1.0),
)
"""Share of hits that may be wrong if a hit saves all of the model's time; less if it saves less."""
FEW_NODES = 200
MOST_SPARES = 8
"""Most blocks with a cache kept for adaptation: each of them is trained again and again."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Chosen:
    """The choice of every method; the last is used, and is the fastest at a `price` (`set_for`).

    `accuracy` and `lower_bound`, if asked for, are measured on the samples `judged`, whose answers
    did not make the choice.
    """

    choices: tuple[Composition, ...]
    price: float
    judged: Problem
    accuracy: float
    lower_bound: float | None = None

    @property
    def variants(self) -> tuple[int, ...]:
        return self.choices[-1].chosen


def choose(problem: Problem, confidence: float | None, seed: int) -> Chosen:
    """Choose variants such that new samples keep the target too.

    The best of many choices looks better than it is if it is chosen by its accuracy on the
    validation samples, so it is not. Each selector was set for an accuracy of its hits on separate
    samples, and a choice takes the fastest variants that were set strictly enough (`set_for`).
    Strictness falls step by step, until mistakes on all validation samples make the target less
    than `LIKELY`; the step before is used. Tests in a fixed sequence need no correction. If the
    first step fails, there are no caches. With a confidence, see `_shown`.
    """
    if confidence is not None:
        return _shown(problem, confidence, seed)
    found = by_price(problem, problem, LIKELY)
    return _chosen(found, problem, problem)


def set_for(problem: Problem, price: float) -> NDArray[np.int64]:
    """Return variants of whose hits at most `price` times `saved` are wrong, by their `level`."""
    assert problem.level is not None
    return np.flatnonzero(1 - problem.level <= price * problem.saved + ROUNDING)


class Priced(NamedTuple):
    """A choice at the highest price that holds, its mistakes, and those at the next price."""

    price: float
    chosen: tuple[int, ...]
    wrong: int
    failed: int | None


def choices_by_price(problem: Problem) -> Iterator[tuple[float, tuple[int, ...]]]:
    tried = 0
    for price in PRICES:
        allowed = set_for(problem, price)
        if len(allowed) > tried:
            tried = len(allowed)
            found = joint(_some(problem, allowed), most_nodes=FEW_NODES).chosen
            yield price, tuple(allowed[list(found)].tolist())


def by_price(choosing: Problem, testing: Problem, likely: float) -> Priced:
    """Choose on the samples `choosing` at the highest price that keeps the target on `testing`."""
    found = Priced(0.0, (), 0, None)
    for price, chosen in choices_by_price(choosing):
        wrong = wrong_of(testing, chosen)
        if share_bound(wrong, testing.samples, likely) < testing.target:
            return found._replace(failed=wrong)
        found = Priced(price, chosen, wrong, None)
    return found


def _chosen(found: Priced, choosing: Problem, judged: Problem, lower_bound: float | None = None) -> Chosen:
    return Chosen(
        choices=(*compose_all(choosing, most_nodes=FEW_NODES), composed(BY_PRICE, choosing, found.chosen)),
        price=found.price,
        judged=judged,
        accuracy=1 - found.wrong / judged.samples,
        lower_bound=lower_bound,
    )


def _some(problem: Problem, variants: NDArray[np.int64]) -> Problem:
    assert problem.hits is not None
    return replace(
        problem,
        **{
            name: getattr(problem, name)[variants] for name in ("layer", "hit_rate", "lookup_s", "memory_bytes", "hits")
        },
        accuracy=np.ones(len(variants)),
        right=np.ones_like(problem.hits[variants]),
        level=None,
    )


def _shown(problem: Problem, confidence: float, seed: int) -> Chosen:
    """Choose on one half of the validation samples, and test on the other, price by price.

    Tests stop at the first failure, so each may use the whole error level (fixed sequence). Raises
    `InvalidInput` if the first one fails.
    """
    order = np.random.default_rng([seed, 2]).permutation(problem.samples)
    choosing, testing = (_of_samples(problem, half) for half in np.array_split(order, 2))
    found = by_price(choosing, testing, confidence)
    if found.chosen or found.failed is None:
        return _chosen(found, choosing, testing, share_bound(found.wrong, testing.samples, confidence))
    raise InvalidInput(
        f"accuracy {problem.target:g} cannot be shown with confidence {confidence:g}: the most careful choice "
        f"agrees on {1 - found.failed / testing.samples:.2%} of {testing.samples} samples",
        where=WHERE,
        remedy="give more samples, or ask for less",
    )


def problem_of(
    chain: Chain,
    explored: Sequence[Explored],
    segment_s: NDArray[np.float64],
    lookup_s: Sequence[float],
    *,
    how: Training,
    target: float,
    memory: float = math.inf,
    most_delay: float = math.inf,
    beside: bool = False,
) -> tuple[list[Variant], Problem, list[int]]:
    entries: list[Variant] = []
    origins, hits, right = [], [], []
    for i, one in enumerate(explored):
        nowhere = (min(how.levels), np.zeros_like(one.trained.right))
        for level, hit in list(zip(one.trained.levels, one.trained.hits, strict=True)) or [nowhere]:
            entries.append(
                Variant(
                    layer=one.layer,
                    block=chain.names[one.layer],
                    variant=one.variant,
                    level=level,
                    shape=one.shape,
                    hit_rate=float(hit.mean()),
                    accuracy=float(one.trained.right[hit].mean()) if hit.any() else 1.0,
                    lookup_s=lookup_s[i],
                    memory_bytes=one.trained.cache.memory_bytes,
                )
            )
            origins.append(i)
            hits.append(hit)
            right.append(one.trained.right)
    samples = len(explored[0].trained.right)
    problem = problem_for(
        entries,
        segment_s,
        np.array(hits, dtype=np.bool_).reshape(-1, samples),
        np.array(right, dtype=np.bool_).reshape(-1, samples),
        target=target,
        memory=memory,
        most_delay=most_delay,
        beside=beside,
    )
    return entries, problem, origins


def problem_for(
    entries: Sequence[Variant],
    segment_s: NDArray[np.float64],
    hits: NDArray[np.bool_],
    right: NDArray[np.bool_],
    *,
    target: float,
    memory: float,
    most_delay: float,
    beside: bool,
) -> Problem:
    problem = Problem(
        layer_s=segment_s,
        layer=np.array([entry.layer for entry in entries], dtype=np.int64),
        hit_rate=np.array([entry.hit_rate for entry in entries]),
        accuracy=np.array([entry.accuracy for entry in entries]),
        lookup_s=np.array([entry.lookup_s for entry in entries]),
        memory_bytes=np.array([entry.memory_bytes for entry in entries], dtype=np.float64),
        target=target,
        memory_budget_bytes=memory,
        delay_budget_s=most_delay * float(segment_s.sum()),
        hits=hits,
        right=right,
        level=np.array([entry.level for entry in entries]),
    )
    return at_ends(problem) if beside else problem


def leaves_after(problem: Problem) -> NDArray[np.int64]:
    return problem.layer if not problem.beside else _found_in(problem)


def at_ends(problem: Problem) -> Problem:
    """The same problem with lookups beside the model, each extended to the end of a layer."""
    ends = np.cumsum(problem.layer_s)[_found_in(problem)]
    return replace(problem, beside=True, lookup_s=np.maximum(problem.lookup_s, ends - problem.reached_s))


def _found_in(problem: Problem) -> NDArray[np.int64]:
    ends = np.cumsum(problem.layer_s)
    at = np.searchsorted(ends * (1 + ROUNDING), problem.reached_s + problem.lookup_s)
    return np.minimum(at, len(ends) - 1)


def with_spares(entries: Sequence[Variant], right_rate: Sequence[float], segment_s: Sequence[float]) -> list[Variant]:
    """Mark after other blocks the variant that could save most, if it hit all it gets right."""
    left_s = sum(segment_s) - np.cumsum(segment_s)
    hopes: dict[int, tuple[float, int]] = {}
    for v, entry in enumerate(entries):
        hope = right_rate[v] * float(left_s[entry.layer]) - entry.lookup_s
        if hope > 0:
            hopes[entry.layer] = max(hopes.get(entry.layer, (0.0, -1)), (hope, -v))
    taken = {entry.layer for entry in entries if entry.chosen}
    layers = sorted(set(hopes) - taken)
    spare = {-hopes[layer][1] for layer in layers[:: math.ceil(len(layers) / MOST_SPARES) or 1]}
    return [msgspec.structs.replace(entry, spare=v in spare) for v, entry in enumerate(entries)]


def _of_samples(problem: Problem, rows: NDArray[np.int64]) -> Problem:
    assert problem.hits is not None
    assert problem.right is not None
    return judged_on(problem, problem.hits[:, rows], problem.right[:, rows])


def judged_on(problem: Problem, hits: NDArray[np.bool_], right: NDArray[np.bool_]) -> Problem:
    counts = hits.sum(axis=1)
    accuracy = np.where(counts > 0, (hits & right).sum(axis=1) / np.maximum(1, counts), 1.0)
    return replace(problem, hits=hits, right=right, hit_rate=hits.mean(axis=1), accuracy=accuracy)


def explained(
    entries: Sequence[Variant], problem: Problem, chosen: tuple[int, ...], price: float
) -> tuple[Variant, ...]:
    now, allowed = joint_outcome(problem, chosen), 1 - price * problem.saved
    told = []
    for v, entry in enumerate(entries):
        others = tuple(u for u in chosen if problem.layer[u] != problem.layer[v])
        if v in chosen:
            without = joint_outcome(problem, tuple(u for u in chosen if u != v))
            why = f"without it {1e3 * (without.latency_s - now.latency_s):+.3f} ms"
        else:
            changed = tuple(sorted((*others, v)))
            then = joint_outcome(problem, changed)
            if entry.hit_rate == 0:
                why = "it never hits"
            elif not problem.fits(changed):
                why = "does not fit beside the chosen ones"
            elif wrong_of(problem, changed) > problem.most_wrong:
                why = f"with it accuracy {then.accuracy:.2%}, below {problem.target:.2%}"
            elif entry.level < allowed[v] - ROUNDING:
                why = f"set for {entry.level:.1%} of its hits, and {allowed[v]:.1%} are wanted there"
            else:
                why = f"with it {1e3 * (then.latency_s - now.latency_s):+.3f} ms"
        told.append(msgspec.structs.replace(entry, chosen=v in chosen, why=why))
    return tuple(told)


def as_choice(one: Composition) -> Choice:
    assert one.measured is not None
    return Choice(
        method=one.method,
        chosen=one.chosen,
        expected_latency_s=one.expected.latency_s,
        latency_s=one.measured.latency_s,
        accuracy=one.measured.accuracy,
        memory_bytes=one.memory_bytes,
        gap_s=one.gap_s,
    )
