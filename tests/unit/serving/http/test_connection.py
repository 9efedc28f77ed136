"""HTTP/1.1 byte by byte, before a handler that tells what it was asked."""

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from gearshift.serving.http.connection import Connection, Connections
from gearshift.serving.http.connections import LARGEST_READ_BYTES, RESERVE, STEP_BYTES
from gearshift.serving.http.http_exchange import CLOSE, HttpExchange
from gearshift.serving.http.parser import LINGER_BYTES, MOST_CHUNKS, MOST_HEADERS
from gearshift.serving.http.patience import LEAST_TAKEN_BYTES_PER_S
from tests.often import often
from tests.unit.serving.leaping_loop import LeapingLoop
from tests.unit.serving.wire import Wire, answered

LONGEST_S = 20.0
MORE_BYTES = 6 << 20
GET = b"GET /a HTTP/1.1\r\nhost: x\r\n\r\n"
POST = b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nabc"
CHUNKED = b"POST /a HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n"


class Telling:
    """Answers each request with what it was; later, where `patient`, and at its head, where it is for `/refused`."""

    def __init__(self, *, patient: bool = False) -> None:
        self.patient = patient
        self.begun_paths: list[str] = []
        self.exchanges: list[HttpExchange] = []
        self.released = self.gone = 0

    def begun(self, exchange: HttpExchange) -> None:
        self.begun_paths.append(exchange.path)
        exchange.release, exchange.on_gone = self._release, self._leave
        if exchange.path == "/refused":
            exchange.respond(404, b"no")
        elif exchange.path == "/closed":
            exchange.respond(413, b"no", extra=[CLOSE])
        elif b"transfer-encoding" in exchange.headers:
            exchange.measure = lambda part_bytes: None

    def measured(self, exchange: HttpExchange, part_bytes: int) -> None: ...

    def completed(self, exchange: HttpExchange) -> None:
        exchange.end_reading()
        self.exchanges.append(exchange)
        if not self.patient:
            self.tell(exchange)

    def tell(self, exchange: HttpExchange) -> None:
        said = {"method": exchange.method, "path": exchange.path, "body": exchange.take_body().decode("latin-1")}
        exchange.respond(200, json.dumps(said).encode())

    def _release(self) -> None:
        self.released += 1

    def _leave(self) -> None:
        self.gone += 1


def run(
    use: Callable[[], Awaitable[Any]], loop_factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
) -> Any:
    async def main() -> Any:
        async with asyncio.timeout(LONGEST_S):
            return await use()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(main())


def connect(handler: Telling, **bounds: Any) -> tuple[Connection, Wire]:
    connection, wire = Connection(Connections(handler=handler, **bounds)), Wire()
    connection.connection_made(wire)
    return connection, wire


def say(*parts: bytes, handler: Telling | None = None, **bounds: Any) -> Wire:
    """What is on the wire after the client has said all this."""

    async def main() -> Wire:
        return hear(parts, handler or Telling(), **bounds)

    return run(main)


def hear(parts: Iterable[bytes], handler: Telling, **bounds: Any) -> Wire:
    connection, wire = connect(handler, **bounds)
    for part in parts:
        if not wire.closed:
            connection.data_received(part)
    connection.connection_lost(None)
    return wire


def statuses(wire: Wire) -> list[int]:
    return [int(part[:3]) for part in bytes(wire.written).split(b"HTTP/1.1 ")[1:]]


