"""An emulated engine that speaks OpenAI's API over real sockets: its steps take the times of an engine profile."""

import asyncio
import time
from hmac import compare_digest
from itertools import count
from typing import Any, cast

import httptools
import msgspec

from gearshift.clock import NS_PER_S
from gearshift.errors import InvalidInput
from gearshift.policies.engines.sharing import step_ends_ns, work_left_ns
from gearshift.profiles.engines.engine_profile import EngineProfile
from gearshift.profiles.engines.language_profile import LanguageProfile
from gearshift.profiles.engines.stepping import Engine, Generation
from gearshift.runtime.engines.emulated.answers import RecordedAnswers
from gearshift.runtime.engines.emulated.board import Board
from gearshift.runtime.engines.emulated.replies import JSON, Body, Faults, Reply
from gearshift.runtime.engines.requests.asked import CHAT, TEXT
from gearshift.support.fine_timer import FineSleeper

PREFIX, HEALTH = "/v1", "/health"
PIECE_NS = 5_000_000
"""A step beside others goes on for this long before it is looked who is at work."""


class EmulatedEngine:
    """Runs the steps of an engine in real time; `name` is its model's at this endpoint.

    With `speed` 2 it takes half the time. Steps are begun one after another without drift. With a
    `board`, other engines on its devices slow it. With a `key`, requests need it.
    """

    def __init__(
        self,
        profile: LanguageProfile,
        engine: EngineProfile,
        *,
        name: str = "",
        speed: float = 1.0,
        board: Board | None = None,
        key: str = "",
    ) -> None:
        self._authorization = f"Bearer {key}".encode() if key else b""
        self._engine, self._speed, self._board = Engine(engine), speed, board
        self.answers, self.name = RecordedAnswers(profile, engine.model), name or engine.model
        self._replies: dict[Generation, Reply] = {}
        self._leaving: list[Generation] = []
        self._numbers = count()
        self._work = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._running: asyncio.Task[None] | None = None
        self.breaks_off = False
        """Whether every answer ends after its first token, with its connection."""

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> int:
        """Listen; returns the port."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self), host, port, backlog=4096)
        self._running = asyncio.create_task(self._run())
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def stop(self) -> None:
        if self._running is not None and self._server is not None:
            self._running.cancel()
            self._server.close()
            for reply in list(self._replies.values()):
                reply.cut()
            await asyncio.gather(self._running, return_exceptions=True)

    @property
    def running(self) -> int:
        """Requests that it works on, or that wait."""
        return len(self._replies)

    def lets_in(self, authorization: bytes) -> bool:
        return not self._authorization or compare_digest(authorization, self._authorization)

    def begin(self, path: str, content: bytes, sender: "_Connection") -> Reply | None:
        """Take a request, or answer it with an error."""
        try:
            body = msgspec.json.decode(content, type=Body)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            sender.refuse(400, str(error))
            return None
        if body.model != self.name:
            sender.refuse(404, f"there is no model {body.model!r} here", "model_not_found")
            return None
        if self.breaks_off:
            body.emulated = Faults(cut_after=1)
        faults = body.emulated
        if faults.status and faults.model in ("", body.model):
            sender.refuse(faults.status, "an emulated fault")
            return None
        prompt = msgspec.json.encode(body.messages if path == CHAT else body.prompt)
        record = self.answers.record(prompt)
        prompt_tokens, output_tokens = self.answers.tokens(record)
        if body.ignore_eos:
            prompt_tokens, output_tokens = max(1, len(prompt.split())), body.most_tokens
        generation = Generation(prompt_tokens, max(1, min(output_tokens, body.most_tokens)))
        try:
            self._engine.add(generation)
        except InvalidInput as error:
            sender.refuse(400, f"this exceeds the context length: {error}", "context_length_exceeded")
            return None
        reply = Reply(
            next(self._numbers),
            path,
            body,
            generation,
            self.answers.words(record),
            self.answers.pairs(record, output_tokens if body.ignore_eos else None) if body.wants_logprobs else [],
            output_tokens,
            sender,
        )
        self._replies[generation] = reply
        self._work.set()
        return reply

    def cancel(self, reply: Reply) -> None:
        if self._replies.pop(reply.generation, None) is not None:
            self._leaving.append(reply.generation)
            self._work.set()

    async def _run(self) -> None:
        sleeper, at_ns = FineSleeper(), time.monotonic_ns()
        try:
            while True:
                step = self._engine.begin_step()
                if step is None:
                    if self._board is not None:
                        self._board.rest()
                    self._work.clear()
                    await self._work.wait()
                    self._let_go()
                    at_ns = time.monotonic_ns()
                    continue
                left_ns = round(self._engine.profile.step_s(step.work) / self._speed * NS_PER_S)
                while left_ns > 0:
                    stretch = 1.0 if self._board is None else self._board.stretch()
                    took_ns = step_ends_ns(0, left_ns, stretch)
                    if self._board is not None:
                        took_ns = min(took_ns, PIECE_NS)
                        self._board.work_until(at_ns + took_ns)
                    at_ns += took_ns
                    await sleeper.sleep(at_ns - time.monotonic_ns())
                    left_ns = work_left_ns(left_ns, took_ns, stretch) if took_ns == PIECE_NS else 0
                for generation in self._engine.end_step(step):
                    self._token(generation)
                self._let_go()
        finally:
            sleeper.stop()

    def _let_go(self) -> None:
        """Take those that have left from the engine, which is between two steps."""
        for generation in self._leaving:
            self._engine.cancel(generation)
        self._leaving.clear()

    def _token(self, generation: Generation) -> None:
        reply = self._replies.get(generation)
        if reply is None:  # it has left during the step
            return
        if not reply.token():
            self.cancel(reply)
        elif generation.given == generation.output_tokens and not reply.is_silent:
            self._replies.pop(generation, None)


class _Connection(asyncio.Protocol):
    """One connection, which has one request at a time; httptools calls its `on_` methods."""

    def __init__(self, engine: EmulatedEngine) -> None:
        self._engine = engine
        self._parser: Any = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport
        self._path, self._body, self._authorization = b"", b"", b""
        self._reply: Reply | None = None
        self._chunked = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._reply is not None:
            self._engine.cancel(self._reply)
        self._parser = self._reply = None

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._transport.abort()

    def on_url(self, url: bytes) -> None:
        self._path += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"authorization":
            self._authorization = value

    def on_body(self, part: bytes) -> None:
        self._body += part

    def on_message_complete(self) -> None:
        path, body = self._path.decode("latin-1").partition("?")[0], self._body
        is_let_in = path == HEALTH or self._engine.lets_in(self._authorization)
        self._path = self._body = self._authorization = b""
        if not is_let_in:
            self.refuse(401, "the key is missing or wrong", "invalid_api_key")
        elif self._parser.get_method() == b"GET":
            self._get(path)
        elif path in (PREFIX + CHAT, PREFIX + TEXT):
            self._reply = self._engine.begin(path.removeprefix(PREFIX), body, self)
        else:
            self.refuse(404, "there is nothing here")

    def _get(self, path: str) -> None:
        if path == f"{PREFIX}/models":
            models = [{"id": self._engine.name, "object": "model", "created": 0, "owned_by": "gearshift"}]
            self._whole(200, msgspec.json.encode({"object": "list", "data": models}))
        elif path == HEALTH:
            self._whole(200, msgspec.json.encode({"status": "ok", "running": self._engine.running}))
        else:
            self.refuse(404, "there is nothing here")

    def refuse(self, status: int, message: str, code: str | None = None) -> None:
        kind = "invalid_request_error" if status < 500 else "server_error"
        self._whole(
            status, msgspec.json.encode({"error": {"message": message, "type": kind, "param": None, "code": code}})
        )

    def _whole(self, status: int, data: bytes) -> None:
        self.head(status, JSON, len(data))
        self._transport.write(data)

    # `emulated_replies.Sender` -------------------------------------------------------------------

    def head(self, status: int, content_type: bytes, length: int | None) -> None:
        self._chunked = length is None
        size = b"transfer-encoding: chunked" if length is None else b"content-length: %d" % length
        self._transport.write(b"HTTP/1.1 %d -\r\ncontent-type: %b\r\n%b\r\n\r\n" % (status, content_type, size))

    def write(self, data: bytes) -> None:
        self._transport.write(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)

    def end(self) -> None:
        if self._chunked:
            self._transport.write(b"0\r\n\r\n")
        self._reply = None

    def cut(self) -> None:
        self._reply = None
        self._transport.close()
