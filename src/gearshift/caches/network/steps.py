"""What a model with learned caches runs at once: segments that nobody can leave between are one."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from torch import Tensor

from gearshift.caches.network.chain import Chain

Step = Callable[[Tensor], Tensor]
"""From one hidden output to a later one; the `forward` of a module of ours, which has no hooks to look for."""


class ForSome(Protocol):
    """A quicker step, for some hidden outputs."""

    def or_else(self, plain: Step) -> Step:
        """That step where it is for what comes, and `plain` elsewhere."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """Steps through a chain with caches after `layers`; `spans` are those that begin with a segment, and their ends.

    They begin with the first segment and behind caches; each takes a graph to be made, which takes its time.  Some are
    `compiled`, by the segments with which they begin and end.
    """

    chain: Chain
    layers: frozenset[int] = frozenset()
    spans: Mapping[int, tuple[int, Step]] = field(default_factory=dict)
    compiled: Mapping[tuple[int, int], ForSome] = field(default_factory=dict)

    @classmethod
    def of(
        cls, chain: Chain, layers: Iterable[int], compiled: Mapping[tuple[int, int], ForSome] | None = None
    ) -> "Steps":
        """Those of a chain."""
        return cls(chain, compiled=compiled or {}).with_caches(layers)

    def ends(self, layers: Iterable[int]) -> dict[int, int]:
        """The spans between caches after these layers: with which segment each begins, and ends."""
        looked, last = frozenset(layers), len(self.chain) - 1
        return {
            first: min(end for end in (*looked, last) if end >= first)
            for first in (0, *(layer + 1 for layer in looked))
        }

    def with_caches(self, layers: Iterable[int]) -> "Steps":
        """Those with caches after other layers; spans that are the same are not made anew."""
        spans = {}
        for first, end in self.ends(layers := frozenset(layers)).items():
            known = self.spans.get(first)
            if known is None or known[0] != end:
                step, quick = self.chain.span(first, end).forward, self.compiled.get((first, end))
                known = end, step if quick is None else quick.or_else(step)
            spans[first] = known
        return replace(self, layers=layers, spans=spans)

    def after(self, segment: int, *, pending: bool = False) -> tuple[int, Step]:
        """The segment with which the next step ends, and the step: where a span begins, all up to the next cache.

        While lookups are `pending`, it is one segment, since rows may leave at its end.
        """
        first = segment + 1
        return (first, self.chain.segments[first].forward) if pending or first not in self.spans else self.spans[first]