def told(wire: Wire) -> list[dict[str, str]]:
    """What the handler has told, answer by answer; each is preceded by a head that says how long it is."""
    rest, found = bytes(wire.written), []
    while rest:
        head, _, rest = rest.partition(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        found.append(json.loads(rest[:length]))
        rest = rest[length:]
    return found


def test_an_answer_is_one_write():
    wire = say(POST)
    assert wire.writes == 1
    assert told(wire) == [{"method": "POST", "path": "/a", "body": "abc"}]
    assert not wire.closed


def test_a_large_answer_is_whole():
    async def main() -> bytes:
        handler = Telling(patient=True)
        connection, wire = connect(handler)
        connection.data_received(GET)
        handler.exchanges[0].respond(200, b"x" * 1_000_000)
        return (await answered(wire)).body

    assert run(main) == b"x" * 1_000_000


@pytest.mark.parametrize(
    ("target", "path"),
    [
        (b"/a?b=c", "/a"),
        (b"/a%20b?%41", "/a%20b"),
        (b"http://elsewhere/p/q?r", "http://elsewhere/p/q"),
        (b"/v2/gearshift%2fdrain?x", "/v2/gearshift%2fdrain"),
        (b"*", "*"),
    ],
)
def test_a_path_is_as_it_is_written_without_its_query(target, path):
    assert told(say(b"GET " + target + b" HTTP/1.1\r\nhost: x\r\n\r\n"))[0]["path"] == path


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /a HTTP/1.1\r\n", 400),
        (b"GET /a HTTP/1.1\r\nhost: x\r\nhost: x\r\n", 400),
        (b"GET http://y/a HTTP/1.1\r\nhost: x\r\nhost: y\r\n", 400),
        (b"GET /a HTTP/1.1\r\nhost: x, y\r\n", 400),
        (b"GET /a HTTP/1.1\r\nhost: a@x\r\n", 400),
        (b"GET http://a@x/a HTTP/1.1\r\nhost: x\r\n", 400),
        (b"GET /a HTTP/1.1\r\nhost:\r\n", 200),
        (b"GET /a HTTP/1.0\r\n", 200),
        (b"GET /a HTTP/1.0\r\nhost: x\r\nhost: x\r\n", 400),
    ],
)
def test_a_request_has_one_host(head, status):
    assert statuses(say(head + b"\r\n")) == [status]


@pytest.mark.parametrize(
    ("target", "host"), [(b"/a", b"x"), (b"http://[::1]:80/a?b/c", b"[::1]:80"), (b"http://y?b", b"y")]
)
def test_the_host_in_a_target_takes_the_place_of_the_header(target, host):
    handler = Telling()
    say(b"GET " + target + b" HTTP/1.1\r\nhost: x\r\n\r\n", handler=handler)
    assert handler.exchanges[0].headers[b"host"] == host


def test_a_chunked_body_is_joined_and_extensions_and_trailers_are_passed_over():
    chunks = b"3;name=value\r\nabc\r\n2\r\nde\r\n0\r\nx-api-key: late\r\n\r\n"
    handler = Telling()
    wire = say(CHUNKED + b"\r\n" + chunks + GET, handler=handler)
    assert [each["body"] for each in told(wire)] == ["abcde", ""]
    assert b"x-api-key" not in handler.exchanges[0].headers | handler.exchanges[1].headers


def test_a_header_given_several_times_is_one_list_without_the_blanks_around_its_values():
    handler = Telling()
    say(b"GET /a HTTP/1.1\r\nhost: x\r\nX-Slo-Ms: \t50 \t\r\nx-slo-ms:70\r\n\r\n", handler=handler)
    assert handler.exchanges[0].headers[b"x-slo-ms"] == b"50, 70"


def test_a_header_given_more_often_than_a_list_is_long_is_431():
    assert statuses(say(b"GET /a HTTP/1.1\r\nhost: x\r\n" + b"x: yyyyyy\r\n" * 2000 + b"\r\n")) == [431]


# One after another ---------------------------------------------------------------------------------------------------


def test_a_body_in_tiny_parts_is_held_in_few_and_joined_whole():
    async def main() -> None:
        handler = Telling(patient=True)
        connection, _ = connect(handler)
        connection.data_received(CHUNKED + b"\r\n")
        sent = bytes(number % 251 for number in range(5000))
        for number in range(5000):
            connection.data_received(b"1\r\n%b\r\n" % sent[number : number + 1])
        connection.data_received(b"800\r\n" + b"x" * 0x800 + b"\r\n1\r\ny\r\n0\r\n\r\n")
        (exchange,) = handler.exchanges
        assert len(exchange.parts) == 4
        assert exchange.take_body() == sent + b"x" * 0x800 + b"y"
        connection.connection_lost(None)

    run(main)


def test_a_long_row_of_offered_upgrades_is_passed_over_one_by_one():
    offers = b"GET / HTTP/1.1\r\nHost:x\r\nUpgrade:a\r\nConnection:upgrade\r\n\r\n" * 330
    wire = say(offers + b"G", b"ET / HTTP/1.1\r\nHost:x\r\n\r\n")
    assert statuses(wire) == [200] * 331


def test_pipelined_requests_begin_and_are_answered_in_turn():
    async def main() -> list[str]:
        handler = Telling(patient=True)
        connection, wire = connect(handler)
        for name in (b"1", b"2", b"3"):
            connection.data_received(POST.replace(b"/a", b"/" + name))
        assert handler.begun_paths == ["/1"]
        assert not wire.reading
        paths = []
        while handler.exchanges:
            handler.tell(handler.exchanges.pop())
            paths.append((await answered(wire)).json()["path"])
        assert wire.reading
        return paths

    assert run(main) == ["/1", "/2", "/3"]


