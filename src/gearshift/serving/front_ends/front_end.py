"""A front end: a process that serves HTTP on a shared port for one router.

It parses inference requests, sends their tensors to the router and encodes the answers; it passes
all other requests on unchanged, so that every front end gives the router's answer.

`python -m gearshift.serving.front_ends.front_end PARENT ROUTER BOARD ROW LISTEN...`, started by `front_ends.py`
with the router's process, file descriptors and its row of the board.  It ends when the router's process ends, in
whatever way.
"""

import asyncio
import gc
import itertools
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec
import uvloop

from gearshift.clock import WallClock
from gearshift.errors import GearshiftError
from gearshift.model import Arrays
from gearshift.observability.logs import LogSettings, logging_to_stderr
from gearshift.observability.tracing import RequestSpan
from gearshift.policies.admission import fair_share
from gearshift.runtime.service.answers import Done, Withdraw
from gearshift.runtime.service.room import Client, HeldBytes, Reading, Room
from gearshift.runtime.wire.transport import FrameProtocol, pack_tensors, unpack_tensors
from gearshift.serving.door.bounds import limits_of, most_waiting_bytes
from gearshift.serving.door.deadline_headers import SendingTimes
from gearshift.serving.door.keys import keys_in
from gearshift.serving.front_ends.board import HELD_BYTES, Board, PipelineOnBoard
from gearshift.serving.front_ends.front_messages import (
    TO_FRONT_END,
    Answered,
    End,
    Gone,
    Head,
    LetIn,
    Listening,
    Part,
    Passed,
    Refused,
    Serve,
    StopListening,
    Submit,
    Untrusted,
)
from gearshift.serving.http.application import Application
from gearshift.serving.http.handlers import Handlers
from gearshift.serving.http.http_exchange import HttpExchange, announced_length
from gearshift.serving.http.known_request import EXPECT
from gearshift.serving.http.server import HttpServer
from gearshift.serving.operate.control import Control
from gearshift.support.event_loop import allow_many_connections
from gearshift.support.kept_memory import give_back_freed_memory
from gearshift.support.process_end import die_with_parent

log = logging.getLogger("gearshift.serving.front_ends.front_end")  # by name: this module runs as __main__

# The connection to the router --------------------------------------------------------------------


class RouterLink:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.told: asyncio.Future[Serve | None] = loop.create_future()
        """The router's first message; None if the router is gone."""
        self.end: asyncio.Future[float] = loop.create_future()
        """How long clients may take to leave; 0 if the router is gone."""
        self.stop_listening: Callable[[], None] = lambda: None
        self.stopped = False
        self.protocol = FrameProtocol(self._received, self._lost, decoder=TO_FRONT_END)
        self._ids = itertools.count(1)
        self._submitted: dict[int, Done] = {}
        self._passed: dict[int, HttpExchange] = {}

    def submit(self, inputs: Arrays, done: Done, **asked: Any) -> Withdraw:
        """Submit as `ServedPipeline.submit`; its errors arrive in the answer (`raise_if_refused`)."""
        number = next(self._ids)
        tensors, buffers = pack_tensors(inputs)
        self.protocol.send(Submit(id=number, tensors=tensors, **asked), buffers)
        self._submitted[number] = done
        return partial(self._gone, number)

    def pass_on(self, exchange: HttpExchange) -> None:
        """Let the router answer; it receives the body part by part as it arrives."""
        number = next(self._ids)
        self._passed[number] = exchange
        exchange.on_gone = exchange.release = partial(self._gone, number)  # also if refused as slow
        exchange.measure = partial(self._part, number, exchange)
        exchange.then = partial(self._whole, number)
        self.protocol.send(
            Head(
                id=number,
                client=id(exchange.client.held),
                method=exchange.method,
                path=exchange.path,
                headers=tuple(exchange.headers.items()),
                keep_alive=exchange.keep_alive,
                address=exchange.client.address,
            )
        )
        exchange.headers.pop(EXPECT, None)  # the router asks for the body (`LetIn`)

    def _part(self, number: int, exchange: HttpExchange, part_bytes: int) -> None:
        self.protocol.send(Part(id=number, last=False), [exchange.take_body()])

    def _whole(self, number: int, exchange: HttpExchange) -> None:
        exchange.release = None
        exchange.end_reading()
        self.protocol.send(Part(id=number, last=True), [exchange.take_body()])

    def _gone(self, number: int) -> None:
        if self._submitted.pop(number, None) is not None or self._passed.pop(number, None) is not None:
            self.protocol.send(Gone(id=number))

    def _received(self, message: Any, body: memoryview) -> None:
        match message:
            case Answered():
                done = self._submitted.pop(message.id, None)
                if done is not None:  # else the client has left
                    outputs = unpack_tensors(message.tensors, body)
                    done(msgspec.structs.replace(message.answer, outputs=outputs))
            case Passed():
                exchange = self._passed.pop(message.id, None)
                if exchange is not None:
                    exchange.pass_on(bytes(body), last=message.last)
            case LetIn():
                exchange = self._passed.get(message.id)
                if exchange is not None:
                    exchange.client.let_in(exchange)
            case Serve():
                self.told.set_result(message)
            case StopListening():
                self.stopped = True
                self.stop_listening()
            case End():
                self._end(message.longest_s)

    def _lost(self) -> None:
        if not self.told.done():
            self.told.set_result(None)
        self._end(0.0)

    def _end(self, longest_s: float) -> None:
        if not self.end.done():
            self.end.set_result(longest_s)


