"""Answers waiting for an audit, in which their inputs run through the whole base model."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gearshift.caches.adapting.audit_counts import AuditCounts
from gearshift.caches.adapting.settings import Counts
from gearshift.caches.adapting.training_samples import TrainingSamples
from gearshift.caches.network.learned_cache import LearnedCache
from gearshift.caches.running.cached_model import CachedModel

BATCH = 16
MOST_WAITING = 1000


@dataclass(frozen=True, slots=True)
class _Answered:
    """An answer to audit; `row` is None if the base model gave it, so there is nothing to run."""

    row: NDArray[Any] | None
    left: int
    label: int
    caches: dict[int, LearnedCache]


class Auditor:
    """Compares answers of the caches of `model` with the base model, and counts in `audit`.

    Call `use` first. Answers of caches that are no longer in use are not counted.
    """

    audit: AuditCounts

    def __init__(self, model: CachedModel, training_samples: TrainingSamples, counts: Counts) -> None:
        self._model, self._samples, self._counts = model, training_samples, counts
        self._waiting: deque[_Answered] = deque()

    def use(self, audit: AuditCounts) -> None:
        self.audit = audit
        self._waiting.clear()

    @property
    def waits(self) -> bool:
        return bool(self._waiting)

    def add(self, row: NDArray[Any], exit_segment: int, label: int) -> None:
        if exit_segment in self._model.layers_off:
            return  # answered before that cache was switched off
        if len(self._waiting) >= MOST_WAITING:
            self._counts.dropped += 1
            return
        ran = exit_segment == len(self._model.chain) - 1  # waits too: hits and misses drop alike
        self._waiting.append(_Answered(None if ran else np.array(row), exit_segment, label, self._model.caches))

    def breaches(self) -> Iterator[int]:
        """Yield layers whose cache must be switched off; do so before the next, and take all."""
        rows, batch = list[NDArray[Any]](), list[_Answered]()
        while self._waiting and len(rows) < BATCH:
            one = self._waiting.popleft()
            if one.row is not None:
                rows.append(one.row)
                batch.append(one)
            elif one.caches is self._model.caches:
                self._counts.audited += 1
                self.audit.add(None, agreed=True)
        found = self._samples.audit(rows, self._model.caches) if rows else []
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
