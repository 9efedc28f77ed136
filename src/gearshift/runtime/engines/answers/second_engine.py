"""Listens to a second engine that is asked for an answer, until it is known which of both goes on."""

from collections.abc import Callable

import msgspec

from gearshift.runtime.engines.answers.held import LARGEST_HELD_BYTES
from gearshift.runtime.engines.upstream.call import Call, Fault, Listener
from gearshift.runtime.engines.upstream.chunk import NULL, decode_chunk

TOO_MUCH = Fault("it gave too much without a token", given_kind="unreadable")


class SecondEngine:
    """A `Listener`: keeps what comes before the first token, and passes on all once it is adopted."""

    __slots__ = ("_bytes", "_events", "_failed", "_stream", "_won", "call", "sent_ns")

    def __init__(
        self,
        stream: Listener,
        sent_ns: int,
        *,
        won: Callable[[], None],
        failed: Callable[[Fault], None],
    ) -> None:
        self._stream, self.sent_ns = stream, sent_ns
        self._won: Callable[[], None] | None = won
        self._failed = failed
        self._events: list[bytes] = []
        self._bytes = 0
        self.call: Call | None = None

    def adopt(self) -> None:
        """Pass on what came so far; what comes goes on from now."""
        self._won = None
        events, self._events = self._events, []
        for data in events:
            self._stream.event(data)

    def event(self, data: bytes) -> None:
        if self._won is None:
            self._stream.event(data)
            return
        self._events.append(data)
        self._bytes += len(data)
        if _has_token(data):
            self._won()
        elif self._bytes > LARGEST_HELD_BYTES:
            self._end(TOO_MUCH)

    def ended(self) -> None:
        if self._won is None:
            self._stream.ended()
        else:
            self._failed(Fault("it ended its answer before it was whole"))

    def failed(self, fault: Fault) -> None:
        if self._won is None:
            self._stream.failed(fault)
        else:
            self._failed(fault)

    def _end(self, fault: Fault) -> None:
        if self.call is not None:
            self.call.cancel()
        self._failed(fault)


def _has_token(data: bytes) -> bool:
    if data == NULL:
        return False
    try:
        return any(choice.token_count or choice.finish_reason for choice in decode_chunk(data).choices)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
