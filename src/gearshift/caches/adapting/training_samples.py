"""The samples that adaptation learns from: a window of recent ones, and those of the build."""

import zlib
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gearshift.caches.adapting.class_mix import Mix, labels_of, weights_to
from gearshift.caches.adapting.retrain import Counted, LabelledFeatures, Predictions, predictions_of
from gearshift.caches.adapting.settings import Adaptation, Counts
from gearshift.caches.network.chain import Chain
from gearshift.caches.network.collect import as_probabilities, as_tensor
from gearshift.caches.network.learned_cache import LearnedCache, features_of, split_predictor
from gearshift.caches.network.train import counted_like
from gearshift.caches.store import validation as built_from
from gearshift.caches.store.validation import Validation, read_arrays
from gearshift.errors import InvalidInput, require
from gearshift.support.files import written_atomically

FIT, JUDGE, CHECK, HOLD = range(4)
"""Purposes of a sample: predictors, selectors, the choice of caches, and the comparison with
the version in use."""
ROLE_SHARES = (0.5, 0.2, 0.15, 0.15)
WINDOW = "window.npz"


@dataclass(slots=True, eq=False)
class Recent:
    """A sampled input (one row, without the row dimension), its arrival time and its purpose.

    `probabilities` (classes,) are the base model's, None until known. `features` by layer are what
    predictors learn from, empty until the sample has run. `gone` means that it has left the
    window.
    """

    row: NDArray[Any]
    at_s: float
    role: int
    probabilities: NDArray[np.float32] | None = None
    features: dict[int, NDArray[np.float32]] = field(default_factory=dict)
    gone: bool = False

    @property
    def size_bytes(self) -> int:
        return self.row.nbytes + sum(array.nbytes for array in self.features.values())


class Window:
    """Samples of the latest `window_s`, bounded in number and bytes; the oldest leave first.

    `retrained_s` is the time of the last retraining, or of the first possible one; it is saved.
    """

    def __init__(self, *, window_s: float, most_samples: int, most_bytes: int) -> None:
        self._window_s, self._most_samples, self._most_bytes = window_s, most_samples, most_bytes
        self._samples: deque[Recent] = deque()
        self._unnamed: deque[Recent] = deque()
        self.size_bytes = self.waiting = 0
        self.retrained_s = 0.0

    def __len__(self) -> int:
        return len(self._samples)

    def __iter__(self) -> Iterator[Recent]:
        return iter(self._samples)

    def add(self, sample: Recent, now_s: float) -> None:
        self._samples.append(sample)
        self._unnamed.append(sample)
        self.size_bytes += sample.size_bytes
        self.waiting += not sample.features
        self.trim(now_s)

    def learnt(self, sample: Recent, probabilities: NDArray[np.float32], features: dict[int, Any]) -> None:
        before = sample.size_bytes
        self.waiting -= not sample.features
        sample.probabilities, sample.features = probabilities, features
        self.size_bytes += sample.size_bytes - before

    def drop(self, sample: Recent) -> None:
        self._samples.remove(sample)
        self._gone(sample)

    def trim(self, now_s: float) -> None:
        while self._samples and (
            now_s - self._samples[0].at_s > self._window_s
            or len(self._samples) > self._most_samples
            or self.size_bytes > self._most_bytes
        ):
            self._gone(self._samples.popleft())

    def named(self) -> Iterator[tuple[int, float]]:
        """Yield each sample's base model answer and arrival time, once and in order.

        Stop at the first unknown answer: answers that are known early are a biased sample.
        """
        while self._unnamed and (self._unnamed[0].gone or self._unnamed[0].probabilities is not None):
            sample = self._unnamed.popleft()
            if sample.probabilities is not None and not sample.gone:
                yield int(sample.probabilities.argmax()), sample.at_s

    def _gone(self, sample: Recent) -> None:
        sample.gone = True
        self.size_bytes -= sample.size_bytes
        self.waiting -= not sample.features

    def pending(self, most: int, *, until_s: float | None = None) -> list[Recent]:
        """Return the oldest that have not run, all with known probabilities or all without."""
        if not self.waiting:
            return []
        came = self._samples if until_s is None else [sample for sample in self._samples if sample.at_s <= until_s]
        waiting = [sample for sample in came if not sample.features]
        known = bool(waiting) and waiting[0].probabilities is not None
        return [sample for sample in waiting if (sample.probabilities is not None) == known][:most]

    def ready(self, role: int) -> list[Recent]:
        return [sample for sample in self._samples if sample.features and sample.role == role]

    def save(self, folder: Path) -> None:
        path = folder / WINDOW
        for left_by_a_kill in folder.glob(f".{WINDOW}.*"):
            left_by_a_kill.unlink(missing_ok=True)
        if not self._samples:
            path.unlink(missing_ok=True)
            return
        known = np.array([sample.probabilities is not None for sample in self._samples])
        scores = [sample.probabilities for sample in self._samples if sample.probabilities is not None]
        with written_atomically(path, private=True) as file:
            np.savez(
                file,
                inputs=np.stack([sample.row for sample in self._samples]),
                at_s=np.array([sample.at_s for sample in self._samples]),
                role=np.array([sample.role for sample in self._samples], dtype=np.uint8),
                retrained_s=np.array(self.retrained_s),
                known=known,
                probabilities=np.stack(scores) if scores else np.zeros((0, 1), dtype=np.float32),
            )

    def load(self, folder: Path, now_s: float, row_shape: tuple[int, ...] | None, classes: int) -> str:
        """Load what was saved, without unpickling; return why that is impossible, else ""."""
        path = folder / WINDOW
        if not path.is_file():
            return ""
        try:
            rows, at_s, role, known, scores, retrained_s = read_arrays(
                path, "inputs", "at_s", "role", "known", "probabilities", "retrained_s"
            )
        except InvalidInput as error:
            return error.what
        n = len(rows)
        matching = at_s.shape == role.shape == known.shape == (n,) and len(scores) == np.count_nonzero(known)
        matching &= retrained_s.shape == () and bool(np.isfinite(retrained_s))
        matching &= rows.shape[1:] == row_shape and (len(scores) == 0 or scores.shape[1:] == (classes,))
        if not matching or (n and role.max() > HOLD):
            return f"{path} is of another model"
        place = np.cumsum(known) - 1
        for i in range(n):
            sample = Recent(rows[i], float(at_s[i]), int(role[i]), scores[place[i]] if known[i] else None)
            self.add(sample, now_s)
        self.retrained_s = min(float(retrained_s), now_s)
        return ""


