"""Reuse what a client's requests repeat: most have the same head, and the same JSON around their data.

    {"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [0.1, 0.2, 0.3, 0.4]}]}
    before                                                                 data                 after

The meaning of a head, but for the body's length, follows from its bytes only, so equal bytes need not
be parsed again.  An array in JSON ends with its bracket, so the rest means the same whatever array
stands there.
"""

import re
from collections.abc import Mapping
from typing import Self

import msgspec

from gearshift.errors import InvalidInput
from gearshift.model import TensorSpec
from gearshift.v2 import json as v2_json
from gearshift.v2.bodies import InferRequest
from gearshift.v2.tensors import Limits, as_rows

METHOD = "POST"
CONTENT_LENGTH, EXPECT = b"content-length", b"expect"
HEAD_END = b"\r\n\r\n"
LARGEST_HEAD_BYTES, LARGEST_BODY_BYTES, MOST_HEADERS = 1 << 10, 1 << 10, 32
"""Bounds on a kept head and, without its data, body, since each connection may keep one."""
MOST_IN_VAIN = 8
"""After this many bodies that differ from the previous one, a connection stops keeping bodies."""
MOST_DIGITS = 7
_BEGIN = b"POST "
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,%d})\r\n" % MOST_DIGITS, re.IGNORECASE)


class KnownBody:
    """The JSON around the data of a request with one tensor, parsed within `limits`."""

    __slots__ = ("_after", "_before", "_limits", "_request", "_shape", "_spec")

    def __init__(
        self, before: bytes, after: bytes, shape: list[int], request: InferRequest, spec: TensorSpec, limits: Limits
    ) -> None:
        self._before, self._after, self._shape = before, after, shape
        self._request, self._spec, self._limits = msgspec.structs.replace(request, inputs={}), spec, limits

    @classmethod
    def of(cls, body: bytes, request: InferRequest, inputs: Mapping[str, TensorSpec], limits: Limits) -> Self | None:
        """Keep `body`, parsed as `request`; None with several tensors, or if long without data."""
        if len(inputs) > 1:
            return None
        (tensor,) = v2_json.decode_body(body).inputs
        data = b"" if tensor.data is msgspec.UNSET else bytes(tensor.data)
        if data[:1] != b"[" or len(body) - len(data) > LARGEST_BODY_BYTES or body.count(data) != 1:
            return None
        before, _, after = body.partition(data)
        return cls(before, after, tensor.shape, request, inputs[tensor.name], limits)

    def read(self, body: bytes, limits: Limits) -> InferRequest | None:
        """Parse `body`; None if more than data differs, data does not fit, or `limits` changed."""
        before, after, request = self._before, self._after, self._request
        begin, end = len(before), len(body) - len(after)
        if limits is not self._limits or end <= begin or not body.startswith(before) or not body.endswith(after):
            return None
        name = self._spec.name
        try:
            array = v2_json.numbers(memoryview(body)[begin:end], self._shape, self._spec, name)
        except InvalidInput:
            return None  # the full parser reports the error
        return InferRequest(
            request.id,
            {name: as_rows(array, self._spec)},
            request.rows,
            request.priority,
            request.timeout_us,
            request.outputs,
            request.binary_output,
            request.binary_outputs,
            request.bulk,
            request.columns,
        )


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
        if not data.startswith(_BEGIN) or not len(HEAD_END) <= end <= LARGEST_HEAD_BYTES:
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
