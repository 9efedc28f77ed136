import tracemalloc
from typing import Any

import msgspec
import pytest

from gearshift.serving.openai.assembly import MOST_CALLS, MOST_FIELDS, MOST_ITEMS, Assembly
from tests.unit.runtime.engines.upstream.test_work import calls_of


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


def test_blanks_never_replace_a_value() -> None:
    whole = assembled([delta(role="assistant", content="a", mark={"x": 1})], [delta(role="", content=None, mark={})])
    message = whole["choices"][0]["message"]
    assert (message["role"], message["content"], message["mark"]) == ("assistant", "a", {"x": 1})


def test_content_may_change_from_text_to_parts_and_back() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:,"}}
    whole = assembled([delta(content='say "')], [delta(content='a"')], [delta(content=[image])], [delta(content="b")])
    parts = [{"type": "text", "text": 'say "a"'}, image, {"type": "text", "text": "b"}]
    assert whole["choices"][0]["message"]["content"] == parts


def test_parts_of_a_list_that_came_together_stay_apart() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert assembled([delta(content=parts)])["choices"][0]["message"]["content"] == parts


def test_texts_are_joined_as_they_stand_in_json() -> None:
    assembly = Assembly(is_chat=True)
    for text in (rb"\"a\\", rb"\ud83d\ude00\u00e9", "é".encode()):
        choices = b'[{"index": 0, "delta": {"content": "%b"}}]' % text
        assembly.add({"choices": msgspec.Raw(choices)})
    assert msgspec.json.decode(msgspec.json.encode(assembly.whole()))["choices"][0]["message"]["content"] == (
        '"a\\\N{GRINNING FACE}éé'
    )


def test_a_long_list_of_objects_is_not_taken_apart() -> None:
    items = [{"type": "t", "text": str(number)} for number in range(MOST_ITEMS + 1)]
    few = [{"type": "t", "text": "a"}]
    chunks = [[delta(details=few)], [delta(details=items)], [delta(details=few)]]
    assert assembled(*chunks)["choices"][0]["message"]["details"] == [*few, *items, *few]
    assembly = Assembly(is_chat=True)
    encoded = msgspec.Raw(msgspec.json.encode([delta(details=items)]))
    assert calls_of(lambda: assembly.add({"choices": encoded})) < 200


def test_more_fields_than_bounded_are_left_out() -> None:
    fields = {f"a{number}": number for number in range(5 * MOST_FIELDS)}
    whole = assembled([delta(**fields)], [delta(content="a", **fields)], [{"index": 0, **fields}])
    (choice,) = whole["choices"]
    assert len(choice["message"]) <= MOST_FIELDS + 2
    assert len(choice) <= MOST_FIELDS + 5


def test_fields_beside_the_choices_count_too() -> None:
    assembly = Assembly(is_chat=True)
    for number in range(100):
        assembly.add({f"a{number}": msgspec.Raw(b'"%b"' % (b"x" * 10_000)), "choices": msgspec.Raw(b"[]")})
    assert 1_000_000 < assembly.size_bytes < 1_100_000


def test_an_answer_with_more_calls_than_bounded_is_full() -> None:
    assembly = Assembly(is_chat=True)
    for number in range(MOST_CALLS + 1):
        assert not assembly.is_full
        call = {"index": number, "id": f"c{number}", "function": {"name": "f", "arguments": "{}"}}
        assembly.add({"choices": msgspec.Raw(msgspec.json.encode([delta(tool_calls=[call])]))})
    assert assembly.is_full


def test_what_is_kept_of_small_objects_counts_as_more_than_their_bytes() -> None:
    """A list of objects takes many times the memory of its JSON."""
    chunk = {"choices": msgspec.Raw(msgspec.json.encode([delta(details=[{"a": 1}] * 1000)]))}
    tracemalloc.start()
    try:
        assembly, before = Assembly(is_chat=True), tracemalloc.get_traced_memory()[0]
        for _ in range(20):
            assembly.add(chunk)
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert taken <= assembly.size_bytes
