from dataclasses import replace

import numpy as np
import pytest

from gearshift.profiles.engines.certainty import TextCertainty, TokenCertainty
from gearshift.profiles.engines.engine_profile import EngineProfile, StepCurve
from gearshift.profiles.engines.judge import fit_judge
from gearshift.profiles.engines.language_profile import AnswerRecords, LanguageProfile
from gearshift.profiles.engines.ranking import (
    concordance,
    gain_over_random_split,
    ranking,
    rankings,
    with_ranks,
)


def test_concordance_of_right_and_wrong_answers_is_the_auroc() -> None:
    certainty, right = np.array([0.9, 0.8, 0.8, 0.1]), np.array([1.0, 1.0, 0.0, 0.0])
    assert concordance(certainty, right).value == (1 + 1 + 0.5 + 1) / 4
    assert concordance(-certainty, right).value == pytest.approx(1 - 3.5 / 4)


def test_concordance_takes_graded_quality_and_none() -> None:
    assert concordance(np.arange(5.0), np.arange(5.0) / 5).value == 1.0
    same = concordance(np.arange(5.0), np.ones(5))
    assert (same.value, same.low, same.high) == (0.5, 0.0, 1.0)


def test_the_interval_holds_the_true_concordance_as_often_as_it_says() -> None:
    generator = np.random.default_rng(1)
    held = 0
    for _ in range(200):
        right = (generator.random(200) < 0.4).astype(float)
        found = concordance(right + generator.normal(size=200), right)
        held += found.low <= 0.7602 <= found.high  # of two normal distributions one deviation apart
    assert 0.9 <= held / 200 <= 0.99


def test_gain_of_a_known_order() -> None:
    """Two of four are kept well by the small model: keeping 1, 2, 3 of 4 gains 1/8, 1/4 and 1/8 on random."""
    differences = np.array([0.0, 0.0, -0.5, -0.5])
    perfect = gain_over_random_split(np.array([4.0, 3.0, 2.0, 1.0]), differences)
    shares = [0.0, 0.25, 0.5, 0.75, 1.0]
    surest = [differences[: round(4 * share)].sum() / 4 for share in shares]
    at_random = [share * differences.mean() for share in shares]
    assert perfect == pytest.approx(np.trapezoid(np.subtract(surest, at_random), shares))
    assert gain_over_random_split(np.array([1.0, 2.0, 3.0, 4.0]), differences) == pytest.approx(-perfect)
    assert gain_over_random_split(np.ones(4), differences) == 0


def profile_of(signal: float, certainty: TextCertainty = "mean_logprob") -> LanguageProfile:
    generator, n = np.random.default_rng(0), 400
    right = (generator.random((2, n)) < [[0.5], [0.9]]).astype(float)
    seen = generator.normal(size=(2, n, 4)) + signal * right[:, :, None]
    answers = AnswerRecords(
        models=("small", "large"),
        quality=right,
        certainty=seen,
        prompt_tokens=np.full((2, n), 10),
        output_tokens=np.full((2, n), 10),
        part=(np.arange(n) % 2).astype(np.int8),
    )
    curve = StepCurve(tokens=(1, 8), step_s=(0.01, 0.02))
    engines = tuple(
        EngineProfile(
            model=model, device_kind="gpu", prefill=curve, decode=curve, kv_blocks=9,
            largest_batched_tokens=8, largest_running=8,
        )
        for model in ("small", "large")
    )  # fmt: skip
    judges = tuple(fit_judge(one, seen[0, :, :, None].repeat(6, 2), right[0]) for one in answers.models)
    return LanguageProfile(
        operator="chat",
        engines=engines,
        answers=answers,
        certainty=certainty,
        judges=judges if certainty == "judge" else (),
    )


def test_certainty_that_knows_right_from_wrong_ranks() -> None:
    profile = profile_of(2.0)
    found = rankings(profile)
    assert [one.decide_at for one in found] == [1, 4, 16, None]
    assert with_ranks(profile, found).ranks == ("small",)
    assert 0.87 < found[-1].auroc.value < 0.97
    assert [coverage for coverage, _ in found[-1].risk_coverage] == [0.1, 0.25, 0.5, 0.75, 1.0]
    assert found[-1].risk_coverage[0][1] > 0.9 > found[-1].risk_coverage[-1][1]
    assert str(found[-1]).startswith("the certainty of 'small' at the end gains 0.")


def test_certainty_that_knows_nothing_does_not_rank_and_the_sentence_says_so() -> None:
    found = rankings(profile_of(0.0))
    assert not any(one.ranks for one in found)
    assert "the interval contains zero, so its requests are split by their id" in str(found[-1])


def test_a_certainty_ranks_at_the_tokens_whose_interval_lies_above_zero() -> None:
    profile = profile_of(2.0)
    profile.answers.certainty[0, :, [0, 3]] = profile_of(0.0).answers.certainty[0, :, [0, 3]]
    made = with_ranks(profile, rankings(profile))
    assert made.ranks_at == (("small", 4), ("small", 16))
    assert [made.ranks_by("small", at) for at in (1, 4, 16, None)] == [False, True, True, False]
    assert [" at the end " in one for one in made.warnings] == [False, True]
    without = with_ranks(profile_of(0.0), rankings(profile_of(0.0)))
    assert (without.ranks, len(without.warnings)) == ((), 1)


def test_an_older_profile_ranks_at_every_token_of_its_models() -> None:
    older = replace(profile_of(2.0), ranks=("small",))
    assert [older.ranks_by("small", at) for at in (1, None)] == [True, True]
    assert not older.ranks_by("large", None)


def test_no_certainty_ranks_by_chance_more_often_than_its_level_says() -> None:
    generator = np.random.default_rng(3)
    by_chance = 0
    for _ in range(40):
        right = (generator.random(160) < 0.5).astype(float)
        by_chance += ranking("a", "b", None, generator.normal(size=160), right, np.ones(160), seed=0).ranks
    assert by_chance <= 4


def test_a_certainty_that_is_the_wrong_way_round_does_not_rank() -> None:
    found = rankings(profile_of(-2.0))
    assert not any(one.ranks for one in found)
    assert "the wrong way round" in str(found[-1])


def test_a_judge_is_ranked_on_part_b_alone() -> None:
    profile = profile_of(0.0, "judge")
    profile.answers.certainty[:, ::2] = 9 * profile.answers.quality[:, ::2, None]  # part A, which it was fitted on
    assert not any(one.ranks for one in rankings(profile))


def test_a_profile_knows_the_certainty_of_an_answer_as_it_comes() -> None:
    so_far = TokenCertainty()
    so_far.add(-1.0)
    so_far.add(-2.0)
    assert profile_of(1.0).certainty_of("small", so_far, prompt_tokens=5, decide_at=None) == -1.5
    judging = profile_of(1.0, "judge")
    expected = judging.judges[0].quality(1, so_far.features(5))
    assert judging.certainty_of("small", so_far, prompt_tokens=5, decide_at=4) == expected