def test_of_a_flood_of_pipelined_requests_few_are_held_and_all_are_answered():
    count = 10 * STEP_BYTES // len(GET)

    async def main() -> tuple[int, int]:
        handler = Telling(patient=True)
        connection, wire = connect(handler)
        connection.data_received(GET * count)
        held = len(connection._waiting)
        handler.patient = False
        handler.tell(handler.exchanges[0])
        return held, len(statuses(wire))

    held, answers = run(main)
    assert held <= STEP_BYTES // len(GET) + 1
    assert answers == count


def test_a_client_that_does_not_read_its_answers_is_not_asked_for_more():
    async def main() -> None:
        handler = Telling()
        connection, wire = connect(handler)
        connection.data_received(GET)
        connection.pause_writing()
        assert not wire.reading
        connection.data_received(GET * 2)
        assert len(told(wire)) == 1
        connection.resume_writing()
        assert len(told(wire)) == 3
        assert wire.reading

    run(main)


def test_a_client_that_takes_nothing_of_its_answer_is_cut_off():
    async def main() -> None:
        connection, wire = connect(Telling(), keep_alive_s=0.05)
        connection.data_received(GET)
        wire.unsent_bytes = 100
        connection.pause_writing()
        while not wire.aborted:
            await asyncio.sleep(0.01)
        connection.connection_lost(None)

    run(main, LeapingLoop)


def test_a_client_that_takes_its_answer_slowly_is_not_cut_off_and_looked_at_now_and_then():
    async def main() -> int:
        connection, wire = connect(Telling(), keep_alive_s=0.05)
        connection.data_received(GET)
        for unsent_bytes in range(10, 0, -1):
            wire.unsent_bytes = unsent_bytes
            await asyncio.sleep(0.02)
            assert not wire.closed
        wire.unsent_bytes = 0
        while not wire.closed:
            await asyncio.sleep(0.01)
        connection.connection_lost(None)
        assert not wire.aborted
        return wire.asked

    assert run(main, LeapingLoop) < 30


@pytest.mark.parametrize("sent", [GET, POST, POST[:-3]], ids=["no body", "whole", "head alone"])
def test_a_fault_of_ours_is_500_and_tells_nothing(caplog, sent):
    class Faulty(Telling):
        def begun(self, exchange: HttpExchange) -> None:
            raise ValueError("a secret")

    wire = say(sent, handler=Faulty())
    assert statuses(wire) == [500]
    assert b"secret" not in wire.written
    assert "a secret" in caplog.text


def test_of_a_target_that_cannot_be_read_nothing_is_logged(caplog):
    assert statuses(say(b"GET nowhere?key=secret HTTP/1.1\r\n\r\n")) == [400]
    assert "secret" not in caplog.text


# The last one --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "request_",
    [
        GET.replace(b"host: x", b"host: x\r\nconnection: close"),
        GET.replace(b"1.1", b"1.0"),
        GET.replace(b"1.1", b"1.0").replace(b"host: x", b"connection: close, keep-alive"),
        GET.replace(b"1.1", b"1.0").replace(b"host: x", b"proxy-connection: keep-alive"),
    ],
)
def test_after_the_last_answer_the_connection_is_closed_and_what_follows_is_not_heard(request_):
    handler = Telling()
    wire = say(request_ + GET, handler=handler)
    assert statuses(wire) == [200]
    assert wire.closed
    assert b"connection: close\r\n" in wire.written
    assert handler.begun_paths == ["/a"]


def test_a_client_of_http_1_0_that_asks_for_it_keeps_its_connection_and_is_told_so():
    kept = POST.replace(b"1.1", b"1.0").replace(b"host: x", b"connection: Keep-Alive\r\nexpect: 100-continue")
    wire = say(kept + kept, kept)
    assert statuses(wire) == [200, 200, 200]
    assert wire.written.count(b"connection: keep-alive\r\n") == 3
    assert not wire.closed


def test_while_the_server_ends_each_answer_is_the_last():
    async def main() -> None:
        handler = Telling(patient=True)
        (busy, wire), (idle, other) = connect(handler), connect(handler)
        busy.data_received(GET)
        for connection in (busy, idle):
            connection._all.ending = True
            connection.end()
        assert other.closed
        assert not wire.closed
        handler.tell(handler.exchanges[0])
        assert (await answered(wire)).headers["connection"] == "close"
        assert wire.closed

    run(main)


