"""What adaptation learns from: recent samples and those of the build, run through the base model in the background."""

from collections.abc import Collection, Mapping, Sequence
from time import perf_counter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gearshift.caches import validation as built_from
from gearshift.caches.adaptation import Adaptation, Counts
from gearshift.caches.chain import Chain
from gearshift.caches.collect import as_probabilities, as_tensor
from gearshift.caches.networks import LearnedCache
from gearshift.caches.retrain import Lesson, features_of, split_predictor
from gearshift.caches.validation import Validation
from gearshift.caches.window import CHECK, FIT, HOLD, JUDGE, Recent, Window, weights_of
from gearshift.errors import require

BATCH = 16
PART_OF = {FIT: built_from.FIT, JUDGE: built_from.JUDGE, CHECK: built_from.CHECK}


class Lessons:
    """A window of recent samples, and samples of the build, with what the base model says of them.

    `networks` by layer say which hidden outputs are looked at, and what of them.
    """

    def __init__(
        self,
        chain: Chain,
        settings: Adaptation,
        validation: Validation | None,
        counts: Counts,
        generator: np.random.Generator,
        *,
        logits: bool,
    ) -> None:
        self._chain, self._settings, self._validation, self._logits = chain, settings, validation, logits
        self._counts, self._generator = counts, generator
        self._seen: list[dict[int, NDArray[np.float32]]] = []
        self.networks: Mapping[int, LearnedCache] = {}
        self.window = Window(
            window_s=settings.window_s, most_samples=settings.most_samples, most_bytes=settings.most_bytes
        )

    # Looking ---------------------------------------------------------------------------------------------------------

    def look(self, *, until_s: float | None = None) -> bool:
        """Run one batch of what has not run yet, recent samples until then first; False where all has."""
        batch = self.window.pending(BATCH, until_s=until_s)
        if batch:
            self._run(batch)
            return True
        if not self.networks or self._validation is None or len(self._seen) * BATCH >= len(self._validation):
            return False
        begin = len(self._seen) * BATCH
        rows = list(self._validation.inputs[begin : begin + BATCH])
        self._seen.append(self._through(rows, layers=self.networks, whole=False)[1])
        return True

    def audit(self, rows: Sequence[NDArray[Any]], caches: Mapping[int, LearnedCache]) -> list[tuple[int, int]]:
        """Of each row the layer after which one of `caches` hits it first, and the class that the base model chooses.

        Both are -1 where there is none: no cache hits it, or the base model answers NaN.
        """
        probabilities, features = self._through(rows, layers=caches)
        assert probabilities is not None
        first = np.full(len(rows), -1)
        for layer in sorted(caches, reverse=True):
            with torch.inference_mode():
                seen = torch.from_numpy(features[layer]).to(self._chain.device)
                hits = split_predictor(caches[layer])[1](seen)[1].cpu().numpy()
            first[hits] = layer
        best = np.where(np.isfinite(probabilities).all(axis=1), probabilities.argmax(axis=1), -1)
        return list(zip(first.tolist(), best.tolist(), strict=True))

    def _run(self, batch: Sequence[Recent]) -> None:
        """Find what the base model says of samples, where that is not known, and what their hidden outputs are."""
        known = batch[0].probabilities is not None
        probabilities, features = self._through([s.row for s in batch], layers=self.networks, whole=not known)
        self._counts.reused += known * len(batch)
        for i, sample in enumerate(batch):
            base = sample.probabilities if probabilities is None else probabilities[i]
            of_row = {layer: array[i].copy() for layer, array in features.items()}
            assert base is not None
            if all(np.isfinite(array).all() for array in (base, *of_row.values())):
                self.window.learnt(sample, base, of_row)
            else:
                self.window.drop(sample)
                self._counts.unusable += 1

    def _through(
        self, rows: Sequence[NDArray[Any]], *, layers: Collection[int], whole: bool = True
    ) -> tuple[NDArray[np.float32] | None, dict[int, NDArray[np.float32]]]:
        """Base probabilities (n, classes), if `whole`, and features by layer; else it ends at the last of `layers`."""
        features: dict[int, NDArray[np.float32]] = {}
        probabilities: NDArray[np.float32] | None = None
        began = perf_counter()
        with torch.inference_mode():
            given = as_tensor(np.stack(rows)).to(self._chain.device)
            for layer, hidden in enumerate(self._chain.hidden(given)):
                if layer in layers:
                    features[layer] = features_of(self.networks[layer], hidden)
                if not whole and layer == max(layers):
                    break
            else:
                probabilities = as_probabilities(hidden, logits=self._logits).cpu().numpy()
        if whole:
            self._counts.base_runs += len(rows)
        else:
            self._counts.partial_runs += len(rows)
        self._counts.base_run_s += perf_counter() - began
        return probabilities, features

    # Lessons ---------------------------------------------------------------------------------------------------------

    def parts(self, now_s: float) -> tuple[Lesson, Lesson, Lesson]:
        """Samples for predictors, for selectors and for the choice of caches.

        Raises `InvalidInput` where too few have run yet.
        """
        there = all(self.window.ready(role) for role in (FIT, JUDGE, CHECK, HOLD)) and bool(self._seen)
        require(there, "too few samples have run yet", where="adaptation", remedy="sample more, or wait longer")
        return self._part(FIT, now_s), self._part(JUDGE, now_s), self._part(CHECK, now_s)

    def held_back(self, now_s: float) -> tuple[Lesson, NDArray[np.float64]]:
        """Recent samples that nothing was learnt from, and how much each counts."""
        held = self.window.ready(HOLD)
        return _lesson_of(held), weights_of(held, now_s, self._settings.half_life_s)

    def built(self) -> Lesson:
        """All samples of the build that neither predictors nor selectors learn from; some of them chose the caches."""
        assert self._validation is not None
        return self._built(np.flatnonzero(self._validation.part == built_from.CHECK))

    @property
    def trained(self) -> int:
        """How many recent samples predictors learn from."""
        return len(self.window.ready(FIT))

    def _part(self, role: int, now_s: float) -> Lesson:
        """Recent samples for that purpose, recent ones more often, mixed with samples of the build.

        Predictors see as many of them, again and again, as it takes; for judging each counts once at most, beside all
        of the build's: few samples show no agreement, and then no cache would be chosen.
        """
        assert self._validation is not None
        recent, own = self.window.ready(role), np.flatnonzero(self._validation.part == PART_OF[role])
        weights = weights_of(recent, now_s, self._settings.half_life_s)
        if role == FIT:
            per_recent = (1 - self._settings.recent_share) / self._settings.recent_share
            picks = self._generator.choice(len(recent), max(1, round(len(own) / per_recent)), p=weights / weights.sum())
        else:
            picks = np.flatnonzero(self._generator.random(len(recent)) < weights)
        built = self._built(own)
        return _joined(_lesson_of([recent[i] for i in picks]), built) if len(picks) else built

    def _built(self, rows: NDArray[np.int64]) -> Lesson:
        assert self._validation is not None
        features = {layer: np.concatenate([part[layer] for part in self._seen])[rows] for layer in self._seen[0]}
        return Lesson(features, self._validation.probabilities[rows], self._validation.labels[rows])


def _lesson_of(samples: Sequence[Recent]) -> Lesson:
    probabilities = np.stack([sample.probabilities for sample in samples if sample.probabilities is not None])
    features = {layer: np.stack([sample.features[layer] for sample in samples]) for layer in samples[0].features}
    return Lesson(features, probabilities, probabilities.argmax(axis=1))


def _joined(one: Lesson, other: Lesson) -> Lesson:
    return Lesson(
        {layer: np.concatenate([one.features[layer], other.features[layer]]) for layer in one.features},
        np.concatenate([one.probabilities, other.probabilities]),
        np.concatenate([one.labels, other.labels]),
    )
