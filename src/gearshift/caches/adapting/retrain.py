"""Retraining: train predictors and selectors further on recent samples, choose caches, compare.

Gati section 5.3. Predictors learn from features, which are the output of their layers without
weights. Caches are set and chosen for the current class mix (`class_mix`), whatever mix they were
trained on.
"""

from collections.abc import Collection, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import takewhile

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray

from gearshift.caches.building.choosing import choices_by_price, problem_for
from gearshift.caches.building.problem import ROUNDING, Problem, answered_wrongly
from gearshift.caches.network.learned_cache import LearnedCache, split_predictor
from gearshift.caches.network.train import Material, Trained, Training, counted_like, fit_cache, threshold_by_level
from gearshift.caches.store.manifest import Manifest, Variant
from gearshift.result import lower_confidence_bound

LEVELS = (0.85, 0.9, 0.95, 0.98, 0.99, 0.995)
LEAST_FASTER = 0.01
PARTS = 10
AT_ONCE = 512
NINE_TO_ONE = 1.282
"""Standard deviations of a normal distribution: a one-sided bound that holds with 90 %."""
LEAST_OF_CLASS = 10
"""Fewest samples of a class that is judged by itself."""
STRICTER = (1.0, 0.5, 0.25, 0.0)
"""Shares of the allowed disagreement, tried in order until one is good; 0 means no cache."""


@dataclass(frozen=True, slots=True, eq=False)
class LabelledFeatures:
    """Samples: features by layer (n, ...), base probabilities (n, classes), labels (n,)."""

    features: Mapping[int, NDArray[np.float32]]
    probabilities: NDArray[np.float32]
    labels: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def classes(self) -> NDArray[np.int64]:
        return np.asarray(self.probabilities.argmax(axis=1))


@dataclass(frozen=True, slots=True, eq=False)
class Predictions:
    """Logits of predictors by layer (n, classes) without a prior, and the base model's class."""

    logits: Mapping[int, NDArray[np.float32]]
    best: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.best)

    def joined(self, other: "Predictions") -> "Predictions":
        logits = {
            layer: np.concatenate([predictions, other.logits[layer]]) for layer, predictions in self.logits.items()
        }
        return Predictions(logits, np.concatenate([self.best, other.best]))


@dataclass(frozen=True, slots=True, eq=False)
class Counted:
    """Samples with weights (n,): how much each counts, in current samples.

    `unknown` is the weight of classes of which there is no sample.
    """

    predictions: Predictions
    weights: NDArray[np.float64]
    unknown: float = 0.0

    @property
    def like(self) -> float:
        """Number of equally weighted samples that tell as much."""
        return counted_like(self.weights)

    def share_wrong(self, wrong: NDArray[np.bool_]) -> float:
        """Upper bound (90 %) of the share wrong.

        Half of `unknown` and half a mistake count as wrong.
        """
        n = float(self.weights.sum()) + self.unknown + 1
        share = float(self.weights @ wrong + (self.unknown + 1) / 2) / n
        return share + NINE_TO_ONE * float(np.sqrt(share * (1 - share) / n))


@dataclass(frozen=True, slots=True, eq=False)
class Retrained:
    """A candidate version: networks by layer and variants, both chosen and spare ones."""

    networks: dict[int, LearnedCache]
    variants: tuple[Variant, ...]

    @property
    def in_use(self) -> dict[int, LearnedCache]:
        return {entry.layer: self.networks[entry.layer] for entry in self.variants if entry.chosen}


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Weighted results on samples: agreement with the base model, seconds, share of exits."""

    agreement: float
    latency_s: float
    exits: tuple[float, ...]


def with_prior(networks: Mapping[int, LearnedCache], prior: NDArray[np.float64]) -> dict[int, LearnedCache]:
    """Copy `networks`; `prior` (classes,) is the log of a mix divided by the build's."""
    copies = {layer: deepcopy(network) for layer, network in sorted(networks.items())}
    for copy in copies.values():
        copy.prior.copy_(torch.from_numpy(prior))
    return copies


def retrain(
    networks: Mapping[int, LearnedCache],
    fit: LabelledFeatures,
    judge: LabelledFeatures,
    how: Training,
    seed: int,
    device: torch.device,
) -> dict[int, LearnedCache]:
    """Copy all `networks` and train them further on `fit`, their selectors on `judge`.

    They must have the prior of the training samples, so that they do not learn class frequencies.
    Raises `TrainingDiverged`; `networks` stay unchanged.
    """
    copies = {layer: deepcopy(network).requires_grad_(True) for layer, network in sorted(networks.items())}
    for layer, copy in copies.items():
        material = Material(
            np.concatenate([fit.features[layer], judge.features[layer]]),
            np.concatenate([fit.probabilities, judge.probabilities]),
            np.concatenate([fit.labels, judge.labels]),
            *(np.arange(len(fit)), np.arange(len(fit), len(fit) + len(judge)), np.arange(0)),
        )
        fit_cache(split_predictor(copy)[1], material, how, seed + layer, device)
        copy.requires_grad_(False).eval()
    return copies


