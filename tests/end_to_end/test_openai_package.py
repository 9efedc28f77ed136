"""OpenAI's own package against a server of language models, over engines that are emulated."""

import time
from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest

from tests.language_server import LanguageServer, serving
from tests.two_language_models import cascade, language_profile, write_language_plan

if TYPE_CHECKING:
    from openai import OpenAI

TOKENS = 12


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LanguageServer]:
    profile = language_profile(step_s=(0.001, 0.002), output_tokens=TOKENS)
    plan = write_language_plan(tmp_path_factory.mktemp("openai"), [cascade(-0.5, 1)], profile=profile)
    with serving(plan, "--backend", "emulated") as server:
        yield server


@pytest.fixture(scope="module")
def openai() -> Any:
    """Imported where it is needed: else each process of the tests would import its thousand modules."""
    return import_module("openai")


@pytest.fixture
def client(openai: Any, server: LanguageServer) -> "Iterator[OpenAI]":
    with openai.OpenAI(base_url=server.url, api_key="none is needed", max_retries=0, timeout=30) as client:
        yield client


def user(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


def test_models(openai: Any, client: "OpenAI") -> None:
    assert [model.id for model in client.models.list()] == ["chat"]
    assert client.models.retrieve("chat").owned_by == "gearshift"
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("gpt-4")
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")


def test_an_address_without_its_path_is_told_so(openai: Any, server: LanguageServer) -> None:
    address = server.url.removesuffix("/v1")
    with (
        openai.OpenAI(base_url=address, api_key="none", max_retries=0) as client,
        pytest.raises(openai.NotFoundError) as one,
    ):
        client.chat.completions.create(model="chat", messages=user("x"))
    assert "'/v1/chat/completions' is there" in str(one.value)


def test_a_whole_chat_completion(client: "OpenAI") -> None:
    answer = client.chat.completions.create(model="chat", messages=user("record 3"))
    (choice,) = answer.choices
    assert choice.message.role == "assistant"
    assert choice.message.content is not None
    assert choice.message.content.endswith(":3" + "".join(f" {n}" for n in range(1, TOKENS)))
    assert (choice.finish_reason, choice.logprobs) == ("stop", None)
    assert answer.object == "chat.completion"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == TOKENS
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + TOKENS
    told = answer.model_extra["gearshift"]
    assert told["model"] == choice.message.content.partition(":")[0] == told["stages"][-1]["model"]


@pytest.mark.parametrize("top", [None, 2])
def test_log_probabilities_are_given_where_they_are_asked_for(client: "OpenAI", top: int | None) -> None:
    wanted = {} if top is None else {"top_logprobs": top}
    whole = client.chat.completions.create(model="chat", messages=user("record 3"), logprobs=True, **wanted)
    parts = list(
        client.chat.completions.create(model="chat", messages=user("record 3"), logprobs=True, stream=True, **wanted)
    )
    assert whole.choices[0].logprobs is not None
    listed = whole.choices[0].logprobs.content or []
    assert len(listed) == TOKENS
    assert {len(token.top_logprobs) for token in listed} == {top or 0}
    streamed = [token for part in parts if part.choices[0].logprobs for token in part.choices[0].logprobs.content or []]
    assert streamed == listed


def test_usage_is_streamed_exactly_where_it_is_asked_for(client: "OpenAI") -> None:
    plain = list(client.chat.completions.create(model="chat", messages=user("x"), stream=True))
    assert all(chunk.choices and chunk.usage is None for chunk in plain)
    counted = list(
        client.chat.completions.create(
            model="chat", messages=user("x"), stream=True, stream_options={"include_usage": True}
        )
    )
    assert [bool(chunk.choices) for chunk in counted] == [True] * (len(counted) - 1) + [False]
    assert counted[-1].usage is not None
    assert counted[-1].usage.completion_tokens == TOKENS


def test_several_choices_come_from_one_model(client: "OpenAI") -> None:
    answer = client.chat.completions.create(model="chat", messages=user("record 3"), n=3)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert len({choice.message.content for choice in answer.choices}) == 1
    text: dict[int, str] = {}
    for chunk in client.chat.completions.create(model="chat", messages=user("record 3"), n=2, stream=True):
        for choice in chunk.choices:
            text[choice.index] = text.get(choice.index, "") + (choice.delta.content or "")
    assert set(text) == {0, 1}
    assert text[0] == text[1] == answer.choices[0].message.content


def test_completions_of_texts(client: "OpenAI") -> None:
    answer = client.completions.create(model="chat", prompt="record 5", max_tokens=4)
    assert (answer.choices[0].finish_reason, answer.object) == ("length", "text_completion")
    assert answer.choices[0].text.endswith(":5 1 2 3")
    parts = list(client.completions.create(model="chat", prompt="record 5", max_tokens=4, stream=True, logprobs=1))
    assert "".join(part.choices[0].text for part in parts) == answer.choices[0].text


def test_headers_tell_how_a_request_was_answered(client: "OpenAI") -> None:
    raw = client.chat.completions.with_raw_response.create(model="chat", messages=user("record 3"))
    headers = raw.headers
    assert headers["x-gearshift-model"] in ("small", "large")
    assert (headers["x-gearshift-gear"], headers["x-gearshift-stage"] in "01") == ("0", True)
    assert raw.headers["x-request-id"]


@pytest.mark.parametrize(
    ("fields", "error", "param"),
    [
        ({"messages": []}, "BadRequestError", "messages"),
        ({"model": "gpt-4"}, "NotFoundError", "model"),
        ({"max_tokens": 0}, "BadRequestError", "max_tokens"),
        ({"max_completion_tokens": "many"}, "BadRequestError", "max_completion_tokens"),
        ({"n": 0}, "BadRequestError", "n"),
        ({"top_logprobs": 2}, "BadRequestError", "top_logprobs"),
        ({"stream_options": {"include_usage": True}}, "BadRequestError", "stream_options"),
    ],
)
def test_errors_have_openais_form(
    openai: Any, client: "OpenAI", fields: dict[str, Any], error: str, param: str
) -> None:
    with pytest.raises(getattr(openai, error)) as caught:
        client.chat.completions.create(**({"model": "chat", "messages": user("x")} | fields))
    assert isinstance(caught.value.body, dict)
    assert (caught.value.body["param"], caught.value.body["type"]) == (param, "invalid_request_error")


def test_an_error_of_an_engine_amid_the_answer_ends_the_stream_with_an_error(openai: Any, client: "OpenAI") -> None:
    asked = {"emulated": {"error_after": 5}}
    seen: list[Any] = []
    stream = client.chat.completions.create(model="chat", messages=user("record 3"), stream=True, extra_body=asked)
    with pytest.raises(openai.APIError):
        seen.extend(stream)
    assert len(seen) >= 5
    with pytest.raises(openai.InternalServerError):
        client.chat.completions.create(model="chat", messages=user("record 3"), extra_body=asked)


def test_a_prompt_that_no_model_has_room_for_is_refused_as_such(openai: Any, client: "OpenAI") -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="chat", messages=user("x"), extra_body={"emulated": {"status": 400}})
    assert "emulated fault" in str(caught.value)


def test_an_engine_is_free_as_soon_as_its_client_has_left(client: "OpenAI", server: LanguageServer) -> None:
    stream = client.chat.completions.create(
        model="chat", messages=user("record 3"), stream=True, extra_body={"emulated": {"silent_after": 6}}
    )
    next(iter(stream))
    assert server.get("/v2/gearshift/status")["open_requests"] == 1
    stream.close()
    due_s = time.monotonic() + 5
    while server.get("/v2/gearshift/status")["open_requests"]:
        assert time.monotonic() < due_s
    assert 'gearshift_requests_total{operator="chat",outcome="cancelled"} 1.0' in server.get("/metrics")
