"""The router's side of its front ends: processes that share a port and restart when they die.

Each is connected by a socket pair.  Its requests go through the same `Control` and `Application`
as without front ends: one admission, one meter, one set of metrics.
"""

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Any
from weakref import WeakValueDictionary

import msgspec

from gearshift.errors import GearshiftError, WorkerDied
from gearshift.observability.journal import Journal
from gearshift.request import Answer
from gearshift.runtime.service.answers import refused
from gearshift.runtime.service.room import Client
from gearshift.runtime.wire.transport import FrameError, FrameProtocol, pack_tensors, unpack_tensors, widen
from gearshift.runtime.workers.worker_process import how_it_ended
from gearshift.serving.door.sockets import beside
from gearshift.serving.front_ends.board import HELD_BYTES, MOST_WAITING, TAKING, WAITING, Board
from gearshift.serving.front_ends.front_messages import (
    TO_ROUTER,
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
from gearshift.serving.front_ends.stand_in import StandIns
from gearshift.serving.http.application import Application
from gearshift.serving.http.http_exchange import HttpExchange
from gearshift.serving.http.known_request import EXPECT
from gearshift.serving.operate.control import Control
from gearshift.support.process_end import ProcessEnd
from gearshift.support.processors import pin
from gearshift.v2.packing import Buffer

LONGEST_START_S = 60.0
SHORTEST_RESTART_WAIT_S, LONGEST_RESTART_WAIT_S = 0.1, 5.0
STAYED_S = 10.0
"""A front end that lived this long is restarted without delay."""
TOO_LARGE = "the answer is too large to be handed on; ask for fewer rows at once"
GRACE_S = 1.0
FAULT = "an internal error; the server's log explains it"

log = logging.getLogger(__name__)


class FrontEnds:
    """All front ends, from `start` to `stop`; each first receives `serve`.

    `refused`, with the name of a pipeline, and `distrusted` count the requests that front ends
    refused, and sending times they ignored.
    """

    def __init__(
        self,
        control: Control,
        application: Application,
        serve: Serve,
        *,
        refused: Callable[[str], None],
        distrusted: Callable[[str], None],
        journal: Journal,
    ) -> None:
        self.control, self.application, self.serve = control, application, serve
        self.refused, self.distrusted, self._journal = refused, distrusted, journal
        self.ending = False
        self._count = serve.settings.front_ends
        self._board = Board.of_router(self._count, len(serve.served))
        self._stand_ins = StandIns(application, serve.settings, self._board)
        self._socks: list[list[socket.socket]] = []
        """For each front end, one socket per address."""
        self._now: dict[int, FrontEndProcess] = {}
        self._kept: list[asyncio.Task[None]] = []

    async def start(self, *socks: socket.socket) -> None:
        """Start on the shared port of `socks`; raises `WorkerDied` with nothing left running."""
        self._socks = [list(socks), *(list(map(beside, socks)) for _ in range(self._count - 1))]
        self.publish()
        loop = asyncio.get_running_loop()
        ready: list[asyncio.Future[None]] = [loop.create_future() for _ in self._socks]
        self._kept = [loop.create_task(self._keep(number, one)) for number, one in enumerate(ready)]
        try:
            async with asyncio.timeout(LONGEST_START_S):
                await asyncio.gather(*ready)
        except BaseException as error:
            await self.stop(0.0)
            if isinstance(error, TimeoutError):
                raise WorkerDied(f"a front end was not ready within {LONGEST_START_S:g} s") from None
            raise

    def stop_listening(self) -> None:
        """Accept no more clients; connected ones are closed after their next answer."""
        self.ending = True
        self._stand_ins.stop_listening()
        for sock in chain.from_iterable(self._socks):
            sock.close()
        for front_end in self._now.values():
            front_end.protocol.send(StopListening())

    def pin(self, cores: frozenset[int]) -> None:
        for front_end in self._now.values():
            front_end.pin(cores)

    async def stop(self, longest_s: float) -> None:
        """End all, giving clients `longest_s` to read their answers; nothing is left running."""
        self.stop_listening()
        for front_end in self._now.values():
            front_end.protocol.send(End(longest_s=longest_s))
        for number, kept in enumerate(self._kept):
            if number not in self._now:  # it waits for a restart
                kept.cancel()
        stand_ins = asyncio.create_task(self._stand_ins.stop(longest_s))
        if self._kept:
            await asyncio.wait(self._kept, timeout=longest_s + GRACE_S)
        await stand_ins
        for front_end in self._now.values():
            front_end.kill()
        await asyncio.gather(*self._kept, return_exceptions=True)
        self._board.close()

    def publish(self) -> None:
        """Put the load of the service in force on the board; add the front ends' to it."""
        service, board = self.control.service, self._board
        service.held.elsewhere, service.driver.ticked = board, self.publish
        board.write(HELD_BYTES, service.held.held_bytes)
        for served, on_board in zip(self.serve.served, board.pipelines, strict=True):
            pipeline = service.pipelines[served.name]
            on_board.write(WAITING, pipeline.room.waiting)
            on_board.write(MOST_WAITING, pipeline.most_waiting)
            on_board.write(TAKING, pipeline.accepting and not pipeline.lacking)

    async def _keep(self, number: int, ready: "asyncio.Future[None]") -> None:
        """Keep one front end alive; the delay before a restart doubles up to a bound.

        Meanwhile a stand-in in the router's process serves its clients.
        """
        loop, wait_s = asyncio.get_running_loop(), SHORTEST_RESTART_WAIT_S
        while not self.ending:
            began = loop.time()
            listening = partial(self._stand_ins.end, number)
            front_end = self._now[number] = FrontEndProcess(self, ready, listening)
            try:
                how = await front_end.live(self._socks[number], self._board, 1 + number)
            except OSError as error:
                how = f"could not be started ({error})"
            del self._now[number]
            self._board.clear(1 + number)
            self.publish()
            if not ready.done():
                ready.set_exception(WorkerDied(f"a front end {how} before it was ready"))
            if self.ending:
                return
            await self._stand_ins.begin(number, self._socks[number])
            if loop.time() - began > STAYED_S:
                wait_s = SHORTEST_RESTART_WAIT_S
            log.warning("front end %d %s; starting it again in %g s", number, how, wait_s)
            self._journal.write("front_end_lost", front_end=number, how=how)
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, LONGEST_RESTART_WAIT_S)


