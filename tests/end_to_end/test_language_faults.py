"""Engines that are killed or stopped, a server that is killed, clients that leave: nothing is left, and all goes on."""

import http.client
import json
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.language_server import LONGEST_S, LanguageServer, chat, serving, streamed, text_of
from tests.often import first_short
from tests.two_language_models import SMALL_ALONE, cascade, engine, language_profile, write_language_plan

PROFILE = language_profile(step_s=(0.002, 0.004), output_tokens=20)
AT_FOUR = PROFILE.answers.certainty[0, :, 1]
SURE, UNSURE = int(AT_FOUR.argmax()), int(AT_FOUR.argmin())


def until(holds: Callable[[], bool], longest_s: float = LONGEST_S) -> None:
    due_s = time.monotonic() + longest_s
    while not holds():
        assert time.monotonic() < due_s
        time.sleep(0.01)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LanguageServer]:
    plan = write_language_plan(tmp_path_factory.mktemp("faults"), [cascade(-0.5, 4)], profile=PROFILE)
    with serving(plan, "--backend", "emulated", "--probe-s", "0.2", "--shortest-hang-s", "0.5") as server:
        yield server


def engine_of(server: LanguageServer, model: str) -> int:
    """The process that emulates the model's engine, without the one that looks after it."""
    (found,) = [pid for pid in server.descendants() if is_engine(pid, model)]
    return found


def is_engine(pid: int, model: str) -> bool:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"gearshift.runtime.engines.replicas.supervise" not in command and model.encode() in command


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_an_engine_that_ends_or_hangs_is_replaced_and_the_other_stage_answers_meanwhile(
    server: LanguageServer, number: signal.Signals
) -> None:
    before = engine_of(server, "large")
    os.kill(before, number)
    headers, chunks = streamed(server.port, chat(UNSURE))
    assert (headers["x-gearshift-model"], headers.get("x-gearshift-outcome")) == ("small", "degraded")
    assert text_of(chunks).startswith(f"small:{UNSURE}")
    until(lambda: not lives(before))
    until(lambda: server.get("/readyz") == {"ready": True})
    assert engine_of(server, "large") != before
    assert streamed(server.port, chat(UNSURE))[0]["x-gearshift-model"] == "large"
    assert 'gearshift_restarts_total{replica="large-0"} 0.0' not in server.get("/metrics")


def test_without_any_engine_clients_are_asked_to_come_again(server: LanguageServer) -> None:
    for model in ("small", "large"):
        os.kill(engine_of(server, model), signal.SIGSTOP)
    statuses = set[int]()
    until(lambda: statuses.add(server.post("/v1/chat/completions", chat(SURE))[0]) or 503 in statuses)
    assert statuses <= {502, 503}
    until(lambda: server.get("/readyz") == {"ready": True})
    assert server.post("/v1/chat/completions", chat(SURE))[0] == 200


def test_nothing_is_left_of_a_server_that_is_killed(tmp_path: Path) -> None:
    server = LanguageServer(write_language_plan(tmp_path, [cascade(-0.5, 4)], profile=PROFILE), "--backend", "emulated")
    started = server.descendants()
    assert len(started) == 4
    server.end(signal.SIGKILL)
    until(lambda: not any(map(lives, started)), 10)


@pytest.mark.parametrize("number", first_short([signal.SIGTERM, signal.SIGINT]))
def test_open_streams_are_answered_before_the_end(tmp_path: Path, number: signal.Signals) -> None:
    server = LanguageServer(write_language_plan(tmp_path, [cascade(-0.5, 4)], profile=PROFILE), "--backend", "emulated")
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=LONGEST_S)
    with closing(connection):
        connection.request("POST", "/v1/chat/completions", json.dumps(chat(UNSURE, stream=True)))
        response = connection.getresponse()
        started = server.descendants()
        server.process.send_signal(number)
        assert response.read().endswith(b"data: [DONE]\n\n")
    assert server.process.wait(LONGEST_S) == 0
    assert not any(map(lives, started))


