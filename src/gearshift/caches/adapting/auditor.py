"""Audit answers of learned caches: run their inputs through the whole base model, and count."""

from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from gearshift.caches.adapting.settings import Counts
from gearshift.caches.adapting.training_samples import TrainingSamples
from gearshift.caches.network.learned_cache import LearnedCache
from gearshift.caches.running.cached_model import CachedModel
from gearshift.errors import InvalidInput
from gearshift.policies.watch.audit import MOST_AUDITED, cache_breaches, disagreement_interval
from gearshift.support.decoding import UNREADABLE, why_unreadable
from gearshift.support.files import read_bytes, write_atomically

AUDITS = "audits.json"
Count = Annotated[int, msgspec.Meta(ge=0, le=MOST_AUDITED)]


@dataclass(slots=True)
class Audited:
    audited: Count = 0
    disagreed: Count = 0

    def add(self, *, agreed: bool) -> None:
        """Count one; a full count is halved first, so that recent audits outweigh old ones."""
        if self.audited == MOST_AUDITED:
            self.halve()
        self.audited += 1
        self.disagreed += not agreed

    def halve(self) -> None:
        self.audited, self.disagreed = round(self.audited / 2), round(self.disagreed / 2)

    @property
    def interval(self) -> tuple[float, float]:
        """Bounds of the share of disagreement at all times; a heuristic once counts were halved."""
        return disagreement_interval(self.disagreed, self.audited)


class SavedAudits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of `audits.json`: counts of one version of a build.

    `layers` counts by cache, `whole` all answers by exit layer, `ran` those that ran to the end.
    """

    built: str
    version: int
    layers: dict[int, Audited]
    whole: dict[int, Audited]
    ran: Audited

    def __post_init__(self) -> None:
        counts = (*self.layers.values(), *self.whole.values(), self.ran)
        if any(one.disagreed > one.audited for one in counts):
            raise ValueError("more audits disagreed than there were")


class AuditCounts:
    """Audit counts of one version, by cache and for all its answers.

    `target` is the share of answers that must agree with the base model. Counts of all answers are
    kept by exit layer and halved together, so that each weighs by its share of the answers.
    """

    def __init__(self, target: float) -> None:
        self._target = target
        self.layers: dict[int, Audited] = {}
        self._whole: dict[int | None, Audited] = {}

    @property
    def whole(self) -> Audited:
        """All answers together, except those of caches that were switched off."""
        parts = self._whole.values()
        return Audited(sum(part.audited for part in parts), sum(part.disagreed for part in parts))

    def add(self, layer: int | None, *, agreed: bool) -> bool:
        """Count an answer by its exit layer; return whether to switch off that cache."""
        if self.whole.audited >= MOST_AUDITED:
            for part in self._whole.values():
                part.halve()
        self._whole.setdefault(layer, Audited()).add(agreed=agreed)
        if layer is None:
            return False
        one, whole = self.layers.setdefault(layer, Audited()), self.whole
        one.add(agreed=agreed)
        return cache_breaches((one.disagreed, one.audited), (whole.disagreed, whole.audited), self._target)

    def switched_off(self, layer: int) -> None:
        self._whole.pop(layer, None)

    def save(self, folder: Path, built: str, version: int) -> None:
        whole = {layer: one for layer, one in self._whole.items() if layer is not None}
        ran = self._whole.get(None, Audited())
        saved = SavedAudits(built=built, version=version, layers=self.layers, whole=whole, ran=ran)
        write_atomically(folder / AUDITS, msgspec.json.encode(saved) + b"\n")

    def load(self, folder: Path, built: str, version: int, layers: Collection[int]) -> str:
        """Load saved counts of this version; return why that is impossible, else ""."""
        path = folder / AUDITS
        if not path.is_file():
            return ""
        try:
            saved = msgspec.json.decode(read_bytes(path), type=SavedAudits)
        except InvalidInput as error:
            return str(error)
        except UNREADABLE as error:
            return f"{path} is broken ({why_unreadable(error)})"
        if (saved.built, saved.version) != (built, version):
            return ""  # saved by another version; counts start again, as after any switch
        if not {*saved.layers, *saved.whole} <= set(layers):
            return f"{path} counts caches that there are not"
        self.layers, self._whole = saved.layers, {None: saved.ran} | saved.whole
        return ""


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
