"""The files of a project of one operator."""

PROJECT = """# What Gearshift measures and serves.  References are file.py:function, relative to this file.
operator = "task"                   # requests go to /v2/models/task/infer
samples = "models.py:load_samples"  # labelled samples, a few thousand of them
certainty = "top_two_difference"    # or highest_probability, negative_entropy, file.py:function

[models.small]
load = "models.py:load_small"

[models.large]
load = "models.py:load_large"

[profile]
batch_sizes = [1, 2, 4, 8, 16, 32]
repeats = 20
"""

MODELS = '''"""Two models for one task; put your own in their place.

A loader answers a scikit-learn estimator, an object with `predict`, or a plain function from an array of n rows to
scores (n, classes).  It runs once in each worker process.
"""

import numpy as np

import gearshift


def points(n, seed):
    """Points in the plane, and which of two interleaved spirals each belongs to."""
    generator = np.random.default_rng(seed)
    label = generator.integers(0, 2, n)
    turn = generator.random(n) * 2.2 * np.pi + 0.6
    angle = turn + np.pi * label
    x = np.stack([turn * np.cos(angle), turn * np.sin(angle)], axis=1) + generator.normal(0, 0.35, (n, 2))
    return x.astype(np.float32), label


def load_samples():
    """Samples that no model was trained on, with their labels."""
    x, label = points(2000, seed=1)
    return gearshift.Samples(inputs=x, labels=label)


def load_small():
    """Cheap, and often right: compares with 60 known points."""
    return nearest_neighbours(*points(60, seed=2), neighbours=3)


def load_large():
    """Expensive, and right more often: compares with 20,000 known points."""
    return nearest_neighbours(*points(20_000, seed=3), neighbours=9)


def nearest_neighbours(known, label, neighbours):
    """A function from points (n, 2) to scores (n, 2)."""
    known = known.astype(np.float32)

    def predict(x):
        distance = np.abs(x[:, None, 0] - known[None, :, 0]) + np.abs(x[:, None, 1] - known[None, :, 1])
        nearest = np.argpartition(distance, neighbours, axis=1)[:, :neighbours]
        share = label[nearest].mean(axis=1)
        return np.stack([1 - share, share], axis=1)

    return predict
'''
