"""Reuse the parsed JSON around a tensor's data: most clients repeat it byte by byte.

    {"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [0.1, 0.2, 0.3, 0.4]}]}
    before                                                                 data                 after

An array in JSON ends with its bracket, so the rest means the same whatever array stands there.
"""

from collections.abc import Mapping
from typing import Self

import msgspec

from gearshift.errors import InvalidInput
from gearshift.model import TensorSpec
from gearshift.v2 import json as v2_json
from gearshift.v2.bodies import InferRequest
from gearshift.v2.tensors import Limits

LARGEST_BYTES = 1 << 10
MOST_IN_VAIN = 8
"""After this many bodies that differ from the previous one, a connection stops keeping bodies."""


class KnownBody:
    """A request with one tensor, without its data, within `limits`."""

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
        if data[:1] != b"[" or len(body) - len(data) > LARGEST_BYTES or body.count(data) != 1:
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
            {name: array},
            request.rows,
            request.priority,
            request.timeout_us,
            request.outputs,
            request.binary_output,
            request.binary_outputs,
        )
