"""The tests of the application once more, behind a front end: its answers are those of the application itself."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import msgspec
import pytest

from gearshift.observability.journal import NoJournal
from gearshift.runtime.backends.emulated import EMULATED_INPUTS, emulated_outputs
from gearshift.serving.board import Board
from gearshift.serving.connections import Handler
from gearshift.serving.deadline_headers import SendingTimes
from gearshift.serving.front_end import FrontEnd, RouterLink
from gearshift.serving.front_ends import FrontEndProcess, FrontEnds
from gearshift.serving.front_messages import Serve
from gearshift.serving.http import Application
from gearshift.serving.http_exchange import HttpExchange
from gearshift.serving.settings import ServerSettings
from tests.little_task import little_profile
from tests.unit.serving import test_http
from tests.unit.serving.test_control import *  # noqa: F403
from tests.unit.serving.test_http import *  # noqa: F403
from tests.unit.serving.test_http import INFER, Server, samples, serve
from tests.unit.serving.wire import answered


@asynccontextmanager
async def front_end(
    application: Application, service: dict[str, Any], options: dict[str, Any]
) -> AsyncIterator["Joined"]:
    """A front end before the application, both in this process, with a socket in between."""
    known = msgspec.structs.asdict(ServerSettings())
    bounds = {name: value for name, value in (service | options).items() if name in known}
    clock, control = application._service._clock, application._control
    serving = Serve(
        settings=ServerSettings(**{"largest_body_bytes": 1 << 20, "front_ends": 2} | bounds),
        operator="sums",
        inputs=EMULATED_INPUTS,
        outputs=emulated_outputs(little_profile()),
        origin_ns=clock.origin_ns,
    )
    times: SendingTimes = application._times
    told = {"refused": application._service._count_refused, "distrusted": times.count_distrust}
    all = FrontEnds(control, application, serving, journal=NoJournal(), **told)
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
        self._application._limits = options.get("limits", self._application._limits)
        self.board, self.link = board, link

    def begun(self, exchange: HttpExchange) -> None:
        """As after a tick of the meter, since these tests change what the service holds behind its back."""
        self.all.publish()
        super().begun(exchange)


@pytest.fixture(autouse=True)
def _a_front_end_before_it(monkeypatch):
    monkeypatch.setattr(test_http, "door", front_end)