def role_of(row: NDArray[Any], seed: int) -> int:
    """Choose by a hash of the content, so a repeated training sample never judges."""
    place = zlib.crc32(np.ascontiguousarray(row).tobytes(), seed & 0xFFFFFFFF) / 2**32
    return int(np.searchsorted(np.cumsum(ROLE_SHARES)[:-1], place, side="right"))


def weights_of(samples: list[Recent], now_s: float, half_life_s: float) -> NDArray[np.float64]:
    """Weight samples (n,) by age: 1 now, half of that `half_life_s` ago."""
    ages = np.array([now_s - sample.at_s for sample in samples], dtype=np.float64)
    return np.asarray(np.exp2(-np.maximum(ages, 0.0) / half_life_s))


BATCH = 16
PART_OF = {FIT: built_from.FIT, JUDGE: built_from.JUDGE, CHECK: built_from.CHECK, HOLD: built_from.CHECK}


class TrainingSamples:
    """A window of recent samples and samples of the build, run through the base model.

    `networks` by layer decide which hidden outputs are kept, and which features of them.
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
        self._kept: dict[tuple[int, ...], Predictions] = {}
        self.networks: Mapping[int, LearnedCache] = {}
        self.window = Window(
            window_s=settings.window_s, most_samples=settings.most_samples, most_bytes=settings.most_bytes
        )

    def use(self, networks: Mapping[int, LearnedCache], *, same_weights: bool) -> None:
        """Use other `networks`; with `same_weights` their stored predictions stay valid."""
        self.networks = networks
        if not same_weights:
            self._kept = {}

    # Looking ---------------------------------------------------------------------------------------------------------

    def look(self, *, until_s: float | None = None) -> bool:
        """Run one batch, recent samples until `until_s` first; return False if all have run."""
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
        """Return per row the layer of the first of `caches` that hits, and the base model's class.

        Both are -1 if no cache hits, or the base model answers NaN.
        """
        if len({row.shape for row in rows}) > 1:
            return [self.audit([row], caches)[0] for row in rows]
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

    # Samples to learn from and to judge by ----------------------------------------------------------------------------

    def fit(self, now_s: float) -> LabelledFeatures:
        """Return samples for predictors.

        Raises `InvalidInput` while those of the build have not run.
        """
        recent, built = self.window.ready(FIT), self._built(FIT)
        if not recent:
            return built
        weights = weights_of(recent, now_s, self._settings.half_life_s)
        per_recent = (1 - self._settings.recent_share) / self._settings.recent_share
        many = max(1, round(len(built) / per_recent))
        picks = self._generator.choice(len(recent), many, p=weights / weights.sum())
        return _joined(_labelled([recent[i] for i in picks]), built)

    def selectors(self, now_s: float) -> LabelledFeatures:
        recent, built = self.window.ready(JUDGE), self._built(JUDGE)
        return _joined(_labelled(recent), built) if recent else built

    def counted(
        self, networks: Mapping[int, LearnedCache], roles: tuple[int, ...], now_s: float, mix: Mix, built: Mix
    ) -> Counted:
        """Return predictions of `networks` for samples of these `roles`, weighted to a class mix.

        Samples of the build are weighted by class and count together like `counted_like` samples.
        Recent samples since the mix began are added; alone they would be too few to show
        agreement, and no cache would be chosen. A class without samples adds unknown ones, as many
        as it is more frequent than in the mix `built`.
        """
        assert self._validation is not None
        recent = [one for role in roles for one in self.window.ready(role) if one.at_s >= mix.since_s]
        rows, answers = self._rows(*roles), self._validation.probabilities.argmax(axis=1)
        labels = labels_of(self._validation.labels, answers, len(mix.labels))[rows]
        weights = weights_to(mix.labels, labels, np.ones(len(labels)))
        like, each = counted_like(weights), weights_of(recent, now_s, self._settings.half_life_s)
        missing = like * np.maximum(mix.labels - built.labels, 0.0)
        missing[np.unique(labels)] = 0.0
        predictions = self._predictions(networks, roles)
        if recent:
            now = predictions_of(networks, _labelled(recent))
            missing -= np.bincount(now.best, weights=each, minlength=len(missing))
            predictions = now.joined(predictions)
        return Counted(predictions, np.append(each, like * weights), float(np.maximum(missing, 0.0).sum()))

    def held_since(self, since_s: float) -> int:
        return sum(one.at_s >= since_s for one in self.window.ready(HOLD))

    def held_back(self, networks: Mapping[int, LearnedCache], now_s: float, since_s: float) -> Counted | None:
        """Return predictions for samples that nothing was learnt from; None if there are none."""
        held = [one for one in self.window.ready(HOLD) if one.at_s >= since_s]
        if not held:
            return None
        return Counted(predictions_of(networks, _labelled(held)), weights_of(held, now_s, self._settings.half_life_s))

    def judging_classes(self, networks: Mapping[int, LearnedCache]) -> Predictions:
        """Return predictions for samples of the build that no network was fitted to."""
        return self._predictions(networks, (CHECK,))

    @property
    def trained(self) -> int:
        return len(self.window.ready(FIT))

    def _predictions(self, networks: Mapping[int, LearnedCache], roles: tuple[int, ...]) -> Predictions:
        if networks is not self.networks:
            return predictions_of(networks, self._built(*roles))
        if roles not in self._kept:
            self._kept[roles] = predictions_of(networks, self._built(*roles))
        return self._kept[roles]

    def _rows(self, *roles: int) -> NDArray[np.int64]:
        assert self._validation is not None
        return np.flatnonzero(np.isin(self._validation.part, [PART_OF[role] for role in roles]))

    def _built(self, *roles: int) -> LabelledFeatures:
        assert self._validation is not None
        ran = BATCH * len(self._seen) >= len(self._validation)
        require(ran, "samples of the build have not run yet", where="adaptation", remedy="wait longer")
        rows = self._rows(*roles)
        features = {layer: np.concatenate([part[layer] for part in self._seen])[rows] for layer in self._seen[0]}
        return LabelledFeatures(features, self._validation.probabilities[rows], self._validation.labels[rows])


def _labelled(samples: Sequence[Recent]) -> LabelledFeatures:
    probabilities = np.stack([sample.probabilities for sample in samples if sample.probabilities is not None])
    features = {layer: np.stack([sample.features[layer] for sample in samples]) for layer in samples[0].features}
    return LabelledFeatures(features, probabilities, probabilities.argmax(axis=1))


def _joined(one: LabelledFeatures, other: LabelledFeatures) -> LabelledFeatures:
    return LabelledFeatures(
        {layer: np.concatenate([one.features[layer], other.features[layer]]) for layer in one.features},
        np.concatenate([one.probabilities, other.probabilities]),
        np.concatenate([one.labels, other.labels]),
    )
