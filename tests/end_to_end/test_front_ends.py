"""Two front ends before one router, on one port, with real processes and clients."""

import asyncio
import http.client
import json
import os
import signal
import ssl
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import tritonclient.grpc as triton

from tests.certificates import write_certificate
from tests.end_to_end.test_grpc import inputs
from tests.end_to_end.test_server import (
    LONGEST_S,
    Server,
    body,
    connected,
    gone_within,
    post,
    serving,
    speak,
    until_metric,
    until_ready,
)
from tests.little_task import closed

INFER = "/v2/models/sums/infer"
CLIENTS = 16


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("task")
    with serving(folder, front_ends=2, most_waiting_requests=2, largest_body_bytes=100_000) as server:
        yield server


def front_ends(server: Server) -> list[int]:
    return [pid for pid in server.workers() if b"serving.front_end" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def until_both_run(server: Server) -> list[int]:
    end = time.monotonic() + LONGEST_S
    while len(found := front_ends(server)) < 2:
        assert time.monotonic() < end
        time.sleep(0.01)
    return found


def asked(server: Server, method: str, path: str, sent: bytes = b"") -> tuple[int, Any, str]:
    """Status, body and id of an answer on a connection of its own."""
    host, port = server.url.removeprefix("http://").split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=LONGEST_S)
    connection.request(method, path, sent)
    answer = connection.getresponse()
    said = answer.read()
    connection.close()
    return answer.status, said, str(answer.headers["x-request-id"])


@pytest.mark.parametrize(
    ("method", "path", "sent", "status"),
    [
        ("GET", "/readyz", b"", 200),
        ("GET", "/v2/models/sums", b"", 200),
        ("GET", "/openapi.json", b"", 200),
        ("GET", "/v2/models/others", b"", 404),
        ("GET", INFER, b"", 405),
        ("POST", INFER, b"nonsense", 400),
        ("POST", INFER, b" " * 100_001, 413),
        ("POST", "/v2/gearshift/gear", b'{"pin":7}', 400),
    ],
)
def test_whichever_front_end_is_asked_the_answer_is_the_same(server, method, path, sent, status):
    answers = [asked(server, method, path, sent) for _ in range(CLIENTS)]
    assert {(number, said) for number, said, _ in answers} == {(status, answers[0][1])}


def test_both_front_ends_answer_and_the_router_counts_all_once(server):
    assert len(front_ends(server)) == 2
    answers = [asked(server, "POST", INFER, json.dumps(body((1, 2))).encode()) for _ in range(2 * CLIENTS)]
    assert {json.loads(said)["outputs"][0]["data"][0] for _, said, _ in answers} == {3.0}
    ids = sorted(int(id, 16) for _, _, id in answers)
    assert sum(after - before > 1000 for before, after in pairwise(ids)) == 1  # each counts on from a number of its own
    counts = set()
    for _ in range(CLIENTS):
        said = asked(server, "GET", "/v2/models/sums/stats")[1]
        counts.add(json.loads(said)["model_stats"][0]["inference_stats"]["success"]["count"])
    assert counts == {2 * CLIENTS}


def test_a_full_queue_is_429_before_the_body_whichever_front_end_is_asked(server):
    async def main(client: aiohttp.ClientSession) -> list[bytes]:
        slow = asyncio.create_task(post(client, server, body((4, 1))))
        await until_held(client, server, open_requests=1, waiting=0)
        wait = [asyncio.create_task(post(client, server, body((1, 2)))) for _ in range(2)]
        await until_held(client, server, open_requests=3, waiting=2)
        refused = [await asyncio.to_thread(head_only, server) for _ in range(CLIENTS)]
        open_gate()
        assert [(await request)[0] for request in (slow, *wait)] == [200] * 3
        return refused

    with closed(server.folder) as open_gate:
        answers = speak(main)
    for said in answers:
        assert said.startswith(b"HTTP/1.1 429 ")
        assert b"retry-after: 1\r\n" in said


async def until_held(client: aiohttp.ClientSession, server: Server, **held: int) -> None:
    """Until the router's status says so."""
    async with asyncio.timeout(LONGEST_S):
        while True:
            async with client.get(f"{server.url}/v2/gearshift/status") as response:
                status = await response.json()
            if all(status[name] == number for name, number in held.items()):
                return


