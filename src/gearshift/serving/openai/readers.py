"""Answers on their way to clients, streamed or whole (`answer_stream.Reader`)."""

import msgspec

from gearshift.runtime.engines.answers.answer_stream import AnswerStream
from gearshift.runtime.engines.answers.held import NoRoom
from gearshift.runtime.engines.open_answers import TOO_LATE
from gearshift.runtime.engines.upstream.call import Fault
from gearshift.serving.http.attempts import respond_error
from gearshift.serving.http.http_exchange import JSON, Headers, HttpExchange, error_body
from gearshift.serving.openai.assembly import Assembly
from gearshift.serving.openai.bodies import Wanted
from gearshift.serving.openai.chunks import Cleaner, Fields, facts_of, headers_of, usage_of
from gearshift.serving.openai.spans import trace_answer, trace_failure

EVENTS, DONE = b"text/event-stream", b"data: [DONE]\n\n"
NOT_KEPT = (b"cache-control", b"no-cache")
PASSED_ON = frozenset({400, 413, 422, 429, 503})
"""Statuses of engines that clients get; others are the server's own fault to them: 502."""
LONGEST_TEXT, LONGEST_RETRY_S = 2000, 3600

_encode = msgspec.json.Encoder().encode


class StreamedAnswer:
    """Sends each chunk as it comes; while the client has yet to read, its engine has to wait."""

    def __init__(self, exchange: HttpExchange, served: str, models: tuple[str, ...], wanted: Wanted) -> None:
        self._exchange, self._served, self._models, self._wanted = exchange, served, models, wanted
        self._cleaner = Cleaner(served, wanted)
        self._stream: AnswerStream | None = None
        self._last: Fields = {}

    def begin(self, stream: AnswerStream) -> None:
        self._stream = stream
        self._exchange.begin_stream(200, EVENTS, [NOT_KEPT, *headers_of(stream, self._models[stream.request.model])])
        self._exchange.on_room = self._go_on

    def chunk(self, data: bytes) -> None:
        fields = self._cleaner.clean(data)
        if not self._last:
            self._last = {name: value for name, value in fields.items() if name not in ("choices", "usage")}
        self._exchange.stream(b"data: %b\n\n" % _encode(fields))
        call = None if self._stream is None else self._stream.call
        if call is not None and not call.paused and self._exchange.client.crowded:
            call.pause()

    def ended(self, stream: AnswerStream) -> None:
        if self._wanted.include_usage:
            facts = facts_of(stream, self._models[stream.request.model])
            last = self._last | {"choices": [], "usage": usage_of(stream), "gearshift": facts}
            self._exchange.stream(b"data: %b\n\n" % _encode(last))
        trace_answer(self._exchange.span, stream, self._models[stream.request.model])
        self._exchange.stream(DONE)
        self._exchange.end_stream(200)

    def failed(self, fault: Fault) -> None:
        if not self._exchange.streams:
            refuse(self._exchange, fault)
            return
        trace_failure(self._exchange.span, fault.reason)
        self._exchange.stream(b"data: %b\n\n" % error_body(self._exchange.path, 502, _logged(self._exchange, fault)))
        self._exchange.end_stream(502)

    def broke(self, error: Exception) -> None:
        end_broken(self._exchange, error)

    def _go_on(self) -> None:
        call = None if self._stream is None else self._stream.call
        if call is not None and call.paused:
            call.resume()


class WholeAnswer:
    """Puts the chunks together, and sends them as one."""

    def __init__(self, exchange: HttpExchange, served: str, models: tuple[str, ...], wanted: Wanted) -> None:
        self._exchange, self._models = exchange, models
        self._cleaner = Cleaner(served, wanted)
        self._assembly = Assembly(is_chat=wanted.asked.is_chat)
        self._stream: AnswerStream | None = None

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


def end_broken(exchange: HttpExchange, error: Exception) -> None:
    """End an answer after an error of this process, which the log explains; `NoRoom` is told to the client."""
    no_room = isinstance(error, NoRoom)
    trace_failure(exchange.span, str(error) if no_room else "an error of the server")
    text, status = (exchange.failed(str(error)), 503) if no_room else (exchange.fault(error), 500)
    if exchange.streams:
        exchange.stream(b"data: %b\n\n" % error_body(exchange.path, status, text))
        exchange.end_stream(status)
    else:
        respond_error(exchange, status, text)


def refuse(exchange: HttpExchange, fault: Fault) -> None:
    """Answer a request that no engine has answered: as the engine did, where that is about the request."""
    trace_failure(exchange.span, fault.reason, "refused" if fault is TOO_LATE else "failed")
    if fault.status in PASSED_ON and fault.body:
        exchange.respond(fault.status, told_as(exchange.path, fault), JSON, _again(fault))
        return
    is_told = fault.status in PASSED_ON or (fault.for_clients and fault.status)
    status = fault.status if is_told else 503 if fault.unreachable or fault.status == 0 else 502
    respond_error(exchange, status, _logged(exchange, fault)[:LONGEST_TEXT], _again(fault))


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
