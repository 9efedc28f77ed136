"""Retraining: predictors and selectors trained further on recent samples, chosen anew, and compared with those in use.

Gati section 5.3.  Predictors learn from features: what their layers without weights make of a hidden output.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gearshift.caches.choosing import at_ends, careful_choice
from gearshift.caches.manifest import Manifest, Variant
from gearshift.caches.networks import LearnedCache
from gearshift.caches.problem import ROUNDING, Problem
from gearshift.caches.train import Material, Trained, Training, fit_cache
from gearshift.result import lower_confidence_bound

LEVELS = (0.9, 0.95, 0.98, 0.995)
LEAST_FASTER = 0.01
STRICTER = (1.0, 0.5, 0.25, 0.0)
"""Of the disagreement allowed, for choices one after the other until one is found good."""
LEAST_OF_CLASS = 10
"""Samples of a class from which on it is looked at by itself."""


@dataclass(frozen=True, slots=True, eq=False)
class Lesson:
    """Samples of one purpose: features by layer (n, ...), base probabilities (n, classes), labels (n,)."""

    features: Mapping[int, NDArray[np.float32]]
    probabilities: NDArray[np.float32]
    labels: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, slots=True, eq=False)
class Retrained:
    """A version that may be: its networks by layer, spare ones too, and its variants, chosen ones and spare ones."""

    networks: dict[int, LearnedCache]
    variants: tuple[Variant, ...]

    @property
    def in_use(self) -> dict[int, LearnedCache]:
        """The caches that it looks up."""
        return {entry.layer: self.networks[entry.layer] for entry in self.variants if entry.chosen}


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What caches come to on samples, weighted: agreement with the base model, seconds, and where samples leave."""

    agreement: float
    latency_s: float
    exits: tuple[float, ...]


def split_predictor(network: LearnedCache) -> tuple[nn.Sequential, LearnedCache]:
    """The layers before the first one with weights, and the rest as a cache for their outputs; weights are shared."""
    predictor = network.predictor
    if not isinstance(predictor, nn.Sequential):
        predictor = nn.Sequential(predictor)
    parts = list(predictor)
    first = next((i for i, part in enumerate(parts) if any(True for _ in part.parameters())), 0)
    with torch.device("meta"):
        head = LearnedCache(nn.Identity(), network.classes)
    head.predictor, head.selector = nn.Sequential(*parts[first:]), network.selector
    head.scale, head.threshold = torch.ones((), device=network.scale.device), network.threshold
    return nn.Sequential(*parts[:first]), head.eval()


def features_of(network: LearnedCache, hidden: Tensor) -> NDArray[np.float32]:
    """What the weights of a predictor see of hidden outputs (n, ...)."""
    features: Tensor = split_predictor(network)[0](hidden.float() / network.scale)
    made: NDArray[np.float32] = features.cpu().numpy()
    return made


def retrain(
    networks: Mapping[int, LearnedCache],
    manifest: Manifest,
    parts: tuple[Lesson, Lesson, Lesson],
    how: Training,
    seed: int,
    device: torch.device,
) -> "Offers":
    """All `networks`, trained further on the first of `parts`, their selectors on the second, to choose by the third.

    Raises `TrainingDiverged`; `networks` stay as they are.
    """
    lengths = np.cumsum([0, *map(len, parts)])
    fit, judge, check = (np.arange(a, b) for a, b in pairwise(lengths))
    probabilities = np.concatenate([part.probabilities for part in parts])
    labels = np.concatenate([part.labels for part in parts])
    copies: dict[int, LearnedCache] = {}
    trained: dict[int, Trained] = {}
    for layer, network in sorted(networks.items()):
        copies[layer] = deepcopy(network).requires_grad_(True)
        features = np.concatenate([part.features[layer] for part in parts])
        material = Material(features, probabilities, labels, fit, judge, check)
        trained[layer] = fit_cache(split_predictor(copies[layer])[1], material, how, seed + layer, device)
        copies[layer].requires_grad_(False).eval()
    return Offers(copies, trained, manifest, seed)