def head_only(server: Server) -> bytes:
    with connected(server) as sock:
        sock.sendall(f"POST {INFER} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\n".encode())
        return sock.recv(1000)


@pytest.mark.long
def test_keys_and_certificates_hold_at_each_front_end_and_grpc_is_served_beside(tmp_path):
    keys, admins = tmp_path / "users", tmp_path / "admins"
    keys.write_text("a-longer-first-key\n")
    admins.write_text("a-longer-admin-key\n")
    files = write_certificate(tmp_path)
    settings = {"front_ends": 2, "grpc_port": 0, "api_keys": str(keys), "admin_keys": str(admins), **files}
    context = ssl.create_default_context(cafile=files["tls_certificate"])
    with (
        serving(tmp_path, **settings) as server,
        triton.InferenceServerClient(server.grpc, ssl=True, root_certificates=files["tls_certificate"]) as client,
    ):

        def statuses(path: str, key: str, sent: Any = None) -> set[int]:
            """Of so many connections, each its own, that both front ends take some."""

            async def main(_: aiohttp.ClientSession) -> set[int]:
                return {await once() for _ in range(CLIENTS)}

            async def once() -> int:
                async with (
                    aiohttp.ClientSession(headers={"x-api-key": key}) as one,
                    one.request("GET" if sent is None else "POST", server.url + path, json=sent, ssl=context) as answer,
                ):
                    return answer.status

            return speak(main)

        pin, asked = {"pin": 0}, body((1, 2))
        assert (statuses(INFER, "a-longer-first-key", asked), statuses(INFER, "another", asked)) == ({200}, {401})
        assert (statuses("/v2", "a-longer-first-key"), statuses("/v2", "another")) == ({200}, {401})
        gear = "/v2/gearshift/gear"
        assert (statuses(gear, "a-longer-first-key", pin), statuses(gear, "a-longer-admin-key", pin)) == ({401}, {200})
        answer = client.infer("sums", inputs((1, 2)), headers={"x-api-key": "a-longer-first-key"})
        assert answer.as_numpy("sum").tolist() == [3]
        keys.write_text("a-longer-second-key\n")
        assert (statuses(INFER, "a-longer-first-key", asked), statuses(INFER, "a-longer-second-key", asked)) == (
            {401},
            {200},
        )
        assert server.end() == 0
        assert not any("-key" in line for line in server.said)


def test_front_ends_end_with_a_router_that_is_killed(server):
    """The last test of the module's server."""
    there = front_ends(server)
    assert len(there) == 2
    server.process.kill()
    assert all(gone_within(pid) for pid in there)


def test_clients_of_a_front_end_that_is_killed_are_gone_and_it_comes_back(tmp_path):
    with serving(tmp_path, front_ends=2) as server:
        before = front_ends(server)

        async def main(client: aiohttp.ClientSession) -> list[int]:
            sent = [asyncio.create_task(post(client, server, body((4, 1)))) for _ in range(4)]
            await until_held(client, server, open_requests=4)
            for pid in before:
                os.kill(pid, signal.SIGKILL)
            assert all(isinstance(end, Exception) for end in await asyncio.gather(*sent, return_exceptions=True))
            while True:
                try:
                    await until_metric(client, server, r'outcome="cancelled"\} 4.0')
                    break
                except (OSError, aiohttp.ClientConnectionError):  # they are not back yet
                    await asyncio.sleep(0.05)
            open_gate()
            await until_ready(client, server)
            return [(await post(client, server, body((1, 2))))[0] for _ in range(CLIENTS)]

        with closed(tmp_path) as open_gate:
            assert speak(main) == [200] * CLIENTS
        for _ in before:
            server.until_it_says("front end [01] ended by signal 9")
        after = until_both_run(server)
        assert len(after) == 2
        assert not set(before) & set(after)

        async def last(client: aiohttp.ClientSession) -> int:
            slow = asyncio.create_task(post(client, server, body((4, 1))))
            await until_held(client, server, open_requests=1)
            server.process.send_signal(signal.SIGTERM)
            open_gate()
            return (await slow)[0]

        with closed(tmp_path) as open_gate:
            assert speak(last) == 200
        assert server.wait() == 0
        assert all(gone_within(pid) for pid in after)
