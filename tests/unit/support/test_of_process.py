"""Clients and connections that were made before a fork: afterwards each process has its own."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

FORKS = """
import asyncio, os, sys
from pathlib import Path
from gearshift import AsyncClient, Client
from gearshift.models.remote_settings import RemoteSettings
from gearshift.runtime.remote.endpoint import Asked, Endpoint

url = sys.argv[1]
plain, several = Client(url, "task", longest_s=10), AsyncClient(url, "task", longest_s=10)
endpoint = Endpoint(RemoteSettings(protocol="v2", url=url, model="task", longest_s=10), Path(), "here")
loop = asyncio.new_event_loop()

async def at_once(inputs):
    return await asyncio.gather(*(several.infer(inputs) for _ in range(3)))

def ask_all(k, loop):
    inputs = {"x": [[k]]}
    said = [plain.infer(inputs), *loop.run_until_complete(at_once(inputs))]
    body = b'{"inputs": [{"name": "x", "shape": [1, 1], "datatype": "INT64", "data": [%d]}]}' % k
    (reply,) = endpoint.ask([Asked("POST", "/v2/models/task/infer", body)])
    return [one.outputs["x"].tolist() for one in said] == [[[k]]] * 4 and b"[%d]" % k in reply.body

assert ask_all(0, loop)
children = []
for k in range(1, 3):
    if (child := os.fork()) == 0:
        own = asyncio.new_event_loop()
        os._exit(not all(ask_all(100 * k + i, own) for i in range(10)))
    children.append(child)
assert all(ask_all(i, loop) for i in range(10))
assert [os.waitpid(child, 0)[1] for child in children] == [0] * 2
endpoint.close()
"""
LONGEST_S = 60.0


@pytest.fixture
def echo_url() -> Iterator[str]:
    """A server whose only output is its only input."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # an answer is one packet

        def log_message(self, *arguments: object) -> None:
            pass

        def do_GET(self) -> None:
            self.send(b'{"name": "x", "extensions": []}')

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.send(body.replace(b"inputs", b"outputs"))

        def send(self, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_clients_made_before_a_fork_give_parent_and_children_their_own_answers(echo_url):
    command = [sys.executable, "-c", FORKS, echo_url]
    ran = subprocess.run(command, check=False, stderr=subprocess.PIPE, text=True, timeout=LONGEST_S)
    assert (ran.returncode, ran.stderr) == (0, "")
