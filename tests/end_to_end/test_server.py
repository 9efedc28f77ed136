"""A real server in a process of its own, spoken to over HTTP."""

import asyncio
import json
import os
import queue
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gearshift.gear import GearPlan
from tests.certificates import ANOTHER_KEY, write_certificate
from tests.little_task import LOADING, closed, little_plan, write_little_task
from tests.often import first_short

LONGEST_S = 60.0
PAUSE_S = 0.01
"""Between two looks at a server, which has better things to do than to answer them."""
SERVE = """
import json, sys
from pathlib import Path
import msgspec
from gearshift.errors import GearshiftError
from gearshift.serving.rows.served import ROWS
from gearshift.serving.serve import serve
from gearshift.serving.door.settings import ServerSettings
settings = msgspec.convert(json.loads(sys.argv[2]), ServerSettings)
try:
    sys.exit(serve(ROWS, Path(sys.argv[1]), settings=settings, backend=sys.argv[3]))
except GearshiftError as error:
    sys.stderr.write(f"error: {error}\\n")
    sys.exit(error.exit_code)
"""


class Server:
    """The process, what it writes on standard error, and its address.

    It audits nothing unless told to: an audit is one run more of the largest model, whenever there is slack.  Nor does
    it take a worker that a test holds up for one that hangs.
    """

    def __init__(self, plan: Path, backend: str, settings: dict[str, Any]) -> None:
        settings = {"port": 0, "audit_share": 0, "shortest_hang_s": 2 * LONGEST_S, **settings}
        arguments = [str(plan), json.dumps(settings), backend]
        self.folder = plan.parent
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVE, *arguments], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.said: list[str] = []
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self.url = self.grpc = ""

    def _read(self) -> None:
        for line in self.process.stderr:
            self._lines.put(line)
        self._lines.put(None)

    def until_it_says(self, pattern: str) -> re.Match[str]:
        while True:
            line = self._lines.get(timeout=LONGEST_S)
            assert line is not None, f"the server ended without saying {pattern!r}: {self.said}"
            self.said.append(line)
            match = re.search(pattern, line)
            if match:
                return match

    def ready(self) -> "Server":
        addresses = r"(https?://[\d.]+:\d+)(?: and grpcs?://([\d.]+:\d+))?"
        said = self.until_it_says(rf"serving sums at {addresses} \(2 replicas on 1 device\)")
        self.url, self.grpc = said[1], said[2]
        return self

    def workers(self) -> list[int]:
        found = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [int(pid) for pid in found]

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        status = self.process.wait(LONGEST_S)
        self._reader.join(LONGEST_S)
        self.process.stdout.close()
        self.process.stderr.close()
        return status


@contextmanager
def serving(
    folder: Path, backend: str = "local", make_plan: Callable[[str], GearPlan] = little_plan, **settings: Any
) -> Iterator[Server]:
    server = Server(write_little_task(folder, make_plan), backend, settings)
    try:
        yield server.ready()
    finally:
        workers = server.workers() if server.process.poll() is None else []
        server.process.kill()
        server.wait()
        assert all(gone_within(pid) for pid in workers)


def gone_within(pid: int, longest_s: float = 10.0) -> bool:
    end = time.monotonic() + longest_s
    while time.monotonic() < end:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.01)
    return False


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("task"), largest_body_bytes=100_000, largest_header_bytes=10_000) as server:
        yield server


def body(*rows: tuple[float, float], **fields: Any) -> dict[str, Any]:
    data = [value for row in rows for value in row]
    return {"inputs": [{"name": "x", "datatype": "FP64", "shape": [len(rows), 2], "data": data}], **fields}


def speak(main: Callable[[aiohttp.ClientSession], Any]) -> Any:
    async def session() -> Any:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=LONGEST_S)) as client:
            return await main(client)

    return asyncio.run(session())


async def post(client: aiohttp.ClientSession, server: Server, data: Any, **options: Any) -> tuple[int, Any, Any]:
    payload = data if isinstance(data, (bytes, str)) else json.dumps(data)
    async with client.post(f"{server.url}/v2/models/sums/infer", data=payload, **options) as response:
        return response.status, await response.json(), response.headers