# In place of the service -------------------------------------------------------------------------


class FrontRoom(Room):
    """The room of a pipeline, which all processes share."""

    def __init__(self, on_board: PipelineOnBoard, held: HeldBytes, refused: Callable[[], None]) -> None:
        self._on_board = on_board
        super().__init__(on_board, 0, held, refused)

    def admits(self, rows: int, held_bytes: int, client: Client | None = None) -> bool:
        if self.most_requests != self._on_board.most_waiting:
            self.most_requests = self._on_board.most_waiting
            self._share = fair_share(self.most_requests)
        return super().admits(rows, held_bytes, client)


class FrontHeldBytes(HeldBytes):
    """The bytes that all processes hold; those that this one reads are on the board."""

    def __init__(self, board: Board, most_bytes: int) -> None:
        self._board = board
        super().__init__(most_bytes)
        self.elsewhere = board

    @property
    def held_bytes(self) -> int:
        return self._board.own(HELD_BYTES)

    @held_bytes.setter
    def held_bytes(self, count: int) -> None:
        self._board.write(HELD_BYTES, count)


class RemotePipeline:
    """The part of `ServedPipeline` that requests need; the router runs it."""

    def __init__(
        self, link: RouterLink, number: int, on_board: PipelineOnBoard, held: FrontHeldBytes, clock: WallClock
    ) -> None:
        self._link, self._number, self.on_board = link, number, on_board
        self._most_bytes, self.now_ns = held.most_bytes, clock.now_ns
        self.room = FrontRoom(on_board, held, lambda: link.protocol.send(Refused(pipeline=number)))

    @property
    def accepting(self) -> bool:
        return self.on_board.taking

    @property
    def most_waiting(self) -> int:
        return self.on_board.most_waiting

    def require_room(self, rows: int, held_bytes: int, *, bulk: bool = False) -> None:
        """Never raise: `FrontEnd.begun` passes requests that may be refused to the router."""

    def reading(self, announced_bytes: int, *, bulk: bool = False) -> Reading:
        return Reading(self.room)

    def submit(
        self, inputs: Arrays, done: Done, *, client: Client | None = None, span: RequestSpan | None = None, **asked: Any
    ) -> Withdraw:
        if self._link.protocol.unsent_bytes > self._most_bytes:  # the router lags behind its board
            raise self.room.full(1, 0)
        return self._link.submit(inputs, done, pipeline=self._number, client=id(client), **asked)


