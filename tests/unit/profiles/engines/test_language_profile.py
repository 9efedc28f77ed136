"""Recorded answers, the lengths that are expected of them, and profiles that do not fit together."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from gearshift.errors import InvalidInput
from gearshift.profiles.engines.language_profile import BIN_EDGES, AnswerRecords, LanguageProfile
from gearshift.profiles.profile import PART_A, PART_B
from tests.language_task import random_answers, small_engine

ANSWERS = random_answers(("small", "large"), 6, 0)
PROFILE = LanguageProfile(operator="chat", engines=(small_engine("small"), small_engine("large")), answers=ANSWERS)


def test_answers_are_expected_to_be_as_long_as_those_of_part_a_to_prompts_of_the_bin() -> None:
    answers = replace(
        ANSWERS,
        prompt_tokens=np.array([[32, 1, 33, 33, 10**6, 9], [1] * 6]),
        output_tokens=np.array([[10, 999, 4, 999, 7, 999], [1, 9, 2, 9, 2, 9]]),
    )
    assert answers.part.tolist() == [PART_A, PART_B] * 3
    small = answers.expected_output_tokens("small").tolist()
    assert (small[0], small[1], small[-1]) == (10, 4, 7)
    assert set(small[2:-1]) == {7}  # no prompt there: the mean of all
    assert answers.expected_output_tokens("large").tolist() == [2] * len(BIN_EDGES)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"quality": np.full((2, 6), 1.5)}, r"a quality is not in \[0, 1\]"),
        ({"certainty": np.full((2, 6, 4), np.nan)}, "a certainty is not finite"),
        ({"certainty": np.zeros((2, 6, 3))}, r"certainty is not of shape \(2, 6, 4\)"),
        ({"output_tokens": np.zeros((2, 6), dtype=np.int64)}, "answers: no token"),
        ({"prompt_tokens": np.ones((2, 5), dtype=np.int64)}, r"prompt_tokens is not of shape \(2, 6\)"),
        ({"part": np.zeros(6, dtype=np.int8)}, "part A or part B has no prompts"),
        ({"models": ("small", "small")}, "name a model twice"),
        ({"models": ()}, "answers of 0 models to 6 prompts are too few"),
    ],
)
def test_answers_that_do_not_fit_are_refused(fields, message) -> None:
    with pytest.raises(InvalidInput, match=message):
        replace(ANSWERS, **fields)


def test_an_engine_is_found_by_model_kind_and_number_of_devices() -> None:
    wide = msgspec.structs.replace(small_engine("large"), tensor_parallel=2)
    profile = replace(PROFILE, engines=(*PROFILE.engines, wide))
    assert profile.engine("large", device_kind="gpu", tensor_parallel=2) is wide
    with pytest.raises(InvalidInput, match="no engine of model 'small' on device kind 'cpu' with tensor_parallel 1"):
        profile.engine("small", device_kind="cpu")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"engines": (small_engine("small"),)}, r"models \['large'\] have answers or an engine, and need both"),
        ({"engines": (small_engine("small"),) * 2}, "an engine for one model and device kind twice"),
        ({"overhead_s": -1.0}, "overhead_s is negative or not finite"),
        ({"overhead_s": float("inf")}, "overhead_s is negative or not finite"),
    ],
)
def test_profiles_that_do_not_fit_are_refused(fields, message) -> None:
    with pytest.raises(InvalidInput, match=message):
        replace(PROFILE, **fields)


def test_answers_of_one_model_to_two_prompts_are_enough() -> None:
    assert isinstance(random_answers(("small",), 2, 0), AnswerRecords)