def infer(server: Server, data: Any, **options: Any) -> tuple[int, Any, Any]:
    return speak(lambda client: post(client, server, data, **options))


def get(server: Server, path: str, method: str = "GET") -> tuple[int, str]:
    async def main(client: aiohttp.ClientSession) -> tuple[int, str]:
        async with client.request(method, server.url + path) as response:
            return response.status, await response.text()

    return speak(main)


def outputs(answer: Any) -> dict[str, Any]:
    return {output["name"]: output["data"] for output in answer["outputs"]}


def test_rows_are_answered_each_by_its_stage(server):
    names = ["sum", "by", "gearshift_model", "gearshift_stage", "gearshift_certainty"]
    status, answer, _ = infer(server, body((1, 2), (0, 4), (3, 3), id="7", outputs=[{"name": n} for n in names]))
    assert status == 200
    assert answer["id"] == "7"
    assert outputs(answer) == {
        "sum": [3, 4, 6],
        "by": ["small", "large", "small"],
        "gearshift_model": ["small", "large", "small"],
        "gearshift_stage": [0, 1, 0],
        "gearshift_certainty": [1, 1, 1],
    }
    assert answer["parameters"]["outcome"] == "answered"
    assert answer["parameters"]["gear"] == 0
    assert answer["parameters"]["run_s"] > 0


def test_the_version_path_serves_too(server):
    async def main(client):
        url = f"{server.url}/v2/models/sums/versions/1/infer"
        async with client.post(url, data=json.dumps(body((1, 2)))) as response:
            return response.status

    assert speak(main) == 200


@pytest.mark.parametrize(
    ("path", "status", "holds"),
    [
        ("/v2", 200, '"name":"gearshift"'),
        ("/v2/health/live", 200, "true"),
        ("/v2/health/ready", 200, "true"),
        ("/livez", 200, "true"),
        ("/readyz", 200, "true"),
        ("/v2/models/sums", 200, '"shape":[-1,2]'),
        ("/v2/models/sums/ready", 200, "true"),
        ("/metrics", 200, "gearshift_gear 0.0"),
        ("/v2/models/other", 404, "there is no model 'other'"),
        ("/v2/models/other/ready", 404, "there is no model 'other'"),
        ("/nothing", 404, "there is nothing at '/nothing'"),
        ("/v2/models/sums/infer", 405, "POST"),
    ],
)
def test_each_path_answers(server, path, status, holds):
    assert get(server, path)[0] == status
    assert holds in get(server, path)[1]


def test_a_method_that_is_not_allowed_is_405(server):
    assert get(server, "/v2", method="DELETE")[0] == 405


def test_an_unknown_model_is_404(server):
    assert get(server, "/v2/models/other/infer", method="POST")[0] == 404


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "no inference request"),
        (b"{" * 1000, "no inference request"),
        (b"\xff\xfe\x00", "no inference request"),
        ({"inputs": []}, "missing"),
        (body(), "shape"),
        (body((1, 2), parameters={"priority": 2000}), "priority"),
        ({"inputs": [{"name": "y", "datatype": "FP64", "shape": [1, 2], "data": [1, 2]}]}, "'y'"),
        ({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}]}, "datatype"),
        ({"inputs": [{"name": "x", "datatype": "FP64", "shape": [1, 3], "data": [1, 2, 3]}]}, "shape"),
        ({"inputs": [{"name": "x", "datatype": "FP64", "shape": [1, 2], "data": [1]}]}, "1 elements"),
        ({"inputs": [{"name": "x", "datatype": "FP64", "shape": [1, 2], "data": ["a", 2]}]}, "data"),
        ('{"inputs":[{"name":"x","datatype":"FP64","shape":[1,2],"data":[NaN,1]}]}', "malformed"),
    ],
)
def test_bad_input_is_400_with_field_and_reason(server, data, reason):
    status, answer, _ = infer(server, data)
    assert status == 400
    assert reason in answer["error"]


def test_a_body_over_the_bound_is_413_before_it_is_sent(server):
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=LONGEST_S) as sock:
        head = b"POST /v2/models/sums/infer HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100001\r\n\r\n"
        sock.sendall(head)
        assert sock.recv(1000).startswith(b"HTTP/1.1 413 ")


