"""Bagging ensembles: models that all run a request and vote on its answer."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gearshift.errors import InvalidInput, require
from gearshift.profiles.profile import PART_A, PredictionRecords

MOST_MODELS = 12
"""Limit, because all ensembles of this many models are examined."""


@dataclass(frozen=True, slots=True)
class Ensemble:
    """Models, the most accurate first, and the accuracy of their vote on part A."""

    models: tuple[str, ...]
    accuracy: float


def majority_vote(predictions: NDArray[Any]) -> NDArray[np.int64]:
    """The model (samples,) with the most common of `predictions` (models, samples)."""
    agreeing = (predictions[:, None] == predictions[None]).sum(axis=1)
    winner: NDArray[np.int64] = np.argmax(agreeing, axis=0)
    return winner


def voted_quality(records: PredictionRecords, models: tuple[str, ...]) -> NDArray[np.float64]:
    rows = records.rows(models)
    winner = majority_vote(_coded(records)[rows])
    return records.quality[rows[winner], np.arange(len(winner))]


def useful_ensembles(records: PredictionRecords, models: Sequence[str]) -> list[Ensemble]:
    """Every ensemble that beats all of its parts in accuracy on part A, smaller ones first.

    Raises `InvalidInput` without recorded predictions, or for more than `MOST_MODELS` models.
    """
    require(
        len(models) <= MOST_MODELS,
        f"the ensembles of {len(models)} models are too many to look at",
        remedy=f"profile at most {MOST_MODELS}",
    )
    columns = records.indices(PART_A)
    coded = _coded(records)[:, columns]
    quality = records.quality[:, columns]
    row = {m: int(r) for m, r in zip(models, records.rows(tuple(models)), strict=True)}
    ranked = sorted(models, key=lambda m: (-quality[row[m]].mean(), m))
    found: list[Ensemble] = []
    for size in range(1, len(ranked) + 1):
        for members in combinations(ranked, size):
            rows = np.array([row[m] for m in members])
            winner = majority_vote(coded[rows])
            accuracy = float(quality[rows[winner], np.arange(len(winner))].mean())
            if all(e.accuracy < accuracy for e in found if set(e.models) < set(members)):
                found.append(Ensemble(members, accuracy))
    return found


def _coded(records: PredictionRecords) -> NDArray[np.int64]:
    """Predictions (models, samples) as whole numbers, which compare faster than text."""
    if records.prediction is None:
        raise InvalidInput(
            "the profile has no predictions, which an ensemble needs to vote",
            where="records",
            remedy="record a column 'prediction' beside 'correct', and import the records again",
        )
    codes: NDArray[np.int64] = np.unique(records.prediction, return_inverse=True)[1]
    return codes.reshape(records.prediction.shape)
