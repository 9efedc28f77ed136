"""Both clients against a server that answers what a test tells it to."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest

from gearshift import AsyncClient, Client, errors
from gearshift.client.v2_client import FIRST_PAUSE_S, Call, ClientProtocol

ANSWER = {
    "parameters": {"gear": 1, "outcome": "answered"},
    "outputs": [
        {"name": "y", "datatype": "FP32", "shape": [1, 2], "data": [1.5, 2]},
        {"name": "label", "datatype": "BYTES", "shape": [1], "data": ["cat"]},
    ],
}
LONG_S = 20.0


@dataclass
class Script:
    """What to answer one after another, the last one for ever, and what was asked."""

    answers: list[tuple[int, dict[str, str], bytes]] = field(default_factory=list)
    extensions: tuple[str, ...] = ()
    asked: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    ports: list[int] = field(default_factory=list)
    hang_up: bool = False
    stall: bool = False
    closing: bool = False
    url: str = ""
    ended: threading.Event = field(default_factory=threading.Event)
    closed: threading.Event = field(default_factory=threading.Event)

    def answer(self, status: int, content: Any, **headers: str) -> "Script":
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.answers.append((status, headers, body))
        return self

    def wait_until_closed(self) -> None:
        """Where the answer was the connection's last."""
        if self.closing:
            assert self.closed.wait(LONG_S)

    def contents(self) -> list[Any]:
        return [json.loads(body) for _, body in self.asked]


@pytest.fixture
def script() -> Iterator[Script]:
    script = Script()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *arguments: Any) -> None:
            pass

        def send(self, status: int, headers: dict[str, str], body: bytes) -> None:
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            self.wfile.write(body[:1] if script.stall else body)

        def do_GET(self) -> None:
            assert self.path == "/v2"
            self.send(200, {}, json.dumps({"name": "x", "extensions": script.extensions}).encode())

        def do_POST(self) -> None:
            assert self.path == "/v2/models/a%20task/infer"
            script.ports.append(self.client_address[1])
            body = self.rfile.read(int(self.headers["Content-Length"]))
            script.asked.append((dict(self.headers), body))
            if script.hang_up:
                self.close_connection = True
                return
            status, headers, body = script.answers.pop(0) if len(script.answers) > 1 else script.answers[0]
            script.closing = self.close_connection = headers.pop("closes", None) is not None
            self.send(status, headers, body)
            if script.stall:
                script.ended.wait(LONG_S)
                self.close_connection = True

    class Server(ThreadingHTTPServer):
        def shutdown_request(self, request: Any) -> None:
            super().shutdown_request(request)
            script.closed.set()

    with Server(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        script.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield script
        finally:
            script.ended.set()
            server.shutdown()
            thread.join()


@pytest.fixture(params=["plain", "asyncio"])
def ask(request, script):
    """Ask once, or so many `times`, with the one client or the other."""

    def plain(inputs: Any, times: int, options: dict[str, Any], asked: dict[str, Any]) -> Any:
        with Client(script.url, "a task", **options) as client:
            for _ in range(times):
                script.closed.clear()
                answer = client.infer(inputs, **asked)
                script.wait_until_closed()
            return answer

    async def with_asyncio(inputs: Any, times: int, options: dict[str, Any], asked: dict[str, Any]) -> Any:
        async with AsyncClient(script.url, "a task", **options) as client:
            for _ in range(times):
                script.closed.clear()
                answer = await client.infer(inputs, **asked)
                await asyncio.to_thread(script.wait_until_closed)
            return answer

    def ask(inputs: Any = None, times: int = 1, options: dict[str, Any] | None = None, **asked: Any) -> Any:
        arguments = ({"x": np.ones((1, 2))} if inputs is None else inputs, times, options or {}, asked)
        return plain(*arguments) if request.param == "plain" else asyncio.run(with_asyncio(*arguments))

    return ask


def test_arrays_in_the_other_byte_order_go_out_as_the_numbers_that_they_are(script, ask):
    script.answer(200, ANSWER)
    ask({"x": np.array([[1.5, 2]], dtype=">f4")})
    (tensor,) = script.contents()[0]["inputs"]
    assert (tensor["datatype"], tensor["data"]) == ("FP32", [1.5, 2])


def test_members_of_an_answer_that_are_null_count_as_left_out(script, ask):
    output = {"name": "y", "datatype": "FP32", "shape": [1], "data": [1.5], "parameters": None}
    script.answer(200, {"id": None, "model_version": None, "parameters": None, "outputs": [output]})
    answer = ask()
    assert answer.outputs["y"].tolist() == [1.5]
    assert answer.parameters == {}


def test_arrays_go_out_and_come_back_in_json(script, ask):
    script.answer(200, ANSWER)
    answer = ask({"x": np.array([[1.5, 2]], dtype=np.float32), "name": ["a"]}, priority=3, outputs=["y", "label"])
    assert answer.outputs["y"].dtype == np.float32
    assert answer.outputs["y"].tolist() == [[1.5, 2]]
    assert answer.outputs["label"].tolist() == ["cat"]
    assert answer.parameters == ANSWER["parameters"]
    assert script.contents() == [
        {
            "inputs": [
                {"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1.5, 2]},
                {"name": "name", "shape": [1], "datatype": "BYTES", "data": ["a"]},
            ],
            "parameters": {"priority": 3, "binary_data_output": False},
            "outputs": [{"name": "y"}, {"name": "label"}],
        }
    ]


def test_arrays_go_as_bytes_where_the_server_takes_them(script, ask):
    script.extensions = ("binary_tensor_data",)
    output = {"name": "y", "datatype": "INT16", "shape": [2], "parameters": {"binary_data_size": 4}}
    text = {"name": "t", "datatype": "BYTES", "shape": [1], "data": ["a"]}
    head = json.dumps({"outputs": [output, text]}).encode()
    script.answer(200, head + b"\1\0\2\0", **{"Inference-Header-Content-Length": str(len(head))})
    answer = ask({"x": np.array([[7, 8]], dtype=np.int8)})
    assert answer.outputs["y"].tolist() == [1, 2]
    assert answer.outputs["t"].tolist() == ["a"]
    answer.outputs["y"][0] = 5  # it is the caller's own
    ((headers, body),) = script.asked
    length = int(headers["Inference-Header-Content-Length".lower()])
    assert json.loads(body[:length])["inputs"] == [
        {"name": "x", "shape": [1, 2], "datatype": "INT8", "parameters": {"binary_data_size": 2}}
    ]
    assert body[length:] == b"\7\x08"


def test_a_deadline_is_sent_as_what_is_left_of_it(script, ask):
    script.answer(429, {"error": "full"}).answer(200, ANSWER)
    ask(deadline_s=LONG_S)
    first_us, second_us = (content["parameters"]["timeout"] for content in script.contents())
    assert LONG_S * 1e6 >= first_us >= second_us + 100_000 > LONG_S * 0.5e6


def test_the_key_is_sent(script, ask):
    script.answer(200, ANSWER)
    ask(options={"api_key": "secret"})
    assert script.asked[0][0]["Authorization"] == "Bearer secret"


def test_a_connection_is_kept(script, ask):
    script.answer(200, ANSWER)
    ask(times=3)
    assert len(set(script.ports)) == 1


def test_a_connection_that_the_server_has_closed_is_replaced(script, ask):
    script.answer(200, ANSWER, closes="silently").answer(200, ANSWER, Connection="close").answer(200, ANSWER)
    ask(times=3)
    assert len(script.asked) == 3
    assert len(set(script.ports)) == 3


# Errors --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, errors.InvalidInput),
        (401, errors.NoAccess),
        (404, errors.UnknownModel),
        (413, errors.TooLarge),
        (500, errors.RequestFailed),
        (502, errors.RequestFailed),
        (504, errors.DeadlinePassed),
    ],
)
def test_a_status_is_an_error_that_is_not_tried_again(script, ask, status, error):
    script.answer(status, {"error": "because"})
    with pytest.raises(error, match="because") as caught:
        ask()
    assert type(caught.value) is error
    assert len(script.asked) == 1


