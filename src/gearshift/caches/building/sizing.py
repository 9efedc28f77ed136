"""Choose variants to try after each block, by the time of model and lookups on this machine.

The paper's sizes are meant for a GPU, where lookups of any size take about as long. On a
processor, reading the weights of a large predictor may take as long as the model.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter

import numpy as np
import torch
from torch import Tensor

from gearshift.caches.network.chain import Chain, finish
from gearshift.caches.network.learned_cache import default_variants, learned_cache, smaller
from gearshift.caches.network.train import parameters_of
from gearshift.caches.running.row_lookup import lookup_of

REPEATS = 5
LARGER, LITTLE = 0.03, 0.01
"""Shares of the model's time for lookups of the larger and the smaller variant of a kind."""
FASTEST_BYTES_PER_S = {"cpu": 1e11, "cuda": 5e12}
"""Upper bound of how fast weights are read in a lookup."""
MOST_OF_SAVED = 0.5
"""Share of the time saved by a hit beyond which a lookup cannot pay."""


@dataclass(frozen=True, slots=True)
class Worth:
    """A variant after a layer, and the mean seconds per sample that it may save: a first guess."""

    layer: int
    variant: str
    saves_s: float


def worth_of(chain: Chain, row: Tensor, variants: Sequence[str] | None, classes: int) -> list[Worth]:
    """Return `variants`, or those whose sizes fit, after every block but the last, best first.

    The share of hits is guessed as the share of the model before a block, so blocks in the middle
    come first. One variant of each block comes before the second of any.
    """
    segment_s, hidden = _segments(chain, row)
    whole_s, passed_s = sum(segment_s), np.cumsum(segment_s).tolist()
    lookups = _Lookups(chain, row, classes)
    found = list[Worth]()
    for layer, output in enumerate(hidden[:-1]):
        left_s = whole_s - passed_s[layer]
        worth = passed_s[layer] / whole_s * left_s
        if variants is not None:
            found += [Worth(layer, variant, worth) for variant in variants]
            continue
        fitting = _fitting(lookups, output, parameters_of(chain.module), whole_s)
        paying = {variant: took for variant, took in fitting.items() if took <= MOST_OF_SAVED * left_s}
        found += [Worth(layer, variant, worth - took) for variant, took in paying.items()]
    if not found:  # a model of microseconds: try the smallest, composition decides
        found = [
            Worth(layer, min(fitting, key=fitting.__getitem__), 0.0)
            for layer, output in enumerate(hidden[:-1])
            for fitting in [_fitting(lookups, output, parameters_of(chain.module), whole_s)]
        ]
    return in_turns(found)


def in_turns(found: Sequence[Worth]) -> list[Worth]:
    """Take the best of each layer, then the second; what may cost time comes last."""
    turns: dict[tuple[int, str], int] = {}
    of_layer: dict[int, int] = {}
    for one in sorted(found, key=lambda one: -one.saves_s):
        turns[one.layer, one.variant] = of_layer[one.layer] = of_layer.get(one.layer, -1) + 1
    return sorted(found, key=lambda one: (one.saves_s <= 0, turns[one.layer, one.variant], -one.saves_s))


def _fitting(lookups: "_Lookups", hidden: Tensor, parameters: int, whole_s: float) -> dict[str, float]:
    seen: dict[str, int] = {}
    found = {}
    for variant in default_variants(tuple(hidden.shape[1:]), parameters):
        kind = variant.split("(")[0]
        seen[kind] = seen.get(kind, 0) + 1
        most_s = (LARGER if seen[kind] == 1 else LITTLE) * whole_s
        fitted, took = variant, lookups.took_s(variant, hidden, most_s)
        while took > most_s and (less := smaller(fitted)) != fitted:
            fitted, took = less, lookups.took_s(less, hidden, most_s)
        found[fitted] = took
    return found


class _Lookups:
    def __init__(self, chain: Chain, row: Tensor, classes: int) -> None:
        self._chain, self._row, self._classes = chain, row, classes
        self._known: dict[tuple[str, torch.Size], float] = {}

    def took_s(self, variant: str, hidden: Tensor, most_s: float) -> float:
        """Seconds of one lookup; infinite, without timing, if its weights are too large."""
        key = variant, hidden.shape
        if key not in self._known:
            self._known[key] = self._measured_s(variant, hidden, most_s)
        return self._known[key]

    def _measured_s(self, variant: str, hidden: Tensor, most_s: float) -> float:
        with torch.device("meta"):
            cache = learned_cache(variant, tuple(hidden.shape[1:]), self._classes)
        if cache.memory_bytes / FASTEST_BYTES_PER_S[hidden.device.type] > most_s and smaller(variant) != variant:
            return math.inf
        cache = cache.to_empty(device=hidden.device).requires_grad_(False).eval()
        for tensor in cache.state_dict().values():
            tensor.fill_(0.01)
        cache.threshold.fill_(math.inf)
        look, times = lookup_of(cache), list[float]()
        with torch.inference_mode():
            for _ in range(REPEATS):
                self._chain.body.forward(self._row)  # fills the processor's caches with the model
                finish(hidden.device)
                began = perf_counter()
                look.row(hidden)
                finish(hidden.device)
                times.append(perf_counter() - began)
        return median(times)


def _segments(chain: Chain, row: Tensor) -> tuple[list[float], list[Tensor]]:
    times = list[list[float]]()
    hidden = list[Tensor]()
    with torch.inference_mode():
        for _ in range(REPEATS + 1):
            given, hidden, took = row, [], []
            for segment in chain.segments:
                began = perf_counter()
                given = segment.forward(given)
                finish(given.device)
                took.append(perf_counter() - began)
                hidden.append(given.clone())
            times.append(took)
    return [median(each) for each in zip(*times[1:], strict=True)], hidden