def test_a_chunked_body_over_the_bound_is_413(server):
    async def chunks():
        for _ in range(11):
            yield b" " * 10_000

    async def main(client):
        async with client.post(f"{server.url}/v2/models/sums/infer", data=chunks()) as response:
            return response.status

    assert speak(main) == 413


def test_a_chunked_body_within_the_bound_is_served(server):
    async def chunks():
        for byte in json.dumps(body((1, 2))).encode():
            yield bytes([byte])

    async def main(client):
        async with client.post(f"{server.url}/v2/models/sums/infer", data=chunks()) as response:
            return response.status

    assert speak(main) == 200


def test_headers_without_end_are_refused(server):
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=LONGEST_S) as sock:
        sock.sendall(b"GET /v2 HTTP/1.1\r\nx: " + b"a" * 12_000)
        assert sock.recv(1000).startswith(b"HTTP/1.1 431 ")


def test_a_head_over_the_bound_is_refused_also_when_it_arrives_whole(server):
    with connected(server) as sock:
        sock.sendall(b"GET /v2 HTTP/1.1\r\nhost: localhost\r\nx: " + b"a" * 12_000 + b"\r\n\r\n")
        assert sock.recv(1000).startswith(b"HTTP/1.1 431 ")
    with connected(server) as sock:
        sock.sendall(b"GET /v2 HTTP/1.1\r\nhost: localhost\r\nx: " + b"a" * 9_000 + b"\r\n\r\n")
        assert sock.recv(1000).startswith(b"HTTP/1.1 200 ")


INFER = b"POST /v2/models/sums/infer HTTP/1.1\r\nhost: localhost\r\n"


@pytest.fixture(scope="module")
def strict(tmp_path_factory) -> Iterator[Server]:
    """A server that waits for requests 0.3 s."""
    with serving(tmp_path_factory.mktemp("strict"), longest_read_s=0.3) as server:
        yield server


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        (b"", b""),
        (b"\r\n", b""),
        (INFER, b"HTTP/1.1 408 "),
        (INFER + b"content-length: 10\r\n\r\n{", b"HTTP/1.1 408 "),
        (INFER + b"transfer-encoding: chunked\r\n\r\n1\r\n{", b"HTTP/1.1 408 "),
        (b"GET /v2 HTTP/1.1\r\nhost: localhost\r\n\r\nGET /v2 HTTP/1.1\r\n", b"HTTP/1.1 200 "),
    ],
)
def test_a_request_that_is_never_complete_is_given_up(strict, sent, answer):
    strict.process.send_signal(signal.SIGSTOP)  # until all is sent: its time begins when it sees the connection
    with connected(strict) as sock:
        sock.sendall(sent)
        strict.process.send_signal(signal.SIGCONT)
        begun = time.monotonic()
        received = b""
        while more := sock.recv(1000):
            received += more
        assert time.monotonic() - begun < 15
        assert received.startswith(answer)
        assert bool(received) == bool(answer)


def test_waiting_for_an_answer_is_not_bounded_by_the_time_for_reading(strict):
    assert infer(strict, body((5, 1)))[0] == 200


def test_silent_connections_give_way_to_others_and_beyond_those_that_wait_only_health_is_answered(tmp_path):
    asked, waits = b"GET %b HTTP/1.1\r\nhost: localhost\r\n\r\n", json.dumps(body((4, 1))).encode()
    waits = INFER + b"content-length: %d\r\n\r\n" % len(waits) + waits
    with (
        serving(tmp_path, most_connections=2) as server,
        closed(tmp_path) as open_gate,
        connected(server) as silent,
        connected(server) as first,
        connected(server) as second,
    ):
        assert silent.recv(1000) == b""
        first.sendall(waits)
        while b'"open_requests":1' not in said_on(second, asked % b"/v2/gearshift/status"):
            pass
        second.sendall(waits)
        for path, status in ((b"/livez", b"200"), (b"/v2", b"503"), (b"/metrics", b"200")):
            with connected(server) as beyond:
                said = said_on(beyond, asked % path)
            assert said.startswith(b"HTTP/1.1 %b " % status)
            assert b"connection: close" in said
            assert (b"retry-after: 1" in said) == (status == b"503")
        open_gate()
        for busy in (first, second):
            assert busy.recv(1000).startswith(b"HTTP/1.1 200 ")


