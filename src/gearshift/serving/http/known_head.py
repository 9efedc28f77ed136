"""Reuse a client's parsed head: most clients repeat it, except for the body's length.

The meaning of a head follows from its bytes only, so equal bytes need not be parsed again.
"""

import re
from collections.abc import Mapping
from typing import Self

from gearshift.serving.http.known_body import MOST_IN_VAIN, KnownBody

METHOD = "POST"
CONTENT_LENGTH, EXPECT = b"content-length", b"expect"
HEAD_END = b"\r\n\r\n"
LARGEST_BYTES, MOST_HEADERS = 1 << 10, 32
"""Bounds on a kept head, since each connection may keep one."""
MOST_DIGITS = 7
_BEGIN = b"POST "
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,%d})\r\n" % MOST_DIGITS, re.IGNORECASE)


class KnownHead:
    """The head of a `POST` with a length, and its parsed headers."""

    __slots__ = ("_after", "_before", "_headers", "bodies_left", "body", "path")

    def __init__(self, before: bytes, after: bytes, path: str, headers: dict[bytes, bytes]) -> None:
        self._before, self._after = before, after
        self._headers, self.path = headers, path
        self.body: KnownBody | None = None
        self.bodies_left = MOST_IN_VAIN
        """The last body that came with this head, and how many more may be kept in vain."""

    @classmethod
    def of(cls, data: bytes, path: str, headers: Mapping[bytes, bytes]) -> Self | None:
        """Keep the head in `data`; None unless it is plain and `data` is exactly that request."""
        end = data.find(HEAD_END) + len(HEAD_END)
        if not data.startswith(_BEGIN) or not len(HEAD_END) <= end <= LARGEST_BYTES:
            return None
        length = _LENGTH.search(data, 0, end)
        if length is None or headers.get(CONTENT_LENGTH) != length[1] or end + int(length[1]) != len(data):
            return None
        if EXPECT in headers or len(headers) > MOST_HEADERS:
            return None
        return cls(data[: length.start(1)], data[length.end(1) : end], path, dict(headers))

    def read(self, data: bytes) -> tuple[dict[bytes, bytes], bytes] | None:
        """Return headers and body if `data` is a request with this head and any length."""
        if not data.startswith(self._before):
            return None
        begin = len(self._before)
        end = data.find(b"\r", begin, begin + MOST_DIGITS + 1)
        digits, body_at = data[begin:end], end + len(self._after)
        if (
            end < 0
            or not digits.isdigit()
            or not data.startswith(self._after, end)
            or body_at + int(digits) != len(data)
        ):
            return None
        if digits == self._headers[CONTENT_LENGTH]:
            return self._headers, data[body_at:]
        return {**self._headers, CONTENT_LENGTH: digits}, data[body_at:]
