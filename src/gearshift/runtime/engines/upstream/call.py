"""One request to an endpoint, and where its answer goes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import msgspec

LONGEST_SAID = 500

FaultKind = Literal["broke_off", "unreachable", "rate_limited", "status", "stalled", "unreadable", "aborted"]


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a request has no answer, or no whole one.

    `status` and `body` are those of an answer that is no stream; without one `status` is 0, and
    `unreachable` tells that there was no connection at all. The reason may name the endpoint,
    unless it is `for_clients`.
    """

    reason: str
    status: int = 0
    body: bytes = b""
    retry_after_s: float | None = None
    unreachable: bool = False
    for_clients: bool = False
    given_kind: FaultKind | None = None

    @property
    def kind(self) -> FaultKind:
        """The label of the metric of failures."""
        if self.given_kind is not None:
            return self.given_kind
        if self.unreachable:
            return "unreachable"
        if self.is_limit:
            return "rate_limited"
        return "status" if self.status else "broke_off"

    @property
    def is_limit(self) -> bool:
        """Whether the endpoint asked to be sent nothing for a while."""
        return self.status == 429 or (self.status == 503 and self.retry_after_s is not None)

    def of(self, who: str) -> "Fault":
        """The same, told of `who`."""
        return replace(self, reason=f"{who}: {self.reason}")


def said_in(body: bytes) -> str:
    """The message of an error's body, in one line."""
    try:
        content: Any = msgspec.json.decode(body)
        error = content.get("error", content)
        text = str(error.get("message", error) if isinstance(error, dict) else error)
    except (msgspec.MsgspecError, AttributeError, UnicodeDecodeError, RecursionError):
        text = body.decode("utf-8", "replace")
    return " ".join(text.split())[:LONGEST_SAID] or "nothing more"


class Listener(Protocol):
    """Receives the answer of one request; after `ended`, which may follow on `[DONE]`, or `failed` nothing more."""

    def event(self, data: bytes) -> None: ...

    def ended(self) -> None: ...

    def failed(self, fault: Fault) -> None: ...


class Line(Protocol):
    """The connection that carries a call."""

    def drop(self) -> None: ...

    def pause(self) -> None:
        """Read nothing more, until `resume`."""
        ...

    def resume(self) -> None: ...


class Calls(Protocol):
    """The link that calls are made over."""

    calls: set["Call"]
    """Those that are not over."""
    now_s: Callable[[], float]


class Call:
    """One request and where its answer goes, until it is over.

    `heard_s` is when it was sent, or its listener last said that the answer has `progressed`: bytes
    alone, such as comments, tell nothing.
    """

    __slots__ = ("_connection", "_link", "heard_s", "listener", "longest_silence_s", "message", "paused")

    def __init__(self, link: Calls, message: Sequence[bytes], listener: Listener) -> None:
        self._link, self.message, self.listener = link, message, listener
        self._connection: Line | None = None
        self.paused = False
        self.heard_s = link.now_s()
        self.longest_silence_s = float("inf")
        """Without progress it fails after this time, or after its link's where that is less."""

    def cancel(self) -> None:
        """Close the connection; the listener hears nothing more."""
        self._link.calls.discard(self)
        if self._connection is not None:
            self._connection.drop()
            self._connection = None

    def pause(self) -> None:
        """Read nothing more, so that the endpoint has to wait, until `resume`."""
        self.paused = True
        if self._connection is not None:
            self._connection.pause()

    def resume(self) -> None:
        self.paused, self.heard_s = False, self._link.now_s()
        if self._connection is not None:
            self._connection.resume()

    def progressed(self) -> None:
        """Part of the answer has come, so that the endpoint is not silent."""
        self.heard_s = self._link.now_s()

    def sent_by(self, connection: Line | None) -> None:
        self._connection = connection
