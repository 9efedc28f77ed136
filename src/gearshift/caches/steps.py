"""What a model with learned caches runs at once: segments that nobody can leave between are one."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from torch import Tensor

from gearshift.caches.chain import Chain

Step = Callable[[Tensor], Tensor]
"""From one hidden output to a later one; the `forward` of a module of ours, which has no hooks to look for."""


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """Steps through a chain with caches after `layers`; `spans` are those that begin with a segment, and their ends."""

    chain: Chain
    layers: frozenset[int]
    spans: Mapping[int, tuple[int, Step]]

    @classmethod
    def of(cls, chain: Chain, layers: Iterable[int], *, beside: bool) -> "Steps":
        """Those of a chain; with lookups `beside` it, a span may begin with any segment."""
        looked, last = frozenset(layers), len(chain) - 1
        begins = range(last + 1) if beside else (0, *(layer + 1 for layer in looked))
        ends = {first: min(end for end in (*looked, last) if end >= first) for first in begins}
        return cls(chain, looked, {first: (end, chain.span(first, end).forward) for first, end in ends.items()})

    def after(self, segment: int, *, pending: bool = False) -> tuple[int, Step]:
        """The segment with which the next step ends, and the step: all up to the next cache.

        While lookups are `pending`, it is one segment, since rows may leave at its end.
        """
        return (segment + 1, self.chain.segments[segment + 1].forward) if pending else self.spans[segment + 1]
