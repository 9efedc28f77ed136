import math

import numpy as np
import pytest

from gearshift.errors import InvalidInput
from gearshift.profiles.engines.certainty import FEATURES
from gearshift.profiles.engines.judge import FittedJudge, fit_judge


def made(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Features (n, 4, 6) and answers that are right with a probability that two of them give."""
    generator = np.random.default_rng(seed)
    features = generator.normal(size=(n, 4, len(FEATURES))) * [1, 5, 1, 0.1, 1, 1]
    features[:, :, 5] = 3.0  # all prompts are of the same length
    chance = 1 / (1 + np.exp(-(2 * features[:, 3, 0] + 0.3 * features[:, 3, 1] - 0.5)))
    return features, (generator.random(n) < chance).astype(float)


def test_the_weights_that_made_the_answers_are_found_again() -> None:
    features, quality = made(20_000)
    judge = fit_judge("small", features, quality)
    assert judge.weights[3] == pytest.approx([2.0, 0.3, 0, 0, 0, 0], abs=0.25)
    assert judge.weights[3][:2] == pytest.approx([2.0, 0.3], rel=0.06)
    assert judge.weights[0][:2] == pytest.approx([0, 0], abs=0.06)


def calibration_error(expected: np.ndarray, quality: np.ndarray) -> float:
    """The mean distance of expected from actual quality over ten bins of equal counts of answers."""
    groups = np.array_split(np.argsort(expected, kind="stable"), 10)
    return float(np.mean([abs(expected[one].mean() - quality[one].mean()) for one in groups]))


def test_what_it_says_of_unseen_answers_is_calibrated() -> None:
    judge = fit_judge("small", *made(2000))
    features, quality = made(4000, seed=1)
    expected = np.array([judge.quality(3, row) for row in features[:, 3]])
    assert calibration_error(expected, quality) < 0.03
    assert calibration_error(np.clip(expected + 0.2, 0, 1), quality) > 0.1


def test_graded_quality_is_met_in_the_mean() -> None:
    features, _ = made(500)
    quality = np.linspace(0.2, 0.6, 500)
    judge = fit_judge("small", features, quality)
    assert np.mean([judge.quality(2, row) for row in features[:, 2]]) == pytest.approx(0.4, abs=1e-3)


@pytest.mark.parametrize("right", [0.0, 1.0])
def test_answers_that_are_all_alike_give_no_extreme(right: float) -> None:
    features, _ = made(50)
    judge = fit_judge("small", features, np.full(50, right))
    said = judge.quality(3, features[0, 3])
    assert 0 < said < 1
    assert abs(said - right) < 0.1


def test_extreme_scores_do_not_overflow() -> None:
    judge = FittedJudge(model="small", bias=(0.0,), weights=((1e6, 0, 0, 0, 0, 0),))
    assert judge.quality(0, (-1, 0, 0, 0, 0, 0)) == 0.0
    assert judge.quality(0, (1, 0, 0, 0, 0, 0)) == 1.0
    assert math.isclose(judge.quality(0, (0, 1, 1, 1, 1, 1)), 0.5)


def test_a_judge_of_other_features_is_refused() -> None:
    with pytest.raises(InvalidInput, match="does not weigh the features"):
        FittedJudge(model="small", bias=(0.0,), weights=((1.0,),))
