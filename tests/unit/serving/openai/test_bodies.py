import asyncio
import json
import tracemalloc
from contextlib import suppress
from typing import Any

import pytest

from gearshift.runtime.engines.requests.asked import CHAT, REQUEST_BYTES, TEXT, Asked
from gearshift.runtime.engines.requests.engine_request import NO_MOST_TOKENS
from gearshift.serving.openai import bodies
from gearshift.serving.openai.bodies import (
    LARGE_BYTES,
    MOST_TOKENS,
    MOST_VALUES,
    BadBody,
    UnknownModel,
    read_body,
    read_large_body,
    reading_of,
)
from gearshift.v2 import large_values
from gearshift.v2.pieces import STEP_BYTES

USER = [{"role": "user", "content": "hi"}]


def read(path: str = CHAT, **fields: Any) -> Asked:
    start = {"messages": USER} if path == CHAT else {"prompt": "hi"}
    return read_body(path, json.dumps({"model": "chat", **start, **fields}).encode(), "chat")


def test_what_engines_are_asked_has_the_unknown_fields_and_ours() -> None:
    wanted = read(stream=False, best_of_all={"deep": [1, 2]}, max_tokens=5, max_completion_tokens=7, n=2)
    body = json.loads(wanted.body("small", least_top_logprobs=0))
    assert body == {
        "model": "small", "messages": USER, "best_of_all": {"deep": [1, 2]}, "max_tokens": 5,
        "max_completion_tokens": 7, "n": 2, "stream": True, "stream_options": {"include_usage": True}, "logprobs": True,
    }  # fmt: skip
    assert (wanted.most_tokens, wanted.choices, wanted.streamed, wanted.top_logprobs) == (5, 2, False, None)
    assert read().most_tokens == NO_MOST_TOKENS


def test_log_probabilities_of_clients_and_of_certainty_are_asked_together() -> None:
    asked = read(logprobs=True, top_logprobs=5)
    assert json.loads(asked.body("m", least_top_logprobs=2))["top_logprobs"] == 5
    assert json.loads(read().body("m", least_top_logprobs=2))["top_logprobs"] == 2
    assert "logprobs" not in json.loads(read().body("m", least_top_logprobs=None))
    assert json.loads(read(TEXT, logprobs=3).body("m", least_top_logprobs=2))["logprobs"] == 3
    assert json.loads(read(TEXT).body("m", least_top_logprobs=0))["logprobs"] == 1


def test_several_prompts_are_several_choices() -> None:
    assert read(TEXT, prompt=["a", "b"], n=3).choices == 6
    assert read(TEXT, prompt=[[1, 2], [3]]).choices == 2
    assert read(TEXT, prompt=[1, 2, 3]).choices == 1


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
    assert read(TEXT, prompt="a", n=2, best_of=2).choices == 2


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
    assert read(**{field: MOST_TOKENS}).most_tokens == MOST_TOKENS


