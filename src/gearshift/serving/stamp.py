"""When a request was sent, written into it: the header by which a server knows how long it was under way."""

START_HEADER = "x-request-start"


def stamped(request: bytes, sent_unix_s: float) -> bytes:
    """A whole HTTP request with `x-request-start: t=<unix seconds>`, as reverse proxies write it."""
    line, end, rest = request.partition(b"\r\n")
    return b"".join([line, end, f"{START_HEADER}: t={sent_unix_s:.6f}\r\n".encode(), rest])
