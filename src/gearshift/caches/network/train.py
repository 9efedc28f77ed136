"""Train a learned cache: its predictor by distillation, its selector on the predictor's output."""

from copy import deepcopy
from dataclasses import dataclass, replace

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from gearshift.caches.network.learned_cache import LearnedCache, Predictor, features_of, split_predictor
from gearshift.errors import GearshiftError

SELECTOR_STEPS = 150
SELECTOR_RATE = 0.02
LEAST_HITS = 10
MOST_POOLED_BYTES = 1 << 28
"""Bound on pooled hidden outputs in memory, per training process."""


class TrainingDiverged(GearshiftError):
    """Loss or weights of a network are no longer finite."""

    def __init__(self, learning_rate: float) -> None:
        super().__init__(learning_rate)  # so that it can be pickled

    def __str__(self) -> str:
        return f"training diverged; give a learning rate below {self.args[0]:g}"


class Training(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How learned caches are trained.

    `distillation` is the weight of the base model's distribution at `temperature` in a predictor's
    loss; labels have the rest. A false hit costs a selector `false_hit_weight` times as much as a
    missed one. `levels` are the accuracies of hits at which each selector is offered to
    composition.
    """

    epochs: int = 20
    patience: int = 4
    batch_size: int = 64
    learning_rate: float = 2e-3
    distillation: float = 0.7
    temperature: float = 2.0
    false_hit_weight: float = 4.0
    levels: tuple[float, ...] = (0.93, 0.96, 0.98, 0.99, 0.995, 0.998)


@dataclass(frozen=True, slots=True, eq=False)
class Material:
    """Training data: hidden outputs (n, ...), base probabilities (n, classes), labels (n,).

    `fit` are the rows for the predictor, `judge` those for the selector: a predictor's output on
    its own training rows does not show when to trust it. `check` are the remaining rows.
    """

    hidden: NDArray[np.float32]
    probabilities: NDArray[np.float32]
    labels: NDArray[np.int64]
    fit: NDArray[np.int64]
    judge: NDArray[np.int64]
    check: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """A cache with thresholds by level of strictness, and the rows of `check` that each hits.

    `right` (check rows,) says where the predictor chooses the same class as the base model.
    """

    cache: LearnedCache
    levels: tuple[float, ...]
    thresholds: tuple[float, ...]
    hits: NDArray[np.bool_]
    right: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Explored:
    """A trained variant after a layer; `shape` is that of the hidden output of one row."""

    layer: int
    variant: str
    shape: tuple[int, ...]
    trained: Trained


def train_cache(cache: LearnedCache, material: Material, how: Training, seed: int, device: torch.device) -> Trained:
    sample = material.hidden[material.fit[:512]]
    cache.scale.fill_(max(float(np.sqrt(np.mean(np.square(sample, dtype=np.float64)))), 1e-6))
    pooled, features = _pooled(cache.to(device), material)
    fit_cache(pooled, features, how, seed, device)
    return replace(_at_levels(pooled, features, how.levels, device), cache=cache.eval())


def _pooled(cache: LearnedCache, material: Material) -> tuple[LearnedCache, Material]:
    """Pool hidden outputs once for all epochs, if the predictor pools and memory allows."""
    if not (isinstance(cache.predictor, Predictor) and isinstance(cache.predictor[0], nn.AdaptiveAvgPool2d)):
        return cache, material
    one = features_of(cache, _tensor(material.hidden[:1], cache.scale.device))
    if one.nbytes * len(material.hidden) > MOST_POOLED_BYTES:
        return cache, material
    parts = _batches(np.arange(len(material.hidden)))
    features = [features_of(cache, _tensor(material.hidden[rows], cache.scale.device)) for rows in parts]
    return split_predictor(cache)[1], replace(material, hidden=np.concatenate(features))


def fit_cache(cache: LearnedCache, material: Material, how: Training, seed: int, device: torch.device) -> None:
    """Train predictor and selector from their weights; raises `TrainingDiverged` for NaN."""
    generator = torch.Generator().manual_seed(seed)
    cache.to(device)
    _fit_predictor(cache, material, how, generator, device)
    cache.eval()
    judged = _distributions(cache, material, material.judge, device)
    fit_selector(cache, judged, judged.argmax(dim=1) == _best(material, material.judge, device), how)
    if not all(bool(torch.isfinite(tensor).all()) for tensor in cache.parameters()):
        raise TrainingDiverged(how.learning_rate)


def _at_levels(cache: LearnedCache, material: Material, levels: tuple[float, ...], device: torch.device) -> Trained:
    judged, checked = (_distributions(cache, material, rows, device) for rows in (material.judge, material.check))
    agrees, right = (
        (said.argmax(dim=1) == _best(material, rows, device)).cpu().numpy()
        for said, rows in ((judged, material.judge), (checked, material.check))
    )
    with torch.no_grad():
        found = thresholds_of(cache.judged(judged).cpu().numpy(), agrees, levels)
        sure = cache.judged(checked).cpu().numpy()
    thresholds = tuple(threshold for _, threshold in found)
    hits = np.array([sure >= threshold for threshold in thresholds], dtype=np.bool_).reshape(-1, len(right))
    return Trained(cache, tuple(level for level, _ in found), thresholds, hits, right)


def _fit_predictor(
    cache: LearnedCache, material: Material, how: Training, generator: torch.Generator, device: torch.device
) -> None:
    """Adam on `fit`; keeps the weights of the epoch with the least loss on `judge`."""
    optimizer = torch.optim.Adam(cache.predictor.parameters(), lr=how.learning_rate)
    best, kept, since = np.inf, deepcopy(cache.predictor.state_dict()), 0
    for _ in range(how.epochs):
        cache.train()
        order = material.fit[torch.randperm(len(material.fit), generator=generator).numpy()]
        for begin in range(0, len(order), how.batch_size):
            rows = np.sort(order[begin : begin + how.batch_size])  # reads the file in order
            optimizer.zero_grad()
            _loss(cache, material, rows, how, device).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        cache.eval()
        with torch.no_grad():
            batches = _batches(material.judge)
            loss = sum(float(_loss(cache, material, rows, how, device)) * len(rows) for rows in batches)
        since += 1
        if loss < best:
            best, kept, since = loss, deepcopy(cache.predictor.state_dict()), 0
        if since >= how.patience:
            break
    if not np.isfinite(best):
        raise TrainingDiverged(how.learning_rate)
    cache.predictor.load_state_dict(kept)


def _loss(
    cache: LearnedCache, material: Material, rows: NDArray[np.int64], how: Training, device: torch.device
) -> Tensor:
    logits = cache.predicted(_tensor(material.hidden[rows], device))
    soft = torch.log(_tensor(material.probabilities[rows], device).clamp_min(1e-9)) / how.temperature
    distilled = functional.kl_div(
        functional.log_softmax(logits / how.temperature, dim=1),
        functional.log_softmax(soft, dim=1),
        reduction="batchmean",
        log_target=True,
    )
    labelled = functional.cross_entropy(logits, _tensor(material.labels[rows], device))
    return how.distillation * how.temperature**2 * distilled + (1 - how.distillation) * labelled


def fit_selector(cache: LearnedCache, distributions: Tensor, agrees: Tensor, how: Training) -> None:
    optimizer = torch.optim.Adam(cache.selector.parameters(), lr=SELECTOR_RATE)
    weights = torch.where(agrees, 1.0, how.false_hit_weight)
    for _ in range(SELECTOR_STEPS):
        optimizer.zero_grad()
        loss = functional.binary_cross_entropy_with_logits(cache.judged(distributions), agrees.float(), weights)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def thresholds_of(
    sure: NDArray[np.float32], agrees: NDArray[np.bool_], levels: tuple[float, ...]
) -> list[tuple[float, float]]:
    """Return per level the threshold with most hits of which at least that share agrees.

    `sure` (n,) is the selector's output per sample, `agrees` (n,) says where its predictor is
    right. Levels without a threshold are left out; of levels with the same threshold only the
    highest stays.
    """
    found = threshold_by_level(sure, agrees, levels, np.ones(len(sure)))
    return [(level, threshold) for threshold, level in {threshold: level for level, threshold in found.items()}.items()]


def threshold_by_level(
    sure: NDArray[np.float32], agrees: NDArray[np.bool_], levels: tuple[float, ...], weights: NDArray[np.float64]
) -> dict[float, float]:
    """The same for every level that has a threshold, on samples with `weights` (n,)."""
    order = np.argsort(-sure, kind="stable")
    each = weights[order] * (counted_like(weights) / weights.sum())
    hits = np.cumsum(each)
    share = (np.cumsum(each * agrees[order]) + 0.5) / (hits + 1)  # half a mistake more: few hits prove little
    found: dict[float, float] = {}
    for level in levels:
        enough = np.flatnonzero((share >= level) & (hits >= LEAST_HITS))
        if len(enough):
            found[level] = float(sure[order[enough[-1]]])
    return found


def counted_like(weights: NDArray[np.float64]) -> float:
    """Effective number of samples with these weights (Kish)."""
    return float(weights.sum() ** 2 / np.square(weights).sum())


def _distributions(cache: LearnedCache, material: Material, rows: NDArray[np.int64], device: torch.device) -> Tensor:
    with torch.no_grad():
        parts = [
            torch.softmax(cache.predicted(_tensor(material.hidden[part], device)), dim=1) for part in _batches(rows)
        ]
    return torch.cat(parts)


def _best(material: Material, rows: NDArray[np.int64], device: torch.device) -> Tensor:
    return _tensor(material.probabilities[rows], device).argmax(dim=1)


def _batches(rows: NDArray[np.int64], size: int = 512) -> list[NDArray[np.int64]]:
    return [rows[begin : begin + size] for begin in range(0, len(rows), size)]


def _tensor(array: NDArray[np.generic], device: torch.device) -> Tensor:
    return torch.from_numpy(np.array(array)).to(device)


def parameters_of(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