def said_on(sock: socket.socket, sent: bytes) -> bytes:
    sock.sendall(sent)
    return sock.recv(1 << 16)


def connected(server: Server) -> socket.socket:
    host, port = server.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=LONGEST_S)


def test_only_the_request_that_fails_fails_and_no_internals_leave(server):
    rows = [(1, 1), (666, 1), (2, 2), (13, 1), (3, 3)]

    async def main(client):
        return await asyncio.gather(*(post(client, server, body(row)) for row in rows))

    answers = speak(main)
    assert [status for status, _, _ in answers] == [200, 500, 200, 500, 200]
    error = answers[1][1]["error"]
    assert "secret" not in error
    number = re.search(r"\(id ([0-9a-f]+)\)", error)[1]
    server.until_it_says(number)
    assert any("a secret of the model" in line for line in server.said)


def test_every_answer_carries_the_id_of_its_request(server):
    async def main(client):
        return [
            (await post(client, server, body((1, 2)), headers={"X-Request-Id": "mine"}))[2]["X-Request-Id"],
            (await post(client, server, body((1, 2), id="7")))[2]["X-Request-Id"],
            (await post(client, server, "{", headers={"X-Request-Id": "mine"}))[2]["X-Request-Id"],
            (await post(client, server, body((1, 2))))[2]["X-Request-Id"],
        ]

    *given, made = speak(main)
    assert given == ["mine", "7", "mine"]
    assert re.fullmatch("[0-9a-f]{12}", made)


def test_a_failed_request_is_explained_under_the_clients_own_id(server):
    _, answer, _ = infer(server, body((666, 1)), headers={"X-Request-Id": "find-me"})
    assert answer["error"].endswith("(id find-me)")
    server.until_it_says("request failed, id find-me: model 'small' failed on this sample")


def test_logs_are_json_from_server_and_workers_alike(tmp_path):
    settings = {"log_format": "json", "log_level": "debug", "host": "0.0.0.0"}
    with serving(tmp_path, **settings) as server:
        assert infer(server, body((666, 1)), headers={"X-Request-Id": "find-me"})[0] == 500
        server.until_it_says('"status":500')
        with connected(server) as sock:
            sock.sendall(b"no HTTP\r\n\r\n")
            server.until_it_says("a client sent no HTTP request")
        pid, (worker,) = server.process.pid, server.workers()
    lines = [json.loads(line) for line in server.said]
    assert all(line["at"] > 1e9 for line in lines)
    assert {line["logger"].partition(".")[0] for line in lines} == {"gearshift"}
    by_start = {line["message"][:7]: line for line in lines}
    facts = {start: (line["level"], line["process"]) for start, line in by_start.items()}
    assert facts == {
        "warning": ("warning", pid),
        "serving": ("info", pid),
        "up to 7": ("info", pid),
        "watch i": ("info", pid),
        "try: cu": ("info", pid),
        "model '": ("warning", worker),
        "request": ("error", pid),
        "POST '/": ("debug", pid),
        "a clien": ("warning", pid),
    }
    assert {line["request_id"] for line in lines if "request_id" in line} == {"find-me"}
    assert by_start["POST '/"]["path"] == "/v2/models/sums/infer"


@pytest.mark.long
def test_what_a_killed_worker_held_is_answered_once_it_is_replaced(tmp_path):
    with serving(tmp_path) as server, closed(tmp_path) as open_gate, closed(tmp_path, LOADING) as let_load:

        async def main(client):
            slow = asyncio.create_task(post(client, server, body((4, 1))))
            await until_metric(client, server, r'gearshift_batches_total\{model="small",reason="full"\} 1.0')
            waits = asyncio.create_task(post(client, server, body((1, 2))))
            await until_metric(client, server, "gearshift_waiting_requests 1.0")
            (worker,) = server.workers()
            os.kill(worker, signal.SIGKILL)
            await until_metric(client, server, 'gearshift_restarts_total{replica="small-0"} 1.0')
            status, _, headers = await post(client, server, body((1, 2)))
            assert (status, headers["Retry-After"]) == (503, "1")
            let_load()
            open_gate()
            assert [(await request)[0] for request in (slow, waits)] == [200, 200]
            await until_ready(client, server)
            return (await post(client, server, body((1, 2))))[0]

        assert speak(main) == 200
        server.until_it_says(r"ended by signal 9 \(SIGKILL, as the kernel sends it")
        assert server.end() == 0


