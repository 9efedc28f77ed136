"""A small judge: the quality that an answer's log-probabilities and lengths let one expect.

Logistic over `FEATURES`, one for each model and each token at which a stage may decide. Its
maximum-likelihood fit is calibrated in the large: on part A the mean of what it says is the mean
quality.
"""

import math
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from gearshift.errors import require
from gearshift.profiles.engines.certainty import FEATURES

Floats = NDArray[np.float64]
PENALTY = 1.0
"""The penalty on squared weights, in units of samples: few samples give small weights."""


class FittedJudge(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`bias`, and for each decision token a row of `weights` over the features as they are."""

    model: str
    bias: tuple[float, ...]
    weights: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        fits = len(self.bias) == len(self.weights) and all(len(row) == len(FEATURES) for row in self.weights)
        require(fits, f"the judge of model {self.model!r} does not weigh the features {list(FEATURES)}")

    def quality(self, at: int, features: Sequence[float]) -> float:
        """The expected quality at decision token number `at` of `DECIDE_AT_TOKENS`, in (0, 1)."""
        score = self.bias[at] + sum(w * x for w, x in zip(self.weights[at], features, strict=True))
        return 1 / (1 + math.exp(-score)) if score >= 0 else math.exp(score) / (1 + math.exp(score))


def fit_judge(model: str, features: Floats, quality: Floats) -> FittedJudge:
    """Fit on `features` (n, decision tokens, features) and `quality` (n,) in [0, 1]."""
    rows = [_fitted(features[:, at], quality) for at in range(features.shape[1])]
    return FittedJudge(
        model=model,
        bias=tuple(float(bias) for bias, _ in rows),
        weights=tuple(tuple(float(one) for one in weights) for _, weights in rows),
    )


def _fitted(features: Floats, quality: Floats) -> tuple[float, Floats]:
    """The bias, and a weight for each feature as it is, though the fit is over standardised ones."""
    from scipy.optimize import minimize

    mean, spread = features.mean(0), features.std(0)
    spread = np.where(spread > 1e-9 * (1 + np.abs(mean)), spread, np.inf)
    x = np.column_stack([np.ones(len(features)), (features - mean) / spread])

    def loss(weights: Floats) -> tuple[float, Floats]:
        score = x @ weights
        penalised = np.concatenate([[0.0], weights[1:]])
        likelihood = np.logaddexp(0, score) - quality * score
        slope = x.T @ (np.exp(-np.logaddexp(0, -score)) - quality) + PENALTY * penalised
        return float(likelihood.sum() + PENALTY / 2 * penalised @ penalised), slope

    share = float(np.clip(quality.mean(), 1e-3, 1 - 1e-3))
    start = np.concatenate([[math.log(share / (1 - share))], np.zeros(features.shape[1])])
    found = minimize(loss, start, jac=True, method="L-BFGS-B").x
    weights = found[1:] / spread
    return float(found[0] - weights @ mean), weights