@pytest.mark.parametrize(("status", "error"), [(429, errors.QueueFull), (503, errors.NotReady)])
def test_a_refusal_is_tried_again_until_it_is_answered_or_attempts_run_out(script, ask, status, error):
    script.answer(status, {"error": "later"}, Retry_After="0").answer(status, b"no JSON", Retry_After="0")
    script.answer(200, ANSWER)
    assert ask().parameters["gear"] == 1
    assert len(script.asked) == 3
    script.answers.insert(0, (status, {"Retry-After": "0"}, b"{}"))
    script.answers.insert(0, (status, {"Retry-After": "0"}, b"{}"))
    with pytest.raises(error, match=f"status {status}"):
        ask(options={"most_attempts": 2})
    assert len(script.asked) == 5


@pytest.mark.parametrize(
    ("said", "pause_s"),
    [
        ("7", 7.0),
        ("007", 7.0),
        ("Sun, 06 Nov 1994 08:49:37 GMT", None),
        ("²", None),
        ("soon", None),
        ("-1", None),
        ("Sat, 1 Jan 99999999999999 00:00:00 GMT", None),
    ],
)
def test_a_pause_is_what_the_server_asks_for_in_seconds_or_by_a_date(said, pause_s):
    protocol = Call(ClientProtocol("http://localhost", "sums", None, None, 60.0, 3), None)
    assert protocol.pause_s(errors.QueueFull("full"), said) == (FIRST_PAUSE_S if pause_s is None else pause_s)


