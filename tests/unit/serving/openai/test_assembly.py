from typing import Any

import msgspec
import pytest

from gearshift.serving.openai.assembly import Assembly


def assembled(*chunks: list[dict[str, Any]], is_chat: bool = True) -> dict[str, Any]:
    assembly = Assembly(is_chat=is_chat)
    for choices in chunks:
        encoded = msgspec.json.encode({"id": "7", "object": "chunk", "choices": choices, "fingerprint": "x"})
        assembly.add(msgspec.json.decode(encoded, type=dict[str, msgspec.Raw]))
    whole: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(assembly.whole()))
    return whole


def delta(index: int = 0, finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"index": index, "delta": fields, "finish_reason": finish}


def test_texts_are_joined_for_each_choice() -> None:
    whole = assembled(
        [delta(role="assistant", content="")], [delta(content="Hel"), delta(1, content="A")], [delta(content="lo")],
        [delta(1, "length", content="B")], [delta(0, "stop")],
    )  # fmt: skip
    assert (whole["id"], whole["object"], whole["fingerprint"]) == ("7", "chat.completion", "x")
    assert [choice["message"]["content"] for choice in whole["choices"]] == ["Hello", "AB"]
    assert [choice["finish_reason"] for choice in whole["choices"]] == ["stop", "length"]
    assert {choice["message"]["role"] for choice in whole["choices"]} == {"assistant"}


def test_calls_of_tools_are_put_together() -> None:
    whole = assembled(
        [delta(role="assistant", content=None)],
        [delta(tool_calls=[{"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": ""}}])],
        [delta(tool_calls=[{"index": 0, "function": {"arguments": '{"x":'}}])],
        [delta(tool_calls=[{"index": 1, "id": "b", "type": "function", "function": {"name": "g", "arguments": "{}"}}])],
        [delta(tool_calls=[{"index": 0, "function": {"arguments": "1}"}}])],
        [delta(0, "tool_calls")],
    )
    message = whole["choices"][0]["message"]
    assert message["content"] is None
    assert message["tool_calls"] == [
        {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}},
        {"id": "b", "type": "function", "function": {"name": "g", "arguments": "{}"}},
    ]


@pytest.mark.parametrize("is_chat", [True, False])
def test_log_probabilities_are_joined(is_chat: bool) -> None:
    parts = [
        {"index": 0, "text": one, "delta": None, "logprobs": {"tokens": [one], "token_logprobs": [-1.0]}}
        for one in "ab"
    ]
    whole = assembled(*([part] for part in parts), is_chat=is_chat)
    assert whole["choices"][0]["logprobs"] == {"tokens": ["a", "b"], "token_logprobs": [-1.0, -1.0]}
    assert whole["choices"][0]["text"] == "ab"
