"""What a request says of itself in headers that a load generator adds: when it was sent, and its deadline."""

from collections.abc import Sequence

from gearshift.serving.door.deadline_headers import SLO_MS

START_HEADER = "x-request-start"


def stamped(request: bytes, headers: Sequence[tuple[str, str]]) -> bytes:
    """A whole HTTP request with more headers."""
    line, end, rest = request.partition(b"\r\n")
    return b"".join([line, end, *(f"{name}: {value}\r\n".encode() for name, value in headers), rest])


def headers_of(sent_unix_s: float | None, deadline_s: float | None) -> list[tuple[str, str]]:
    """The headers, or gRPC metadata, that say when a request was sent, and within which time it wants its answer."""
    start = [] if sent_unix_s is None else [(START_HEADER, start_of(sent_unix_s))]
    return start if deadline_s is None else [*start, (SLO_MS, f"{1e3 * deadline_s:.6f}")]


def start_of(sent_unix_s: float) -> str:
    """What the header, or gRPC metadata of its name, says: `t=<unix seconds>`, as reverse proxies write it."""
    return f"t={sent_unix_s:.6f}"