@pytest.mark.parametrize("form", ["%a, %d %b %Y %H:%M:%S GMT", "%a %b %d %H:%M:%S %Y"])
def test_a_date_to_come_is_waited_for_whatever_the_clients_time_zone(form, monkeypatch):
    protocol = Call(ClientProtocol("http://localhost", "sums", None, None, 60.0, 3), None)
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        said = (datetime.now(UTC) + timedelta(seconds=9)).strftime(form)
        assert 7 < protocol.pause_s(errors.QueueFull("full"), said) <= 9
    finally:
        monkeypatch.undo()
        time.tzset()


def test_no_attempt_begins_past_the_deadline(script, ask):
    script.answer(429, {"error": "full"}, Retry_After="30")
    begun = time.monotonic()
    with pytest.raises(errors.QueueFull):
        ask(deadline_s=10.0)
    assert time.monotonic() - begun < 9
    assert len(script.asked) == 1


def test_an_answer_past_the_deadline_is_given_up_though_it_has_begun(script, ask):
    script.stall = True
    script.answer(200, ANSWER)
    begun = time.monotonic()
    with pytest.raises(errors.DeadlinePassed, match=r"within 0\.3 s"):
        ask(deadline_s=0.3)
    with pytest.raises(errors.NoAnswer, match=r"within 0\.2 s"):
        ask(options={"longest_s": 0.2})
    assert time.monotonic() - begun < LONG_S / 2


def test_a_connection_that_ends_without_an_answer_is_not_tried_again(script, ask):
    script.hang_up = True
    with pytest.raises(errors.NoAnswer) as caught:
        ask()
    assert caught.value.sent
    assert len(script.asked) == 1


def test_a_server_that_is_not_there_is_tried_again_and_then_said_to_be_unreachable(script, ask):
    begun = time.monotonic()
    with socket.socket() as unused:  # held, so that nobody else listens there
        unused.bind(("127.0.0.1", 0))
        script.url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(errors.NoAnswer, match="is the server running") as caught:
            ask(options={"most_attempts": 3})
    assert not caught.value.sent
    assert time.monotonic() - begun >= 0.3


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"outputs": [{"name": "y", "datatype": "FP3", "shape": [1], "data": [1]}]}']
)
def test_an_answer_that_is_none_is_a_failure(script, ask, body):
    script.answer(200, body)
    with pytest.raises(errors.RequestFailed, match="none of the V2 protocol"):
        ask()


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize(
    ("values", "reason"),
    [([[1], [2, 3]], "inhomogeneous"), (np.array(["2020-01-01"], dtype="datetime64[D]"), "no datatype")],
)
def test_inputs_that_have_no_form_in_the_protocol_are_refused_unsent(script, ask, binary, values, reason):
    script.extensions = ("binary_tensor_data",) if binary else ()
    with pytest.raises(errors.InvalidInput, match=f"input 'x'.*{reason}"):
        ask({"x": values})
    assert script.asked == []


@pytest.mark.parametrize(
    "options",
    [{"longest_s": 0}, {"longest_s": float("inf")}, {"most_attempts": 0}, {"api_key": "a\nb"}, {"ca_file": "/nowhere"}],
)
def test_options_that_make_no_sense_are_refused(options):
    url = "https://127.0.0.1" if "ca_file" in options else "http://127.0.0.1"
    for kind in (Client, AsyncClient):
        with pytest.raises(errors.InvalidInput):
            kind(url, "task", **options)


@pytest.mark.parametrize("deadline_s", [0, -1.0, float("nan")])
def test_a_deadline_that_makes_no_sense_is_refused_unsent(script, ask, deadline_s):
    with pytest.raises(errors.InvalidInput, match=r"deadline_s is .*; give more than 0, up to 86400"):
        ask(deadline_s=deadline_s)
    assert script.asked == []


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://host", "http://", "http://host:port"])
def test_what_is_no_url_is_refused(url):
    for kind in (Client, AsyncClient):
        with pytest.raises(errors.InvalidInput, match="no URL of a server"):
            kind(url, "task")


def test_pauses_are_what_the_server_says_or_grow():
    call = Call(ClientProtocol("http://host", "task", None, None, 100.0, 10), None)
    full = errors.QueueFull("full")
    assert call.pause_s(full, "7") == 7
    assert [call.pause_s(full) for _ in range(4)] == [0.2, 0.4, 0.8, 1.0]
    assert call.pause_s(full, "Wed, 21 Oct 2026 07:28:00 GMT") == 1.0


def test_one_client_serves_many_threads(script):
    script.answer(200, ANSWER)
    with Client(script.url, "a task") as client:
        gears: list[int] = []
        threads = [
            threading.Thread(
                target=lambda: gears.extend(client.infer({"x": [1.0]}).parameters["gear"] for _ in range(20))
            )
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LONG_S)
    assert gears == [1] * 160
    assert len(set(script.ports)) <= 8
