"""Answers on their way to clients, streamed or whole (`answer_stream.Reader`)."""

import asyncio

import msgspec

from gearshift.runtime.engines.answers.answer_stream import AnswerStream
from gearshift.runtime.engines.answers.held import NoRoom
from gearshift.runtime.engines.open_answers import TOO_LATE
from gearshift.runtime.engines.requests.asked import Asked
from gearshift.runtime.engines.upstream.call import Fault
from gearshift.serving.http.attempts import respond_error
from gearshift.serving.http.http_exchange import JSON, Headers, HttpExchange, error_body
from gearshift.serving.openai.assembly import Assembly
from gearshift.serving.openai.chunks import Cleaner, Fields, facts_of, has_ended, headers_of, usage_of
from gearshift.serving.openai.spans import trace_answer, trace_failure

EVENTS, DONE = b"text/event-stream", b"data: [DONE]\n\n"
NOT_KEPT = (b"cache-control", b"no-cache")
PASSED_ON = frozenset({400, 413, 422, 429, 503})
"""Statuses of engines that clients get; others are the server's own fault to them: 502."""
LONGEST_TEXT, LONGEST_RETRY_S = 2000, 3600

KEEP_ALIVE_S = 15.0
"""Proxies and clients close connections that are silent for longer, often for 30 or 60 s."""
COMMENT = b": still at work\n\n"

_encode = msgspec.json.Encoder().encode


class StreamedAnswer:
    """Sends each chunk as it comes; while the client has yet to read, its engine has to wait."""

    def __init__(self, exchange: HttpExchange, served: str, models: tuple[str, ...], asked: Asked) -> None:
        self._exchange, self._served, self._models, self._asked = exchange, served, models, asked
        self._cleaner = Cleaner(served, asked)
        self._stream: AnswerStream | None = None
        self._last: Fields = {}
        """Of the first chunk that was sent: what each chunk of an answer repeats."""
        self._early = False
        """Whether the head was sent before an engine was known."""
        loop = asyncio.get_running_loop()
        self._now_s, self._call_later = loop.time, loop.call_later
        self._written_s = loop.time()
        self._keep_alive = loop.call_later(KEEP_ALIVE_S, self._still_here)

    @property
    def shown(self) -> bool:
        return bool(self._last)

    def again(self) -> None:
        self._stream = None

    def begin(self, stream: AnswerStream) -> None:
        self._stream = stream
        if not self._exchange.streams:
            self._begin_head(headers_of(stream, self._models[stream.request.model]))

    def chunk(self, data: bytes) -> None:
        fields = self._cleaner.clean(data)
        if self._early and self._stream is not None and (not self._last or has_ended(fields)):
            facts = facts_of(self._stream, self._models[self._stream.request.model])
            fields["gearshift"] = msgspec.Raw(_encode(facts))
        if not self._last:
            self._last = {name: value for name, value in fields.items() if name not in ("choices", "usage")}
        self._write(b"data: %b\n\n" % _encode(fields))
        call = None if self._stream is None else self._stream.call
        if call is not None and not call.paused and self._exchange.client.crowded:
            call.pause()

    def ended(self, stream: AnswerStream) -> None:
        self._keep_alive.cancel()
        if self._asked.include_usage:
            facts = facts_of(stream, self._models[stream.request.model])
            last = self._last | {"choices": [], "usage": usage_of(stream), "gearshift": facts}
            self._exchange.stream(b"data: %b\n\n" % _encode(last))
        trace_answer(self._exchange.span, stream, self._models[stream.request.model])
        self._exchange.stream(DONE)
        self._exchange.end_stream(200)

    def failed(self, fault: Fault) -> None:
        self._keep_alive.cancel()
        if not self._exchange.streams:
            refuse(self._exchange, fault)
            return
        trace_failure(self._exchange.span, fault.reason)
        status = refusal_status(fault)
        self._exchange.stream(broken_off(self._exchange.path, status, _logged(self._exchange, fault), self._last))
        self._exchange.end_stream(status)

    def broke(self, error: Exception) -> None:
        self._keep_alive.cancel()
        end_broken(self._exchange, error, self._last)

    def left(self) -> None:
        """The client is gone."""
        self._keep_alive.cancel()

    def _begin_head(self, headers: Headers) -> None:
        self._exchange.begin_stream(200, EVENTS, [NOT_KEPT, *headers])
        self._exchange.on_room = self._go_on

    def _write(self, data: bytes) -> None:
        self._written_s = self._now_s()
        self._exchange.stream(data)

    def _still_here(self) -> None:
        """Send a comment where nothing else was sent for a while: what is on the way closes silent connections.

        A head sent with it says nothing of the answer, as any engine may still give it.
        """
        left_s = self._written_s + KEEP_ALIVE_S - self._now_s()
        if left_s <= 0:
            if not self._exchange.streams:
                self._early = True
                self._begin_head(())
            if not self._exchange.client.crowded:
                self._write(COMMENT)
            left_s = KEEP_ALIVE_S
        self._keep_alive = self._call_later(left_s, self._still_here)

    def _go_on(self) -> None:
        call = None if self._stream is None else self._stream.call
        if call is not None and call.paused:
            call.resume()


