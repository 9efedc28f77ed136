"""Headers that a load generator adds to a request: its sending time and its deadline."""

from collections.abc import Sequence

from gearshift.serving.door.deadline_headers import SLO_MS

START_HEADER = "x-request-start"


def stamped(request: bytes, headers: Sequence[tuple[str, str]]) -> bytes:
    line, end, rest = request.partition(b"\r\n")
    return b"".join([line, end, *(f"{name}: {value}\r\n".encode() for name, value in headers), rest])


def headers_of(sent_unix_s: float | None, deadline_s: float | None) -> list[tuple[str, str]]:
    start = [] if sent_unix_s is None else [(START_HEADER, start_of(sent_unix_s))]
    return start if deadline_s is None else [*start, (SLO_MS, f"{1e3 * deadline_s:.6f}")]


def start_of(sent_unix_s: float) -> str:
    """Return the header's value, `t=<unix seconds>`, as reverse proxies write it."""
    return f"t={sent_unix_s:.6f}"
