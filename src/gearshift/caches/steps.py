"""What a model with learned caches runs at once: segments that nobody can leave between are one."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from torch import Tensor

from gearshift.caches.chain import Chain

Step = Callable[[Tensor], Tensor]
"""From one hidden output to a later one; the `forward` of a module of ours, which has no hooks to look for."""


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """Steps through a chain with caches after `layers`; `spans` are those that begin with a segment, and their ends.

    They begin with the first segment and behind caches; each takes a graph to be made, which takes its time.
    """

    chain: Chain
    layers: frozenset[int]
    spans: Mapping[int, tuple[int, Step]]

    @classmethod
    def of(cls, chain: Chain, layers: Iterable[int]) -> "Steps":
        """Those of a chain."""
        return cls(chain, frozenset(), {}).with_caches(layers)

    def with_caches(self, layers: Iterable[int]) -> "Steps":
        """Those with caches after other layers; spans that are the same are not made anew."""
        looked, last = frozenset(layers), len(self.chain) - 1
        spans = {}
        for first in (0, *(layer + 1 for layer in looked)):
            end = min(end for end in (*looked, last) if end >= first)
            known = self.spans.get(first)
            if known is None or known[0] != end:
                known = end, self.chain.span(first, end).forward
            spans[first] = known
        return Steps(self.chain, looked, spans)

    def after(self, segment: int, *, pending: bool = False) -> tuple[int, Step]:
        """The segment with which the next step ends, and the step: where a span begins, all up to the next cache.

        While lookups are `pending`, it is one segment, since rows may leave at its end.
        """
        first = segment + 1
        return (first, self.chain.segments[first].forward) if pending or first not in self.spans else self.spans[first]