class WholeAnswer:
    """Puts the chunks together, and sends them as one."""

    def __init__(self, exchange: HttpExchange, served: str, models: tuple[str, ...], asked: Asked) -> None:
        self._exchange, self._models = exchange, models
        self._cleaner = Cleaner(served, asked)
        self._assembly = Assembly(is_chat=asked.is_chat)
        self._stream: AnswerStream | None = None
        self._served, self._asked = served, asked

    @property
    def shown(self) -> bool:
        return False

    def again(self) -> None:
        self._cleaner, self._assembly = (
            Cleaner(self._served, self._asked),
            Assembly(is_chat=self._asked.is_chat),
        )

    def begin(self, stream: AnswerStream) -> None:
        self._stream = stream

    def chunk(self, data: bytes) -> None:
        before = self._assembly.size_bytes
        self._assembly.add(self._cleaner.clean(data))
        if self._assembly.is_full:
            raise NoRoom("the answer is too large to be given as a whole; stream it")
        if self._stream is not None:
            self._stream.keep(self._assembly.size_bytes - before)

    def ended(self, stream: AnswerStream) -> None:
        model = self._models[stream.request.model]
        content = self._assembly.whole()
        if (usage := usage_of(stream)) is not None:
            content["usage"] = usage
        content["gearshift"] = facts_of(stream, model)
        trace_answer(self._exchange.span, stream, model)
        self._exchange.respond(200, _encode(content), JSON, headers_of(stream, model))

    def failed(self, fault: Fault) -> None:
        refuse(self._exchange, fault)

    def broke(self, error: Exception) -> None:
        end_broken(self._exchange, error)

    def left(self) -> None:
        """The client is gone."""


def broken_off(path: str, status: int, text: str, first: Fields) -> bytes:
    """The last event of a stream that broke off: an error, as a chunk whose choice ends with it.

    So do OpenAI's own servers and OpenRouter; no `[DONE]` follows.
    """
    error = msgspec.json.decode(error_body(path, status, text))
    choice = {"index": 0, "delta": {}, "finish_reason": "error"} if first else None
    return b"data: %b\n\n" % _encode(error | first | ({} if choice is None else {"choices": [choice]}))


def end_broken(exchange: HttpExchange, error: Exception, first: Fields | None = None) -> None:
    """End an answer after an error of this process, which the log explains; `NoRoom` is told to the client."""
    no_room = isinstance(error, NoRoom)
    trace_failure(exchange.span, str(error) if no_room else "an error of the server")
    text, status = (exchange.failed(str(error)), 503) if no_room else (exchange.fault(error), 500)
    if exchange.streams:
        exchange.stream(broken_off(exchange.path, status, text, first or {}))
        exchange.end_stream(status)
    else:
        respond_error(exchange, status, text)


def refuse(exchange: HttpExchange, fault: Fault) -> None:
    """Answer a request that no engine has answered: as the engine did, where that is about the request."""
    trace_failure(exchange.span, fault.reason, "refused" if fault is TOO_LATE else "failed")
    if fault.status in PASSED_ON and fault.body:
        exchange.respond(fault.status, told_as(exchange.path, fault), JSON, _again(fault))
        return
    respond_error(exchange, refusal_status(fault), _logged(exchange, fault)[:LONGEST_TEXT], _again(fault))


def refusal_status(fault: Fault) -> int:
    if fault.status in PASSED_ON or (fault.for_clients and fault.status):
        return fault.status
    return 503 if fault.unreachable or fault.status == 0 else 502


def _logged(exchange: HttpExchange, fault: Fault) -> str:
    """Log the fault under the request's id; the text for the client, which learns no endpoints."""
    told = exchange.failed(fault.reason)
    return told if fault.for_clients else f"the engine failed; the server's log explains id {exchange.id}"


def told_as(path: str, fault: Fault) -> bytes:
    """An engine's own error body in OpenAI's form; other forms have text, code and field beside one another."""
    try:
        body = msgspec.json.decode(fault.body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        body = None
    error = body.get("error") or body if isinstance(body, dict) else body
    fields = error if isinstance(error, dict) else {"message": error}
    text = next((fields[name] for name in ("message", "detail") if isinstance(fields.get(name), str)), None)
    if text is None:
        text = " ".join(fault.body.decode(errors="replace").split())
    code, param = (one if isinstance(one := fields.get(name), str) else None for name in ("code", "param"))
    return error_body(path, fault.status, text[:LONGEST_TEXT], code, param)


def _again(fault: Fault) -> Headers:
    if fault.status not in (0, 429, 503):
        return ()
    return ((b"retry-after", b"%d" % max(1, min(LONGEST_RETRY_S, round(fault.retry_after_s or 1)))),)