def test_clients_that_leave_or_read_nothing_hold_up_no_others(server: LanguageServer) -> None:
    body = json.dumps(chat(SURE, stream=True, max_tokens=20)).encode()
    request = b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(20)]
    for sock in idle:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        sock.sendall(request * 3)
    for sock in idle[::2]:
        sock.close()
    assert streamed(server.port, chat(SURE))[1][-1] == {}
    for sock in idle:
        sock.close()
    until(lambda: server.get("/v2/gearshift/status")["open_requests"] == 0)
    assert server.get("/v2/gearshift/status")["held_bytes"] == 0


@pytest.mark.long
def test_a_client_that_reads_too_slowly_is_disconnected_and_holds_up_no_others(tmp_path: Path) -> None:
    fast = language_profile(step_s=(0.00002, 0.00002), output_tokens=20)
    asked = chat(SURE, stream=True, ignore_eos=True, max_tokens=2500, n=8, logprobs=True, top_logprobs=2)
    body = json.dumps(asked).encode()
    with serving(
        write_language_plan(tmp_path, [SMALL_ALONE], profile=fast), "--backend", "emulated", "--keep-alive-s", "1"
    ) as server:
        few = sum(map(len, map(json.dumps, streamed(server.port, asked | {"max_tokens": 10})[1])))
        whole = few * 250
        assert whole > 4 << 20, "more than systems keep for a socket"
        with socket.create_connection(("127.0.0.1", server.port), timeout=LONGEST_S) as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n" % len(body))
            slow.sendall(body)
            assert slow.recv(1) == b"H"
            began_s, others = time.monotonic(), 0
            while server.get("/v2/gearshift/status")["open_requests"]:
                assert time.monotonic() < began_s + 30
                assert streamed(server.port, chat(SURE, max_tokens=5))[1][-1] == {}
                others += 1
                slow.recv(1)
                time.sleep(0.2)  # it reads slowly: that is what is tried
            assert others >= 2
        assert server.get("/v2/gearshift/status")["held_bytes"] == 0
        assert 'outcome="cancelled"} 1.0' in server.get("/metrics")


def memory_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.long
def test_open_streams_take_bounded_memory_and_beyond_the_bound_others_are_refused_in_words(tmp_path: Path) -> None:
    streams, most_bytes = 400, 64_000
    shape = {"running": streams + 8, "kv_blocks": 100_000, "flat": 4096}
    engines = tuple(engine(model, 0.01, **shape) for model in PROFILE.models)
    plan = write_language_plan(
        tmp_path, [SMALL_ALONE], profile=replace(PROFILE, engines=engines), most_outstanding=streams + 8
    )
    body = json.dumps(chat(SURE, stream=True, emulated={"silent_after": 3})).encode()
    request = b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    with serving(plan, "--backend", "emulated", "--most-connections", str(streams)) as server, ExitStack() as open_:
        streamed(server.port, chat(SURE))
        before = memory_bytes(server.process.pid)
        for _ in range(streams):
            sock = open_.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=LONGEST_S))
            sock.sendall(request)
            assert sock.recv(1) == b"H"
        with socket.create_connection(("127.0.0.1", server.port), timeout=LONGEST_S) as late:
            late.sendall(request)
            refused = late.recv(4096)
        assert refused.startswith(b"HTTP/1.1 503 ")
        assert b"connections" in refused
        assert memory_bytes(server.process.pid) - before < streams * most_bytes
        open_.close()
        until(lambda: server.get("/v2/gearshift/status")["open_requests"] == 0)


def test_an_answer_for_http_1_0_has_no_chunks(server: LanguageServer) -> None:
    body = json.dumps(chat(SURE, stream=True)).encode()
    with socket.create_connection(("127.0.0.1", server.port), timeout=LONGEST_S) as sock:
        sock.sendall(b"POST /v1/chat/completions HTTP/1.0\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
        answer = b"".join(iter(lambda: sock.recv(4096), b""))
    head, _, events = answer.partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head
    assert b"connection: close" in head
    assert events.startswith(b"data: {")
    assert events.endswith(b"data: [DONE]\n\n")
