"""The inference thread pool: the number of threads a model computes with."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from gearshift.errors import require
from gearshift.runtime.actuators.base import Effect, Now
from gearshift.support.processors import usable_processors

S = TypeVar("S")
SetThreads = Callable[[int], None]


class ThreadsActuator:
    """Sets the number of threads; `apply` runs in the thread of inference, between two batches.

    `set_threads` is `torch.set_num_threads`, which takes microseconds and holds from the next call
    in this thread, or `SessionsByThreads.use`. Threads never exceed usable cores.
    """

    name = "threads"

    def __init__(self, set_threads: SetThreads, *, now: Now = time.monotonic_ns) -> None:
        self._set_threads, self._now = set_threads, now
        self._cores = 1.0

    def apply(self, cores: float) -> Effect:
        asked_ns = self._now()
        wanted, there = max(1, math.ceil(cores)), usable_processors()
        threads = min(wanted, there)
        self._set_threads(threads)
        problem = (
            "" if threads == wanted else f"{wanted} threads were asked for, and this process may use {there} cores"
        )
        self._cores = cores if threads == wanted else float(threads)
        return Effect(cores=self._cores, asked_ns=asked_ns, effective_ns=self._now(), problem=problem)

    def in_force(self) -> float:
        return min(self._cores, float(usable_processors()))


class SessionsByThreads(Generic[S]):
    """One ready session per number of threads, as ONNX Runtime cannot change it in a session.

    `session` is the one in use. `make` is called for every count at once, so that a change waits
    for nothing. Between counts the next lower one is used: threads never exceed cores.
    """

    def __init__(self, make: Callable[[int], S], counts: Sequence[int]) -> None:
        require(
            len(counts) >= 1 and min(counts) >= 1, f"thread counts are {list(counts)}", remedy="give some from 1 on"
        )
        self._sessions: Mapping[int, S] = {count: make(count) for count in sorted(set(counts))}
        self.session: S = self._sessions[min(self._sessions)]

    def use(self, threads: int) -> None:
        self.session = self._sessions[max((c for c in self._sessions if c <= threads), default=min(self._sessions))]


def torch_threads() -> SetThreads:
    import torch

    set_threads: Any = torch.set_num_threads
    return set_threads  # type: ignore[no-any-return]
