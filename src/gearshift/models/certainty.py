"""Certainty: how much a model trusts its own answer, from its scores."""

from collections.abc import Callable
from pkgutil import resolve_name
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gearshift.models.classes import class_names

Scores = NDArray[Any]
CertaintyFunction = Callable[[Scores], NDArray[np.float64]]


def top_two_difference(scores: Scores) -> NDArray[np.float64]:
    """Difference of the two highest of `scores` (n, classes) per row (CascadeServe Eq. 5)."""
    top = np.partition(np.asarray(scores, dtype=np.float64), -2, axis=1)
    return np.asarray(top[:, -1] - top[:, -2], dtype=np.float64)


def highest_probability(scores: Scores) -> NDArray[np.float64]:
    return np.asarray(np.max(scores, axis=1), dtype=np.float64)


def negative_entropy(scores: Scores) -> NDArray[np.float64]:
    """Minus the entropy, in nats, of probabilities `scores` (n, classes) per row."""
    p = np.clip(np.asarray(scores, dtype=np.float64), 1e-300, None)
    return np.asarray(np.sum(p * np.log(p), axis=1), dtype=np.float64)


def softmax(scores: Scores) -> Scores:
    """Probabilities of `scores` (n, classes) per row, in at least single precision."""
    exact = scores.astype(np.result_type(scores.dtype, np.float32), copy=False)
    raised = np.exp(exact - np.max(exact, axis=1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=1, keepdims=True))


def mean_token_log_probability(scores: Scores) -> NDArray[np.float64]:
    """Mean of token log-probabilities `scores` (n, tokens) per row; NaN pads short rows."""
    return np.asarray(np.nanmean(np.asarray(scores, dtype=np.float64), axis=1), dtype=np.float64)


def agreement(votes: Scores) -> NDArray[np.float64]:
    """Share of `votes` (n, samples) that agree with the row's most common vote."""
    if votes.dtype.kind in "OSU":
        votes = class_names(votes)
    same = votes[:, :, None] == votes[:, None, :]
    return np.asarray(same.sum(axis=2).max(axis=1) / votes.shape[1], dtype=np.float64)


OF_CLASSES: frozenset[CertaintyFunction] = frozenset({top_two_difference, highest_probability, negative_entropy})
"""Functions that compare the scores of two or more classes."""
HERE = "gearshift.models.certainty"
BUILT_IN: dict[str, str] = {
    "top_two_difference": f"{HERE}:top_two_difference",
    "highest_probability": f"{HERE}:highest_probability",
    "negative_entropy": f"{HERE}:negative_entropy",
    "mean_token_log_probability": f"{HERE}:mean_token_log_probability",
    "agreement": f"{HERE}:agreement",
}
"""The module and function of each name that a project may give."""


def built_in(name: str) -> CertaintyFunction:
    function: CertaintyFunction = resolve_name(BUILT_IN[name])
    return function