def judge(
    networks: Mapping[int, LearnedCache], lesson: Lesson, weights: NDArray[np.float64], manifest: Manifest
) -> Judged:
    """What looking up `networks`, one after the other, comes to on samples that count as `weights` (n,) say."""
    left, right, latency_s = _looked_up(networks, lesson, manifest)
    share = weights / weights.sum()
    exits = np.bincount(left, weights=share, minlength=len(manifest.segment_s))
    return Judged(
        agreement=float(share @ right), latency_s=float(share @ latency_s), exits=tuple(np.round(exits, 6).tolist())
    )


def shown(judged: Judged, counted: float, confidence: float | None) -> float | None:
    """The agreement that held-back samples, which count like so many, show with this confidence; None without one.

    All of `STRICTER` may be tried on the same samples, so each has its part of the error.
    """
    if confidence is None:
        return None
    return lower_confidence_bound(judged.agreement, int(counted), 1 - (1 - confidence) / len(STRICTER))


def worse(before: Judged, after: Judged, built: Manifest, counted: float) -> str:
    """Why a version is not to be swapped in, by held-back samples that count like so many; nothing where it is better.

    It must keep the target and be faster.  Where the one in use misses the target by more than luck explains (one
    deviation), it need only agree more.  Where the caches were `built` with a confidence, it must show the target with
    it in any case.
    """
    target, bound = built.target, shown(after, counted, built.confidence)
    if bound is not None and bound < target:
        agrees = f"agrees on {after.agreement:.2%} of recent samples, which shows {bound:.2%}"
        return f"{agrees} with confidence {built.confidence:g}, needs {target:.2%}"
    luck = (target * (1 - target) / counted) ** 0.5
    if before.agreement < target - luck and after.agreement > before.agreement:
        return ""
    if after.agreement < target:
        return f"agrees on {after.agreement:.2%} of recent samples, needs {target:.2%}"
    if after.latency_s > (1 - LEAST_FASTER) * before.latency_s:
        return f"takes {1e3 * after.latency_s:.3f} ms on recent samples, now {1e3 * before.latency_s:.3f} ms"
    return ""


def weak_class(networks: Mapping[int, LearnedCache], lesson: Lesson, manifest: Manifest) -> tuple[int, float] | None:
    """A class of which samples agree less than the target, by more than two deviations of luck, and how much they do.

    Where another class dominates tomorrow, the mean over all classes promises nothing.
    """
    _, right, _ = _looked_up(networks, lesson, manifest)
    best, target = lesson.probabilities.argmax(axis=1), manifest.target
    for label, n in zip(*np.unique(best, return_counts=True), strict=True):
        agreement = float(right[best == label].mean())
        if n >= LEAST_OF_CLASS and agreement < target - 2 * (target * (1 - target) / n) ** 0.5:
            return int(label), agreement
    return None


def _looked_up(
    networks: Mapping[int, LearnedCache], lesson: Lesson, manifest: Manifest
) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.float64]]:
    """Of each sample (n,) the segment after which it leaves, whether it agrees, and its seconds."""
    n, best = len(lesson), lesson.probabilities.argmax(axis=1)
    last = len(manifest.segment_s) - 1
    left = np.full(n, last)
    right, going = np.ones(n, dtype=np.bool_), np.ones(n, dtype=np.bool_)
    lookup_s = {entry.layer: entry.lookup_s for entry in manifest.trained}
    looked_s = np.zeros(n)
    with torch.no_grad():
        for layer, network in sorted(networks.items()):
            features = torch.from_numpy(lesson.features[layer]).to(network.scale.device)
            said, hits = split_predictor(network)[1](features)
            hit = going & hits.cpu().numpy()
            looked_s[going] += 0.0 if manifest.lookups == "beside" else lookup_s[layer]
            left[hit] = leaves = leaves_after(layer, lookup_s[layer], manifest)
            going &= ~hit
            if leaves < last:  # else the model's own answer is there first
                right[hit] = said.argmax(dim=1).cpu().numpy()[hit] == best[hit]
    return left, right, np.cumsum(manifest.segment_s)[left] + looked_s


