"""Lookups beside the base model: one at a time, on separate processors, or in a CUDA stream."""

from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gearshift.caches.network.chain import Chain, Steps
from gearshift.caches.network.collect import as_probabilities
from gearshift.caches.network.learned_cache import LearnedCache
from gearshift.support.processors import pin, processors_of


@dataclass(frozen=True, slots=True, eq=False)
class LookupResult:
    """A finished lookup for `rows` (n,), ascending: hits (n,), probabilities (hits, classes)."""

    rows: NDArray[np.int64]
    probabilities: NDArray[np.float32]
    hits: NDArray[np.bool_]


class LookupBatch(Protocol):
    """The lookups for one batch, done in the order asked."""

    @property
    def pending(self) -> bool: ...

    def ask(self, layer: int, hidden: Tensor, rows: NDArray[np.int64]) -> None: ...

    def found(self, *, wait: bool = False) -> LookupResult | None:
        """Return the oldest result not taken yet, if done; raises what the lookup raised."""
        ...

    def end(self) -> None: ...


class ConcurrentLookups(Protocol):
    """Lookups into learned caches beside the model; once they have ended, `why_ended` says how."""

    why_ended: str

    def use(self, caches: Mapping[int, LearnedCache]) -> None: ...

    def begin(self) -> LookupBatch | None:
        """Begin the lookups for a batch; None if they must run inline."""
        ...

    def close(self) -> None: ...


class Cores(NamedTuple):
    base: frozenset[int]
    lookups: frozenset[int]


def divided_cores(wanted: int) -> Cores | None:
    """Reserve the last `wanted` processors for lookups; None if no other would be left."""
    there = sorted(_allowed())
    if len(there) <= wanted:
        return None
    return Cores(frozenset(there[:-wanted]), frozenset(there[-wanted:]))


@cache
def _allowed() -> frozenset[int]:
    """The processors of this process before a model pinned the calling thread."""
    return frozenset(processors_of())


def concurrent_exits(
    steps: Steps, lookups: LookupBatch, hidden: Tensor, *, logits: bool
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32], int]]:
    """Yield the rows that leave, their class probabilities, and after which segment.

        segment     0       1       2       3         A hit is taken at the next segment's end. A
        lookup          0-----> 1----->               lookup not done at the model's end is given
        rows leave                  ^0      ^1, all   up, as the model's own answer is there.

    Lookups are done in the order of segments and none is left out. A row leaves by its first hit,
    as it would inline, or with the model's own answer: timing decides only between these two, and
    when.
    """
    rows, segment, pace = np.arange(len(hidden)), -1, _Pace(hidden.device)
    try:
        while len(rows):
            leaving = list[tuple[NDArray[np.int64], NDArray[np.float32], int]]()
            with torch.inference_mode():  # left before yielding, not entered per step
                while not leaving:
                    segment, run = steps.after(segment, pending=lookups.pending)
                    hidden = run(hidden)
                    if segment == len(steps.chain) - 1:
                        leaving.append((rows, as_probabilities(hidden, logits=logits).cpu().numpy(), segment))
                        rows = rows[:0]
                        break
                    pace.keep()
                    while len(rows) and (one := lookups.found()) is not None:
                        here = np.searchsorted(one.rows, rows)
                        hit = one.hits[here]
                        if hit.any():
                            leaving.append((rows[hit], one.probabilities[here[hit]], segment))
                            rows, hidden = rows[~hit], hidden[torch.from_numpy(~hit).to(hidden.device)]
                    if len(rows) and segment in steps.layers:
                        lookups.ask(segment, hidden, rows)
            yield from leaving
    finally:
        lookups.end()


def overwritten(chain: Chain, row: Tensor) -> frozenset[int]:
    """Return segments whose output later ones overwrite in place, tested with `row` (1, ...)."""
    with torch.no_grad():
        seen = [(hidden, hidden._version) for hidden in chain.hidden(row)]
    return frozenset(segment for segment, (hidden, version) in enumerate(seen) if hidden._version != version)


class _Pace:
    """Keeps the base model at most one segment ahead of CUDA, or hits would come too late."""

    def __init__(self, device: torch.device) -> None:
        self._asynchronous = device.type == "cuda"
        self._last: Any = None

    def keep(self) -> None:
        if not self._asynchronous:
            return
        before, self._last = self._last, torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._last.record()
        if before is not None:
            before.synchronize()


class LookupThread:
    why_ended = ""

    def __init__(self, cores: frozenset[int], device: torch.device) -> None:
        """On CUDA the thread only launches work, and `cores` are ignored."""
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self._threads = ThreadPoolExecutor(
            1, "lookups", initializer=_confine, initargs=(cores if self._stream is None else frozenset(),)
        )
        self._caches: Mapping[int, LearnedCache] = {}
        self.copied: frozenset[int] | None = None
        """Segments whose output is copied for lookups (`overwritten`), once known."""

    def use(self, caches: Mapping[int, LearnedCache]) -> None:
        self._caches = caches

    def begin(self) -> "ThreadBatch":
        return ThreadBatch(self, self._caches)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def submit(self, learned: LearnedCache, hidden: Tensor) -> Future[tuple[NDArray[np.float32], NDArray[np.bool_]]]:
        """Look up `hidden` (n, ...), which must not change until it is found."""
        ready = None
        if self._stream is not None:
            ready = torch.cuda.Event()  # type: ignore[no-untyped-call]
            ready.record()
            hidden.record_stream(self._stream)
        return self._threads.submit(self._look, learned, hidden, ready)

    def _look(
        self, learned: LearnedCache, hidden: Tensor, ready: torch.cuda.Event | None
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        with torch.inference_mode():
            if self._stream is None or ready is None:
                probabilities, hits = learned(hidden)
                return probabilities.numpy(), hits.numpy()
            with torch.cuda.stream(self._stream):
                self._stream.wait_event(ready)
                probabilities, hits = learned(hidden)
                return probabilities.cpu().numpy(), hits.cpu().numpy()


class ThreadBatch:
    def __init__(self, thread: LookupThread, caches: Mapping[int, LearnedCache]) -> None:
        self._thread, self._caches = thread, caches
        self._asked = deque[tuple[NDArray[np.int64], Future[tuple[NDArray[np.float32], NDArray[np.bool_]]]]]()

    @property
    def pending(self) -> bool:
        return bool(self._asked)

    def ask(self, layer: int, hidden: Tensor, rows: NDArray[np.int64]) -> None:
        given = hidden.clone() if layer in (self._thread.copied or ()) else hidden
        self._asked.append((rows, self._thread.submit(self._caches[layer], given)))

    def found(self, *, wait: bool = False) -> LookupResult | None:
        if not self._asked or not (wait or self._asked[0][1].done()):
            return None
        rows, found = self._asked.popleft()
        return LookupResult(rows, *found.result())

    def end(self) -> None:
        for _, found in self._asked:
            found.cancel()


def _confine(cores: frozenset[int]) -> None:
    if cores:
        pin(cores)
        torch.set_num_threads(len(cores))
