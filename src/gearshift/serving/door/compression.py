"""Compress and decompress bodies, gzip or deflate, in small steps so that the event loop runs."""

import asyncio
import zlib
from collections.abc import Callable, Sequence

from gearshift.errors import InvalidInput, TooLargeInside

GZIP, DEFLATE, IDENTITY = b"gzip", b"deflate", b"identity"
STEP_BYTES = 64 << 10
SMALLEST_BYTES = 16 << 10
"""Smaller answers are not compressed: that would take longer than sending them."""
LEVEL = 1
MOST_MEMBERS, LEAST_MEMBER_BYTES = 1024, 1 << 10
"""Members allowed in a gzip body, plus one per `LEAST_MEMBER_BYTES`: an empty one costs more than
its bytes."""
MEMBER_BEGINS = b"\x1f"

_WINDOW_BITS = {GZIP: 16 + zlib.MAX_WBITS, DEFLATE: zlib.MAX_WBITS}


async def decompress(body: bytes, encoding: bytes, largest_bytes: int, hold: Callable[[int], None]) -> bytes:
    """Decompress `body`, for gzip all members; raises `InvalidInput` and `TooLargeInside`.

    `hold` receives the bytes of each part before more is made, and may raise.  `InvalidInput` is
    raised for an unknown encoding or a body that does not have it.
    """
    if encoding == IDENTITY:
        return body
    where = "header content-encoding"
    if encoding not in _WINDOW_BITS:
        name = encoding[:40].decode("latin-1")
        raise InvalidInput(f"is {name!r}", where=where, remedy="send the body plain, or as gzip or deflate")
    stream = zlib.decompressobj(_WINDOW_BITS[encoding])
    parts: list[bytes] = []
    total, members = 0, 1
    for begin in range(0, len(body), STEP_BYTES):
        rest = body[begin : begin + STEP_BYTES]
        while rest:
            if stream.eof:
                if encoding != GZIP or not rest.startswith(MEMBER_BEGINS):
                    raise InvalidInput("the body goes on after the end of what is compressed", where=where)
                stream, members = zlib.decompressobj(_WINDOW_BITS[encoding]), members + 1
                if members > MOST_MEMBERS + begin // LEAST_MEMBER_BYTES:
                    raise InvalidInput("the body has too many small members", where=where, remedy="compress it whole")
            try:
                part = stream.decompress(rest, STEP_BYTES)
            except zlib.error as error:
                raise InvalidInput(f"the body is not {encoding.decode()} ({error})", where=where) from None
            rest = stream.unused_data if stream.eof else stream.unconsumed_tail
            total += len(part)
            if total > largest_bytes:
                raise TooLargeInside(f"the body has more than {largest_bytes} bytes once it is decompressed")
            hold(len(part))
            parts.append(part)
            if total >= STEP_BYTES or begin:
                await asyncio.sleep(0)
    if not stream.eof:
        raise InvalidInput("the body ends before what is compressed does", where=where)
    return b"".join(parts)


def chosen_encoding(accepted: bytes) -> bytes | None:
    weights = dict(_weighted(choice) for choice in accepted.lower().split(b","))
    for encoding in (GZIP, DEFLATE):
        if weights.get(encoding, weights.get(b"*", 0.0)) > 0:
            return encoding
    return None


def _weighted(choice: bytes) -> tuple[bytes, float]:
    name, _, weight = choice.partition(b";")
    try:
        return name.strip(), float(weight.strip().removeprefix(b"q=") or 1.0)
    except ValueError:
        return name.strip(), 0.0


async def compress(body: Sequence[bytes | memoryview], encoding: bytes) -> list[bytes | memoryview]:
    stream = zlib.compressobj(LEVEL, zlib.DEFLATED, _WINDOW_BITS[encoding])
    compressed: list[bytes | memoryview] = []
    since_step_bytes = 0
    for part in body:
        for begin in range(0, len(part), STEP_BYTES):
            compressed.append(stream.compress(part[begin : begin + STEP_BYTES]))
            since_step_bytes += min(STEP_BYTES, len(part) - begin)
            if since_step_bytes >= STEP_BYTES:
                since_step_bytes = 0
                await asyncio.sleep(0)
    return [*compressed, stream.flush()]
