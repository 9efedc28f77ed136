"""`gearshift serve` of a plan of language models, over engines that are emulated in processes of their own."""

import http.client
import json
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from gearshift.profiles.engines.language_profile import LanguageProfile
from gearshift.traces.logs.journal import read_journal
from tests.language_server import LanguageServer, chat, serving, streamed, text_of
from tests.two_language_models import SMALL_ALONE, cascade, language_profile, write_language_plan

THRESHOLD = -0.5


@pytest.fixture(scope="module")
def profile() -> LanguageProfile:
    return language_profile(step_s=(0.002, 0.01), output_tokens=20)


@pytest.fixture(scope="module")
def server(profile: LanguageProfile, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LanguageServer]:
    """Above 8 requests at a time, `small` answers alone."""
    plan = write_language_plan(
        tmp_path_factory.mktemp("language"), [cascade(THRESHOLD, 4), SMALL_ALONE], [0.0, 8.0], profile=profile
    )
    with serving(plan, "--backend", "emulated", "--journal", str(plan.parent / "journal.jsonl")) as server:
        yield server


def by_sureness(profile: LanguageProfile) -> tuple[int, int]:
    """A record of which `small` is sure at four tokens, and one of which it is not."""
    certainty = profile.answers.certainty[0, :, 1]
    return int(certainty.argmax()), int(certainty.argmin())


def test_a_sure_answer_is_streamed_by_the_small_model_and_an_unsure_one_by_the_large(
    server: LanguageServer, profile: LanguageProfile
) -> None:
    for record, model, stage in zip(by_sureness(profile), ("small", "large"), "01", strict=True):
        headers, chunks = streamed(server.port, chat(record, stream_options={"include_usage": True}))
        assert (headers["x-gearshift-model"], headers["x-gearshift-stage"]) == (model, stage)
        assert chunks.pop() == {}
        usage = chunks.pop()
        assert usage["choices"] == []
        assert usage["usage"]["completion_tokens"] == 20
        stages = usage["gearshift"]["stages"]
        assert [one["model"] for one in stages] == ["small", "large"][: int(stage) + 1]
        assert [one["completion_tokens"] for one in stages] == [4, 20][1 - int(stage) :]
        assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
        assert text_of(chunks) == f"{model}:{record}" + "".join(f" {n}" for n in range(1, 20))
        assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
        assert {chunk["model"] for chunk in chunks} == {"chat"}
        assert all(chunk["choices"][0]["logprobs"] is None for chunk in chunks)


def test_under_load_the_gear_shifts_and_the_small_model_answers_alone(
    server: LanguageServer, profile: LanguageProfile, tmp_path: Path
) -> None:
    _, unsure = by_sureness(profile)

    def ask(_: int) -> tuple[str, str]:
        headers, chunks = streamed(server.port, chat(unsure))
        assert chunks[-1] == {}
        return headers["x-gearshift-model"], headers["x-gearshift-gear"]

    with ThreadPoolExecutor(24) as threads:
        answers = Counter(threads.map(ask, range(120)))
    assert answers["small", "1"] > 60, answers
    assert answers["large", "0"] + answers["large", "1"] + answers["small", "1"] == 120
    status = server.get("/v2/gearshift/status")
    assert (status["open_requests"], status["waiting"]) == (0, 0)
    metrics = server.get("/metrics")
    assert "gearshift_shifts_total 0.0" not in metrics
    assert 'gearshift_requests_total{operator="chat",outcome="failed"} 0.0' in metrics


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_bodies_that_take_long_to_read_are_refused_and_large_ones_are_answered(server: LanguageServer) -> None:
    hostile = {"model": "chat", "prompt": [[]] * 1_000_000}
    large = chat(1, metadata={"picture": "x" * 3_000_000})
    with ThreadPoolExecutor(8) as threads:
        refused = [threads.submit(server.post, "/v1/completions", hostile) for _ in range(4)]
        answered = [threads.submit(server.post, "/v1/chat/completions", body) for body in (large, chat(2)) * 2]
        assert [one.result()[0] for one in answered] == [200] * 4
        for one in refused:
            status, said = one.result()
            assert (status, said["error"]["param"]) == (400, "prompt")
            assert "more than 128 texts" in said["error"]["message"]


def test_the_request_that_it_prints_works_and_is_shown(server: LanguageServer) -> None:
    (call,) = re.findall(r"try: (curl .*)", server.said)
    said = subprocess.run(["sh", "-c", call.replace("curl ", "curl -s ")], capture_output=True, check=True).stdout
    assert json.loads(said)["choices"][0]["message"]["content"]
    assert "/v1/chat/completions" in server.get("/")


def test_a_trace_is_made_of_its_journal(profile: LanguageProfile, tmp_path: Path) -> None:
    plan, journal = write_language_plan(tmp_path, [SMALL_ALONE], profile=profile), tmp_path / "journal.jsonl"
    with serving(plan, "--backend", "emulated", "--journal", str(journal), "--no-dashboard") as server:
        assert "watch it" not in server.said
        for _ in range(3):
            streamed(server.port, chat(0))
    read = read_journal(journal)
    assert read.counts is not None
    assert int(read.counts.sum()) == 3


def test_the_engines_of_a_server_answer_nobody_else_on_the_machine(server: LanguageServer) -> None:
    below = [psutil.Process(pid) for pid in server.descendants()]
    ports = {
        one.laddr.port
        for process in below
        for one in process.net_connections("tcp")
        if one.status == psutil.CONN_LISTEN
    }
    assert len(ports) == 2
    for port in ports:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("POST", "/v1/chat/completions", json.dumps(chat(1)))
        answer = connection.getresponse()
        assert (answer.status, "invalid_api_key" in answer.read().decode()) == (401, True)
        connection.close()


def test_a_stream_whose_key_is_revoked_ends_with_an_error(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("the-first-key-of-all\nthe-second-key-of-all\n")
    keys.chmod(0o600)
    plan = write_language_plan(
        tmp_path, [SMALL_ALONE], profile=language_profile(step_s=(0.02, 0.02), output_tokens=2000)
    )
    with serving(plan, "--backend", "emulated", "--api-keys", str(keys)) as server:
        answers, connections = [], list[http.client.HTTPConnection]()
        for key in ("the-first-key-of-all", "the-second-key-of-all"):
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
            connections.append(connection)
            asked = json.dumps(chat(1, stream=True, max_tokens=60 if "second" in key else 2000))
            connection.request("POST", "/v1/chat/completions", asked, {"authorization": f"Bearer {key}"})
            answers.append(connection.getresponse())
        assert [answer.status for answer in answers] == [200, 200]
        new = keys.with_suffix(".new")
        new.write_text("the-second-key-of-all\n")
        new.rename(keys)
        *_, error, end = answers[0].read().split(b"\n\n")
        assert end == b""
        assert json.loads(error.removeprefix(b"data: "))["error"]["type"] == "authentication_error"
        assert answers[1].read().endswith(b"data: [DONE]\n\n")
        for one in (*answers, *connections):
            one.close()
