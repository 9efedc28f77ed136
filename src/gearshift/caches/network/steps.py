"""Segments between caches, joined into one step each, since no row can leave between them."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from torch import Tensor

from gearshift.caches.network.chain import Chain

Step = Callable[[Tensor], Tensor]
"""From one hidden output to a later one: a `forward`, called directly as there are no hooks."""


class ForSome(Protocol):
    def or_else(self, plain: Step) -> Step: ...


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """Steps through a chain with caches after `layers`; `spans` by first segment, with their ends.

    Spans begin with the first segment and after caches; making one builds a graph, which takes
    time. `compiled` spans are keyed by their first and last segment.
    """

    chain: Chain
    layers: frozenset[int] = frozenset()
    spans: Mapping[int, tuple[int, Step]] = field(default_factory=dict)
    compiled: Mapping[tuple[int, int], ForSome] = field(default_factory=dict)

    @classmethod
    def of(
        cls, chain: Chain, layers: Iterable[int], compiled: Mapping[tuple[int, int], ForSome] | None = None
    ) -> "Steps":
        return cls(chain, compiled=compiled or {}).with_caches(layers)

    def ends(self, layers: Iterable[int]) -> dict[int, int]:
        """Return the last segment of each span between these caches, by its first."""
        looked, last = frozenset(layers), len(self.chain) - 1
        return {
            first: min(end for end in (*looked, last) if end >= first)
            for first in (0, *(layer + 1 for layer in looked))
        }

    def with_caches(self, layers: Iterable[int]) -> "Steps":
        spans = {}
        for first, end in self.ends(layers := frozenset(layers)).items():
            known = self.spans.get(first)
            if known is None or known[0] != end:
                step, quick = self.chain.span(first, end).forward, self.compiled.get((first, end))
                known = end, step if quick is None else quick.or_else(step)
            spans[first] = known
        return replace(self, layers=layers, spans=spans)

    def after(self, segment: int, *, pending: bool = False) -> tuple[int, Step]:
        """Return the last segment of the next step, and the step: a span up to the next cache.

        While lookups are `pending`, it is a single segment, since rows may leave at its end.
        """
        first = segment + 1
        return (first, self.chain.segments[first].forward) if pending or first not in self.spans else self.spans[first]