class RemoteService:
    """The part of `Service` that a control needs in a front end."""

    def __init__(self, pipelines: dict[str, RemotePipeline]) -> None:
        self.pipelines = pipelines

    @property
    def accepting(self) -> bool:
        return any(pipeline.accepting for pipeline in self.pipelines.values())


class _Times(SendingTimes):
    """Reports untrusted sending times to the router, which counts them."""

    def __init__(self, trust_s: float, link: RouterLink) -> None:
        super().__init__(trust_s)
        self._link = link

    def count_distrust(self, reason: str) -> None:
        self._link.protocol.send(Untrusted(reason=reason))


class FrontEnd:
    """Answers inference; passes on other requests, and those that may be refused.

    Implements `connections.Handler`.
    """

    def __init__(self, serve: Serve, link: RouterLink, board: Board) -> None:
        settings, clock = serve.settings, WallClock(serve.origin_ns)
        self._link = link
        held = FrontHeldBytes(board, most_waiting_bytes(settings))
        pipelines = {
            served.name: RemotePipeline(link, number, board.pipelines[number], held, clock)
            for number, served in enumerate(serve.served)
        }
        handlers = Handlers(
            Control(RemoteService(pipelines)),
            serve.served,
            largest_body_bytes=settings.largest_body_bytes,
            limits=limits_of(settings),
            times=_Times(settings.trust_clock_s, link),
        )
        keys = keys_in(settings.api_keys, settings.admin_keys)
        self._application = application = Application(handlers, keys=keys, names=settings.names)
        self._parsed_here: dict[str, RemotePipeline] = {}
        """The pipeline of each path whose requests are parsed in this process."""
        if not settings.otel:  # else the router traces
            self._parsed_here = {path: pipelines[name] for path, name in application.inference_paths.items()}
        self.measured, self.completed = application.measured, application.completed

    def begun(self, exchange: HttpExchange) -> None:
        pipeline = self._parsed_here.get(exchange.path) if exchange.method == "POST" else None
        if (
            pipeline is not None
            and pipeline.on_board.taking
            and pipeline.room.admits(1, announced_length(exchange.headers) or 0)
        ):
            self._application.begun(exchange)
        else:
            self._link.pass_on(exchange)


# The process -------------------------------------------------------------------------------------


def main() -> int:
    parent, router, board, row, *listen = map(int, sys.argv[1:])
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):  # the router ends first
        signal.signal(number, signal.SIG_IGN)
    if not die_with_parent(parent):
        return 0
    for fd in (router, board, *listen):
        os.set_inheritable(fd, False)
    allow_many_connections()
    give_back_freed_memory()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(serve(socket.socket(fileno=router), [socket.socket(fileno=fd) for fd in listen], board, row))


async def serve(router: socket.socket, listening: Sequence[socket.socket], board_fd: int, row: int) -> int:
    """Return the exit code."""
    link = RouterLink(asyncio.get_running_loop())
    await asyncio.get_running_loop().create_unix_connection(lambda: link.protocol, sock=router)
    told = await link.told
    if told is None:
        return 0
    settings, board = told.settings, Board(board_fd, row, len(told.served))
    with logging_to_stderr(LogSettings(settings.log_level, settings.log_format), process="front end"):
        try:
            http = HttpServer(FrontEnd(told, link, board), settings, board.count_connections, board.count_unsent)
            await http.start(*listening)
        except GearshiftError as error:  # such as unreadable keys or certificates
            log.error("%s", error)
            return 1
        link.stop_listening = http.stop_listening
        if link.stopped:
            http.stop_listening()
        gc.collect()
        gc.freeze()  # as the router does
        link.protocol.send(Listening())
        await http.stop(await link.end)
    return 0


if __name__ == "__main__":
    sys.exit(main())