class FrontEndProcess:
    def __init__(
        self, all: FrontEnds, ready: "asyncio.Future[None]", listening: Callable[[], None] = lambda: None
    ) -> None:
        self.all, self._ready, self._listening = all, ready, listening
        self.protocol = FrameProtocol(self._received, lambda: None, decoder=TO_ROUTER)
        self._process: subprocess.Popen[bytes] | None = None
        self._withdraw: dict[int, Callable[[], None]] = {}
        self._exchanges: dict[int, HttpExchange] = {}
        self._clients: WeakValueDictionary[int, Client] = WeakValueDictionary()

    async def live(self, socks: Sequence[socket.socket], board: Board, row: int) -> str:
        """Start the process; once it and its requests have ended, return how, to follow "it"."""
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        widen(ours)
        widen(theirs)
        await loop.create_unix_connection(lambda: self.protocol, sock=ours)
        try:
            if self.all.ending:
                return "was not needed any more"
            process = self._process = _spawn(theirs.fileno(), [sock.fileno() for sock in socks], board, row)
        finally:
            theirs.close()
            if self._process is None:
                self.protocol.close()
        self.protocol.send(self.all.serve)
        gone = asyncio.Event()
        end = ProcessEnd(process.pid, gone.set)
        try:
            await gone.wait()
        finally:
            end.close()
            self.kill()
            status = process.wait()
            self.protocol.close()
            self._leave()
        return how_it_ended(status)

    def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGKILL)

    def pin(self, cores: frozenset[int]) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                pin(cores, self._process.pid)

    def _leave(self) -> None:
        for withdraw in self._withdraw.values():
            withdraw()
        for exchange in self._exchanges.values():
            exchange.leave()
        self._withdraw.clear()
        self._exchanges.clear()

    def _received(self, message: Any, body: memoryview) -> None:
        match message:
            case Submit():
                self._submit(message, body)
            case Head():
                self._begin(message)
            case Part():
                self._go_on(message, body)
            case Gone():
                withdraw = self._withdraw.pop(message.id, None)
                if withdraw is not None:
                    withdraw()
                elif (exchange := self._exchanges.pop(message.id, None)) is not None:
                    exchange.leave()
            case Refused():
                self.all.refused(self.all.serve.served[message.pipeline].name)
            case Untrusted():
                self.all.distrusted(message.reason)
            case Listening():
                self._listening()
                if not self._ready.done():
                    self._ready.set_result(None)
        self.all.publish()

    # Inference -----------------------------------------------------------------------------------

    def _submit(self, message: Submit, body: memoryview) -> None:
        try:
            in_force = self.all.control.pipelines[self.all.serve.served[message.pipeline].name]
            self._withdraw[message.id] = in_force.submit(
                unpack_tensors(message.tensors, body),
                partial(self._answered, message.id),
                priority=message.priority,
                bulk=message.bulk,
                deadline_ns=message.deadline_ns,
                sent_ns=message.sent_ns,
                payload_bytes=message.payload_bytes,
                client=self._client(message.client),
            )
        except GearshiftError as error:
            self.all.publish()  # the front end reads there whether requests are admitted
            self._send(message.id, refused(error))
        except Exception:  # every error becomes an answer
            log.exception("fault while a request of a front end was taken")
            self._send(message.id, _failed(FAULT))

    def _client(self, number: int) -> Client:
        return self._clients.setdefault(number, Client())

    def _answered(self, number: int, answer: Answer) -> None:
        if self._withdraw.pop(number, None) is not None:
            self._send(number, answer)
            self.all.publish()

    def _send(self, number: int, answer: Answer) -> None:
        outputs: Any = answer.outputs or {}
        tensors, buffers = pack_tensors(outputs)
        without = msgspec.structs.replace(answer, outputs=None)
        try:
            self.protocol.send(Answered(id=number, answer=without, tensors=tensors), buffers)
        except FrameError:
            self.protocol.send(Answered(id=number, answer=_failed(TOO_LARGE)))

    # Passed on -----------------------------------------------------------------------------------

    def _begin(self, head: Head) -> None:
        client = _Client(self, head, self._client(head.client))
        exchange = HttpExchange(client, head.method, head.path, dict(head.headers), head.keep_alive)
        self._exchanges[head.id] = exchange
        self.all.application.begun(exchange)
        if EXPECT in exchange.headers and not exchange.answered:
            client.let_in(exchange)

    def _go_on(self, part: Part, body: memoryview) -> None:
        exchange = self._exchanges.get(part.id)
        if exchange is None:  # already answered, or its client has left
            return
        if len(body):
            exchange.add_part(bytes(body))
            self.all.application.measured(exchange, len(body))
        exchange.complete = part.last
        if part.last and not exchange.answered:
            self.all.application.completed(exchange)

    def passed(self, number: int, parts: Sequence[Buffer], last: bool) -> None:
        self._exchanges.pop(number, None)
        self.protocol.send(Passed(id=number, last=last), parts)


