"""The head of a client's last request: most clients send the same one again, but for the length of the body.

What a head says follows from its bytes alone, so that the same bytes need not be parsed again.
"""

import re
from collections.abc import Mapping
from typing import Self

from gearshift.serving.known_body import MOST_IN_VAIN, KnownBody

METHOD = "POST"
CONTENT_LENGTH, EXPECT = b"content-length", b"expect"
LARGEST_BYTES = 2 << 10
MOST_DIGITS = 7
_BEGIN, _END = b"POST ", b"\r\n\r\n"
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,%d})\r\n" % MOST_DIGITS, re.IGNORECASE)


class KnownHead:
    """The head of a `POST` with a length, and what the parser made of it."""

    __slots__ = ("_after", "_before", "_head", "_headers", "_request_bytes", "bodies_left", "body", "path")

    def __init__(self, head: bytes, length: re.Match[bytes], path: str, headers: dict[bytes, bytes]) -> None:
        self._head, self._request_bytes = head, len(head) + int(length[1])
        self._before, self._after = head[: length.start(1)], head[length.end(1) :]
        self._headers, self.path = headers, path
        self.body: KnownBody | None = None
        self.bodies_left = MOST_IN_VAIN
        """For whoever reads bodies: the last one that came with this head, and how many more may be kept in vain."""

    @classmethod
    def of(cls, data: bytes, path: str, headers: Mapping[bytes, bytes]) -> Self | None:
        """The head of the request that `data` begins with; None unless it is plain and `data` is that request alone."""
        end = data.find(_END) + len(_END)
        if not data.startswith(_BEGIN) or not len(_END) <= end <= LARGEST_BYTES or EXPECT in headers:
            return None
        head = data[:end]
        length = _LENGTH.search(head)
        if length is None or headers.get(CONTENT_LENGTH) != length[1] or end + int(length[1]) != len(data):
            return None
        return cls(head, length, path, dict(headers))

    def read(self, data: bytes) -> tuple[dict[bytes, bytes], bytes] | None:
        """Headers and body, where `data` is a request with this head and nothing more; the length may be another."""
        if data.startswith(self._head):
            return (self._headers, data[len(self._head) :]) if len(data) == self._request_bytes else None
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
        return {**self._headers, CONTENT_LENGTH: digits}, data[body_at:]
