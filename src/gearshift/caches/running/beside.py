"""Lookups beside the base model: one at a time, on processors of their own, on CUDA in a stream of their own."""

from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gearshift.caches.network.chain import Chain
from gearshift.caches.network.collect import as_probabilities
from gearshift.caches.network.networks import LearnedCache
from gearshift.caches.network.steps import Steps
from gearshift.support.processors import pin, processors_of

Lookups = Literal["inline", "beside"]
"""Whether a lookup delays the base model, or runs beside it."""


@dataclass(frozen=True, slots=True, eq=False)
class Looked:
    """A lookup that is done for `rows` (n,) of a batch, ascending: hits (n,), probabilities (n, classes) of those."""

    rows: NDArray[np.int64]
    probabilities: NDArray[np.float32]
    hits: NDArray[np.bool_]


class LookupBatch(Protocol):
    """The lookups for one batch, done in the order in which they are asked for."""

    @property
    def pending(self) -> bool:
        """Whether anything asked for was not taken yet."""
        ...

    def ask(self, layer: int, hidden: Tensor, rows: NDArray[np.int64]) -> None:
        """Have the hidden output (n, ...) of a layer looked up for these rows."""
        ...

    def found(self, *, wait: bool = False) -> Looked | None:
        """The oldest that was not taken yet, if it is done or waited for; raises what the lookup raised."""
        ...

    def end(self) -> None:
        """Give up what is not found yet."""
        ...


class Beside(Protocol):
    """Who looks into learned caches beside the model; where it has ended, `why_ended` says how."""

    why_ended: str

    def use(self, caches: Mapping[int, LearnedCache]) -> None:
        """Look into these caches from the next batch on."""
        ...

    def begin(self) -> LookupBatch | None:
        """The lookups for another batch; None where they are to be done in line."""
        ...

    def close(self) -> None:
        """Look nothing up any more."""
        ...


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
    return frozenset(processors_of())


class LookupThread:
    """A thread that looks into learned caches: on CUDA, and for predictors that no other process can make."""

    why_ended = ""

    def __init__(self, cores: frozenset[int], device: torch.device) -> None:
        """On CUDA the thread only starts what the device does, and `cores` confine nothing."""
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self._threads = ThreadPoolExecutor(
            1, "lookups", initializer=_confine, initargs=(cores if self._stream is None else frozenset(),)
        )
        self._caches: Mapping[int, LearnedCache] = {}
        self.copied: frozenset[int] | None = None
        """Segments of which a copy is looked up (`overwritten`), once that is known."""

    def use(self, caches: Mapping[int, LearnedCache]) -> None:
        """Look into these caches from the next batch on."""
        self._caches = caches

    def begin(self) -> "ThreadBatch":
        """The lookups for another batch."""
        return ThreadBatch(self, self._caches)

    def close(self) -> None:
        """End the thread when it has done what it does."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def submit(self, learned: LearnedCache, hidden: Tensor) -> Future[tuple[NDArray[np.float32], NDArray[np.bool_]]]:
        """Have `hidden` (n, ...) looked up, which nobody may change until it is found."""
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
    """The lookups of one batch in a thread."""

    def __init__(self, thread: LookupThread, caches: Mapping[int, LearnedCache]) -> None:
        self._thread, self._caches = thread, caches
        self._asked = deque[tuple[NDArray[np.int64], Future[tuple[NDArray[np.float32], NDArray[np.bool_]]]]]()

    @property
    def pending(self) -> bool:
        """Whether anything asked for was not taken yet."""
        return bool(self._asked)

    def ask(self, layer: int, hidden: Tensor, rows: NDArray[np.int64]) -> None:
        """Have `hidden` (n, ...) looked up; where later segments write over it, a copy."""
        given = hidden.clone() if layer in (self._thread.copied or ()) else hidden
        self._asked.append((rows, self._thread.submit(self._caches[layer], given)))

    def found(self, *, wait: bool = False) -> Looked | None:
        """The oldest that was not taken yet, if it is done or waited for; raises what the lookup raised."""
        if not self._asked or not (wait or self._asked[0][1].done()):
            return None
        rows, found = self._asked.popleft()
        return Looked(rows, *found.result())

    def end(self) -> None:
        """Give up what is not found yet."""
        for _, found in self._asked:
            found.cancel()


def exits_beside(
    steps: Steps, lookups: LookupBatch, hidden: Tensor, *, logits: bool
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32], int]]:
    """Which rows of a batch leave, their class probabilities, and after which segment.

        segment     0       1       2       3            A hit is taken at the next end of a segment; the base model
        lookup          0-----> 1----->                  goes on meanwhile.  What is still looked up at the end of the
        rows leave                  ^0      ^1, all      model is given up, as the model's own answer is there.

    Lookups are done in the order of segments and none is left out, so that a row leaves by its first hit, as it would
    in line, or with the model's own answer: timing decides between these two, and when, and nothing else.
    """
    rows, segment, pace = np.arange(len(hidden)), -1, _Pace(hidden.device)
    try:
        while len(rows):
            leaving = list[tuple[NDArray[np.int64], NDArray[np.float32], int]]()
            with torch.inference_mode():  # left before rows leave, and not entered anew for each step
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
        pin(cores)
        torch.set_num_threads(len(cores))
