"""The tests of the application once more, behind a front end: its answers are those of the application itself."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import numpy as np
import pytest

from gearshift.errors import WorkerDied
from gearshift.observability.journal import Journal
from gearshift.observability.metrics import Metrics
from gearshift.runtime.backends.emulated import EMULATED_INPUTS, emulated_outputs
from gearshift.runtime.service.answers import QUEUE_FULL
from gearshift.runtime.wire.transport import Bounds
from gearshift.serving.door.deadline_headers import SendingTimes
from gearshift.serving.door.settings import ServerSettings
from gearshift.serving.door.signature import Signature
from gearshift.serving.door.sockets import bound_socket
from gearshift.serving.front_ends.board import Board
from gearshift.serving.front_ends.front_end import FrontEnd, RouterLink
from gearshift.serving.front_ends.front_ends import FrontEndProcess, FrontEnds
from gearshift.serving.front_ends.front_messages import Serve
from gearshift.serving.http.application import Application
from gearshift.serving.http.connection import Connection
from gearshift.serving.http.http_exchange import HttpExchange
from tests.little_task import little_profile
from tests.unit.serving.door.test_origins import (  # noqa: F401
    test_a_model_is_found_however_its_path_is_encoded,
    test_a_page_of_an_allowed_host_is_given_permission_without_a_key_and_reads_its_answers,
    test_a_page_of_another_site_may_not_even_ask_for_an_inference,
    test_by_a_foreign_name_only_health_and_the_empty_live_page_are_told,
    test_pages_of_allowed_hosts_may_not_steer,
    test_with_keys_of_administration_alone_the_name_matters,
    test_with_keys_of_users_the_name_does_not_matter_and_the_page_does,
)
from tests.unit.serving.http import test_application as test_http
from tests.unit.serving.http.test_application import *  # noqa: F403
from tests.unit.serving.http.test_application import INFER, Server, samples, serve
from tests.unit.serving.operate.test_control import *  # noqa: F403
from tests.unit.serving.wire import Wire, answered


@pytest.fixture(
    autouse=True,
    params=[pytest.param(False, marks=pytest.mark.long), True],
    ids=["in-pieces", "in-one-piece"],
)
def pieces(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in `test_http`, which sends in pieces where the application itself answers."""
    monkeypatch.setattr(Server, "in_one_piece", request.param)


del test_large_answers_are_compressed_for_those_who_accept_it  # noqa: F821  it takes long


@asynccontextmanager
async def front_end(
    application: Application, service: dict[str, Any], options: dict[str, Any]
) -> AsyncIterator["Joined"]:
    """A front end before the application, both in this process, with a socket in between."""
    known = msgspec.structs.asdict(ServerSettings())
    bounds = {name: value for name, value in (service | options).items() if name in known}
    handlers = application._handlers
    control, (model,) = handlers._control, handlers.models
    serving = Serve(
        settings=ServerSettings(**{"largest_body_bytes": 1 << 20, "front_ends": 2} | bounds),
        served=(Signature(name="sums", inputs=EMULATED_INPUTS, outputs=emulated_outputs(little_profile())),),
        origin_ns=control.service._clock.origin_ns,
    )
    told = {
        "refused": lambda name: control.service.pipelines[name]._count_refused(QUEUE_FULL),
        "distrusted": model._arriving._times.count_distrust,
    }
    all = FrontEnds(control, application, serving, journal=Journal(), **told)
    loop = asyncio.get_running_loop()
    link, behind = RouterLink(loop), FrontEndProcess(all, loop.create_future())
    ours, theirs = socket.socketpair()
    await loop.create_unix_connection(lambda: behind.protocol, sock=ours)
    await loop.create_unix_connection(lambda: link.protocol, sock=theirs)
    all.publish()
    board = Board(all._board.fd, 1)
    joined = Joined(serving, link, board, options)
    joined.all, joined.behind = all, behind
    try:
        yield joined
    finally:
        link.protocol.close()
        behind.protocol.close()
        await link.end
        all._board.close()