@pytest.mark.long
def test_workers_killed_under_load_cost_no_accepted_request(tmp_path):
    with serving(tmp_path) as server:

        async def client_loop(client, answers, stop):
            while not stop.is_set():
                answers.append((await post(client, server, body((1, 2), (0, 1))))[0])

        async def main(client):
            answers: list[int] = []
            stop = asyncio.Event()
            clients = [asyncio.create_task(client_loop(client, answers, stop)) for _ in range(20)]
            for kills in (1, 2):
                await until_count(answers, 200, answers.count(200) + 200)
                (worker,) = server.workers()
                os.kill(worker, signal.SIGKILL)
                await until_metric(client, server, rf'gearshift_restarts_total{{replica="small-0"}} {kills}.0')
                await until_ready(client, server)
            await until_count(answers, 200, answers.count(200) + 200)
            stop.set()
            await asyncio.gather(*clients)
            return answers

        assert {200} <= set(speak(main)) <= {200, 503}
        assert server.end() == 0


async def until_count(answers: list[int], status: int, count: int) -> None:
    async with asyncio.timeout(LONGEST_S):
        while answers.count(status) < count:
            await asyncio.sleep(0.01)


def test_a_request_that_kills_its_worker_does_not_take_the_server_down(tmp_path):
    with serving(tmp_path) as server:

        async def main(client):
            status, _, _ = await post(client, server, body((9, 0)))
            assert status == 500
            await until_ready(client, server)
            return (await post(client, server, body((1, 2))))[0]

        assert speak(main) == 200


async def until_metric(client: aiohttp.ClientSession, server: Server, pattern: str) -> None:
    async with asyncio.timeout(LONGEST_S):
        while True:
            async with client.get(f"{server.url}/metrics") as response:
                if re.search(pattern, await response.text()):
                    return
            await asyncio.sleep(PAUSE_S)


async def until_ready(client: aiohttp.ClientSession, server: Server) -> None:
    async with asyncio.timeout(LONGEST_S):
        while True:
            async with client.get(f"{server.url}/readyz") as response:
                if response.status == 200:
                    return
            await asyncio.sleep(PAUSE_S)


def test_where_a_deadline_was_missed_is_said_with_504(tmp_path):
    def asked(client: aiohttp.ClientSession, *row: float) -> asyncio.Task[Any]:
        return asyncio.create_task(post(client, server, body(row), headers={"x-slo-ms": "2000"}))

    async def main(client: aiohttp.ClientSession) -> tuple[list[Any], str]:
        ran = asked(client, 4, 1)
        await until_metric(client, server, r'gearshift_batches_total\{model="small",reason="full"\} 1.0')
        expired = asked(client, 1, 2)
        await until_metric(client, server, "gearshift_waiting_requests 1.0")
        server.process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(2.1)  # past both deadlines, of which the server knows nothing
        server.process.send_signal(signal.SIGCONT)
        ends = [await expired]
        open_gate()
        ends.append(await ran)
        async with client.get(f"{server.url}/metrics") as response:
            return ends, await response.text()

    with serving(tmp_path) as server, closed(tmp_path) as open_gate:
        ends, metrics = speak(main)
        for (status, answer, _), reason in zip(ends, ("expired_in_queue", "execution"), strict=True):
            assert status == 504
            assert answer["error"].startswith(f"{reason}: ")
            assert f'gearshift_dropped_total{{reason="{reason}"}} 1.0' in metrics


