"""Sets the processors that a worker runs on."""

import math
import os
import time
from collections.abc import Sequence
from pathlib import Path

from gearshift.runtime.actuators.base import Effect, Now

MOST_ROUNDS = 8


class AffinityActuator:
    """Pins all threads of process `pid`, later ones included, to the first of `pool`."""

    name = "affinity"

    def __init__(self, pid: int, pool: Sequence[int], *, now: Now = time.monotonic_ns) -> None:
        self._pid, self._pool, self._now = pid, tuple(pool), now
        self._asked = 0.0, 0

    def apply(self, cores: float) -> Effect:
        asked_ns = self._now()
        wanted = max(1, math.ceil(cores))
        processors = set(self._pool[:wanted])
        try:
            self._pin(processors)
            held = os.sched_getaffinity(self._pid) & set(self._pool)
            problem = "" if len(held) >= wanted else self._short(wanted, len(held))
        except OSError as error:
            held = self._held()
            problem = f"process {self._pid} cannot be pinned to processors {sorted(processors)} ({error.strerror})"
        self._asked = cores, wanted
        return Effect(cores=self._of(held), asked_ns=asked_ns, effective_ns=self._now(), problem=problem)

    def in_force(self) -> float:
        return self._of(self._held())

    def _of(self, held: set[int]) -> float:
        """The requested cores, if their number rounded up is held; else the number held."""
        cores, wanted = self._asked
        return cores if len(held) == wanted else float(len(held))

    def _pin(self, processors: set[int]) -> None:
        """Pin every thread; repeat for new ones, which a thread not yet pinned may have made."""
        pinned: set[int] = set()
        for _ in range(MOST_ROUNDS):
            new = {int(task.name) for task in Path(f"/proc/{self._pid}/task").iterdir()} - pinned
            if not new:
                return
            for thread in new:
                try:
                    os.sched_setaffinity(thread, processors)
                except ProcessLookupError:
                    if thread == self._pid:
                        raise
            pinned |= new

    def _held(self) -> set[int]:
        try:
            return os.sched_getaffinity(self._pid) & set(self._pool)
        except OSError:
            return set()

    def _short(self, wanted: int, held: int) -> str:
        if len(self._pool) < wanted:
            return f"{wanted} processors were asked for, and its pool has {len(self._pool)}"
        return f"{wanted} processors were asked for, and it may use {held}: someone else took the others away"
