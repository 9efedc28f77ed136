"""Expected gains: how much better a later model's answer is than a kept one, by the kept one's certainty."""

from collections.abc import Iterable
from itertools import permutations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from gearshift.cascade import ExpectedGain
from gearshift.profiles.profile import PART_A, PredictionRecords

Floats = NDArray[np.float64]


def expected_gains(predictions: PredictionRecords, models: Iterable[str]) -> tuple[ExpectedGain, ...]:
    """The gains of all pairs of `models`, fitted on part A."""
    records = predictions.indices(PART_A)
    fitted = []
    for kept, later in permutations(models, 2):
        from_, to = predictions.rows((kept, later))
        certainty = predictions.certainty[from_, records]
        gain = predictions.quality[to, records] - predictions.quality[from_, records]
        points, gains = falling_steps(certainty, gain)
        fitted.append(ExpectedGain(kept=kept, later=later, certainty=tuple(points), gain=tuple(gains)))
    return tuple(fitted)


def falling_steps(certainty: Floats, gain: Floats) -> tuple[list[float], list[float]]:
    """The falling step function of least squares through the points (n,): where each step begins, and its gain.

    Isotonic regression, by pooling neighbours that are out of order (Barlow et al. 1972).
    """
    points, place = np.unique(certainty, return_inverse=True)
    weights = np.bincount(place)
    means = np.bincount(place, weights=gain) / weights
    fitted = isotonic_regression(means, weights=weights.astype(np.float64), increasing=False)
    begins = fitted.blocks[:-1]
    return points[begins].tolist(), fitted.x[begins].tolist()


def gain_at(table: ExpectedGain, certainty: Floats) -> Floats:
    """The expected gain (n,) at each certainty (n,)."""
    step = np.searchsorted(np.array(table.certainty), certainty, side="right") - 1
    gains: Floats = np.array(table.gain)[np.maximum(step, 0)]
    return gains
