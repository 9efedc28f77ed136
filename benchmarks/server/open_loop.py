"""An open loop over kept connections: requests go out when the schedule says, whatever the answers do.

A request waits where all connections await answers, and its latency counts from when it was due all the same.  What the
loop itself was late, beyond waiting for a connection, is told apart.  One thread, and one system call to wait for
answers and the next instant alike, so that every server meets the same client and the client costs little.
"""

import gc
import select
import socket
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from gearshift.support.event_loop import allow_many_connections

BEGIN_AFTER_S = 0.05
LONGEST_WAIT_S = 0.1
MOST_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Answers:
    """What came of each request (n,): seconds since it was due, infinite without an answer; status, 0 without one.

    `lateness_s` (n,) is how much later than it could a request was sent, nan where it never was; `bodies` are empty
    unless they were to be kept.
    """

    latency_s: NDArray[np.float64]
    status: NDArray[np.int64]
    lateness_s: NDArray[np.float64]
    bodies: list[bytes]

    def p99_ms(self) -> float:
        """Of the latencies of all that was asked; what got no answer counts as infinite."""
        answered_s = np.where(self.status == 200, self.latency_s, np.inf)
        return 1e3 * float(np.percentile(answered_s, 99, method="higher"))

    def lateness_p99_ms(self) -> float:
        return 1e3 * float(np.nanpercentile(self.lateness_s, 99))


def request_bytes(url: str, body: str, headers: Sequence[str] = ()) -> bytes:
    """A whole request."""
    parts = urlsplit(url)
    lines = (
        f"POST {parts.path} HTTP/1.1",
        f"Host: {parts.netloc}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *headers,
    )
    return "".join(f"{line}\r\n" for line in lines).encode() + b"\r\n" + body.encode()


@dataclass(slots=True, eq=False)
class Connection:
    """A connection, and the request that awaits its answer on it, if any."""

    sock: socket.socket
    free_since: float
    request: int = -1
    received: bytearray = field(default_factory=bytearray)


class Loop:
    """One run: what is under way, and what has come of it."""

    def __init__(
        self,
        url: str,
        requests: Sequence[bytes],
        due_s: NDArray[np.float64],
        *,
        connections: int,
        give_up_s: float,
        keep: bool,
    ) -> None:
        self._requests, self._due, self._keep, self._give_up_s = requests, due_s.tolist(), keep, give_up_s
        self._address = (urlsplit(url).hostname or "", urlsplit(url).port or 80)
        self._poller = select.epoll()
        self._by_number: dict[int, Connection] = {}
        self._free: deque[Connection] = deque()
        self._next = self._awaited = 0
        self._latency, self._status = [np.inf] * len(due_s), [0] * len(due_s)
        self._lateness = [np.nan] * len(due_s)
        self._bodies = [b""] * (len(due_s) if keep else 0)
        self._began = 0.0
        for _ in range(connections):
            self._connect(0.0)

    def run(self) -> Answers:
        """Send everything, and wait for answers until `give_up_s` after the last was due."""
        self._began = time.perf_counter() + BEGIN_AFTER_S
        end_s = self._due[-1] + self._give_up_s
        while (self._next < len(self._due) or self._awaited) and (now := self._now()) < end_s:
            self._send_due(now)
            self._receive(self._wait_s())
        self.close()
        return Answers(np.array(self._latency), np.array(self._status), np.array(self._lateness), self._bodies)

    def close(self) -> None:
        for connection in self._by_number.values():
            connection.sock.close()
        self._poller.close()

    def _now(self) -> float:
        return time.perf_counter() - self._began

    def _connect(self, now: float) -> None:
        sock = socket.create_connection(self._address)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setblocking(False)
        self._by_number[sock.fileno()] = connection = Connection(sock, now)
        self._poller.register(sock.fileno(), select.EPOLLIN)
        self._free.append(connection)

    def _wait_s(self) -> float:
        if self._next == len(self._due) or not self._free:
            return LONGEST_WAIT_S
        return min(LONGEST_WAIT_S, max(0.0, self._due[self._next] - self._now()))

    def _send_due(self, now: float) -> None:
        while self._next < len(self._due) and self._due[self._next] <= now:
            number, due = self._next, self._due[self._next]
            if now - due < self._give_up_s:
                if not self._free:
                    return
                connection = self._free.popleft()
                connection.request = number
                self._awaited += 1
                self._lateness[number] = self._now() - max(due, connection.free_since)
                self._write(connection, self._requests[number % len(self._requests)])
            self._next += 1

    def _write(self, connection: Connection, request: bytes) -> None:
        try:
            connection.sock.send(request)
        except OSError:
            self._settle(connection, 0, b"", closed=True)

    def _receive(self, wait_s: float) -> None:
        if wait_s and not select.select([self._poller], [], [], wait_s)[0]:  # its own time-out is in milliseconds
            return
        for number, _ in self._poller.poll(0):
            connection = self._by_number[number]
            try:
                data = connection.sock.recv(MOST_BYTES)
            except OSError:
                data = b""
            connection.received += data
            answer = parsed(connection.received)
            if answer is not None or not data:
                status, body, closing = answer or (0, b"", True)
                self._settle(connection, status, body, closed=closing or not data)

    def _settle(self, connection: Connection, status: int, body: bytes, *, closed: bool) -> None:
        now, request = self._now(), connection.request
        if request >= 0:
            self._awaited -= 1
            self._status[request] = status
            if status:
                self._latency[request] = now - self._due[request]
            if self._keep:
                self._bodies[request] = body
        connection.request, connection.free_since = -1, now
        connection.received.clear()
        if closed:
            if connection in self._free:
                self._free.remove(connection)
            del self._by_number[connection.sock.fileno()]
            connection.sock.close()
            self._connect(now)
        elif request >= 0:
            self._free.append(connection)


def parsed(received: bytearray) -> tuple[int, bytes, bool] | None:
    """Status and body of a whole answer, and whether the server closes after it; None where some of it is missing."""
    end = received.find(b"\r\n\r\n")
    if end < 0:
        return None
    head, body = bytes(received[:end]).lower(), bytes(received[end + 4 :])
    status, closing = int(head[9:12]), b"connection: close" in head
    at = head.find(b"content-length:")
    if at >= 0:
        length = int(head[at + 15 :].split(b"\r\n", 1)[0])
        return (status, body, closing) if len(body) >= length else None
    if b"transfer-encoding: chunked" in head:
        return (status, unchunked(body), closing) if body.endswith(b"0\r\n\r\n") else None
    return (status, body, closing)


def unchunked(body: bytes) -> bytes:
    """What the chunks of a whole body hold."""
    whole, rest = b"", body
    while rest:
        size, rest = rest.split(b"\r\n", 1)
        whole, rest = whole + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
    return whole


def send(
    url: str,
    requests: Sequence[bytes],
    due_s: NDArray[np.float64],
    *,
    connections: int,
    give_up_s: float = 10.0,
    keep: bool = False,
) -> Answers:
    """Send the requests, in turn and again from the first, at the seconds `due_s` (n,), ascending.

    One that has found no connection within `give_up_s` is never sent.
    """
    allow_many_connections()
    loop = Loop(url, requests, due_s, connections=connections, give_up_s=give_up_s, keep=keep)
    gc.collect()
    gc.disable()
    try:
        return loop.run()
    finally:
        gc.enable()