def test_head_is_answered_without_a_body_but_with_its_length():
    wire = say(GET.replace(b"GET", b"HEAD") + GET)
    head, second = bytes(wire.written).split(b"\r\n\r\nHTTP/1.1 ")
    assert b"content-length: %d" % len(json.dumps({"method": "HEAD", "path": "/a", "body": ""})) in head
    assert second.startswith(b"200 OK")


@pytest.mark.parametrize(("elsewhere", "status"), [(3, 200), (4, 503)])
def test_connections_of_other_processes_count_too(elsewhere, status):
    assert statuses(say(GET, most_connections=4, count=lambda here: here + elsewhere)) == [status]


# Where there is no room ----------------------------------------------------------------------------------------------

LIVEZ = GET.replace(b"/a", b"/livez")


def meet(connections: Connections, client: str = "127.0.0.1") -> tuple[Connection, Wire]:
    connection, wire = Connection(connections), Wire(client)
    connection.connection_made(wire)
    return connection, wire


def at_the_bound(*sent: bytes, **bounds: Any) -> tuple[Connections, list[tuple[Connection, Wire]]]:
    """One client for each of `sent`, which it has sent; the connections are then at their bound."""
    connections = Connections(handler=Telling(patient=True), most_connections=len(sent), **bounds)
    clients = [meet(connections) for _ in sent]
    for (connection, _), said in zip(clients, sent, strict=True):
        connection.data_received(said)
    return connections, clients


@pytest.mark.parametrize("silent", [b"", GET[:-2], POST[:-1], POST[:-1].replace(b"/a", b"/refused")])
def test_a_client_that_keeps_the_server_waiting_is_cut_off_where_another_comes(silent):
    async def main() -> list[bool]:
        connections, clients = at_the_bound(GET, silent, GET, silent)
        newcomer, wire = meet(connections)
        newcomer.data_received(LIVEZ)
        connections.handler.tell(connections.handler.exchanges[-1])
        assert statuses(wire) == [200]
        assert not wire.closed
        return [wire.aborted for _, wire in clients]

    assert run(main) == [False, True, False, False]


def test_idle_clients_that_have_shown_a_key_are_closed_after_strangers():
    async def main() -> list[bool]:
        connections, clients = at_the_bound(GET, GET, b"")
        for exchange in connections.handler.exchanges[:]:
            connections.handler.tell(exchange)
        clients[0][0].vouch()
        for _ in range(2):
            meet(connections)[0].data_received(GET)
        return [wire.aborted for _, wire in clients]

    assert run(main) == [False, True, True]


@pytest.mark.parametrize(("path", "status"), [(b"/livez", 200), (b"/metrics", 200), (b"/a", 503)])
def test_where_all_wait_for_answers_only_how_the_server_is_doing_is_told(path, status):
    async def main() -> None:
        connections, clients = at_the_bound(GET, GET)
        connections.handler.patient = False
        newcomer, wire = meet(connections)
        newcomer.data_received(POST.replace(b"/a", path) + POST)
        answer = await answered(wire)
        assert (answer.status, answer.headers["connection"]) == (status, "close")
        assert answer.headers.get("retry-after") == ("1" if status == 503 else None)
        assert wire.closed
        assert not wire.written
        assert not any(wire.closed for _, wire in clients)

    run(main)


def test_of_the_reserve_the_oldest_silent_one_goes_first_and_when_all_are_busy_nobody_is_let_in():
    async def main() -> None:
        connections, _ = at_the_bound(GET)
        spare = [meet(connections) for _ in range(RESERVE + 1)]
        assert [wire.aborted for _, wire in spare] == [True, *[False] * RESERVE]
        for connection, _ in spare[1:]:
            connection.data_received(LIVEZ)
        assert meet(connections)[1].aborted

    run(main)


def test_a_client_of_another_address_is_not_cut_off_for_one_that_has_more_than_its_share():
    async def main() -> tuple[bool, bool]:
        connections = Connections(handler=Telling(), most_connections=4, most_of_address=2)
        _, first = meet(connections, "192.0.2.1")
        wires = [meet(connections, "192.0.2.2")[1] for _ in range(4)]
        return first.aborted, wires[0].aborted

    assert run(main) == (False, True)


