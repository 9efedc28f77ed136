"""Cut JSON text into pieces that take a few milliseconds each."""

import re
from collections.abc import Iterator

STEP_BYTES = 128 << 10

_END_OF_ESCAPE = re.compile(rb"(?:\\u[dD][89abAB][0-9a-fA-F]{2})?(?:\\(?:u[0-9a-fA-F]{0,3})?)?\Z")
"""An escape that is not whole, or the first half of a pair; needs text from `without_escapes`."""
_LONGEST_ESCAPE = len(rb"\ud83d\ude0")
_LONGEST_CHARACTER = 4


def pieces(text: memoryview, step_bytes: int, *, in_strings: bool = False) -> Iterator[bytes | None]:
    """Cut `text` at commas outside strings, which are left out; `text` is the inside of a JSON array, or a value.

    Each step looks at `step_bytes`, an even number; it yields None if they contain no such comma,
    as in a long string. With `in_strings` a long string is cut between two of its characters.
    """
    begin = at = quotes = 0
    while at + step_bytes < len(text):
        step = bytes(text[at : at + step_bytes])
        step = step.rstrip(b"\\") or step  # never cut within an escape
        plain = without_escapes(step)
        comma = _last_comma(plain, quotes)
        if comma >= 0:
            quotes = plain.count(b'"', comma)
            yield bytes(text[begin : at + comma])
            begin = at + comma + 1
        elif in_strings and (quotes + plain.count(b'"')) % 2:
            step, quotes = step[: _whole_characters(plain)], 1
            yield bytes(text[begin : at + len(step)])
            begin = at + len(step)
        else:
            quotes += plain.count(b'"')
            yield None
        at += len(step)
    yield bytes(text[begin:])


def _last_comma(plain: bytes, quotes: int) -> int:
    """Find the last comma outside strings after `quotes` earlier quotes; -1 without any."""
    comma = plain.rfind(b",")
    quotes += plain.count(b'"', 0, max(0, comma))
    while comma >= 0 and quotes % 2:  # it is inside a string
        earlier = plain.rfind(b",", 0, max(0, plain.rfind(b'"', 0, comma)))
        quotes -= plain.count(b'"', max(0, earlier), comma)
        comma = earlier
    return comma


def _whole_characters(plain: bytes) -> int:
    """The length of `plain`, which ends in a string, without a character at its end of which more may follow."""
    size = len(plain)
    if plain[-1] < 0x80:
        ending = _END_OF_ESCAPE.search(plain, max(0, size - _LONGEST_ESCAPE))
        return size if ending is None else ending.start()
    for back in range(1, min(_LONGEST_CHARACTER, size) + 1):
        if plain[-back] >= 0xC0:
            return size - back
    return size


def without_escapes(piece: bytes) -> bytes:
    """Mask escapes, at the same length, so that each quote begins or ends a string."""
    return piece.replace(b"\\\\", b"__").replace(b'\\"', b"__") if b"\\" in piece else piece