@pytest.mark.parametrize("number", first_short([signal.SIGTERM, signal.SIGINT]))
def test_a_signal_under_load_answers_all_that_was_accepted_and_leaves_nothing(tmp_path, number):
    with serving(tmp_path) as server, closed(tmp_path) as open_gate:
        workers = server.workers()

        async def main(client):
            requests = [asyncio.create_task(post(client, server, body((4, 1)))) for _ in range(50)]
            await until_metric(client, server, "gearshift_waiting_requests [1-9]")
            server.process.send_signal(number)
            await until_refused(client, server)
            open_gate()
            return await asyncio.gather(*requests, return_exceptions=True)

        answers = speak(main)
        assert server.wait() == 0
        statuses = [answer[0] for answer in answers if isinstance(answer, tuple)]
        assert set(statuses) <= {200, 503}
        assert statuses.count(200) >= 2
        lost = [answer for answer in answers if not isinstance(answer, tuple)]
        assert all(isinstance(error, aiohttp.ClientConnectionError) for error in lost)
        assert all(gone_within(pid) for pid in workers)


def test_what_is_not_answered_within_the_drain_time_fails(tmp_path):
    with serving(tmp_path, drain_s=0.2) as server:

        async def main(client):
            slow = asyncio.create_task(post(client, server, body((5, 30))))
            await until_metric(client, server, r'gearshift_batches_total\{model="small",reason="full"\} 1.0')
            begun = time.monotonic()
            server.process.send_signal(signal.SIGTERM)
            status, answer, _ = await slow
            return status, answer, time.monotonic() - begun

        status, answer, waited_s = speak(main)
        assert status == 500
        assert "stopped" in answer["error"]
        assert waited_s < 10
        assert server.wait() == 1


@pytest.mark.long
def test_a_second_signal_ends_it_at_once(tmp_path):
    with serving(tmp_path) as server:

        async def main(client):
            slow = asyncio.create_task(post(client, server, body((5, 30))))
            await until_metric(client, server, r'gearshift_batches_total\{model="small",reason="full"\} 1.0')
            server.process.send_signal(signal.SIGTERM)
            await until_refused(client, server)
            server.process.send_signal(signal.SIGTERM)
            return (await asyncio.gather(slow, return_exceptions=True))[0]

        begun = time.monotonic()
        speak(main)
        assert server.wait() == 1
        assert time.monotonic() - begun < 15


async def until_refused(client: aiohttp.ClientSession, server: Server) -> None:
    """Until the server drains: a kept connection is told so, a new one is not taken."""
    async with asyncio.timeout(LONGEST_S):
        while True:
            try:
                async with client.get(f"{server.url}/readyz") as response:
                    if response.status == 503:
                        return
            except aiohttp.ClientConnectionError:
                return
            await asyncio.sleep(PAUSE_S)


def test_where_memory_runs_out_the_kernel_takes_a_worker_first(tmp_path):
    def score(pid: int) -> int:
        return int(Path(f"/proc/{pid}/oom_score_adj").read_text())

    with serving(tmp_path) as server:
        assert server.workers()
        assert {score(pid) for pid in server.workers()} == {min(1000, score(server.process.pid) + 500)}


def test_no_worker_outlives_a_killed_server(tmp_path):
    with serving(tmp_path) as server:
        workers = server.workers()
        server.process.kill()
        assert workers
        assert all(gone_within(pid) for pid in workers)


def test_a_full_queue_is_429_with_retry_after(tmp_path):
    with serving(tmp_path, most_waiting_requests=3) as server, closed(tmp_path) as open_gate:

        async def main(client):
            requests = [asyncio.create_task(post(client, server, body((4, 1)))) for _ in range(40)]
            await asyncio.wait(requests, return_when=asyncio.FIRST_COMPLETED)
            open_gate()
            return await asyncio.gather(*requests)

        answers = speak(main)
        assert {status for status, _, _ in answers} == {200, 429}
        assert all("Retry-After" in headers for status, _, headers in answers if status == 429)


def test_a_client_that_leaves_takes_its_waiting_request_along(tmp_path):
    with serving(tmp_path) as server, closed(tmp_path) as open_gate:

        async def main(client):
            slow = asyncio.create_task(post(client, server, body((4, 1))))
            await until_metric(client, server, r'gearshift_batches_total\{model="small",reason="full"\} 1.0')
            waits = asyncio.create_task(post(client, server, body((9, 0))))  # would kill the worker
            await until_metric(client, server, "gearshift_waiting_requests 1.0")
            waits.cancel()
            await until_metric(client, server, "gearshift_waiting_requests 0.0")
            await until_metric(client, server, 'outcome="cancelled"} 1.0')
            open_gate()
            return (await slow)[0]

        assert speak(main) == 200