# What strangers may cost ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "status"), [(MOST_HEADERS, 200), (MOST_HEADERS + 1, 431)])
def test_a_request_has_a_bounded_number_of_headers(count, status):
    headers = [b"x-%d:\r\n" % number for number in range(count)]
    assert statuses(say(b"GET / HTTP/1.1\r\nhost: a\r\n%b\r\n" % b"".join(headers[1:]))) == [status]
    assert statuses(say(CHUNKED + b"\r\n0\r\n" + b"".join(headers) + b"\r\n")) == [status]


@pytest.mark.parametrize("path", [b"/a", b"/refused"])
def test_a_body_in_endless_tiny_chunks_is_refused(path):
    chunks = b"1\r\na\r\n" * MOST_CHUNKS

    async def main() -> Wire:
        connection, wire = connect(Telling())
        connection.data_received(CHUNKED.replace(b"/a", path) + b"\r\n" + chunks)
        assert not wire.ended
        connection.data_received(b"1\r\na\r\n" * 300)
        return wire

    wire = run(main)
    assert wire.ended
    assert statuses(wire) == ([413] if path == b"/a" else [404])


def test_a_handler_is_told_once_of_many_chunks_that_come_together():
    class Measuring(Telling):
        told: list[int]

        def measured(self, exchange: HttpExchange, part_bytes: int) -> None:
            self.told.append(part_bytes)

    handler = Measuring()
    handler.told = []
    head, chunks = CHUNKED + b"\r\n", b"1\r\na\r\n" * 200
    wire = say(head, chunks, chunks + b"0\r\n\r\n", handler=handler)
    assert handler.told == [200, 200]
    assert told(wire)[0]["body"] == "a" * 400


