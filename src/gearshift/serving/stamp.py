"""When a request was sent, told with it: the header by which a server knows how long it was under way."""

START_HEADER = "x-request-start"


def stamped(request: bytes, sent_unix_s: float) -> bytes:
    """A whole HTTP request with the header `x-request-start`."""
    line, end, rest = request.partition(b"\r\n")
    return b"".join([line, end, f"{START_HEADER}: {start_of(sent_unix_s)}\r\n".encode(), rest])


def start_of(sent_unix_s: float) -> str:
    """What the header, or gRPC metadata of its name, says: `t=<unix seconds>`, as reverse proxies write it."""
    return f"t={sent_unix_s:.6f}"
