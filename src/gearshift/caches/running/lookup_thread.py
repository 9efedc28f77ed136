"""Lookups beside the base model in a thread: on CUDA, and for a user's own predictors."""

from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gearshift.caches.network.learned_cache import LearnedCache
from gearshift.caches.running.concurrent_lookups import LookupResult
from gearshift.support.processors import pin


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
