"""Time segments and lookups of learned caches on this machine, one row at a time."""

import logging
import math
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gearshift.caches.network.chain import Chain, finish
from gearshift.caches.network.collect import as_tensor
from gearshift.caches.network.learned_cache import LearnedCache
from gearshift.caches.network.train import Explored
from gearshift.caches.running.cached_model import CachedModel
from gearshift.caches.running.concurrent_lookups import ConcurrentLookups
from gearshift.caches.running.lookup_process import start_lookups
from gearshift.caches.running.row_lookup import lookup_of
from gearshift.caches.store.manifest import Lookups

WARM_UP = 5
REPEATS = 40
TIMED_ROWS = 200

Part = Callable[[Tensor], Tensor]
log = logging.getLogger(__name__)


def timed(
    chain: Chain, explored: Sequence[Explored], rows: NDArray[Any], lookups: Lookups
) -> tuple[Lookups, NDArray[np.float64], list[float]]:
    """Time segments on `rows` (n, ...) and lookups; fall back to inline, with a warning."""
    beside = start_lookups(chain.device, 1, [one.trained.cache for one in explored]) if lookups == "beside" else None
    if beside is None:
        return "inline", *measure_in_line(chain, explored, rows)
    segment_s, lookup_s = measure_beside(chain, explored, rows, beside)
    beside.close()
    if beside.why_ended:
        log.warning("learned caches are to be looked up in line, as their process %s", beside.why_ended)
        return timed(chain, explored, rows, "inline")
    return "beside", segment_s, lookup_s


def measure_in_line(
    chain: Chain, explored: Sequence[Explored], rows: NDArray[Any]
) -> tuple[NDArray[np.float64], list[float]]:
    """Return median seconds of each segment (segments,) and of each lookup, for one row at a time.

    Segment times are scaled to the time of the whole model run as one, which is faster. Lookups
    are timed between segments that run `rows` (n, ...): when the processor's caches are full of
    the model, a lookup takes up to five times as long. Both are timed in turn, so that a slow
    phase of the machine affects both.
    """
    looks = [lookup_of(one.trained.cache.to(chain.device)) for one in explored]
    times = [list[float]() for _ in explored]
    of_layer: dict[int, list[int]] = {}
    for i, one in enumerate(explored):
        of_layer.setdefault(one.layer, []).append(i)
    segments_s, whole_s = np.zeros((WARM_UP + REPEATS, len(chain))), np.zeros(WARM_UP + REPEATS)
    with torch.inference_mode():
        for k in range(WARM_UP + REPEATS):
            segments_s[k] = _segments_s(chain, rows, k)
            given = _row(chain, rows, k)
            began = perf_counter()
            chain.body.forward(given)
            finish(chain.device)
            whole_s[k] = perf_counter() - began
            for turn in range(max(map(len, of_layer.values()), default=0)):
                hidden = _row(chain, rows, k)
                for layer, segment in enumerate(chain.segments):
                    hidden = segment.forward(hidden)
                    for i in of_layer.get(layer, [])[turn : turn + 1]:
                        finish(chain.device)
                        began = perf_counter()
                        looks[i].row(hidden)
                        times[i].append(perf_counter() - began)
    medians = np.asarray(np.median(segments_s[WARM_UP:], axis=0))
    share = min(1.0, float(np.median(whole_s[WARM_UP:])) / float(medians.sum()))
    return medians * share, [float(np.median(each[WARM_UP:])) for each in times]


def measure_beside(
    chain: Chain, explored: Sequence[Explored], rows: NDArray[Any], beside: ConcurrentLookups
) -> tuple[NDArray[np.float64], list[float]]:
    with torch.inference_mode():
        segments_s = [_segments_s(chain, rows, k) for k in range(WARM_UP + REPEATS)]
    lookup_s = [_beside_s(one.trained.cache.to(chain.device), one.shape, chain, beside) for one in explored]
    return np.asarray(np.median(segments_s[WARM_UP:], axis=0)), lookup_s


def in_turn(model: CachedModel, rows: NDArray[Any], *others: Part, most_s: float = math.inf) -> NDArray[np.float64]:
    """Return seconds (3 and `others`, n) of `rows` (n, ...), run one by one.

    The first three are the module, the module with folded norms, and the model with caches.

    All run in turn, row by row; no row except the first is begun after `most_s`.
    """
    device = model.chain.device
    ways = [scores_by(model.chain.module, device), scores_by(model.chain.body, device), model.predict]
    ways += [scores_by(other, device) for other in others]
    for run in ways:
        for row in rows[:WARM_UP]:
            run(row[None])
    times = list[list[float]]()
    ends = perf_counter() + most_s
    for row in rows:
        took = []
        for run in ways:
            began = perf_counter()
            run(row[None])
            took.append(perf_counter() - began)
        times.append(took)
        if perf_counter() > ends:
            break
    return np.array(times).T


def scores_by(part: Part, device: torch.device) -> Callable[[NDArray[Any]], NDArray[Any]]:
    def run(rows: NDArray[Any]) -> NDArray[Any]:
        with torch.inference_mode():
            answer: NDArray[Any] = part(as_tensor(rows).to(device)).float().cpu().numpy()
        return answer

    return run


def _row(chain: Chain, rows: NDArray[Any], k: int) -> Tensor:
    return torch.from_numpy(np.array(rows[k % len(rows)][None])).to(chain.device)


def _segments_s(chain: Chain, rows: NDArray[Any], k: int) -> NDArray[np.float64]:
    hidden, seconds = _row(chain, rows, k), np.zeros(len(chain))
    for layer, segment in enumerate(chain.segments):
        began = perf_counter()
        hidden = segment.forward(hidden)
        finish(chain.device)
        seconds[layer] = perf_counter() - began
    return seconds


def _beside_s(cache: LearnedCache, shape: tuple[int, ...], chain: Chain, beside: ConcurrentLookups) -> float:
    hidden = torch.randn((1, *shape), generator=torch.Generator().manual_seed(0)).to(chain.device)
    beside.use({0: cache})
    times = []
    with torch.inference_mode():
        for _ in range(WARM_UP + REPEATS):
            lookups = beside.begin()
            if lookups is None:  # it has ended; the caller checks that
                return math.inf
            began = perf_counter()
            lookups.ask(0, hidden, np.arange(1))
            lookups.found(wait=True)
            times.append(perf_counter() - began)
            lookups.end()
    return float(np.median(times[WARM_UP:]))
