"""Time learned caches on this machine, and evaluate them on samples that neither built nor chose them."""

import logging
import math
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gearshift.caches.building.exploration import CHECKED_ROWS, class_numbers
from gearshift.caches.network.chain import Chain, check_chain, finish
from gearshift.caches.network.collect import as_tensor
from gearshift.caches.network.learned_cache import LearnedCache
from gearshift.caches.network.train import Explored
from gearshift.caches.running.cached_model import EXIT_SEGMENT, SCORES, CachedModel
from gearshift.caches.running.concurrent_lookups import ConcurrentLookups
from gearshift.caches.running.lookup_process import start_lookups
from gearshift.caches.running.row_lookup import lookup_of
from gearshift.caches.store.manifest import Lookups
from gearshift.caches.store.validation import read_validation
from gearshift.errors import InvalidInput, require
from gearshift.result import LatencySummary, latency_summary, wilson_interval

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


BATCH = 64


class Evaluation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A cached model compared with its base model.

    `agreement` is the share of samples answered alike, with its 95 % Wilson interval; accuracies
    need labels. `exits` is the share of samples that leave after each block. `built_from` is how
    many samples are among those the caches were built from; 0 also if those are not known.
    Latencies are of `timed` single rows, run in turn: the base model, the same with folded batch
    norms (which caches include), and with caches. `gain` and `gain_over_folded` are the means of
    the first two divided by the last.
    """

    samples: int
    agreement: float
    agreement_interval: tuple[float, float]
    accuracy: float | None
    base_accuracy: float | None
    exits: dict[str, float]
    timed: int
    base_latency_s: LatencySummary
    folded_latency_s: LatencySummary
    latency_s: LatencySummary
    gain: float
    gain_over_folded: float
    built_from: int = 0

    def shortfall(self, target: float) -> str:
        """Return a sentence if agreement is below `target`, with whether that may be luck."""
        if self.agreement >= target:
            return ""
        low, high = self.agreement_interval
        luck = "may be luck" if high >= target else "is more than luck"
        return (
            f"agreement is below the {target:.2%} asked for, which {luck}: {self.agreement:.2%}, on new samples "
            f"{low:.2%} to {high:.2%}, by {self.samples} samples"
        )


def evaluate(
    model: CachedModel, inputs: NDArray[Any], labels: NDArray[Any] | None = None, *, timed_rows: int = TIMED_ROWS
) -> Evaluation:
    """Run `inputs` (n, ...) through both models in batches, and `timed_rows` of them one by one."""
    inputs, device = np.asarray(inputs), model.chain.device
    require(inputs.shape[:1] != (0,), "there are no samples", where="learned caches", remedy="give some")
    check_chain(model.chain, as_tensor(inputs if inputs.ndim == 0 else inputs[:CHECKED_ROWS]).to(device))
    base = scores_by(model.chain.module, device)
    parts = [inputs[begin : begin + BATCH] for begin in range(0, len(inputs), BATCH)]
    theirs = np.concatenate([base(part) for part in parts])
    answers = [model.predict(part) for part in parts]
    ours = np.concatenate([answer[SCORES] for answer in answers]).argmax(axis=1)
    exits = np.bincount(np.concatenate([answer[EXIT_SEGMENT] for answer in answers]), minlength=len(model.chain))
    best = theirs.argmax(axis=1)
    classes = theirs.shape[1]
    known = None if labels is None else class_numbers(model.chain.module, np.asarray(labels), len(inputs), classes)
    agreement = float((ours == best).mean())
    base_s, folded_s, cached_s = in_turn(model, inputs[:timed_rows])
    return Evaluation(
        samples=len(inputs),
        agreement=agreement,
        agreement_interval=wilson_interval(agreement, len(inputs)),
        accuracy=None if known is None else float((ours == known).mean()),
        base_accuracy=None if known is None else float((best == known).mean()),
        exits=dict(zip(model.chain.names, (exits / len(inputs)).tolist(), strict=True)),
        timed=len(base_s),
        base_latency_s=latency_summary(base_s),
        folded_latency_s=latency_summary(folded_s),
        latency_s=latency_summary(cached_s),
        gain=float(base_s.mean() / cached_s.mean()),
        gain_over_folded=float(folded_s.mean() / cached_s.mean()),
        built_from=_built_from(model, inputs),
    )


def _built_from(model: CachedModel, inputs: NDArray[Any]) -> int:
    try:
        known = np.zeros(0) if model.origin is None else read_validation(model.origin.folder).inputs
    except InvalidInput:
        return 0
    if known.shape[1:] != inputs.shape[1:]:
        return 0
    seen = {hash(row.tobytes()) for row in known}
    return sum(hash(row.astype(known.dtype).tobytes()) in seen for row in inputs)