def test_the_emulated_backend_answers_from_the_records(tmp_path):
    with serving(tmp_path, backend="emulated") as server:
        data = [{"name": "sample", "datatype": "INT64", "shape": [3], "data": [0, 1, 2]}]
        status, answer, _ = infer(server, {"inputs": data})
        assert status == 200
        assert outputs(answer) == {"quality": [1, 1, 1], "label": ["small-0", "large-1", "small-2"]}
        data[0]["data"] = [0, 1, 10]
        status, answer, _ = infer(server, {"inputs": data})
        assert status == 500
        assert "sample 10 is not recorded" in answer["error"]
        assert server.end() == 0


def test_a_port_in_use_is_said_before_models_are_loaded(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        failing = Server(write_little_task(tmp_path), "local", {"port": port})
        failing.until_it_says(f"error: port {port} of 127.0.0.1 is in use; choose another with --port")
        assert failing.wait() == 2


def test_a_plan_of_another_profile_is_refused(tmp_path):
    plan = write_little_task(tmp_path)
    text = plan.read_text()
    plan.write_text(re.sub(r'"sha256": "[0-9a-f]{8}', '"sha256": "00000000', text))
    failing = Server(plan, "local", {})
    failing.until_it_says("made from another profile")
    assert failing.wait() == 2


def test_a_model_that_cannot_be_loaded_ends_the_server(tmp_path):
    plan = write_little_task(tmp_path)
    (tmp_path / "task.py").write_text("def small():\n    raise ValueError('no weights')\ndef large():\n    pass\n")
    failing = Server(plan, "local", {})
    failing.until_it_says("error: model .* cannot be loaded")
    assert failing.wait() == 2


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core is shared by all")
def test_the_worker_has_the_devices_core_and_the_router_the_others(tmp_path):
    with serving(tmp_path) as server:
        (worker,) = server.workers()
        assert os.sched_getaffinity(worker) == {max(os.sched_getaffinity(0))}
        assert os.sched_getaffinity(server.process.pid) == os.sched_getaffinity(0) - os.sched_getaffinity(worker)


def test_a_server_open_to_other_machines_without_keys_warns(tmp_path):
    with serving(tmp_path, backend="emulated", host="0.0.0.0") as server:
        assert any("warning: other machines can reach this server" in line for line in server.said)
        assert server.end() == 0


def test_a_server_with_keys_does_not_warn_and_takes_changed_keys_at_once(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("a-longer-first-key\n")
    with serving(tmp_path, backend="emulated", host="0.0.0.0", api_keys=str(keys)) as server:
        url = server.url.replace("0.0.0.0", "127.0.0.1")

        async def main(client):
            statuses = []
            for key in ("a-longer-first-key", "a-longer-second-key"):
                async with client.get(f"{url}/v2", headers={"x-api-key": key}) as response:
                    statuses.append(response.status)
            return statuses

        assert speak(main) == [200, 401]
        keys.write_text("a-longer-second-key\n")
        assert speak(main) == [401, 200]
        assert server.end() == 0
        assert not any("warning" in line or "-key" in line for line in server.said)


def test_with_a_certificate_it_speaks_https(tmp_path):
    files = write_certificate(tmp_path)
    with serving(tmp_path, backend="emulated", **files) as server:
        assert server.url.startswith("https://")
        context = ssl.create_default_context(cafile=files["tls_certificate"])
        data = [{"name": "sample", "datatype": "INT64", "shape": [1], "data": [0]}]
        status, answer, _ = infer(server, {"inputs": data}, ssl=context)
        assert (status, outputs(answer)["label"]) == (200, ["small-0"])
        assert server.end() == 0


@pytest.mark.long
def test_a_certificate_that_cannot_be_used_is_said_before_models_are_loaded(tmp_path):
    files = write_certificate(tmp_path, ANOTHER_KEY)
    failing = Server(write_little_task(tmp_path), "local", files)
    failing.until_it_says("error: .*certificate and key cannot be used")
    assert failing.wait() == 2
