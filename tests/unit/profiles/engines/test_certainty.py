import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gearshift.profiles.engines.certainty import (
    FEATURES,
    LEAST_LOGPROB,
    TokenCertainty,
    argument_tokens,
    recorded_features,
)
from gearshift.profiles.engines.language_profile import DECIDE_AT_TOKENS

logprobs = st.lists(st.floats(-50, 0), min_size=1, max_size=40)


def of(values: list[float], seconds: list[float | None] | None = None) -> TokenCertainty:
    made = TokenCertainty()
    for i, value in enumerate(values):
        made.add(value, None if seconds is None else seconds[i])
    return made


def test_each_certainty_of_three_tokens() -> None:
    made = of([-1.0, -3.0, -0.5], [-2.0, None, -1.0])
    margins = [math.exp(-1) - math.exp(-2), math.exp(-3), math.exp(-0.5) - math.exp(-1)]
    assert made.value("mean_logprob") == -1.5
    assert made.value("least_logprob") == -3.0
    assert made.value("first_logprob") == -1.0
    assert made.value("sum_logprob") == -4.5
    assert made.value("margin") == pytest.approx(sum(margins) / 3)


@given(logprobs)
def test_token_by_token_is_the_same_as_all_at_once(values: list[float]) -> None:
    made = of(values)
    assert made.value("mean_logprob") == pytest.approx(np.mean(values))
    assert made.value("least_logprob") == min(values)
    assert made.value("first_logprob") == values[0]
    assert made.value("sum_logprob") == pytest.approx(sum(values))
    assert made.tokens == len(values)


@pytest.mark.parametrize("value", [-9999.0, -math.inf, math.nan])
def test_impossible_tokens_leave_every_certainty_finite(value: float) -> None:
    made = of([value, -1.0], [-math.inf, None])
    assert made.value("mean_logprob") == (LEAST_LOGPROB - 1) / 2
    assert all(math.isfinite(one) for one in made.features(3))


def test_a_probability_above_one_counts_as_one() -> None:
    assert of([1e-6]).value("mean_logprob") == 0.0


def test_an_answer_without_tokens_is_as_unsure_as_can_be() -> None:
    assert TokenCertainty().value("mean_logprob") == TokenCertainty().value("least_logprob") == LEAST_LOGPROB
    assert TokenCertainty().value("margin") == 0.0


def test_only_arguments_of_tool_calls_count_once_there_are_some() -> None:
    made = TokenCertainty()
    made.add(-5.0)
    assert made.value("mean_logprob") == -5.0
    made.add(-1.0, of_arguments=True)
    made.add(-2.0, of_arguments=True)
    made.add(-7.0)
    assert (made.value("mean_logprob"), made.value("first_logprob"), made.tokens) == (-1.5, -1.0, 4)


def test_features_are_recorded_at_1_4_16_and_the_end() -> None:
    values = [-float(i) for i in range(1, 31)]
    rows = recorded_features(DECIDE_AT_TOKENS, values, [None] * 30, prompt_tokens=9)
    means = [row[FEATURES.index("mean_logprob")] for row in rows]
    assert means == [-1.0, -2.5, -8.5, -15.5]
    assert [row[FEATURES.index("log_output_tokens")] for row in rows] == [math.log1p(n) for n in (1, 4, 16, 30)]
    assert {row[-1] for row in rows} == {math.log1p(9)}


def test_a_short_answer_has_its_end_at_every_later_token() -> None:
    rows = recorded_features(DECIDE_AT_TOKENS, [-1.0, -3.0], [None, None], prompt_tokens=5)
    assert rows[0] == recorded_features(DECIDE_AT_TOKENS, [-1.0], [None], prompt_tokens=5)[-1]
    assert rows[1] == rows[2] == rows[3] == of([-1.0, -3.0]).features(5)


def test_the_tokens_of_arguments_are_found_in_the_text() -> None:
    tokens = ['<call>{"name": "f", "arguments": ', '{"ci', 'ty": "', "Par", 'is"}', "}</call>"]
    assert argument_tokens(tokens, ['{"city": "Paris"}']) == [False, True, True, True, True, False]
    assert argument_tokens(["a", "b", "a"], ["a", "a"]) == [True, False, True]
    assert argument_tokens(["x"], ["not there", ""]) == [False]


@given(st.lists(st.text("ab", max_size=3), max_size=30), st.lists(st.text("ab", max_size=4), max_size=8))
def test_a_token_belongs_to_arguments_where_it_has_a_part_of_one(tokens: list[str], arguments: list[str]) -> None:
    text, inside, begin = "".join(tokens), set[int](), 0
    for one in arguments:
        place = text.find(one, begin) if one else -1
        if place >= 0:
            begin = place + len(one)
            inside |= set(range(place, begin))
    at, expected = 0, []
    for token in tokens:
        expected.append(any(place in inside for place in range(at, at + len(token))))
        at += len(token)
    marks = argument_tokens(tokens, arguments)
    assert [mark for mark, token in zip(marks, tokens, strict=True) if token] == [
        one for one, token in zip(expected, tokens, strict=True) if token
    ]
