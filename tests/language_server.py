"""A server of language models in a process of its own, over emulated engines; and a plain client of its streams."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

LONGEST_S = 60.0
Chunk = dict[str, Any]


class LanguageServer:
    """`gearshift serve` of a plan; `port` is where it listens."""

    def __init__(self, plan: Path, *options: str) -> None:
        self._log = plan.parent / "serve.log"
        command = [sys.executable, "-P", "-m", "gearshift", "serve", str(plan), "--port", "0", *options]
        with self._log.open("w") as log:
            self.process = subprocess.Popen(command, stderr=log, stdout=log, start_new_session=True)
        self.port = int(self._until(r"http://127\.0\.0\.1:(\d+)/v1")[1])

    def _until(self, pattern: str) -> re.Match[str]:
        due_s = time.monotonic() + LONGEST_S
        while time.monotonic() < due_s:
            said = self.said
            if found := re.search(pattern, said):
                return found
            assert self.process.poll() is None, f"the server ended: {said}"
            time.sleep(0.02)
        raise AssertionError(f"the server did not say {pattern!r}: {self.said}")

    @property
    def said(self) -> str:
        return self._log.read_text()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def descendants(self) -> list[int]:
        """Processes that it has started, and they."""
        found, left = [], [self.process.pid]
        while left:
            pid = left.pop()
            for children in Path(f"/proc/{pid}/task").glob("*/children"):
                more = [int(child) for child in children.read_text().split()]
                found += more
                left += more
        return found

    def get(self, path: str) -> Any:
        return self._json("GET", path)[1]

    def post(self, path: str, body: Any, headers: dict[str, str] | None = None) -> tuple[int, Any]:
        return self._json("POST", path, body, headers)

    def _json(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LONGEST_S)
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers or {})
            response = connection.getresponse()
            content = response.read()
            return response.status, json.loads(content) if content[:1] in b"{[" else content.decode()
        finally:
            connection.close()

    def end(self, number: int = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(LONGEST_S)


@contextmanager
def serving(plan: Path, *options: str) -> Iterator[LanguageServer]:
    server = LanguageServer(plan, *options)
    try:
        yield server
        assert server.end() == 0, server.said
    finally:
        if server.process.poll() is None:
            os.killpg(server.process.pid, signal.SIGKILL)
            server.process.wait(LONGEST_S)


def chat(record: int, **fields: Any) -> dict[str, Any]:
    return {"model": "chat", "messages": [{"role": "user", "content": f"record {record}"}], **fields}


def streamed(port: int, body: dict[str, Any], path: str = "/v1/chat/completions") -> tuple[dict[str, str], list[Chunk]]:
    """The headers of a streamed answer, and its chunks; the last is {} where the stream ended with `[DONE]`."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LONGEST_S)
    try:
        connection.request("POST", path, json.dumps(body | {"stream": True}))
        response = connection.getresponse()
        assert response.status == 200, response.read()
        assert response.getheader("content-type") == "text/event-stream"
        events = response.read().split(b"\n\n")
        assert events.pop() == b""
        assert all(event.startswith(b"data: ") for event in events)
        chunks = [{} if event == b"data: [DONE]" else json.loads(event[6:]) for event in events]
        return {name.lower(): value for name, value in response.getheaders()}, chunks
    finally:
        connection.close()


def text_of(chunks: list[Chunk]) -> str:
    return "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks if chunk.get("choices"))