def predictions_of(networks: Mapping[int, LearnedCache], labelled: LabelledFeatures) -> Predictions:
    logits: dict[int, NDArray[np.float32]] = {}
    for layer, network in networks.items():
        predictor = split_predictor(network)[1].predictor
        with torch.inference_mode():
            parts = torch.split(torch.from_numpy(labelled.features[layer]), AT_ONCE)
            logits[layer] = torch.cat([predictor(part.to(network.scale.device)) for part in parts]).cpu().numpy()
    return Predictions(logits, labelled.classes)


def offers_of(
    networks: dict[int, LearnedCache], samples: Counted, manifest: Manifest, seed: int, off: Collection[int] = ()
) -> "Offers":
    """Offer `networks`, except layers `off`, at every level.

    Hits are cross-validated in `PARTS`.
    """
    predictions, trained = samples.predictions, {}
    parts = np.random.default_rng([seed, 4]).permutation(len(predictions)) % PARTS
    for layer, network in networks.items():
        if layer not in off:
            best, sure = _answers(network, predictions.logits[layer])
            trained[layer] = _set_anew(network, sure, best == predictions.best, samples.weights, parts)
    return Offers(networks, trained, samples, manifest)


def _answers(network: LearnedCache, logits: NDArray[np.float32]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    with torch.no_grad():
        probabilities, sure = network.told(torch.from_numpy(logits).to(network.scale.device) + network.prior)
    return probabilities.argmax(dim=1).cpu().numpy(), sure.cpu().numpy()


def _set_anew(
    network: LearnedCache,
    sure: NDArray[np.float32],
    right: NDArray[np.bool_],
    weights: NDArray[np.float64],
    parts: NDArray[np.int64],
) -> Trained:
    found = threshold_by_level(sure, right, LEVELS, weights)
    hits = {level: np.zeros(len(sure), dtype=np.bool_) for level in found}
    for part in range(PARTS):
        others = parts != part
        without = threshold_by_level(sure[others], right[others], tuple(found), weights[others])
        for level, threshold in without.items():
            hits[level] |= ~others & (sure >= threshold)
    return Trained(network, tuple(found), tuple(found.values()), np.array(list(hits.values()), dtype=np.bool_), right)


def judge(networks: Mapping[int, LearnedCache], samples: Counted, manifest: Manifest) -> Judged:
    """Look up `networks` in order; half of the hits of unknown classes count as wrong."""
    left, right, latency_s = _looked_up(networks, samples.predictions, manifest)
    known = float(samples.weights.sum())
    share = samples.weights / known
    exits = np.bincount(left, weights=share, minlength=len(manifest.segment_s))
    wrong = known * float(share @ ~right) + samples.unknown * float(1 - exits[-1]) / 2
    return Judged(
        agreement=1 - wrong / (known + samples.unknown),
        latency_s=float(share @ latency_s),
        exits=tuple(np.round(exits, 6).tolist()),
    )


def shown(judged: Judged, counted: float, confidence: float | None) -> float | None:
    """Lower bound of agreement with this `confidence`, or None without one.

    `counted` is the effective number of samples. All of `STRICTER` may be tried on the same
    samples, so the error is divided by their number (Bonferroni).
    """
    if confidence is None:
        return None
    return lower_confidence_bound(judged.agreement, int(counted), 1 - (1 - confidence) / len(STRICTER))


def worse(before: Judged, after: Judged, built: Manifest, counted: float) -> str:
    """Return why a version must not be swapped in, or "" if it is better, by held-back samples.

    It must keep the target and be faster. If the version in use misses the target by more than one
    deviation, higher agreement is enough. If the caches were `built` with a confidence, the new
    version must show the target with it in any case. `counted` is the effective number of samples.
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


def contradicted(before: Judged, after: Judged, target: float, counted: float) -> str:
    """Return why recent samples reject a version that other samples have shown to be better, or "".

    They accept it if it agrees as often as the target less one deviation, or as the version
    before.
    """
    luck = (target * (1 - target) / counted) ** 0.5
    if after.agreement >= min(target - luck, before.agreement):
        return ""
    return f"agrees on {after.agreement:.2%} of recent samples, needs {target:.2%}"


def weak_class(
    networks: Mapping[int, LearnedCache], predictions: Predictions, manifest: Manifest
) -> tuple[int, float] | None:
    """Return a class that agrees less than the target by over two deviations, and its agreement.

    Without following the class mix, that class may dominate tomorrow.
    """
    _, right, _ = _looked_up(networks, predictions, manifest)
    for label, n in zip(*np.unique(predictions.best, return_counts=True), strict=True):
        agreement, target = float(right[predictions.best == label].mean()), manifest.target
        if n >= LEAST_OF_CLASS and agreement < target - 2 * (target * (1 - target) / n) ** 0.5:
            return int(label), agreement
    return None


def _looked_up(
    networks: Mapping[int, LearnedCache], predictions: Predictions, manifest: Manifest
) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.float64]]:
    n, last = len(predictions), len(manifest.segment_s) - 1
    left = np.full(n, last)
    right, going = np.ones(n, dtype=np.bool_), np.ones(n, dtype=np.bool_)
    lookup_s = {entry.layer: entry.lookup_s for entry in manifest.trained}
    looked_s = np.zeros(n)
    for layer, network in sorted(networks.items()):
        best, sure = _answers(network, predictions.logits[layer])
        hit = going & (sure >= float(network.threshold))
        looked_s[going] += 0.0 if manifest.lookups == "beside" else lookup_s[layer]
        left[hit] = leaves = leaves_after(layer, lookup_s[layer], manifest)
        going &= ~hit
        if leaves < last:  # otherwise the model's own answer arrives first
            right[hit] = (best == predictions.best)[hit]
    return left, right, np.cumsum(manifest.segment_s)[left] + looked_s


def leaves_after(layer: int, lookup_s: float, manifest: Manifest) -> int:
    """Return the exit segment of a hit; a lookup beside the model may end in a later one."""
    if manifest.lookups == "inline":
        return layer
    ends = np.cumsum(manifest.segment_s)
    return min(int(np.searchsorted(ends * (1 + ROUNDING), ends[layer] + lookup_s)), len(ends) - 1)


class Offers:
    """`networks` at every level of strictness, with results on the samples that choose."""

    def __init__(
        self, networks: dict[int, LearnedCache], trained: Mapping[int, Trained], check: Counted, manifest: Manifest
    ) -> None:
        self._networks, self._manifest = networks, manifest
        self._thresholds = {layer: float(network.threshold) for layer, network in networks.items()}
        self._told = {entry.layer: entry for entry in manifest.trained}
        self._offers: list[tuple[Variant, float]] = []
        hits: list[NDArray[np.bool_]] = []
        right: list[NDArray[np.bool_]] = []
        share = check.weights / check.weights.sum()
        for layer, one in trained.items():
            for level, threshold, hit in zip(one.levels, one.thresholds, one.hits, strict=True):
                rate = float(share @ hit)
                offer = msgspec.structs.replace(
                    self._told[layer],
                    level=level,
                    hit_rate=rate,
                    accuracy=float(share @ (hit & one.right)) / rate if rate > 0 else 1.0,
                    chosen=True,
                    spare=False,
                    why="",
                )
                self._offers.append((offer, threshold))
                hits.append(hit)
                right.append(one.right)
        self._choices = list(self._by_price(np.array(hits), np.array(right), check)) if hits else []

    def chosen(self, target: float) -> Retrained:
        """Return the least strict choice that reaches `target`; a later call changes it."""
        variants = {
            layer: msgspec.structs.replace(entry, chosen=False, spare=True, why="")
            for layer, entry in self._told.items()
        }
        for layer, threshold in self._thresholds.items():
            self._networks[layer].threshold.fill_(threshold)
        kept = [chosen for chosen, _ in takewhile(lambda one: one[1] <= 1 - target + ROUNDING, self._choices)]
        for v in kept[-1] if kept else ():
            offer, threshold = self._offers[v]
            variants[offer.layer] = offer
            self._networks[offer.layer].threshold.fill_(threshold)
        return Retrained(self._networks, tuple(variants.values()))

    def _by_price(
        self, hits: NDArray[np.bool_], right: NDArray[np.bool_], check: Counted
    ) -> Iterator[tuple[tuple[int, ...], float]]:
        offers, manifest = [offer for offer, _ in self._offers], self._manifest
        tested = problem_for(
            offers,
            np.array(manifest.segment_s),
            hits,
            right,
            target=manifest.target,
            memory=np.inf if manifest.memory_budget_bytes is None else manifest.memory_budget_bytes,
            most_delay=np.inf if manifest.most_delay is None else manifest.most_delay,
            beside=manifest.lookups == "beside",
        )
        for _, chosen in choices_by_price(_as_often(tested, check.weights)):
            wrong = check.share_wrong(answered_wrongly(tested, chosen))
            if wrong > tested.largest_loss:
                return
            yield chosen, wrong


def _as_often(problem: Problem, weights: NDArray[np.float64]) -> Problem:
    assert problem.hits is not None
    assert problem.right is not None
    ends = np.cumsum(weights)
    rows = np.searchsorted(ends, (np.arange(len(weights)) + 0.5) / len(weights) * ends[-1])
    return replace(problem, hits=problem.hits[:, rows], right=problem.right[:, rows])
