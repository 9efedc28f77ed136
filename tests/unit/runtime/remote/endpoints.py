"""A small HTTP server in a thread of its own, whose answers a test decides."""

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from gearshift.models.config import ModelSettings, OneOperator
from gearshift.models.remote_settings import RemoteSettings
from gearshift.models.user_model import UserModel
from gearshift.runtime.remote.models import open_remote

OPENED: list[UserModel] = []
"""Models whose connections are closed when the test is over."""
Answer = tuple[int, dict[str, str], bytes]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Any

    def do_GET(self) -> None:
        self._respond(b"")

    def do_POST(self) -> None:
        self._respond(self.rfile.read(int(self.headers["content-length"])))

    def _respond(self, body: bytes) -> None:
        self.server.asked.append((self.path, dict(self.headers), body))
        status, headers, answer = self.server.answer(self.path, body)
        self.send_response(status)
        for name, value in ({"content-length": str(len(answer))} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *arguments: Any) -> None:
        pass


class Endpoint(ThreadingHTTPServer):
    """What was asked, and where."""

    daemon_threads = True
    scheme = "http"

    def __init__(self, answer: Callable[[str, bytes], Answer]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer = answer
        self.asked: list[tuple[str, dict[str, str], bytes]] = []

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves is no error here."""


@contextmanager
def endpoint(answer: Callable[[str, bytes], Answer], certificate: dict[str, str] | None = None) -> Iterator[Endpoint]:
    with Endpoint(answer) as server:
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate["tls_certificate"], certificate["tls_key"])
            server.socket = context.wrap_socket(server.socket, server_side=True)
            server.scheme = "https"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def opened(remote: dict[str, Any], folder: Path = Path(), *, profiling: bool = False, **model: Any) -> UserModel:
    """The model that such a section of a project declares."""
    settings = ModelSettings(remote=RemoteSettings(**remote), **model)
    project = OneOperator(operator="o", samples="s.py:s", models={"large": settings}).as_project()
    OPENED.append(open_remote(project, folder, "large", profiling=profiling))
    return OPENED[-1]


def as_json(content: Any, status: int = 200) -> Answer:
    return status, {"content-type": "application/json"}, json.dumps(content).encode()
