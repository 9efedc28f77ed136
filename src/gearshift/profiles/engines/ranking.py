"""Whether certainty ranks a model's answers better than a random split of requests does.

A cascade that keeps the surest share s of a small model's answers gains over one that keeps a share
s at random exactly where certainty goes with the difference of both models' quality. The gain here is
the mean over all shares, so that no threshold has to be chosen.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np
from numpy.typing import NDArray

from gearshift.profiles.engines.language_profile import DECIDE_AT_TOKENS, LanguageProfile
from gearshift.profiles.profile import PART_B

Floats = NDArray[np.float64]
DRAWS = 1000
COVERAGES = (0.1, 0.25, 0.5, 0.75, 1.0)
LEVEL = 0.95
Z = 1.959964
"""Standard deviations that `LEVEL` is wide to either side."""
ROWS = 512


class Interval(msgspec.Struct, frozen=True):
    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


class Ranking(msgspec.Struct, frozen=True, kw_only=True):
    """The ranking of a `model`'s answers by its certainty at one decision token.

    `auroc` is the probability that, of two answers of different quality, the surer one is better.
    `gain` is in units of quality, over a random split between `model` and `over` at equal share.
    `risk_coverage` has pairs of coverage and the mean quality of that surest share.
    """

    model: str
    over: str
    decide_at: int | None
    auroc: Interval
    gain: Interval
    risk_coverage: tuple[tuple[float, float], ...]

    @property
    def ranks(self) -> bool:
        """Whether all of the gain's interval is above zero."""
        return self.gain.low > 0

    def __str__(self) -> str:
        place = "at the end" if self.decide_at is None else f"at token {self.decide_at}"
        sentence = f"the certainty of {self.model!r} {place} gains {self.gain} over a random split with {self.over!r}"
        if self.ranks:
            return sentence
        why = "the interval contains zero" if self.gain.high >= 0 else "it ranks answers the wrong way round"
        return f"{sentence}: {why}, so its requests are split by their id in place of a threshold there"


def rankings(profile: LanguageProfile, *, seed: int = 0) -> list[Ranking]:
    """One for each model but the last and each decision token, against the last model.

    A judge's certainty was fitted on part A, so part B alone says what it is worth.
    """
    answers = profile.answers
    rows = answers.indices(PART_B) if profile.certainty == "judge" else np.arange(len(answers.part))
    return [
        ranking(
            model,
            answers.models[-1],
            DECIDE_AT_TOKENS[at],
            answers.certainty[m, rows, at],
            answers.quality[m, rows],
            answers.quality[-1, rows],
            seed=seed,
        )
        for m, model in enumerate(answers.models[:-1])
        for at in range(len(DECIDE_AT_TOKENS))
    ]


def with_ranks(profile: LanguageProfile, found: Sequence[Ranking]) -> LanguageProfile:
    """The profile that says where certainty ranks, with a warning for each model and token where it does not.

    A model whose certainty ranks at no token has one warning, of its end.
    """
    at = tuple((one.model, one.decide_at) for one in found if one.ranks)
    models = tuple(dict.fromkeys(model for model, _ in at))
    doubts = [str(one) for one in found if not one.ranks and (one.model in models or one.decide_at is None)]
    return replace(profile, ranks=models, ranks_at=at, warnings=(*profile.warnings, *doubts))


def ranking(
    model: str, over: str, decide_at: int | None, certainty: Floats, quality: Floats, better: Floats, *, seed: int
) -> Ranking:
    """From the certainty and quality (n,) of `model`, and the quality `better` (n,) of the model after it.

    The gain's interval has percentiles of a bootstrap over prompts.
    """
    n = len(certainty)
    counts = np.random.default_rng([seed, 0xCE]).multinomial(n, np.full(n, 1 / n), size=DRAWS).astype(np.float64)
    differences = quality - better
    low, high = np.quantile(_gains(certainty, differences, counts), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    order = np.argsort(-certainty, kind="stable")
    covered = [(share, float(quality[order[: max(1, round(share * n))]].mean())) for share in COVERAGES]
    return Ranking(
        model=model,
        over=over,
        decide_at=decide_at,
        auroc=concordance(certainty, quality),
        gain=Interval(gain_over_random_split(certainty, differences), float(low), float(high)),
        risk_coverage=tuple(covered),
    )


def gain_over_random_split(certainty: Floats, differences: Floats) -> float:
    """The mean, over all shares kept, of the quality gained by keeping the surest in place of random ones.

    `differences` (n,) are of the small model's quality minus the large one's. Of equally sure
    answers, any order is as likely.
    """
    return float(_gains(certainty, differences, np.ones((1, len(certainty))))[0])


def _gains(certainty: Floats, differences: Floats, counts: Floats) -> Floats:
    """The gain (draws,) where each answer is there as often as `counts` (draws, n) say."""
    n = len(certainty)
    order = np.argsort(certainty, kind="stable")
    firsts = np.flatnonzero(np.diff(certainty[order], prepend=-np.inf))
    in_order = counts[:, order]
    of_ties = np.add.reduceat(in_order, firsts, axis=1)
    summed = np.add.reduceat(in_order * differences[order], firsts, axis=1)
    share = (np.cumsum(of_ties, axis=1) - of_ties / 2) / n
    return np.asarray((summed * (share - 0.5)).sum(1) / n)


def concordance(certainty: Floats, quality: Floats) -> Interval:
    """The share of pairs of different quality in which the better is surer, ties half; 0.5 without pairs.

    For right and wrong answers it is the AUROC, and the interval that of DeLong et al. (1988): from
    each answer's mean over the pairs that it is in.
    """
    n = len(certainty)
    agreed, pairs = np.zeros(n), np.zeros(n)
    for begin in range(0, n, ROWS):
        rows = slice(begin, begin + ROWS)
        sign = np.sign(quality[rows, None] - quality)
        pairs[rows] = np.abs(sign).sum(1)
        agreed[rows] = (pairs[rows] + (sign * np.sign(certainty[rows, None] - certainty)).sum(1)) / 2
    if not pairs.any():
        return Interval(0.5, 0.0, 1.0)
    value = float(agreed.sum() / pairs.sum())
    influence = 2 * (agreed - value * pairs) / pairs.mean()
    reach = Z * float(influence.std()) / math.sqrt(n)
    return Interval(value, max(0.0, value - reach), min(1.0, value + reach))
