"""Synthetic profiles: models of rising cost whose answers are easier to trust the better they are."""

import dataclasses
from collections.abc import Sequence

import msgspec
import numpy as np

from gearshift.profiles.curves import performance_models
from gearshift.profiles.profile import PredictionRecords, Profile, RunTimeCurve

ACCURACIES = (0.70, 0.80, 0.88, 0.94)
BATCH_SIZES = (1, 2, 4, 8, 16, 32)


def synthetic_profile(
    *,
    models: int = 4,
    samples: int = 2000,
    fastest_s: float = 0.0005,
    growth: float = 3.0,
    memory_bytes: int = 1 << 28,
    device_kind: str = "cpu",
    seed: int = 0,
) -> Profile:
    """Model k is `growth ** k` times as slow as the fastest; a batch of b costs half of b single ones, and a bit."""
    generator = np.random.default_rng(seed)
    difficulty = generator.random(samples)
    names = tuple(f"m{k}" for k in range(models))
    quality, certainty, curves = [], [], []
    for k, name in enumerate(names):
        right = difficulty + generator.normal(0, 0.05, samples) < ACCURACIES[k]
        quality.append(right.astype(np.float64))
        certainty.append(np.clip(ACCURACIES[k] - difficulty + generator.normal(0, 0.15, samples), -1, 1))
        median_s = tuple(fastest_s * growth**k * (0.5 + 0.5 * b) for b in BATCH_SIZES)
        curves.append(
            RunTimeCurve(
                model=name,
                device_kind=device_kind,
                batch_sizes=BATCH_SIZES,
                median_s=median_s,
                p95_s=tuple(1.1 * s for s in median_s),
                memory_bytes=memory_bytes,
                overhead_per_batch_s=0.0001,
            )
        )
    part = np.zeros(samples, dtype=np.int8)
    part[generator.permutation(samples)[: samples // 2]] = 1
    records = PredictionRecords(models=names, quality=np.array(quality), certainty=np.array(certainty), part=part)
    return Profile(operator="task", curves=tuple(curves), predictions=records)


def on_core_counts(profile: Profile, counts: Sequence[int]) -> Profile:
    """The profile measured on these counts of cores: 15 % of the time that one takes cannot be divided among them."""
    curves = tuple(
        msgspec.structs.replace(
            curve,
            cores=count,
            median_s=tuple(s * (0.15 + 0.85 / count) for s in curve.median_s),
            p95_s=tuple(s * (0.15 + 0.85 / count) for s in curve.p95_s),
        )
        for curve in profile.curves
        for count in counts
    )
    return dataclasses.replace(profile, curves=curves, performance=performance_models(curves))
