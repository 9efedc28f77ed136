import json
import tracemalloc
from typing import Any

import pytest

from gearshift.runtime.engines.requests.asked import CHAT, REQUEST_BYTES, TEXT
from gearshift.runtime.engines.requests.engine_request import NO_MOST_TOKENS
from gearshift.serving.openai.bodies import (
    MOST_COLONS,
    MOST_COMMAS,
    MOST_TOKENS,
    BadBody,
    UnknownModel,
    Wanted,
    read_body,
)

USER = [{"role": "user", "content": "hi"}]


def read(path: str = CHAT, **fields: Any) -> Wanted:
    start = {"messages": USER} if path == CHAT else {"prompt": "hi"}
    return read_body(path, json.dumps({"model": "chat", **start, **fields}).encode(), "chat")


def test_what_engines_are_asked_has_the_unknown_fields_and_ours() -> None:
    wanted = read(stream=False, best_of_all={"deep": [1, 2]}, max_tokens=5, max_completion_tokens=7, n=2)
    body = json.loads(wanted.asked.body("small", least_top_logprobs=0))
    assert body == {
        "model": "small", "messages": USER, "best_of_all": {"deep": [1, 2]}, "max_tokens": 5,
        "max_completion_tokens": 7, "n": 2, "stream": True, "stream_options": {"include_usage": True}, "logprobs": True,
    }  # fmt: skip
    assert (wanted.asked.most_tokens, wanted.asked.choices, wanted.stream, wanted.logprobs) == (5, 2, False, False)
    assert read().asked.most_tokens == NO_MOST_TOKENS


def test_log_probabilities_of_clients_and_of_certainty_are_asked_together() -> None:
    asked = read(logprobs=True, top_logprobs=5).asked
    assert json.loads(asked.body("m", least_top_logprobs=2))["top_logprobs"] == 5
    assert json.loads(read().asked.body("m", least_top_logprobs=2))["top_logprobs"] == 2
    assert "logprobs" not in json.loads(read().asked.body("m", least_top_logprobs=None))
    assert json.loads(read(TEXT, logprobs=3).asked.body("m", least_top_logprobs=2))["logprobs"] == 3
    assert json.loads(read(TEXT).asked.body("m", least_top_logprobs=0))["logprobs"] == 1


def test_several_prompts_are_several_choices() -> None:
    assert read(TEXT, prompt=["a", "b"], n=3).asked.choices == 6
    assert read(TEXT, prompt=[[1, 2], [3]]).asked.choices == 2
    assert read(TEXT, prompt=[1, 2, 3]).asked.choices == 1


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        (CHAT, {"messages": "hi"}, "messages"),
        (CHAT, {"n": 1000}, "n"),
        (CHAT, {"max_tokens": -1}, "max_tokens"),
        (CHAT, {"max_tokens": 0}, "max_tokens"),
        (CHAT, {"max_completion_tokens": 1 << 31}, "max_completion_tokens"),
        (CHAT, {"logprobs": 3}, "logprobs"),
        (CHAT, {"stream": "yes"}, "stream"),
        (TEXT, {"prompt": None}, "prompt"),
        (TEXT, {"prompt": []}, "prompt"),
        (TEXT, {"prompt": ["a", 1]}, "prompt"),
        (TEXT, {"prompt": "a", "n": 2, "best_of": 3}, "best_of"),
    ],
)
def test_a_field_that_does_not_fit_is_named(path: str, fields: dict[str, Any], param: str) -> None:
    with pytest.raises(BadBody) as caught:
        read(path, **fields)
    assert caught.value.param == param


def test_the_best_of_as_many_as_are_wanted_is_all_of_them() -> None:
    assert read(TEXT, prompt="a", n=2, best_of=2).asked.choices == 2


@pytest.mark.parametrize("field", [b'"messages":[{"content":"\xe9"}]', b'"messages":[1],"user":"\xe9"'])
def test_a_body_in_another_encoding_is_refused_before_an_engine_gets_it(field: bytes) -> None:
    with pytest.raises(BadBody, match="utf-8"):
        read_body(CHAT, b'{"model":"chat",%b}' % field, "chat")


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"model": "\xff"}', b'{"model": 7}', b"[" * 10_000])
def test_what_is_no_body_is_refused(body: bytes) -> None:
    with pytest.raises(BadBody):
        read_body(CHAT, body, "chat")


def test_another_model_is_unknown() -> None:
    with pytest.raises(UnknownModel) as caught:
        read(model="gpt-4")
    assert (caught.value.http_status, caught.value.code) == (404, "model_not_found")


@pytest.mark.parametrize("tokens", [0, -1, MOST_TOKENS + 1, 10**30, 1.5])
@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
def test_the_tokens_of_an_answer_have_bounds(field: str, tokens: float) -> None:
    with pytest.raises(BadBody) as caught:
        read(**{field: tokens})
    assert caught.value.param == field
    assert read(**{field: MOST_TOKENS}).asked.most_tokens == MOST_TOKENS


@pytest.mark.parametrize(
    "more",
    [
        b",".join(b'"field-%d":1' % number for number in range(1025)),
        b'"metadata":"%b"' % (b":" * MOST_COLONS),
        b'"prompt":[%b1]' % (b"1," * (MOST_COMMAS + 1)),
        b'"prompt":["a","b"],"n":128',
    ],
)
def test_a_body_that_would_take_much_memory_or_work_is_refused(more: bytes) -> None:
    with pytest.raises(BadBody, match=r"more than|at most"):
        read_body(TEXT, b'{"model":"chat","prompt":"a",%b}' % more, "chat")


@pytest.mark.parametrize("prompt", [b'"\xff"', b"[1e999]"])
def test_a_prompt_that_is_no_json_value_is_refused(prompt: bytes) -> None:
    with pytest.raises(BadBody):
        read_body(TEXT, b'{"model":"chat","prompt":%b}' % prompt, "chat")


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"messages": [{"role": "user", "content": "x" * 100_000}]},
        {"messages": [{"role": "user", "content": "x"}] * 1000},
        {"attachment": "x" * 100_000, "max_tokens": 3},
        {f"field-{number}": number for number in range(1000)},
    ],
)
def test_the_memory_that_is_counted_for_a_request_is_no_less_than_it_takes(fields: dict[str, Any]) -> None:
    body = json.dumps({"model": "chat", "messages": USER, **fields}).encode()
    read_body(CHAT, body, "chat")
    many = 20
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        kept = []
        for _ in range(many):
            asked = read_body(CHAT, bytes(bytearray(body)), "chat").asked
            kept.append((asked, b"POST " + asked.body("small", least_top_logprobs=2)))
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    taken = (after - before) / many
    assert taken <= kept[0][0].held_bytes <= REQUEST_BYTES + 4 * taken