class Joined(FrontEnd):
    """A front end with keys and limits of the application behind it, and that application's side of it."""

    all: FrontEnds
    behind: FrontEndProcess

    def __init__(self, serving: Serve, link: RouterLink, board: Board, options: dict[str, Any]) -> None:
        super().__init__(serving, link, board)
        self._application._keys = options.get("keys")
        self._application._names = options.get("names", self._application._names)
        (model,) = self._application._handlers.models
        model._limits = options.get("limits", model._limits)
        self.board, self.link = board, link

    def begun(self, exchange: HttpExchange) -> None:
        """As after a tick of the meter, since these tests change what the service holds behind its back."""
        self.all.publish()
        super().begun(exchange)


@pytest.fixture(autouse=True)
def _a_front_end_before_it(monkeypatch):
    monkeypatch.setattr(test_http, "door", front_end)


# What only a front end can get wrong ---------------------------------------------------------------------------------


def test_requests_are_parsed_by_the_front_end_and_all_else_is_passed_on():
    async def use(server: Server) -> list[int]:
        said = []
        for method, path in (("POST", INFER), ("GET", INFER), ("GET", "/metrics")):
            await server.ask(method, path, json.dumps(samples(0)).encode() if method == "POST" else b"")
            said.append(next(server.handler.link._ids))
        server.handler._parsed_here = {}
        assert (await server.infer(samples(0))).status == 200
        return said

    assert serve(use) == [2, 4, 6]


def test_a_client_that_leaves_withdraws_its_request():
    async def use(server: Server) -> tuple[int, int, str]:
        connection, _ = await waiting(server)
        connection.connection_lost(None)
        await until(lambda: not server.service.pipeline.open_requests.by_id)
        return server.service.held.held_bytes, len(server.handler.behind._withdraw), await metrics(server)

    held, left, told = serve(use)
    assert (held, left) == (0, 0)
    assert 'outcome="cancelled"} 1.0' in told


def test_a_client_that_is_too_slow_holds_nothing_at_the_router():
    async def use(server: Server) -> tuple[int, int]:
        server.handler._parsed_here = {}
        connection, wire = server.connect(longest_read_s=0.5)
        connection.data_received(f"POST {INFER} HTTP/1.1\r\nhost: [::1]\r\ncontent-length: 1000\r\n\r\n{{".encode())
        await until(lambda: server.service.held.held_bytes == 1)
        status = (await answered(wire)).status
        await until(lambda: not server.handler.behind._exchanges)
        return status, server.service.held.held_bytes

    assert serve(use) == (408, 0)


def test_the_clients_of_a_front_end_that_ends_are_gone():
    async def use(server: Server) -> tuple[int, str]:
        await waiting(server)
        server.handler.behind._leave()
        return len(server.service.pipeline.open_requests.by_id), await metrics(server)

    left, told = serve(use)
    assert left == 0
    assert 'outcome="cancelled"} 1.0' in told


def test_a_full_queue_is_refused_before_the_body_is_there():
    async def use(server: Server) -> tuple[int, str | None]:
        await waiting(server)  # it runs
        await waiting(server)
        connection, wire = server.connect()
        connection.data_received(f"POST {INFER} HTTP/1.1\r\nhost: [::1]\r\ncontent-length: 49000\r\n\r\n".encode())
        response = await answered(wire)
        return response.status, response.headers.get("retry-after")

    assert serve(use, service={"most_waiting_bytes": 50_000}) == (429, "1")


def test_what_the_router_has_not_taken_counts_too():
    async def use(server: Server) -> tuple[int, str | None, int]:
        server.handler.link.protocol = Behind(server.handler.link.protocol)
        refused = await server.infer(samples(0))
        server.handler.link.protocol.unsent_bytes = 50_000
        return refused.status, refused.headers.get("retry-after"), (await server.infer(samples(0))).status

    assert serve(use, service={"most_waiting_bytes": 50_000}) == (429, "1", 200)


@pytest.mark.parametrize(("path", "first"), [("/v2/repository/index", 100), ("/nowhere", 404)])
def test_a_body_that_is_held_back_is_asked_for_once_the_router_lets_the_head_in(path, first):
    async def use(server: Server) -> list[int]:
        connection, wire = server.connect()
        head = f"POST {path} HTTP/1.1\r\nhost: [::1]\r\ncontent-length: 2\r\nexpect: 100-continue\r\n\r\n"
        connection.data_received(head.encode())
        assert not wire.written
        statuses = [(await answered(wire)).status]
        if statuses == [100]:
            connection.data_received(b"{}")
            statuses.append((await answered(wire)).status)
        return statuses

    assert serve(use) == ([100, 200] if first == 100 else [404])


