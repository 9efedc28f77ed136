"""Lookups beside the base model: one at a time, on processors of their own, on CUDA in a stream of their own."""

import os
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gearshift.caches.chain import Chain
from gearshift.caches.collect import as_probabilities
from gearshift.caches.networks import LearnedCache

Lookups = Literal["inline", "beside"]
"""Whether a lookup delays the base model, or runs beside it."""
Found = tuple[NDArray[np.float32], NDArray[np.bool_]]
"""Class probabilities (n, classes), and which rows are hits (n,)."""


@dataclass(frozen=True, slots=True)
class Cores:
    """Processors, by number, for the base model and for lookups."""

    base: frozenset[int]
    lookups: frozenset[int]


def divided(wanted: int) -> Cores | None:
    """This process's processors when the last `wanted` of them are for lookups; None where no other would be left."""
    there = sorted(_allowed())
    if len(there) <= wanted:
        return None
    return Cores(frozenset(there[:-wanted]), frozenset(there[-wanted:]))


@cache
def _allowed() -> frozenset[int]:
    """Those that the process had before a model of its own confined the thread that asks."""
    return frozenset(os.sched_getaffinity(0))


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """A lookup for `rows` (n,) of a batch, in ascending order."""

    rows: NDArray[np.int64]
    found: Future[Found]


class LookupThread:
    """A thread that looks into learned caches, in the order in which it is asked."""

    def __init__(self, cores: frozenset[int], device: torch.device) -> None:
        """On CUDA the thread only starts what the device does, and `cores` confine nothing."""
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self._threads = ThreadPoolExecutor(
            1, "lookups", initializer=_confine, initargs=(cores if self._stream is None else frozenset(),)
        )

    def ask(self, learned: LearnedCache, hidden: Tensor, rows: NDArray[np.int64]) -> Asked:
        """Have `hidden` (n, ...) looked up, which nobody may change until it is found."""
        ready = None
        if self._stream is not None:
            ready = torch.cuda.Event()  # type: ignore[no-untyped-call]
            ready.record()
            hidden.record_stream(self._stream)
        return Asked(rows, self._threads.submit(self._look, learned, hidden, ready))

    def _look(self, learned: LearnedCache, hidden: Tensor, ready: torch.cuda.Event | None) -> Found:
        with torch.inference_mode():
            if self._stream is None or ready is None:
                probabilities, hits = learned(hidden)
                return probabilities.numpy(), hits.numpy()
            with torch.cuda.stream(self._stream):
                self._stream.wait_event(ready)
                probabilities, hits = learned(hidden)
                return probabilities.cpu().numpy(), hits.cpu().numpy()


def exits_beside(
    chain: Chain,
    caches: Mapping[int, LearnedCache],
    thread: LookupThread,
    copied: frozenset[int],
    hidden: Tensor,
    *,
    logits: bool,
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32], int]]:
    """Which rows of a batch leave, their class probabilities, and after which segment.

        segment     0       1       2       3            A hit is taken at the next end of a segment; the base model
        lookup          0-----> 1----->                  goes on meanwhile.  What is still looked up at the end of the
        rows leave                  ^0      ^1, all      model is given up, as the model's own answer is there.

    Lookups are done in the order of segments and none is left out, so that a row leaves by its first hit, as it would
    in line, or with the model's own answer: timing decides between these two, and when, and nothing else.  After
    segments in `copied` a copy is looked up, see `overwritten`.
    """
    rows, asked, pace = np.arange(len(hidden)), deque[Asked](), _Pace(hidden.device)
    try:
        for segment, run in enumerate(chain.segments[:-1]):
            with torch.inference_mode():
                hidden = run(hidden)
            pace.keep()
            while asked and asked[0].found.done():
                one = asked.popleft()
                probabilities, hits = one.found.result()
                here = np.searchsorted(one.rows, rows)
                hit = hits[here]
                if not hit.any():
                    continue
                yield rows[hit], probabilities[here[hit]], segment
                rows = rows[~hit]
                if len(rows) == 0:
                    return
                with torch.inference_mode():
                    hidden = hidden[torch.from_numpy(~hit).to(hidden.device)]
            if segment in caches:
                seen = hidden.clone() if segment in copied else hidden
                asked.append(thread.ask(caches[segment], seen, rows))
        with torch.inference_mode():
            scores = as_probabilities(chain.segments[-1](hidden), logits=logits)
        yield rows, scores.cpu().numpy(), len(chain) - 1
    finally:
        for one in asked:
            one.found.cancel()


def overwritten(chain: Chain, row: Tensor) -> frozenset[int]:
    """Segments whose output later ones write over, as in-place activations do, when `row` (1, ...) goes through."""
    with torch.no_grad():
        seen = [(hidden, hidden._version) for hidden in chain.hidden(row)]
    return frozenset(segment for segment, (hidden, version) in enumerate(seen) if hidden._version != version)


class _Pace:
    """Holds the base model back to one segment more than CUDA has done: else all is started before a hit is known."""

    def __init__(self, device: torch.device) -> None:
        self._asynchronous = device.type == "cuda"
        self._last: Any = None

    def keep(self) -> None:
        """Wait until the segment before the one that was just started has been done."""
        if not self._asynchronous:
            return
        before, self._last = self._last, torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._last.record()
        if before is not None:
            before.synchronize()


def _confine(cores: frozenset[int]) -> None:
    """Keep the calling thread on these processors, and let it compute with as many threads."""
    if cores:
        os.sched_setaffinity(0, cores)
        torch.set_num_threads(len(cores))