@pytest.mark.parametrize(
    "more",
    [
        b",".join(b'"field-%d":1' % number for number in range(1025)),
        b'"metadata":[%b1]' % (b"1," * MOST_VALUES),
        b'"metadata":[{"a":[%b1]}]' % (b"{}," * MOST_VALUES),
        b'"prompt":[%b1]' % (b"1," * MOST_VALUES),
        b'"prompt":[%b[]]' % (b"[]," * 128),
        b'"prompt":[%b""]' % (b'"",' * 50_000),
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
            asked = read_body(CHAT, bytes(bytearray(body)), "chat")
            kept.append((asked, b"POST " + asked.body("small", least_top_logprobs=2)))
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    taken = (after - before) / many
    assert taken <= kept[0][0].held_bytes <= REQUEST_BYTES + 4 * taken


@pytest.mark.parametrize(
    "fields",
    [
        {"messages": [{"role": "user", "content": "é😀\\" * 99}, {"role": "user", "content": [{"type": "text"}]}]},
        {"messages": [{"content": [{"type": "image_url", "image_url": {"url": "data:" + "x" * 999}}]}], "n": 3},
        {
            "tools": [{"type": "function", "function": {"name": "f", "parameters": {"a": [[], {}]}}}] * 20,
            "stream": True,
        },
        {"logit_bias": {"1": -1.5e-3}, "metadata": None, "": 1, 'a"\\': [], "logprobs": True, "top_logprobs": 2},
        {"max_tokens": 7, "user": "é", "stream": True, "stream_options": {"include_usage": True}},
    ],
)
@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("step_bytes", [64, STEP_BYTES])
def test_a_large_body_is_read_as_a_small_one(
    fields: dict[str, Any], indent: int | None, step_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = json.dumps({"model": "chat", "messages": USER, **fields}, indent=indent, ensure_ascii=False).encode()
    small = read_body(CHAT, body, "chat")
    monkeypatch.setattr(bodies, "LARGE_BYTES", 0)
    monkeypatch.setattr(large_values, "STEP_BYTES", step_bytes)
    large = asyncio.run(read_large_body(CHAT, body, "chat"))
    asked = [json.loads(one.body("m", least_top_logprobs=1)) for one in (small, large)]
    assert asked[0] == asked[1]
    small.fields = large.fields = {}
    assert repr(large) == repr(small)


def test_of_fields_with_one_name_the_last_counts() -> None:
    body = b'{"n":2,"model":"no","messages":[1],"model":"chat","a":"%b","n":3}' % (b" " * LARGE_BYTES)
    assert read_body(CHAT, body, "chat").choices == 3


FIELD = b'{"model":"chat","messages":[{"content":"x"}],%b}'
PROMPT = b'{"model":"chat","prompt":%b}'


@pytest.mark.parametrize(
    ("path", "body", "steps"),
    [
        (CHAT, FIELD % b",".join(b'"%x":0' % number for number in range(100_000)), 2),
        (CHAT, FIELD % (b'"model":"chat",' * 100_000 + b'"a":1'), 2),
        (CHAT, b"{%b}" % b",".join(b'"%b":1' % (b"a" * 60_000) for _ in range(20)), 12),
        (CHAT, FIELD % (b'"n":' + b"9" * (4 << 20)), 12),
        (CHAT, FIELD % (b'"a":1,' + b" " * (4 << 20)), 12),
        (CHAT, FIELD % (b'"a":' + b"[" * (2 << 20) + b"]" * (2 << 20)), 12),
        (CHAT, FIELD % (b'"a":[' + b"[[],0]," * (3 << 19)), 64),
        (CHAT, FIELD % (b'"a":"' + b"a" * (2 << 20) + b'\xe9"'), 18),
        (CHAT, FIELD % (b'"user":' + b"[" * 60_000 + b"]" * 60_000), 3),
        (CHAT, b'{"model":"%b","messages":[1]}' % (b"m" * (2 << 20)), 18),
        (TEXT, PROMPT % (b"[%b[]]" % (b"[]," * 1_000_000)), 30),
        (TEXT, PROMPT % (b"[%b1]" % (b'{"a":1},' * 100_000)), 10),
        (TEXT, PROMPT % (b"[%b1]" % (b"0.5," * 100_000)), 10),
    ],
    ids=lambda given: "" if isinstance(given, bytes) else str(given),
)
def test_a_hostile_body_is_refused_in_few_steps_and_is_not_kept(path: str, body: bytes, steps: int) -> None:
    reading, taken = reading_of(path, body, "chat"), 0
    tracemalloc.start()
    try:
        with suppress(BadBody):
            while True:
                next(reading)
                taken += 1
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken <= steps
    assert most_bytes < 40 * STEP_BYTES


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, b'{"model":"chat","messages":[{"content":"%b"}]}' % (b"a" * (4 << 20))),
        (CHAT, b'{"model":"chat","messages":[%b1]}' % (b'{"image_url":{"url":"data:%b"}},' % (b"a" * 99_999) * 40)),
        (CHAT, b'{"model":"chat","messages":[%b1]}' % (b'{"url":"https:"},' * 200_000)),
        (TEXT, b'{"model":"chat","prompt":[%b1]}' % (b"70000," * 600_000)),
        (TEXT, b'{"model":"chat","prompt":"%b"}' % (b"\\u00e9" * 600_000)),
    ],
)
def test_a_large_body_takes_a_step_for_some_of_its_bytes(path: str, body: bytes) -> None:
    taken = sum(1 for _ in reading_of(path, body, "chat"))
    assert len(body) / STEP_BYTES < taken < 4 * len(body) / STEP_BYTES


def test_the_data_of_pictures_and_sounds_is_no_part_of_the_prompt() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 2_000_000}}
    asked = read(messages=[{"role": "user", "content": [{"type": "text", "text": "what is this?"}, picture]}])
    assert asked.media == 1
    assert asked.prompt_bytes < 200
    assert asked.held_bytes > 4_000_000
    assert (read().media, read(TEXT).media) == (0, 0)
