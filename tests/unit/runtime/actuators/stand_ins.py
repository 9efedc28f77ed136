"""Local stand-ins of the kernel's and the API server's interfaces, that behave as those do."""

import contextlib
import json
import ssl
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


def group_v2(folder: Path, *, cores: float = 1.0) -> Path:
    folder.mkdir(parents=True)
    (folder / "cpu.max").write_text(f"{round(cores * 5000)} 5000\n")
    return folder


def group_v1(folder: Path, *, cores: float = 1.0) -> Path:
    folder.mkdir(parents=True)
    (folder / "cpu.cfs_period_us").write_text("100000\n")
    (folder / "cpu.cfs_quota_us").write_text(f"{round(cores * 100000)}\n")
    return folder


class ApiServer:
    """One pod of one container; `mode` says what becomes of a resize."""

    def __init__(self, group: Path) -> None:
        self.group, self.mode, self.patches, self.tokens = group, "resizes", list[dict](), list[str]()
        self.released = threading.Event()
        self.url = ""

    def pod(self) -> dict:
        conditions = []
        if self.mode in ("Deferred", "Infeasible"):
            pending = {"type": "PodResizePending", "status": "True", "reason": self.mode, "message": "node is full"}
            conditions = [{"type": "Ready", "status": "True"}, pending]
        return {"kind": "Pod", "status": {"conditions": conditions}}

    def resize(self, patch: dict) -> tuple[int, dict]:
        self.patches.append(patch)
        if self.mode == "forbids":
            return 403, {"kind": "Status", "message": 'pods "gears" is forbidden: no verb patch on pods/resize'}
        if self.mode == "resizes":
            millicores = int(patch["spec"]["containers"][0]["resources"]["limits"]["cpu"].removesuffix("m"))
            threading.Timer(0.03, self._take, (f"{millicores * 100} 100000\n",)).start()
            return 200, {"kind": "Pod", "status": {}}
        return 200, {"kind": "Pod", "status": {}} if self.mode == "late refusal" else self.pod()

    def _take(self, quota: str) -> None:
        """At once, as the kernel does: nobody reads half of it."""
        (self.group / "cpu.max.new").write_text(quota)
        (self.group / "cpu.max.new").rename(self.group / "cpu.max")


@contextlib.contextmanager
def api_server(group: Path, *, tls: ssl.SSLContext | None = None) -> Iterator[ApiServer]:
    state = ApiServer(group)

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_PATCH(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            state.tokens.append(self.headers.get("Authorization", ""))
            assert self.path == "/api/v1/namespaces/models/pods/gears/resize"
            assert self.headers["Content-Type"] == "application/strategic-merge-patch+json"
            self.answer(*state.resize(body))

        def do_GET(self) -> None:
            if state.mode == "late refusal":
                state.mode = "Deferred"
            self.answer(200, state.pod())

        def answer(self, status: int, body: dict) -> None:
            if state.mode == "hangs":
                state.released.wait(10)
                return
            if state.mode == "nonsense":
                self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{[}")
                return
            text = json.dumps(body).encode()
            if state.mode == "trickles":
                self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
                with contextlib.suppress(OSError):
                    while not state.released.wait(0.02):
                        self.wfile.write(b" ")
                return
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    state.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{server.server_port}"
    try:
        yield state
    finally:
        state.released.set()
        server.shutdown()
        thread.join()
        server.server_close()
        time.sleep(0)