def leaves_after(layer: int, lookup_s: float, manifest: Manifest) -> int:
    """The segment after which what a cache hits leaves: with lookups beside the model, the one in which it is found."""
    if manifest.lookups == "inline":
        return layer
    ends = np.cumsum(manifest.segment_s)
    return min(int(np.searchsorted(ends * (1 + ROUNDING), ends[layer] + lookup_s)), len(ends) - 1)


class Offers:
    """Retrained `networks` at every level of strictness, and what each comes to on the samples that choose."""

    def __init__(
        self, networks: dict[int, LearnedCache], trained: Mapping[int, Trained], manifest: Manifest, seed: int
    ) -> None:
        self._networks, self._manifest, self._seed = networks, manifest, seed
        self._thresholds = {layer: float(network.threshold) for layer, network in networks.items()}
        self._told = {entry.layer: entry for entry in manifest.trained}
        self._offers: list[tuple[Variant, float]] = []
        self._hits: list[NDArray[np.bool_]] = []
        self._right: list[NDArray[np.bool_]] = []
        for layer, one in trained.items():
            for level, threshold, hit in zip(one.levels, one.thresholds, one.hits, strict=True):
                accuracy = float(one.right[hit].mean()) if hit.any() else 1.0
                offer = msgspec.structs.replace(
                    self._told[layer],
                    level=level,
                    hit_rate=float(hit.mean()),
                    accuracy=accuracy,
                    chosen=True,
                    spare=False,
                    why="",
                )
                self._offers.append((offer, threshold))
                self._hits.append(hit)
                self._right.append(one.right)

    def chosen(self, target: float) -> Retrained:
        """Composition among all of them for this agreement; its networks are those of the latest choice."""
        variants = {
            layer: msgspec.structs.replace(entry, chosen=False, spare=True, why="")
            for layer, entry in self._told.items()
        }
        for layer, threshold in self._thresholds.items():
            self._networks[layer].threshold.fill_(threshold)
        offers = [offer for offer, _ in self._offers]
        for v in _choice(offers, self._hits, self._right, self._manifest, target, self._seed):
            offer, threshold = self._offers[v]
            variants[offer.layer] = offer
            self._networks[offer.layer].threshold.fill_(threshold)
        return Retrained(self._networks, tuple(variants.values()))


def _choice(
    offers: Sequence[Variant],
    hits: Sequence[NDArray[np.bool_]],
    right: Sequence[NDArray[np.bool_]],
    manifest: Manifest,
    target: float,
    seed: int,
) -> tuple[int, ...]:
    if not offers:
        return ()
    problem = Problem(
        layer_s=np.array(manifest.segment_s),
        layer=np.array([offer.layer for offer in offers], dtype=np.int64),
        hit_rate=np.array([offer.hit_rate for offer in offers]),
        accuracy=np.array([offer.accuracy for offer in offers]),
        lookup_s=np.array([offer.lookup_s for offer in offers]),
        memory_bytes=np.array([offer.memory_bytes for offer in offers], dtype=np.float64),
        target=target,
        memory_budget_bytes=np.inf if manifest.memory_budget_bytes is None else manifest.memory_budget_bytes,
        delay_budget_s=(np.inf if manifest.most_delay is None else manifest.most_delay) * manifest.base_s,
        hits=np.array(hits, dtype=np.bool_),
        right=np.array(right, dtype=np.bool_),
    )
    return careful_choice(at_ends(problem) if manifest.lookups == "beside" else problem, seed)
