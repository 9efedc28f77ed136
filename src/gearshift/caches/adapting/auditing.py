"""Answers that wait to be audited, and what running their inputs through the whole base model makes of them."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gearshift.caches.adapting.adaptation import Counts
from gearshift.caches.adapting.layer_audit import LayerAudit
from gearshift.caches.adapting.lessons import Lessons
from gearshift.caches.network.networks import LearnedCache
from gearshift.caches.running.cached_model import CachedModel

BATCH = 16
MOST_WAITING = 1000


@dataclass(frozen=True, slots=True)
class _Answered:
    """An answer to audit; without a `row` the base model has answered it, and there is nothing to run."""

    row: NDArray[Any] | None
    left: int
    label: int
    caches: dict[int, LearnedCache]


class Auditor:
    """Counts in `audit` how the base model answers what the caches of `model` have answered.

    `use` sets it, and comes first.  Answers of caches that are no longer in use are not counted.
    """

    audit: LayerAudit

    def __init__(self, model: CachedModel, lessons: Lessons, counts: Counts) -> None:
        self._model, self._lessons, self._counts = model, lessons, counts
        self._waiting: deque[_Answered] = deque()

    def use(self, audit: LayerAudit) -> None:
        """Another version is in use, whose counts these are."""
        self.audit = audit
        self._waiting.clear()

    @property
    def waits(self) -> bool:
        """Whether an answer waits."""
        return bool(self._waiting)

    def add(self, row: NDArray[Any], exit_segment: int, label: int) -> None:
        """An answer to audit: the input, the segment after which it left, and the class that was answered."""
        if exit_segment in self._model.layers_off:
            return  # it was on its way when that cache was switched off
        if len(self._waiting) >= MOST_WAITING:
            self._counts.dropped += 1
            return
        ran = exit_segment == len(self._model.chain) - 1  # waits all the same, so that hits and misses drop out alike
        self._waiting.append(_Answered(None if ran else np.array(row), exit_segment, label, self._model.caches))

    def breaches(self) -> Iterator[int]:
        """Audit a batch; yields each layer whose cache must not answer any more.

        The caller switches it off before it asks for the next, and asks for all.
        """
        rows, batch = list[NDArray[Any]](), list[_Answered]()
        while self._waiting and len(rows) < BATCH:
            one = self._waiting.popleft()
            if one.row is not None:
                rows.append(one.row)
                batch.append(one)
            elif one.caches is self._model.caches:
                self._counts.audited += 1
                self.audit.add(None, agreed=True)
        found = self._lessons.audit(rows, self._model.caches) if rows else []
        for one, (hit_by, best) in zip(batch, found, strict=True):
            layer = hit_by if hit_by >= 0 else max((at for at in self._model.caches if at <= one.left), default=-1)
            if best < 0:
                self._counts.unusable += 1
            elif one.caches is self._model.caches and layer in one.caches:
                agreed = one.label == best
                self._counts.audited += 1
                self._counts.disagreed += not agreed
                if self.audit.add(layer, agreed=agreed):
                    yield layer