class Behind:
    """The protocol of a link whose other side takes nothing for now."""

    def __init__(self, protocol: Any) -> None:
        self._protocol, self.unsent_bytes = protocol, 50_001

    def __getattr__(self, name: str) -> Any:
        return getattr(self._protocol, name)


def test_where_the_front_end_has_not_heard_yet_the_router_has_the_last_word(monkeypatch):
    monkeypatch.setattr(Joined, "begun", FrontEnd.begun)

    async def use(server: Server) -> tuple[int, int]:
        server.service.refuse_new()
        refused = await server.infer(samples(0))
        server.service.undo_drain()
        return refused.status, (await server.infer(samples(0))).status

    assert serve(use) == (503, 200)


def test_what_is_read_in_a_front_end_counts_for_all():
    async def use(server: Server) -> tuple[int, int]:
        connection, _ = server.connect()
        connection.data_received(f"POST {INFER} HTTP/1.1\r\nhost: [::1]\r\ncontent-length: 9\r\n\r\n{{".encode())
        while_read = (await server.ask("GET", "/v2/gearshift/status")).json()["held_bytes"]
        connection.connection_lost(None)
        after = (await server.ask("GET", "/v2/gearshift/status")).json()["held_bytes"]
        return while_read, after

    assert serve(use) == (1, 0)


def test_what_is_submitted_stays_its_callers():
    async def use(server: Server) -> list[int]:
        inputs, answers = {"sample": np.array([3])}, asyncio.Queue()
        server.handler._application._handlers._control.pipelines["sums"].submit(inputs, answers.put_nowait)
        assert (await answers.get()).outcome == "answered"
        return inputs["sample"].tolist()

    assert serve(use) == [3]


def test_times_that_cannot_be_trusted_are_counted_by_the_router():
    async def use(server: Server) -> str:
        await server.infer(samples(0), {"x-request-start": "nonsense"})
        return await metrics(server)

    metrics_of_all = Metrics()
    told = serve(use, metrics=metrics_of_all, times=SendingTimes(metrics=metrics_of_all.deadlines))
    assert 'gearshift_untrusted_clocks_total{reason="malformed"} 1.0' in told


def test_an_answer_that_is_too_large_for_a_frame_is_500(monkeypatch):
    async def use(server: Server) -> tuple[int, str]:
        monkeypatch.setattr("gearshift.runtime.wire.transport.WIDE", Bounds(header=400))
        response = await server.infer(samples(0, 1, 2, 3))
        return response.status, response.json()["error"]

    status, text = serve(use)
    assert status == 500
    assert text.startswith("the answer is too large to be handed on; ask for fewer rows at once")


def test_front_ends_that_cannot_start_are_said_and_nothing_is_left():
    async def use(server: Server) -> None:
        there = server.handler.all
        settings = ServerSettings(front_ends=2, tls_certificate="no.pem", tls_key="no.pem")
        serving = msgspec.structs.replace(there.serve, settings=settings)
        told = {"refused": there.refused, "distrusted": there.distrusted, "journal": Journal()}
        failing = FrontEnds(there.control, there.application, serving, **told)
        said = "a front end ended with status 1 before it was ready"
        with bound_socket("127.0.0.1", 0, shared=True) as sock, pytest.raises(WorkerDied, match=said):
            await failing.start(sock)
        assert not failing._now
        assert all(kept.done() for kept in failing._kept)

    serve(use)


async def waiting(server: Server) -> tuple[Connection, Wire]:
    """A client whose request the router has accepted and not answered."""
    server.backend.run = lambda batch: None
    before = len(server.service.pipeline.open_requests.by_id)
    connection, wire = server.connect()
    body = json.dumps(samples(0)).encode()
    connection.data_received(
        f"POST {INFER} HTTP/1.1\r\nhost: [::1]\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body
    )
    await until(lambda: len(server.service.pipeline.open_requests.by_id) > before)
    return connection, wire


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        await asyncio.sleep(0)


async def metrics(server: Server) -> str:
    return (await server.ask("GET", "/metrics")).body.decode()
