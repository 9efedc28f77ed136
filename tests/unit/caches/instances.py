"""Made-up composition problems, and every choice tried."""

import itertools

import numpy as np

from gearshift.caches.building.problem import Problem, joint_outcome, nested_outcome, wrong_of


def instance(
    seed: int, layers: int, variants: int, *, beside: bool = False, samples: int = 0, memory: bool = True
) -> Problem:
    """Deeper layers hit more; some variants err too much, some lookups take longer than a layer."""
    generator = np.random.default_rng(seed)
    layer = np.repeat(np.arange(layers), variants)
    n = len(layer)
    share = (layer + 1) / layers * generator.uniform(0.3, 1.0, n)
    hit_rate = np.clip(share + generator.normal(0, 0.05, n), 0, 1)
    accuracy = np.clip(1 - generator.exponential(0.025, n), 0, 1)
    level = accuracy
    hits = right = None
    if samples:
        hardness = generator.random(samples)
        hits = (hardness + generator.normal(0, 0.15, (n, samples))) < hit_rate[:, None]
        right = generator.random((n, samples)) < accuracy[:, None]
        hit_rate = hits.mean(axis=1)
        accuracy = np.where(hits.any(axis=1), (hits & right).sum(axis=1) / np.maximum(1, hits.sum(axis=1)), 1.0)
    return Problem(
        layer_s=generator.uniform(0.5, 1.5, layers) * 1e-3,
        layer=layer,
        hit_rate=hit_rate,
        accuracy=accuracy,
        lookup_s=generator.uniform(0.05, 1.5, n) * 1e-3,
        memory_bytes=generator.uniform(1, 100, n),
        memory_budget_bytes=generator.uniform(50, 400) if memory else np.inf,
        beside=beside,
        hits=hits,
        right=right,
        level=level,
    )


def least_latency_s(problem: Problem, *, joint: bool) -> float:
    """The least latency of all choices there are."""
    layers = [[-1, *np.flatnonzero(problem.layer == i).tolist()] for i in range(len(problem.layer_s))]
    least = np.inf
    for choice in itertools.product(*layers):
        chosen = tuple(v for v in choice if v >= 0)
        if not problem.fits(chosen):
            continue
        outcome = joint_outcome(problem, chosen) if joint else nested_outcome(problem, chosen)
        kept = wrong_of(problem, chosen) <= problem.most_wrong if joint else outcome.accuracy >= problem.target - 1e-9
        if kept:
            least = min(least, outcome.latency_s)
    return least