def test_the_rest_of_a_refused_body_is_taken_up_to_a_bound():
    head = POST.replace(b"/a", b"/refused").replace(b"length: 3", b"length: %d" % (1 << 40))
    part = b"x" * (LINGER_BYTES // 4)

    async def main() -> None:
        connection, wire = connect(Telling())
        connection.data_received(head)
        for _ in range(4):
            assert not wire.closed
            connection.data_received(part)
        assert wire.closed

    run(main)


def test_no_more_is_read_than_a_step_beyond_what_belongs_to_one_body():
    async def main() -> list[int]:
        connection, _ = connect(Telling(patient=True))
        head = POST[:-3].replace(b"length: 3", b"length: 100000")
        sizes = [len(connection.get_buffer(-1))]
        for sent in (head, b"x" * 50_000, b"x" * 49_000, b"x" * 1_000, CHUNKED + b"\r\n1"):
            connection.data_received(sent)
            sizes.append(len(connection.get_buffer(-1)))
        return sizes

    assert run(main) == [STEP_BYTES, 100_000, 50_000, STEP_BYTES, STEP_BYTES, STEP_BYTES]


def test_a_large_body_is_read_in_large_parts():
    async def main() -> int:
        connection, _ = connect(Telling())
        connection.data_received(POST.replace(b"length: 3", b"length: %d" % (1 << 30)))
        return len(connection.get_buffer(-1))

    assert run(main) == LARGEST_READ_BYTES


@pytest.mark.parametrize(("rate", "cut_off"), [(1.5, False), (0.5, True)])
def test_a_client_that_takes_its_answer_at_less_than_a_least_rate_is_cut_off(rate, cut_off):
    async def main() -> bool:
        connection, wire = connect(Telling(), keep_alive_s=2.0)
        connection.data_received(GET)
        wire.unsent_bytes = 1 << 20
        connection.pause_writing()
        for _ in range(10):
            wire.unsent_bytes -= int(rate * LEAST_TAKEN_BYTES_PER_S)
            await asyncio.sleep(1)
        connection.connection_lost(None)
        return wire.aborted

    assert run(main, LeapingLoop) == cut_off


def test_what_clients_have_yet_to_take_is_counted_until_they_take_it_or_leave():
    async def main() -> list[int]:
        counted = [0]

        def count(unsent_bytes: int) -> int:
            counted.append(unsent_bytes)
            return unsent_bytes

        connections = Connections(handler=Telling(), count_unsent=count)
        (first, wire), (second, other) = meet(connections), meet(connections)
        wire.unsent_bytes, other.unsent_bytes = 1000, 500
        first.pause_writing()
        second.pause_writing()
        first.resume_writing()
        second.connection_lost(None)
        return counted

    assert run(main) == [0, 1000, 1500, 500, 0]


def test_where_answers_that_are_not_taken_are_too_many_who_has_taken_longest_is_cut_off():
    async def main() -> list[bool]:
        connections = Connections(handler=Telling(), most_unsent_bytes=1000)
        clients = [meet(connections) for _ in range(3)]
        for connection, wire in clients:
            wire.unsent_bytes = 600
            connection.pause_writing()
        return [wire.aborted for _, wire in clients]

    assert run(main) == [True, True, False]
    assert run(one_large_answer) is False


async def one_large_answer() -> bool:
    connection, wire = connect(Telling(), most_unsent_bytes=1000)
    wire.unsent_bytes = 5000
    connection.pause_writing()
    return wire.aborted


# Refused before the body ---------------------------------------------------------------------------------------------


def test_an_answer_before_the_body_leaves_the_connection_usable():
    handler = Telling()
    wire = say(POST.replace(b"/a", b"/refused")[:-2], b"bc" + GET, handler=handler)
    assert statuses(wire) == [404, 200]
    assert handler.released == 2


def test_an_answer_that_closes_waits_for_the_body_before_it_does():
    async def main() -> None:
        connection, wire = connect(Telling())
        connection.data_received(POST.replace(b"/a", b"/closed")[:-2])
        assert (await answered(wire)).headers["connection"] == "close"
        assert not wire.closed
        connection.data_received(b"bc")
        assert wire.closed

    run(main)


@pytest.mark.parametrize(
    ("path", "said"),
    [(b"/a", b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK"), (b"/refused", b"HTTP/1.1 404 Not Found")],
)
def test_a_body_is_asked_for_only_where_it_is_wanted(path, said):
    head, body = POST[:-3].replace(b"host: x", b"host: x\r\nexpect: 100-continue").replace(b"/a", path), POST[-3:]
    wire = say(head, body)
    assert wire.written.startswith(said)
    assert wire.closed == (path == b"/refused")  # as nobody knows whether the body comes


def test_a_body_that_is_there_already_is_not_asked_for():
    async def main() -> Wire:
        handler = Telling(patient=True)
        connection, wire = connect(handler)
        connection.data_received(GET + POST.replace(b"host: x", b"host: x\r\nexpect: 100-continue"))
        for _ in range(2):
            handler.tell(handler.exchanges[-1])
        return wire

    assert statuses(run(main)) == [200, 200]


# Clients that leave --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sent", [POST, POST[:-1]])
def test_a_client_that_leaves_gives_back_what_its_request_holds(sent):
    handler = Telling(patient=True)
    say(sent + GET, handler=handler)
    assert (handler.released, handler.gone) == (1, 1)


def test_half_a_connection_counts_as_none():
    async def main() -> None:
        handler = Telling(patient=True)
        server = await asyncio.get_running_loop().create_server(
            lambda: Connection(Connections(handler=handler)), "127.0.0.1", 0
        )
        async with server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(GET)
            writer.write_eof()
            assert await reader.read() == b""
            writer.close()
        assert handler.gone == 1

    run(main)


# What is not HTTP ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "head",
    [
        b"content-length: 3\r\ncontent-length: 3",
        b"content-length: 3\r\ntransfer-encoding: chunked",
        b"transfer-encoding: chunked\r\ncontent-length: 3",
        b"transfer-encoding: gzip, chunked",
        b"transfer-encoding: chunked, identity",
        b"transfer-encoding: xchunked",
        b"transfer-encoding: gzip\r\ntransfer-encoding: chunked",
        b"transfer-encoding: chunked\r\ntransfer-encoding: chunked",
        b"content-length: +3",
        b"content-length: 3, 3",
        b"content-length: " + b"9" * 30,
        b"x: y\r\n folded",
        b"x : y",
        b"x: y\rz: w",
        b"x: y\nz: w",
        b"x: \x00",
        b"\x80: y",
    ],
)
def test_what_two_servers_could_read_in_two_ways_is_400_and_nothing_after_it_is_heard(head):
    handler = Telling()
    wire = say(b"POST /a HTTP/1.1\r\nhost: x\r\n" + head + b"\r\n\r\nabc" + GET, handler=handler)
    assert statuses(wire) == [400]
    assert wire.ended
    assert handler.exchanges == []


@pytest.mark.parametrize(
    "sent",
    [b"no HTTP\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
     b"CONNECT x:1 HTTP/1.1\r\nhost: x\r\n\r\n", b"GET /\xff HTTP/1.1\r\n\r\n", b"GET nowhere HTTP/1.1\r\n\r\n",
     b"GET / HTTP/2.0\r\nhost: x\r\n\r\n", b"GET / HTTP/0.9\r\n\r\n",
     CHUNKED + b"\r\nzz\r\n", CHUNKED + b"\r\n1\nb\n0\n\n"],
)  # fmt: skip
def test_what_is_no_request_is_400_after_the_answers_before_it(sent):
    async def main() -> None:
        handler = Telling(patient=True)
        connection, wire = connect(handler)
        connection.data_received(GET + sent)
        assert not wire.written
        handler.tell(handler.exchanges[0])
        assert statuses(wire) == [200, 400]
        assert wire.ended

    run(main)


@pytest.mark.parametrize(
    "parts",
    [
        [b"GET /" + b"a" * 2000 + b" HTTP/1.1\r\n\r\n"],
        [b"GET / HTTP/1.1\r\nx: " + b"a" * 2000],
        [b"GET / HTTP/1.1\r\n", *([b"x: " + b"a" * 100 + b"\r\n"] * 20)],
        [b"GET / HTTP/1.1\r\nx: ", *([b"a" * 100] * 20)],
        [CHUNKED + b"\r\n1\r\na\r\n0\r\nx: ", *([b"a" * 100] * 20)],
        [CHUNKED + b"\r\n1;", *([b"a" * 100] * 20)],
    ],
)
def test_heads_trailers_and_extensions_without_end_are_431(parts):
    wire = say(*parts, largest_header_bytes=1000)
    assert statuses(wire) == [431]
    assert wire.ended


def test_a_head_behind_a_large_body_is_not_measured_with_it():
    body = b"a" * 5000
    first = POST.replace(b"length: 3", b"length: 5000")[:-3]
    wire = say(first + body[:-10], body[-10:] + GET[:10], GET[10:], largest_header_bytes=1000)
    assert statuses(wire) == [200, 200]


@pytest.mark.parametrize("connection", [b"upgrade", b"keep-alive, Upgrade, HTTP2-Settings"])
def test_an_offered_upgrade_is_passed_over_and_the_body_belongs_to_the_request(connection):
    offer = b"connection: " + connection + b"\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk"
    wire = say(POST.replace(b"host: x", b"host: x\r\n" + offer)[:-1], b"c" + GET)
    assert [each["body"] for each in told(wire)] == ["abc", ""]


# The last answer of a client that may still be sending ----------------------------------------------------------------


def test_after_a_refusal_the_client_is_told_of_the_end_and_read_from_for_a_while():
    async def main() -> Wire:
        connection, wire = connect(Telling())
        connection.data_received(b"no HTTP\r\n\r\n")
        assert (wire.ended, wire.closed, wire.reading) == (True, False, True)
        connection.data_received(b"x" * LINGER_BYTES)
        assert not wire.closed
        connection.data_received(b"x")
        assert wire.closed
        return wire

    assert statuses(run(main)) == [400]


def test_a_refused_client_that_stays_silent_is_closed_after_a_while(monkeypatch):
    monkeypatch.setattr("gearshift.serving.http.connection.LINGER_S", 0.01)

    async def main() -> None:
        connection, wire = connect(Telling())
        connection.data_received(b"no HTTP\r\n\r\n")
        assert not wire.closed
        wire.more.clear()
        await wire.more.wait()
        assert wire.closed

    run(main)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"no HTTP\r\n\r\n" + b"x" * MORE_BYTES, 400),
        (b"POST /closed HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % MORE_BYTES + b"x" * MORE_BYTES, 413),
        (b"GET / HTTP/1.1\r\nx: " + b"x" * MORE_BYTES, 431),
    ],
)
def test_a_client_that_sends_all_before_it_reads_still_finds_the_answer(sent, status):
    def ask(address: tuple[str, int]) -> bytes:
        with socket.create_connection(address, timeout=LONGEST_S) as client:
            client.sendall(sent)
            return b"".join(iter(lambda: client.recv(1 << 16), b""))

    async def main() -> bytes:
        connections = Connections(handler=Telling())
        server = await asyncio.get_running_loop().create_server(lambda: Connection(connections), "127.0.0.1", 0)
        async with server:
            said = await asyncio.to_thread(ask, server.sockets[0].getsockname())
            await connections.closed()
            return said

    assert run(main).startswith(b"HTTP/1.1 %d " % status)


