"""`gearshift serve` over llama.cpp's server, which it starts, with two tiny Llamas."""

import os
import random
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from gearshift.verbs.init.order_lines import order_line
from tests.language_server import LanguageServer, serving, streamed, text_of
from tests.llama import COMMAND, PATH, needs_llama
from tests.two_language_models import cascade, language_profile, write_language_plan

pytestmark = needs_llama
THRESHOLD = -0.02
OTHER_MODEL = {"small": "small", "large": "medium"}
ENGINE = """
[models.{name}.engine]
command = "{command} -m {file} --alias {name} --host 127.0.0.1 --port {{port}} -t 1 -np 4 -c 2048 --skip-chat-parsing"
model = "{name}"
context_tokens = 512
largest_running = 4
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LanguageServer]:
    folder = tmp_path_factory.mktemp("llama")
    plan = write_language_plan(folder, [cascade(THRESHOLD, 4)], profile=language_profile(), most_outstanding=4)
    models = files("gearshift.verbs.init") / "order_models"
    engines = [
        ENGINE.format(name=name, file=models / f"{file}.gguf", command=Path(PATH.partition(os.pathsep)[0]) / COMMAND)
        for name, file in OTHER_MODEL.items()
    ]
    (folder / "gearshift.toml").write_text('operator = "chat"\nprompts = "prompts.jsonl"\n' + "".join(engines))
    with serving(plan, "--project", str(folder / "gearshift.toml"), "--probe-s", "0.3") as server:
        yield server


def asked(text: str, **fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    return {"model": "chat", "messages": messages, "max_tokens": 40, "temperature": 0, **fields}


def test_answers_of_both_models_are_streamed_as_they_are_right(server: LanguageServer) -> None:
    generator = random.Random(7)
    lines = [order_line(generator) for _ in range(40)]

    def ask(place: int) -> tuple[str, str, float | None]:
        headers, chunks = streamed(server.port, asked(lines[place].text, stream_options={"include_usage": True}))
        assert chunks.pop() == {}
        assert chunks[-1]["usage"]["completion_tokens"] > 0
        return headers["x-gearshift-model"], text_of(chunks).strip(), chunks[-1]["gearshift"]["certainty"]

    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(ask, range(len(lines))))
    assert {model for model, _, _ in answers} == {"small", "large"}
    assert sum(line.answer == text for line, (_, text, _) in zip(lines, answers, strict=True)) >= 20
    for model, _, certainty in answers:
        assert (certainty is None) == (model == "large"), "the last model decides nothing"
        assert certainty is None or certainty >= THRESHOLD


def test_a_whole_answer_is_the_streamed_one(server: LanguageServer) -> None:
    line = order_line(random.Random(3))
    _, chunks = streamed(server.port, asked(line.text))
    status, whole = server.post("/v1/chat/completions", asked(line.text, logprobs=True))
    assert (status, whole["choices"][0]["message"]["content"]) == (200, text_of(chunks))
    listed, counted = whole["choices"][0]["logprobs"]["content"], whole["gearshift"]["stages"][-1]["completion_tokens"]
    assert "".join(token["token"] for token in listed) == text_of(chunks)
    assert len(listed) in (counted, counted - 1), "the end of an answer may count as a token"
    assert server.post("/v1/completions", {"model": "chat", "prompt": line.text, "max_tokens": 5})[0] == 200


def test_a_prompt_that_is_too_long_for_all_is_refused(server: LanguageServer) -> None:
    status, answer = server.post("/v1/chat/completions", asked("order " * 2000))
    assert (status, answer["error"]["type"]) == (400, "invalid_request_error")


def test_an_engine_that_is_killed_is_started_again(server: LanguageServer) -> None:
    engines = [
        pid for pid in server.descendants() if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(PATH.encode()[:5])
        and b"supervise" not in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]  # fmt: skip
    assert len(engines) == 2
    for pid in engines:
        os.kill(pid, signal.SIGKILL)
    while server.get("/metrics").count('_restarts_total{replica="small-0"} 1.0') == 0:
        time.sleep(0.02)
    due_s = time.monotonic() + 30
    while not all(replica["ready"] for replica in server.get("/v2/gearshift/status")["replicas"]):
        assert time.monotonic() < due_s
        time.sleep(0.05)
    line = order_line(random.Random(3))
    assert streamed(server.port, asked(line.text))[1][-1] == {}
