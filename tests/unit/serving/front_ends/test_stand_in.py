"""Clients of front ends that are lost, on real sockets."""

import asyncio
import http.client
from collections.abc import Callable

from gearshift.observability.journal import Journal
from gearshift.runtime.backends.emulated import EMULATED_INPUTS, emulated_outputs
from gearshift.serving.door.settings import ServerSettings
from gearshift.serving.door.signature import Signature
from gearshift.serving.door.sockets import bound_socket
from gearshift.serving.front_ends.board import CONNECTIONS, Board
from gearshift.serving.front_ends.front_ends import FrontEnds
from gearshift.serving.front_ends.front_messages import Serve
from gearshift.serving.front_ends.stand_in import StandIns
from tests.little_task import little_profile
from tests.unit.serving.http.test_application import LONGEST_S, Server, serve

SETTINGS = ServerSettings(front_ends=2)
CLIENTS = 8
Address = tuple[str, int]


def client_of(address: Address) -> http.client.HTTPConnection:
    client = http.client.HTTPConnection(*address, timeout=LONGEST_S)
    client.connect()
    return client


def asked(client: http.client.HTTPConnection) -> tuple[int, str | None]:
    client.request("GET", "/livez")
    answer = client.getresponse()
    answer.read()
    return answer.status, answer.headers["connection"]


async def ask_each(clients: list[http.client.HTTPConnection]) -> set[tuple[int, str | None]]:
    return {await asyncio.to_thread(asked, client) for client in clients}


def close(clients: list[http.client.HTTPConnection]) -> None:
    for client in clients:
        client.close()


def test_who_waits_in_the_queue_of_a_lost_front_end_is_answered_until_another_takes_it():
    async def use(server: Server) -> None:
        board = Board.of_router(1)
        stand_ins = StandIns(server.handler, SETTINGS, board)
        with bound_socket("127.0.0.1", 0) as sock:
            clients = [client_of(sock.getsockname()) for _ in range(2)]
            for _ in range(2):  # the second changes nothing
                await stand_ins.begin(0, [sock])
            assert await ask_each(clients) == {(200, None)}
            assert board.own(CONNECTIONS) == 2
            stand_ins.end(0)
            assert await ask_each(clients) == {(200, "close")}
            with client_of(sock.getsockname()).sock as later, sock.accept()[0]:  # it is the front end's again
                later.close()
            close(clients)
            await stand_ins.stop(LONGEST_S)
        assert board.own(CONNECTIONS) == 0
        board.close()

    serve(use)


def test_what_stands_in_for_several_is_counted_together_and_none_begins_after_the_end():
    async def use(server: Server) -> None:
        board = Board.of_router(2)
        stand_ins = StandIns(server.handler, SETTINGS, board)
        with bound_socket("127.0.0.1", 0) as first, bound_socket("127.0.0.1", 0) as second:
            clients = [client_of(sock.getsockname()) for sock in (first, second)]
            for number, sock in enumerate((first, second)):
                await stand_ins.begin(number, [sock])
            await ask_each(clients)
            assert board.own(CONNECTIONS) == 2
            await stand_ins.stop(LONGEST_S)
            await stand_ins.begin(0, [first])
            assert not stand_ins._now
        await stand_ins.begin(1, [second])
        close(clients)
        board.close()

    serve(use)


def test_clients_are_answered_while_no_front_end_lives(monkeypatch):
    monkeypatch.setattr("gearshift.serving.front_ends.front_ends.SHORTEST_RESTART_WAIT_S", LONGEST_S)

    async def use(server: Server) -> None:
        all = front_ends_before(server)
        with bound_socket("127.0.0.1", 0, shared=True) as sock:
            await all.start(sock)
            for front_end in list(all._now.values()):
                front_end.kill()
            clients = [await asyncio.to_thread(client_of, sock.getsockname()) for _ in range(CLIENTS)]
            assert await ask_each(clients) == {(200, None)}
            assert not all._now
            close(clients)
            await all.stop(LONGEST_S)

    serve(use)


def front_ends_before(server: Server) -> FrontEnds:
    application = server.handler
    serving = Serve(
        settings=SETTINGS,
        served=(Signature(name="sums", inputs=EMULATED_INPUTS, outputs=emulated_outputs(little_profile())),),
        origin_ns=0,
    )
    told: dict[str, Callable[..., None]] = {"refused": lambda name: None, "distrusted": lambda reason: None}
    return FrontEnds(application._handlers._control, application, serving, journal=Journal(), **told)
