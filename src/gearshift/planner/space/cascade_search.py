"""All cascades of a profile's models at once: accuracy and work, from histograms over certainty.

A stage's certainties are cut at thresholds t_0 < t_1 < ...; a sample's bin counts the thresholds at
or below its certainty. At threshold j it is forwarded when `bin <= j`, so sums over bins give every
threshold together:

    answered by stage k at (j_1 .. j_k)
        = samples with bin_1 <= j_1, .., bin_{k-1} <= j_{k-1}, bin_k > j_k

This takes one pass over the samples per chain of models, for any number of thresholds.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from gearshift.cascade import Cascade
from gearshift.hardware import Device
from gearshift.planner.space.hosts import device_seconds, hosts_of, ways
from gearshift.planner.space.pareto import front_indices
from gearshift.planner.space.request import PlanRequest
from gearshift.profiles.profile import PART_A, PredictionRecords, Profile

Floats = NDArray[np.float64]
Chain = tuple[str, ...]

QUANTILES = 64
LONGEST_CHAIN = 3
ACCURACY_DIGITS, WORK_DIGITS = 12, 15
"""Sums in another order differ after these digits; cascades that are equal must not look better
than each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateCascade:
    """A cascade, its accuracy, work in seconds per request, and share that reaches each stage."""

    cascade: Cascade
    accuracy: float
    work_s: float
    reach: tuple[float, ...]

    @property
    def models(self) -> tuple[str, ...]:
        return self.cascade.models


@dataclass(frozen=True, slots=True, kw_only=True)
class CascadeSpace:
    """All candidates (n,): `accuracy`, `work_s`.

    Chain i's candidates are `starts[i]` to `starts[i + 1]`, row-major.
    """

    chains: tuple[tuple[str, ...], ...]
    thresholds: dict[str, Floats]
    starts: NDArray[np.int64]
    accuracy: Floats
    work_s: Floats

    def __len__(self) -> int:
        return len(self.accuracy)

    def cascade(self, candidate: int) -> Cascade:
        chain = int(np.searchsorted(self.starts, candidate, side="right")) - 1
        models = self.chains[chain]
        shape = tuple(len(self.thresholds[m]) for m in models[:-1])
        cells = np.unravel_index(int(candidate - self.starts[chain]), shape) if shape else ()
        cut = tuple(float(self.thresholds[m][j]) for m, j in zip(models, cells, strict=False))
        return Cascade(models=models, thresholds=cut)

    def front(self) -> NDArray[np.int64]:
        return front_indices(self.work_s, self.accuracy)


def work_per_request_s(profile: Profile, device: Device) -> dict[str, float]:
    """Device-seconds per request of each model, at the best batch size and degree profiled.

    Models that were not measured on devices like `device` are taken on their best ones.
    """
    least_s: dict[str, float] = {}
    for curves in (ways(profile, kind=device.kind, cores=device.cores), profile.whole_curves):
        known = set(least_s)
        for curve in curves:
            if curve.model not in known:
                least_s[curve.model] = min(device_seconds(curve), least_s.get(curve.model, math.inf))
    return {model: least_s[model] for model in profile.models}


def most_accurate_model(profile: Profile) -> str:
    records = profile.predictions
    return records.models[int(records.quality[:, records.indices(PART_A)].mean(axis=1).argmax())]


def any_chain(chain: Chain) -> bool:
    return True


def search_cascades(
    records: PredictionRecords,
    work_s: dict[str, float],
    *,
    part: int = PART_A,
    quantiles: int = QUANTILES,
    longest_chain: int = LONGEST_CHAIN,
    allowed: Callable[[Chain], bool] = any_chain,
) -> CascadeSpace:
    """Every chain of up to `longest_chain` models by rising work, with quantiles as thresholds.

    Accuracy is the mean quality on the samples of `part`. Only `allowed` chains are searched.
    """
    columns = records.indices(part)
    by_work = sorted(work_s, key=lambda m: (work_s[m], m))
    rows = dict(zip(by_work, records.rows(tuple(by_work)), strict=True))
    quality = {m: records.quality[rows[m], columns] for m in by_work}
    thresholds, bins = {}, {}
    for model in by_work:
        certainty = records.certainty[rows[model], columns]
        thresholds[model] = _cut(certainty, quantiles)
        bins[model] = np.searchsorted(thresholds[model], certainty, side="right")
    chains = tuple(chain for chain in _chains(by_work, longest_chain) if allowed(chain))
    accuracies, works = [], []
    for chain in chains:
        accuracy, work = _evaluate_chain(
            [bins[m] for m in chain[:-1]],
            [len(thresholds[m]) for m in chain[:-1]],
            [quality[m] for m in chain],
            [work_s[m] for m in chain],
        )
        accuracies.append(accuracy.ravel())
        works.append(work.ravel())
    sizes = [len(accuracy) for accuracy in accuracies]
    return CascadeSpace(
        chains=chains,
        thresholds=thresholds,
        starts=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        accuracy=np.concatenate(accuracies).round(ACCURACY_DIGITS),
        work_s=np.concatenate(works).round(WORK_DIGITS),
    )


