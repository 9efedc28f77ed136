"""Requests sent to an OpenAI-compatible server in an open loop, each at its time, whatever came of others."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from gearshift.errors import NoAnswer
from gearshift.load_generator.language.stream_log import StreamedRequest
from gearshift.runtime.engines.answers.halves import Halves
from gearshift.runtime.engines.requests.asked import CHAT, TEXT
from gearshift.runtime.engines.upstream.call import Fault, said_in
from gearshift.runtime.engines.upstream.chunk import NULL, BadAnswer, NamedChunk
from gearshift.runtime.engines.upstream.link import EngineLink
from gearshift.support.event_loop import loop_factory, much_load, run_in_own_loop

LONGEST_TOLD = 200
Sent = Callable[[int, int], None]
"""Called with the number of requests that are done, and of all."""


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """A request: its id, when it is due, its recorded prompt, and the fields of its body."""

    id: str
    due_s: float
    record: int
    body: dict[str, Any]

    @property
    def path(self) -> str:
        return CHAT if "messages" in self.body else TEXT


class _Stage(msgspec.Struct):
    model: str = ""
    completion_tokens: int = 0


class _Facts(msgspec.Struct):
    model: str = ""
    gear: int = -1
    stages: list[_Stage] = []


class _Told(NamedChunk):
    gearshift: _Facts | None = None


_decode = msgspec.json.Decoder(_Told).decode


class _Stream:
    """Listens to one answer."""

    def __init__(self, request: StreamedRequest, now_s: Callable[[], float], done: Callable[[], None]) -> None:
        self._request, self._now_s, self._done = request, now_s, done
        self._chunks, self._halves = 0, Halves()
        self._broken = ""

    def event(self, data: bytes) -> None:
        if data in (b"[DONE]", NULL):
            return
        try:
            chunk = _decode(self._halves.mend(data))
            usage = chunk.usage
        except (BadAnswer, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            self._broken = "a chunk that cannot be read"
            return
        request = self._request
        if chunk.error is not None:
            self._broken = "an error within the stream"
        for choice in chunk.choices:
            if choice.token_count:
                request.last_s = self._now_s()
                request.first_s = request.first_s or request.last_s
                request.text += choice.said
                self._chunks += 1
        if usage is not None:
            request.output_tokens, request.prompt_tokens = usage.completion_tokens, usage.prompt_tokens
        if chunk.gearshift is not None:
            facts = chunk.gearshift
            request.model, request.gear = facts.model, facts.gear
            request.discarded = {one.model: one.completion_tokens for one in facts.stages[:-1]}
        elif not request.model:
            request.model = chunk.model or ""

    def ended(self) -> None:
        request = self._request
        request.status, request.ended_s = 200, self._now_s()
        request.output_tokens = request.output_tokens or self._chunks
        request.problem = self._broken or ("" if request.first_s else "an answer without content")
        self._done()

    def failed(self, fault: Fault) -> None:
        self._request.status, self._request.ended_s = fault.status, self._now_s()
        self._request.problem = f"status {fault.status}" if fault.status else "the connection broke"
        self._request.said = said_in(fault.body)[:LONGEST_TOLD] if fault.body else ""
        self._done()


def send_all(
    url: str, requests: Sequence[Outgoing], *, key: str | None, longest_s: float, progress: Sent | None = None
) -> list[StreamedRequest]:
    """Send every request at its time, and wait for all answers, each for at most `longest_s`.

    Raises `NoAnswer` where no server is at `url`.
    """
    with much_load():
        return run_in_own_loop(_send_all(url, requests, key, longest_s, progress), loop_factory=loop_factory())


async def _send_all(
    url: str, requests: Sequence[Outgoing], key: str | None, longest_s: float, progress: Sent | None
) -> list[StreamedRequest]:
    link = EngineLink(url, key=key)
    log = [StreamedRequest(one.due_s, one.record) for one in requests]
    done, all_done = 0, asyncio.Event()
    began_s = time.monotonic()

    def now_s() -> float:
        return time.monotonic() - began_s

    def ended() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, len(log))
        if done == len(log):
            all_done.set()

    calls = []
    try:
        for request, one in zip(log, requests, strict=True):
            body = msgspec.json.encode(one.body)  # before it is due
            if (left_s := request.due_s - now_s()) > 0:
                await asyncio.sleep(left_s)
            request.sent_s = now_s()
            calls.append(link.post(one.path, body, _Stream(request, now_s, ended), request_id=one.id))
        last_s = max(one.due_s for one in log) + longest_s
        try:
            async with asyncio.timeout(max(0.0, last_s - now_s())):
                await all_done.wait()
        except TimeoutError:
            for call, request in zip(calls, log, strict=True):
                if request.ended_s == 0.0:
                    call.cancel()
                    request.ended_s, request.problem = now_s(), f"no whole answer within {longest_s:g} s"
    finally:
        link.close()
    if log and all(one.status == 0 and one.problem == "the connection broke" for one in log):
        raise NoAnswer(f"{url} cannot be reached; check that the server runs, and its URL", sent=False)
    return log
