"""Chunks as clients get them: with as many of the likeliest tokens as they have asked for."""

import json
from typing import Any

import pytest

from gearshift.runtime.engines.requests.asked import CHAT, TEXT
from gearshift.serving.openai.bodies import read_body
from gearshift.serving.openai.chunks import Cleaner, facts_of, headers_of
from tests.emulated_service import EmulatedService
from tests.two_language_models import language_plan
from tests.unit.runtime.engines.test_language_service import SPLIT, SURE, UNSURE, served

TOP = [{"token": "?", "logprob": -2.0, "bytes": None}, {"token": "so", "logprob": -0.5, "bytes": None}]


def cleaned(path: str, given: dict[str, Any], **asked: Any) -> Any:
    prompt = {"messages": [{"role": "user", "content": "a"}]} if path == CHAT else {"prompt": "a"}
    wanted = read_body(path, json.dumps({"model": "chat", **prompt, **asked}).encode(), "chat")
    said = {"delta": {"content": "so"}} if path == CHAT else {"text": "so"}
    chunk = {"model": "m", "choices": [{"index": 0, **said, "logprobs": given}]}
    choices = json.loads(bytes(Cleaner("chat", wanted).clean(json.dumps(chunk).encode())["choices"]))
    return choices[0]["logprobs"]


def test_likeliest_tokens_whose_log_probability_is_null_are_the_least_likely() -> None:
    none = {"token": "no", "logprob": None}
    chat = {"content": [{"token": "so", "logprob": None, "top_logprobs": [none, *TOP]}]}
    assert cleaned(CHAT, chat, logprobs=True, top_logprobs=1)["content"][0]["top_logprobs"] == [TOP[1]]
    text = {"tokens": ["so"], "top_logprobs": [{"no": None, "so": -0.5, "?": -2.0}]}
    assert cleaned(TEXT, text, logprobs=1)["top_logprobs"] == [{"so": -0.5}]


@pytest.mark.parametrize("index", [{}, {"index": None}, {"index": 0}])
def test_a_choice_has_its_number(index: dict[str, Any]) -> None:
    wanted = read_body(TEXT, b'{"model": "chat", "prompt": "a"}', "chat")
    chunk = {"choices": [{**index, "text": "so"}]}
    assert json.loads(bytes(Cleaner("chat", wanted).clean(json.dumps(chunk).encode())["choices"]))[0]["index"] == 0


@pytest.mark.parametrize("count", [None, 0, 1, 2, 5])
def test_a_chat_has_as_many_of_the_likeliest_tokens_as_were_asked_for(count: int | None) -> None:
    logprobs = {"content": [{"token": "so", "logprob": -0.5, "bytes": None, "top_logprobs": TOP}]}
    got = cleaned(CHAT, logprobs, logprobs=True, top_logprobs=count)
    (token,) = got["content"]
    assert [one["token"] for one in token["top_logprobs"]] == (["so", "?"] if count == 1 else ["?", "so"])[: count or 0]
    assert token["logprob"] == -0.5


def test_likeliest_tokens_without_a_log_probability_are_passed_on() -> None:
    bare = [{"token": "?", "logprob": -2.0}, {"token": "so"}]
    logprobs = {"content": [{"token": "so", "logprob": -0.5, "top_logprobs": bare}]}
    (token,) = cleaned(CHAT, logprobs, logprobs=True, top_logprobs=1)["content"]
    assert token["top_logprobs"] == [{"token": "so"}]


@pytest.mark.parametrize(("count", "left"), [(0, ["?"]), (1, ["so", "?"]), (2, ["so", "and", "?"]), (3, None)])
def test_a_text_has_the_likeliest_tokens_asked_for_and_the_one_that_was_taken(
    count: int, left: list[str] | None
) -> None:
    top = {"so": -0.5, "and": -1.0, "?": -2.0}
    logprobs = {
        "tokens": ["?", "a"],
        "token_logprobs": [-2.0, None],
        "top_logprobs": [top, None],
        "text_offset": [0, 1],
    }
    got = cleaned(TEXT, logprobs, logprobs=count)
    assert list(got["top_logprobs"][0]) == (left or list(top))
    assert {name: got[name] for name in got if name != "top_logprobs"} == {
        name: logprobs[name] for name in logprobs if name != "top_logprobs"
    }
    assert got["top_logprobs"][1] is None


def test_none_are_left_where_none_were_asked_for() -> None:
    assert cleaned(CHAT, {"content": [{"token": "so", "logprob": -0.5, "top_logprobs": TOP}]}) is None


def test_an_answer_has_the_certainty_of_its_own_model() -> None:
    told: list[tuple[bool, bool]] = []

    async def use(service: EmulatedService) -> None:
        for record, model in ((SURE, "small"), (UNSURE, "large")):
            stream = (await service.ask(record)).stream
            assert stream is not None
            is_known = facts_of(stream, model)["certainty"] is not None
            told.append((is_known, b"x-gearshift-certainty" in dict(headers_of(stream, model))))

    served(language_plan([SPLIT]), use)
    assert told == [(True, True), (False, False)]