def evaluate_cascade(
    cascade: Cascade, records: PredictionRecords, work_s: dict[str, float], *, part: int
) -> CandidateCascade:
    columns = records.indices(part)
    rows = records.rows(cascade.models)
    arrived = np.ones(len(columns), dtype=bool)
    quality = np.zeros(len(columns))
    reach = []
    for stage in range(len(cascade.models)):
        reach.append(float(arrived.mean()))
        quality[arrived] = records.quality[rows[stage], columns][arrived]
        if stage < len(cascade.thresholds):
            arrived = arrived & (records.certainty[rows[stage], columns] < cascade.thresholds[stage])
    return CandidateCascade(
        cascade=cascade,
        accuracy=float(quality.mean()),
        work_s=float(sum(r * work_s[m] for r, m in zip(reach, cascade.models, strict=True))),
        reach=tuple(reach),
    )


def pareto_cascades(
    profile: Profile, work_s: dict[str, float], *, most: int, allowed: Callable[[Chain], bool] = any_chain
) -> list[CandidateCascade]:
    """At most `most` cascades of the front on part A, by rising work.

    The cheapest and the most accurate are among them.
    """
    space = search_cascades(profile.predictions, work_s, allowed=allowed)
    front = space.front()
    if len(front) > most:
        accuracy = space.accuracy[front]
        wanted = np.linspace(accuracy[0], accuracy[-1], most)
        front = front[np.unique(np.searchsorted(accuracy, wanted, side="left").clip(0, len(front) - 1))]
    return [evaluate_cascade(space.cascade(int(i)), profile.predictions, work_s, part=PART_A) for i in front]


def _chains(models: list[str], longest: int) -> Iterator[tuple[str, ...]]:
    for length in range(1, min(longest, len(models)) + 1):
        yield from combinations(models, length)


def _cut(certainty: Floats, quantiles: int) -> Floats:
    """Quantiles up to the highest certainty, without the lowest, at which all answer."""
    inner = np.quantile(certainty, np.linspace(0, 1, quantiles)[1:], method="lower")
    return np.unique(inner)


def _evaluate_chain(
    bins: list[NDArray[np.int64]], cuts: list[int], quality: list[Floats], work_s: list[float]
) -> tuple[Floats, Floats]:
    """Accuracy and work (cuts_1, .., cuts_k) of a chain of k + 1 models at all thresholds."""
    samples = len(quality[0])
    accuracy = np.zeros((1,) * len(cuts))
    work = np.full((1,) * len(cuts), work_s[0])
    for stage in range(len(quality)):
        last = stage == len(cuts)
        used = bins[: stage + (not last)]
        shape = [n + 1 for n in cuts[: len(used)]]
        cell = np.ravel_multi_index(used, shape) if used else np.zeros(samples, dtype=np.int64)
        gained = _histogram(cell, shape, quality[stage])
        for axis in range(min(stage, len(cuts))):
            gained = _forwarded(gained, axis)
        if not last:
            total = gained.sum(axis=stage, keepdims=True)
            gained = total - _forwarded(gained, stage)
            reached = _histogram(cell, shape, np.ones(samples))
            for axis in range(stage + 1):
                reached = _forwarded(reached, axis)
            work = work + _pad(reached, len(cuts)) / samples * work_s[stage + 1]
        accuracy = accuracy + _pad(gained, len(cuts)) / samples
    return accuracy, np.broadcast_to(work, accuracy.shape)


def _histogram(cell: NDArray[np.int64], shape: list[int], weights: Floats) -> Floats:
    sums: Floats = np.bincount(cell, weights=weights, minlength=int(np.prod(shape))).astype(np.float64)
    return sums.reshape(shape)


def _forwarded(histogram: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
    """Sums over bins at or below each threshold; the bin above all is never forwarded."""
    summed: Floats = np.asarray(np.cumsum(histogram, axis=axis), dtype=np.float64)
    kept: Floats = np.take(summed, range(histogram.shape[axis] - 1), axis=axis)
    return kept


def _pad(array: NDArray[np.float64], dimensions: int) -> NDArray[np.float64]:
    return array.reshape(array.shape + (1,) * (dimensions - array.ndim))


def single_models(request: PlanRequest) -> list[CandidateCascade]:
    work_s = _work_of_fitting_models(request)
    by_work = sorted(work_s, key=lambda m: (work_s[m], m))
    records = request.profile.predictions
    return [evaluate_cascade(Cascade(models=(m,)), records, work_s, part=PART_A) for m in by_work]


def cascade_front(request: PlanRequest) -> list[CandidateCascade]:
    return pareto_cascades(request.profile, _work_of_fitting_models(request), most=request.most_candidates)


def _work_of_fitting_models(request: PlanRequest) -> dict[str, float]:
    profile, hardware = request.profile, request.hardware
    fitting = {model for host in hosts_of(profile, hardware) for model in host.seconds}
    work_s = work_per_request_s(profile, hardware.devices[0])
    return {model: seconds for model, seconds in work_s.items() if model in fitting}
