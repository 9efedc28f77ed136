"""Chunks that are not quite as OpenAI's are heard all the same."""

import math
import tracemalloc

import pytest

from gearshift.runtime.engines.upstream.chunk import MOST_PARTS, MOST_VALUES, BadAnswer, decode_chunk


def test_a_list_of_choices_may_be_null() -> None:
    assert decode_chunk(b'{"choices": null}').choices == []


@pytest.mark.parametrize("usage", [b'{"prompt_tokens": null}', b"{}", b'{"cost": 1}', b"null"])
def test_a_usage_without_counts_is_none(usage: bytes) -> None:
    assert decode_chunk(b'{"choices": [], "usage": %b}' % usage).usage is None


@pytest.mark.parametrize(
    "usage",
    [
        b"7",
        b'"9"',
        b"[9]",
        *(b'{"prompt_tokens": %b}' % one for one in (b'"many"', b"-1", b"5.5", b"1e99", b"true", b"[]")),
    ],
)
def test_a_usage_that_is_no_number_of_tokens_is_no_part_of_an_answer(usage: bytes) -> None:
    chunk = decode_chunk(b'{"choices": [], "usage": %b}' % usage)
    with pytest.raises(BadAnswer, match="whose usage is no count of tokens"):
        _ = chunk.usage


def test_a_usage_may_be_in_floats() -> None:
    usage = decode_chunk(b'{"usage": {"prompt_tokens": 5.0, "completion_tokens": 3.0}}').usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (5, 3)


def test_a_token_without_a_log_probability_is_as_unlikely_as_can_be() -> None:
    chunk = decode_chunk(
        b'{"choices": [{"logprobs": {"content": [{"token": "a", "logprob": null, "top_logprobs": '
        b'[{"token": "b", "logprob": null}]}]}}]}'
    )
    (token,) = chunk.choices[0].tokens
    assert (token.logprob, token.second) == (-math.inf, -math.inf)


def test_an_index_that_is_null_is_the_first() -> None:
    assert decode_chunk(b'{"choices": [{"index": null, "delta": {"content": "a"}}]}').first is not None


def test_arguments_that_come_as_an_object_are_its_json() -> None:
    chunk = decode_chunk(b'{"choices": [{"delta": {"tool_calls": [{"function": {"arguments": {"x": 1}}}]}}]}')
    (call,) = chunk.choices[0].tool_calls
    assert call.function is not None
    assert call.function.text == '{"x":1}'


def test_content_may_be_a_list_of_parts() -> None:
    """Mistral's reasoning models give their thoughts in parts of their own."""
    thought = b'{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}'
    chunk = decode_chunk(b'{"choices": [{"delta": {"content": [%b, {"type": "text", "text": "yes"}]}}]}' % thought)
    assert (chunk.choices[0].said, chunk.choices[0].token_count) == ("yes", 1)


def test_choices_of_another_kind_are_refused() -> None:
    with pytest.raises(BadAnswer, match="cannot be read"):
        decode_chunk(b'{"choices": "x"}')


def test_a_chunk_has_a_bound_on_its_choices() -> None:
    decode_chunk(b'{"choices": [%b]}' % b",".join([b"{}"] * MOST_PARTS))
    with pytest.raises(BadAnswer, match="1025 choices"):
        decode_chunk(b'{"choices": [%b]}' % b",".join([b"{}"] * (MOST_PARTS + 1)))


@pytest.mark.parametrize("many", [b'{"choices": [%b]}', b'{"choices": [], "x": [%b]}', b'{"choices": [{"x": [%b]}]}'])
def test_a_chunk_with_too_many_values_is_not_taken_apart(many: bytes) -> None:
    data = many % b",".join([b"{}"] * MOST_VALUES)
    tracemalloc.start()
    try:
        with pytest.raises(BadAnswer, match="more than 131072 values"):
            decode_chunk(data)
        assert tracemalloc.get_traced_memory()[1] < len(data) / 10
    finally:
        tracemalloc.stop()
