import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pytest

from benchmarks.server import open_loop
from benchmarks.server.open_loop import parsed, request_bytes, send

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
BUSY = b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n"
LAST = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
SLOW_S = 0.05
LONGEST_S = 20.0

Answering = Callable[[int], bytes]


@contextmanager
def serving(answer: Answering) -> Iterator[tuple[str, list[bytes]]]:
    """A server's URL and the requests that it has received; it takes one connection at a time."""
    received: list[bytes] = []

    def serve(listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection, suppress(ConnectionError):
                while request := connection.recv(4096):
                    received.append(request)
                    said = answer(len(received))
                    connection.sendall(said)
                    if said == LAST:
                        break

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/path", received
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_latency_counts_from_when_a_request_was_due_though_no_connection_was_free() -> None:
    def slow_at_first(number: int) -> bytes:
        if number == 1:
            time.sleep(SLOW_S)
        return ANSWER

    with serving(slow_at_first) as (url, _):
        told = send(url, [request_bytes(url, "{}")], np.array([0.0, 0.01]), connections=1)
    assert told.status.tolist() == [200, 200]
    assert told.latency_s[0] >= SLOW_S
    assert told.latency_s[1] >= SLOW_S - 0.01
    assert told.lateness_s[1] <= told.latency_s[1] - (SLOW_S - 0.01)


def test_requests_go_out_in_turn_and_no_sooner_than_they_are_due() -> None:
    with serving(lambda number: ANSWER) as (url, received):
        requests = [request_bytes(url, body, ["x-slo-ms: 5"]) for body in ("a", "b")]
        told = send(url, requests, np.array([0.0, 0.01, 0.02]), connections=1, keep=True)
    assert [request[-1:] for request in received] == [b"a", b"b", b"a"]
    assert b"POST /path HTTP/1.1\r\n" in received[0]
    assert b"\r\nx-slo-ms: 5\r\n" in received[0]
    assert told.bodies == [b"ok"] * 3
    assert (told.lateness_s >= 0).all()


def test_what_is_refused_has_an_infinite_latency() -> None:
    with serving(lambda number: BUSY if number == 2 else ANSWER) as (url, _):
        told = send(url, [request_bytes(url, "{}")], np.array([0.0, 0.001]), connections=1)
    assert told.status.tolist() == [200, 503]
    assert told.p99_ms() == np.inf


def test_a_connection_that_the_server_closes_is_opened_again() -> None:
    with serving(lambda number: LAST) as (url, _):
        told = send(url, [request_bytes(url, "{}")], np.array([0.0, 0.001, 0.002]), connections=1)
    assert told.status.tolist() == [200, 200, 200]


class Looks:
    """A clock on which each look takes 20 ms, and that stands still at `stops_s` until it is let go on."""

    def __init__(self, stops_s: float) -> None:
        self.now_s, self.stops_s, self.stands = 0.0, stops_s, threading.Event()

    def perf_counter(self) -> float:
        self.now_s += 0.02
        if self.now_s >= self.stops_s:
            self.now_s = self.stops_s
            self.stands.set()
        return self.now_s


def test_a_request_that_found_no_connection_in_time_is_never_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, settle = Looks(0.3), open_loop.Loop._settle
    monkeypatch.setattr(open_loop, "time", clock)

    def settle_and_go_on(*given: Any, **named: Any) -> None:
        clock.stops_s = np.inf
        settle(*given, **named)

    def answered_when_it_is_late(number: int) -> bytes:
        assert clock.stands.wait(LONGEST_S)
        return ANSWER

    monkeypatch.setattr(open_loop.Loop, "_settle", settle_and_go_on)
    with serving(answered_when_it_is_late) as (url, received):
        told = send(url, [request_bytes(url, "{}")], np.array([0.0, 0.01, 0.3]), connections=1, give_up_s=0.1)
    assert len(received) == 2
    assert told.status[1] == 0
    assert np.isnan(told.lateness_s[1])
    assert np.isinf(told.latency_s[1])


def test_an_answer_is_whole_only_with_all_of_its_body() -> None:
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    assert parsed(bytearray(chunked)) == (200, b"abcde", False)
    assert parsed(bytearray(LAST)) == (200, b"ok", True)
    for whole in (chunked, ANSWER):
        assert all(parsed(bytearray(whole[:end])) is None for end in range(len(whole)))