class _Client:
    """The client of a request that a front end passed on (`http_exchange.Client`); no such answer is streamed."""

    crowded = takes_streams = False

    def __init__(self, front_end: FrontEndProcess, head: Head, held: Client) -> None:
        self._front_end, self._number, self.address, self.held = front_end, head.id, head.address, held

    @property
    def ending(self) -> bool:
        return self._front_end.all.ending

    def vouch(self) -> None:
        """Do nothing: the front end holds the connection, and checks keys of inference itself."""

    def let_in(self, exchange: HttpExchange) -> None:
        self._front_end.protocol.send(LetIn(id=self._number))

    def sent(self, data: bytes) -> None:
        raise AssertionError("it takes no streams, and language models are refused with several front ends")

    def answered(self, exchange: HttpExchange, parts: Sequence[Buffer], *, last: bool) -> None:
        self._front_end.passed(self._number, parts, last)


def _failed(reason: str) -> Answer:
    return Answer(outcome="failed", reason=reason, errors=(reason,))


def _spawn(router: int, listen: Sequence[int], board: Board, row: int) -> subprocess.Popen[bytes]:
    numbers = map(str, (os.getpid(), router, board.fd, row, *listen))
    command = [sys.executable, "-P", "-m", "gearshift.serving.front_ends.front_end", *numbers]
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=2, pass_fds=(router, *listen, board.fd), start_new_session=True
    )
