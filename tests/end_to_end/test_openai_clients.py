"""Other clients of OpenAI's API against a server of language models: curl, and LangChain's."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.language_server import LanguageServer, chat, serving
from tests.two_language_models import SMALL_ALONE, language_profile, write_language_plan

TOKENS = 12
TEXT = "small:3" + "".join(f" {number}" for number in range(1, TOKENS))
CURL = shutil.which("curl")
needs_curl = pytest.mark.skipif(CURL is None, reason="curl is not installed")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LanguageServer]:
    profile = language_profile(step_s=(0.001, 0.002), output_tokens=TOKENS)
    plan = write_language_plan(tmp_path_factory.mktemp("clients"), [SMALL_ALONE], profile=profile)
    with serving(plan, "--backend", "emulated") as server:
        yield server


def curl(server: LanguageServer, body: Any, *options: str) -> tuple[int, str]:
    """The status, and what else it wrote."""
    content = body if isinstance(body, str) else json.dumps(body)
    command = [str(CURL), "-sS", "--max-time", "30", "-w", "\n%{http_code}", *options, "--data-binary", "@-"]
    done = subprocess.run(
        [*command, f"{server.url}/chat/completions"], input=content, capture_output=True, text=True, check=True
    )
    answer, _, status = done.stdout.rpartition("\n")
    return int(status), answer


@needs_curl
@pytest.mark.long
@pytest.mark.parametrize("version", ["--http1.1", "--http1.0"])
def test_curl_gets_a_whole_answer_with_its_headers(server: LanguageServer, version: str) -> None:
    status, answer = curl(server, chat(3), version, "-i", "-H", "content-type: application/json")
    head, _, body = answer.replace("\r\n", "\n").partition("\n\n")
    assert status == 200
    assert json.loads(body)["choices"][0]["message"] == {"role": "assistant", "content": TEXT}
    assert "x-gearshift-model: small" in head.splitlines()


@needs_curl
@pytest.mark.long
@pytest.mark.parametrize("version", ["--http1.1", "--http1.0"])
def test_curl_gets_a_stream_event_by_event(server: LanguageServer, version: str) -> None:
    status, answer = curl(server, chat(3, stream=True), version, "-N")
    events = answer.split("\n\n")
    assert (status, events[-2:]) == (200, ["data: [DONE]", ""])
    chunks = [json.loads(event.removeprefix("data: ")) for event in events[:-2]]
    assert "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks) == TEXT


@needs_curl
@pytest.mark.long
def test_curl_asks_before_it_sends_a_large_body(server: LanguageServer) -> None:
    large = chat(3, padding="x" * 2_000_000)
    status, answer = curl(server, large, "-H", "expect: 100-continue")
    assert (status, json.loads(answer)["choices"][0]["message"]["content"]) == (200, TEXT)


@needs_curl
@pytest.mark.long
@pytest.mark.parametrize(
    ("body", "options", "status"),
    [
        ("{", (), 400),
        ({"model": "other", "messages": [{}]}, (), 404),
        (chat(3, max_tokens=10**12), (), 400),
        (chat(3), ("-H", "content-encoding: gzip"), 400),
        (chat(3), ("-X", "PUT"), 405),
    ],
)
def test_curl_gets_errors_in_openais_form(
    server: LanguageServer, body: Any, options: tuple[str, ...], status: int
) -> None:
    answered, answer = curl(server, body, *options)
    assert answered == status
    assert json.loads(answer)["error"]["message"]


# LangChain ---------------------------------------------------------------------------------------


def langchain(server: LanguageServer, **options: Any) -> Any:
    clients = pytest.importorskip("langchain_openai", reason="langchain-openai is not installed")
    return clients.ChatOpenAI(model="chat", base_url=server.url, api_key="none", max_retries=0, timeout=30, **options)


@pytest.mark.long
def test_langchain_gets_an_answer_with_its_usage(server: LanguageServer) -> None:
    answer = langchain(server).invoke("record 3")
    assert answer.content == TEXT
    assert answer.usage_metadata["output_tokens"] == TOKENS
    assert answer.response_metadata["finish_reason"] == "stop"


@pytest.mark.long
def test_langchain_streams_and_batches(server: LanguageServer) -> None:
    model = langchain(server, stream_usage=True)
    parts = list(model.stream("record 3"))
    assert len(parts) > TOKENS
    assert "".join(part.content for part in parts) == TEXT
    assert sum(part.usage_metadata["output_tokens"] for part in parts if part.usage_metadata) == TOKENS
    assert [answer.content for answer in model.batch(["record 3"] * 5)] == [TEXT] * 5


@pytest.mark.long
def test_langchain_gets_log_probabilities_and_tools(server: LanguageServer) -> None:
    answer = langchain(server).bind(logprobs=True, top_logprobs=2).invoke("record 3")
    assert len(answer.response_metadata["logprobs"]["content"]) == TOKENS
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
    assert langchain(server).bind_tools([tool]).invoke("record 3").content == TEXT


@pytest.mark.long
def test_langchain_raises_what_the_server_says(server: LanguageServer) -> None:
    with pytest.raises(Exception, match="max_completion_tokens"):
        langchain(server).bind(max_tokens=0).invoke("record 3")
    model = langchain(server, extra_body={"emulated": {"error_after": 5}})
    with pytest.raises(Exception, match="the engine failed"):
        list(model.stream("record 3"))
