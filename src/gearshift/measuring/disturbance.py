"""Measures how busy other programs keep the processors on which models are timed."""

import os
import time
from collections.abc import Callable, Collection

import psutil

LEAST_SHARE = 0.1
SHORTEST_S = 0.5
"""Systems count processor time in ticks of 10 ms."""


class Disturbance:
    """Processor time on `cores` not taken by process `pid` and its children, since it was made."""

    def __init__(self, cores: Collection[int], pid: int, now: Callable[[], float] = time.monotonic) -> None:
        self._cores, self._pid, self._now = sorted(cores), pid, now
        self._before = self._read()

    def warning(self) -> str:
        """The warning about other programs; empty if they took little, or it is unknown."""
        now = self._read()
        if self._before is None or now is None:
            return ""
        (busy_s, own_s, at_s), (busy_before_s, own_before_s, before_s) = now, self._before
        return told(self._cores, (busy_s - busy_before_s) - (own_s - own_before_s), at_s - before_s)

    def _read(self) -> tuple[float, float, float] | None:
        """Seconds that the cores were busy, seconds that the process took, and the time."""
        try:
            per_core = psutil.cpu_times(percpu=True)
            busy_s = sum(sum(per_core[core][:3]) + getattr(per_core[core], "steal", 0.0) for core in self._cores)
            shared = os.sched_getaffinity(0) & set(self._cores)  # then this process, its parent, works there too
            return busy_s, _taken_s(os.getpid() if shared else self._pid), self._now()
        except (psutil.Error, OSError, IndexError, AttributeError):
            return None


def told(cores: Collection[int], others_s: float, elapsed_s: float) -> str:
    share = others_s / (elapsed_s * len(cores)) if elapsed_s >= SHORTEST_S else 0.0
    if share < LEAST_SHARE:
        return ""
    which = f"processor{'s' if len(cores) > 1 else ''} {', '.join(map(str, sorted(cores)))}"
    return (
        f"while models were timed, other programs took {100 * min(share, 1.0):.0f} % of {which}: run times may be too "
        "long; profile again when the machine is quiet"
    )


def _taken_s(pid: int) -> float:
    process = psutil.Process(pid)
    return sum(sum(one.cpu_times()[:4]) for one in (process, *process.children(recursive=True)))