# Time ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (b"", []),
        (b"\r\n", []),
        (GET, [200]),
        (GET[:-2], [408]),
        (POST[:-1], [408]),
        (GET + GET[:-2], [200, 408]),
        (POST.replace(b"/a", b"/refused")[:-1], [404]),
    ],
)
def test_a_client_has_bounded_time_for_a_request_and_between_requests(sent, expected):
    async def main() -> list[int]:
        connection, wire = connect(Telling(), longest_read_s=0.1, keep_alive_s=0.15)
        connection.data_received(sent)
        while not (wire.closed or wire.ended):
            await asyncio.sleep(0.01)
        connection.connection_lost(None)
        return statuses(wire)

    assert run(main, LeapingLoop) == expected


@pytest.mark.parametrize(("sent", "expected"), [(b"", []), (b"GET /", [408])])
def test_a_client_has_less_time_for_its_first_byte_than_for_a_request(sent, expected):
    async def main() -> tuple[list[int], float]:
        connection, wire = connect(Telling(), longest_read_s=6.0, first_byte_s=1.0)
        connection.data_received(sent)
        while not (wire.closed or wire.ended):
            await asyncio.sleep(0.1)
        connection.connection_lost(None)
        return statuses(wire), asyncio.get_running_loop().time()

    answers, past_s = run(main, LeapingLoop)
    assert answers == expected
    assert past_s == pytest.approx(6 if sent else 1, abs=0.2)


