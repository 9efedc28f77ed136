"""Worlds that several planner benchmarks share."""

from pathlib import Path

import numpy as np

from gearshift.hardware import Hardware, identical_devices
from gearshift.profiles.profile import PredictionRecords, Profile, RunTimeCurve
from gearshift.workload import Trace

GIB = 1 << 30
BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64)
ACCURACIES = (0.72, 0.80, 0.86, 0.91, 0.94)


def five_models(seed: int = 0, *, samples: int = 4000, fastest_s: float = 0.0004, growth: float = 2.6) -> Profile:
    """Models of rising cost; one sample's difficulty is shared by all, so that certainty is worth something."""
    generator = np.random.default_rng(seed)
    difficulty = generator.random(samples)
    quality, certainty, curves = [], [], []
    for k, accuracy in enumerate(ACCURACIES):
        skill = accuracy + generator.normal(0, 0.06, samples) - difficulty
        quality.append((skill > 0).astype(np.float64))
        certainty.append(np.clip(np.abs(skill) + generator.normal(0, 0.1, samples), 0, 1))
        median_s = tuple(fastest_s * growth**k * (0.6 + 0.4 * b) for b in BATCH_SIZES)
        curves.append(
            RunTimeCurve(
                model=f"m{k}",
                device_kind="gpu",
                batch_sizes=BATCH_SIZES,
                median_s=median_s,
                p95_s=tuple(1.1 * s for s in median_s),
                memory_bytes=GIB,
            )
        )
    part = np.zeros(samples, dtype=np.int8)
    part[generator.permutation(samples)[: samples // 2]] = 1
    return Profile(
        operator="task",
        curves=tuple(curves),
        predictions=PredictionRecords(
            models=tuple(f"m{k}" for k in range(len(ACCURACIES))),
            quality=np.array(quality),
            certainty=np.array(certainty),
            part=part,
        ),
    )


def devices(count: int, *, models_each: int = 3) -> Hardware:
    """Devices whose memory holds so many models."""
    return identical_devices(count, kind="gpu", memory_bytes=models_each * GIB)


def arrivals(counts: np.ndarray, seed: int = 0) -> Trace:
    """A trace of so many requests in each second, at random instants within it."""
    generator = np.random.default_rng(seed)
    times = [s * 10**9 + np.sort(generator.integers(0, 10**9, int(n))) for s, n in enumerate(counts) if n]
    return Trace(arrivals_ns=np.concatenate(times).astype(np.int64), duration_s=float(len(counts)))


def twitter(data: Path, *, peak_qps: float, start: int = 140_400, seconds: int = 1_200) -> Trace:
    """Seconds of the Twitter trace, scaled to a peak second."""
    with np.load(data / "traces" / "twitter_per_second.npz") as archive:
        counts = archive[archive.files[0]][start : start + seconds].astype(np.float64)
    return arrivals(np.rint(counts * peak_qps / counts.max()))
