"""Times batches as a server would run them, next to other programs, and makes run-time curves."""

import asyncio
import itertools
import os
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations

import numpy as np
import psutil
from msgspec import UNSET, UnsetType
from numpy.typing import NDArray

from gearshift.errors import require
from gearshift.measuring.bench import Bench
from gearshift.measuring.paid import PaidRuns, Timed
from gearshift.measuring.turnaround import Turnaround
from gearshift.models.config import ProfileSettings
from gearshift.models.samples import Samples
from gearshift.profiles.profile import RunTimeCurve
from gearshift.result import percentile

LEAST_REPEATS = 3
SHARE_OF_PAUSES = 0.5
LONGEST_PAUSE_S = 0.005

Timings = list[NDArray[np.float64]]
"""Seconds of the repeats, by batch size."""


@dataclass(frozen=True, slots=True, eq=False)
class BatchTimer:
    """Times runs and round trips per model and batch size over real samples; drops each first one.

    `times` gives runs (repeats, segments) and round trips (repeats,); no sample leaves a model with learned
    caches early. Models and sizes are timed in rounds of random order, half of the batches after a
    pause, with the front end's work going on, so that each batch finds processor and caches as it
    would when served. A model of 0.3 ms per sample was seen to take twice as long after a pause of
    3 ms, and half as long again next to a busy core. A round trip ends when a service would have
    started the next batch, because the device waits until then.
    """

    bench: Bench
    turnaround: Turnaround
    samples: Samples
    kept: PaidRuns

    async def times(
        self, sizes: Sequence[int], how: ProfileSettings, seed: int, progress: Callable[[float], None]
    ) -> dict[str, tuple[Timings, Timings]]:
        generator = np.random.default_rng([seed, 3])
        rows = itertools.cycle(range(len(self.samples)))
        pairs = [(name, size) for name in self.bench.names for size in sizes]
        timed: dict[tuple[str, int], list[Timed]] = {pair: [] for pair in pairs}
        spent_s = dict.fromkeys(pairs, 0.0)
        for done in range(how.repeats + 1):
            for i in generator.permutation(len(pairs)).tolist():
                name, size = pair = pairs[i]
                if spent_s[pair] > how.longest_s and len(timed[pair]) >= LEAST_REPEATS:
                    continue
                chosen = [next(rows) for _ in range(size)]
                pauses = generator.random() < SHARE_OF_PAUSES
                pause_s = generator.random() * LONGEST_PAUSE_S if pauses else None
                run_s, trip_s = await self.kept.run(size, partial(self._run, name, chosen, pause_s))
                spent_s[pair] += trip_s
                if done > 0:
                    timed[pair].append((run_s, trip_s))
            progress((done + 1) / (how.repeats + 1))
        return {
            name: (
                [np.array([run_s for run_s, _ in timed[name, size]]) for size in sizes],
                [np.array([trip_s for _, trip_s in timed[name, size]]) for size in sizes],
            )
            for name in self.bench.names
        }

    async def _run(self, name: str, rows: list[int], pause_s: float | None) -> Timed:
        self.turnaround.hold(len(rows))
        if pause_s is not None:
            await asyncio.sleep(pause_s)
        _, run_s, trip_s = await self.bench.run(name, self.samples, rows, through=True, then=self.turnaround.turn)
        return run_s, trip_s


def curve_from_timings(
    model: str,
    batch_sizes: Sequence[int],
    seconds: Sequence[NDArray[np.float64]],
    *,
    device_kind: str = "cpu",
    cores: int = 1,
    segment: int = 0,
    memory_bytes: int = 0,
    overhead_per_batch_s: float = 0.0,
    overhead_per_request_s: float = 0.0,
    load_s: float | UnsetType = UNSET,
) -> RunTimeCurve:
    """Median and p95 of repeated runs, `seconds` (repeats,) per size; each size needs a run."""
    where = f"run times of model {model!r}"
    require(len(seconds) == len(batch_sizes), "there must be one array of runs per batch size", where=where)
    runs = [np.asarray(s, dtype=np.float64) for s in seconds]
    for size, s in zip(batch_sizes, runs, strict=True):
        require(len(s) >= 1, f"batch size {size} was never run", where=where)
        require(
            bool((np.isfinite(s) & (s > 0)).all()), f"a run at batch size {size} took no positive time", where=where
        )
    return RunTimeCurve(
        model=model,
        device_kind=device_kind,
        cores=cores,
        segment=segment,
        batch_sizes=tuple(int(size) for size in batch_sizes),
        median_s=tuple(percentile(s, 0.50) for s in runs),
        p95_s=tuple(percentile(s, 0.95) for s in runs),
        memory_bytes=int(memory_bytes),
        overhead_per_batch_s=float(overhead_per_batch_s),
        overhead_per_request_s=float(overhead_per_request_s),
        load_s=load_s,
    )


def fit_overheads(
    batch_sizes: Sequence[int],
    round_trip_s: Sequence[NDArray[np.float64]],
    run_s: Sequence[NDArray[np.float64]],
) -> tuple[float, float]:
    """Fit overhead per batch and per request, in seconds, neither negative.

    `round_trip_s` and `run_s` hold, per batch size, the repeated round trips (repeats,) and the
    runs inside them (repeats,). The overhead is the mean round trip minus the median run: queues
    feel the mean, and simulation uses the median. The line through these has the median slope of
    all pairs (Theil and Sen), so that one disturbed size does not bend it.
    """
    require(len(batch_sizes) == len(round_trip_s) == len(run_s) >= 1, "overheads need at least one batch size")
    x = np.asarray(batch_sizes, dtype=np.float64)
    beyond = [float(np.mean(trip) - np.median(run)) for trip, run in zip(round_trip_s, run_s, strict=True)]
    y = np.maximum(0.0, beyond)
    slopes = [(y[j] - y[i]) / (x[j] - x[i]) for i, j in combinations(range(len(x)), 2) if x[i] != x[j]]
    per_request = max(0.0, float(np.median(slopes))) if slopes else 0.0
    per_batch = float(np.median(y - per_request * x))
    if per_batch < 0:  # the best line through the origin
        return 0.0, float(np.median(y / x))
    return per_batch, per_request


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
