"""Chunks that are not quite as OpenAI's are heard all the same."""

import math

import msgspec
import pytest

from gearshift.runtime.engines.upstream.chunk import decode_chunk


def test_a_list_of_choices_may_be_null() -> None:
    assert decode_chunk(b'{"choices": null}').choices == []


@pytest.mark.parametrize("usage", [b'{"prompt_tokens": null}', b'{"prompt_tokens": "many"}', b"7", b"null"])
def test_a_usage_that_cannot_be_read_is_none(usage: bytes) -> None:
    assert decode_chunk(b'{"choices": [], "usage": %b}' % usage).usage is None


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
    chunk = decode_chunk(b'{"choices": [{"index": null, "delta": {"tool_calls": [{"index": null, "function": {}}]}}]}')
    assert chunk.first is not None
    assert chunk.first.arguments == [(0, "")]


def test_arguments_that_come_as_an_object_are_its_json() -> None:
    chunk = decode_chunk(b'{"choices": [{"delta": {"tool_calls": [{"function": {"arguments": {"x": 1}}}]}}]}')
    assert chunk.choices[0].arguments == [(0, '{"x":1}')]


def test_choices_of_another_kind_are_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        decode_chunk(b'{"choices": "x"}')