@pytest.mark.parametrize("begun", [GET[:-2], POST[:-1]], ids=["head", "body"])
def test_what_began_before_the_answer_to_the_last_has_bounded_time_too(begun):
    async def main() -> list[int]:
        handler = Telling(patient=True)
        connection, wire = connect(handler, longest_read_s=0.05, keep_alive_s=LONGEST_S / 2)
        connection.data_received(GET + begun)
        handler.tell(handler.exchanges[0])
        while not wire.ended:
            await asyncio.sleep(0.01)
        return statuses(wire)

    assert run(main, LeapingLoop) == [200, 408]


def test_time_in_which_an_answer_is_made_is_not_the_clients():
    async def main() -> list[int]:
        handler = Telling(patient=True)
        connection, wire = connect(handler, longest_read_s=0.05, keep_alive_s=0.05)
        connection.data_received(GET)
        await asyncio.sleep(0.2)
        handler.tell(handler.exchanges[0])
        connection.connection_lost(None)
        return statuses(wire)

    assert run(main, LeapingLoop) == [200]


# However it is cut ---------------------------------------------------------------------------------------------------

REQUESTS = st.sampled_from(
    [
        GET,
        POST,
        b"\r\n" + POST.replace(b"abc", b"\r\n\r"),
        CHUNKED + b"\r\n3;x=y\r\nabc\r\n10\r\n0123456789abcdef\r\n0\r\nt: u\r\n\r\n",
        GET.replace(b"GET", b"HEAD"),
        POST.replace(b"/a", b"/refused"),
        POST.replace(b"host: x", b"host: x\r\nconnection: upgrade\r\nupgrade: h2c"),
        GET.replace(b"host: x", b"host: x\r\nconnection: close"),
        b"no HTTP\r\n\r\n",
        POST.replace(b"length: 3", b"length: x"),
    ]
)


@settings(max_examples=often(50), deadline=None)
@given(st.lists(REQUESTS, max_size=4).map(b"".join), st.data())
def test_however_a_stream_is_cut_the_answers_are_the_same(stream, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    parts = [stream[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]

    async def main() -> list[Wire]:
        single = [bytes([byte]) for byte in stream]
        return [hear(each, Telling()) for each in ([stream], parts, single)]

    whole, *others = run(main)
    for wire in others:
        assert without_ids(wire) == without_ids(whole)
        assert (wire.closed, wire.ended) == (whole.closed, whole.ended)


@settings(max_examples=often(150), deadline=None)
@given(st.lists(REQUESTS, max_size=4).map(b"".join), st.data())
def test_whatever_is_sent_nothing_is_raised_and_nothing_stays_held(stream, data):
    places = st.integers(0, max(len(stream) - 1, 0))
    sent = bytearray(stream)
    for place, byte in data.draw(st.lists(st.tuples(places, st.integers(0, 255)), max_size=3)):
        sent[place : place + 1] = bytes([byte])
    cut = data.draw(st.integers(0, len(sent)))
    handler = Telling(patient=data.draw(st.booleans()))
    wire = say(bytes(sent[:cut]), bytes(sent[cut:]), handler=handler)
    assert handler.released == len(handler.begun_paths)
    assert len(statuses(wire)) + handler.gone >= len(handler.begun_paths)


def without_ids(wire: Wire) -> list[bytes]:
    return [line for line in bytes(wire.written).split(b"\r\n") if not line.startswith(b"x-request-id")]
