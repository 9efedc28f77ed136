"""The JSON of a client's last request but for the data of its tensor: most clients say the rest again word by word.

    {"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [0.1, 0.2, 0.3, 0.4]}]}
    before                                                                 data                 after

An array in JSON ends where its bracket does, so whatever array stands there, the rest says the same.
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
"""After so many bodies unlike the one before, a connection's are not kept any more."""


class KnownBody:
    """What a request with one tensor said, within `limits`."""

    __slots__ = ("_after", "_before", "_limits", "_request", "_shape", "_spec")

    def __init__(
        self, before: bytes, after: bytes, shape: list[int], request: InferRequest, spec: TensorSpec, limits: Limits
    ) -> None:
        self._before, self._after, self._shape = before, after, shape
        self._request, self._spec, self._limits = msgspec.structs.replace(request, inputs={}), spec, limits

    @classmethod
    def of(cls, body: bytes, request: InferRequest, inputs: Mapping[str, TensorSpec], limits: Limits) -> Self | None:
        """What is kept of `body`, that was read as `request`; None where it has several tensors, or is long without."""
        if len(inputs) > 1:
            return None
        (tensor,) = v2_json.decode_body(body).inputs
        data = b"" if tensor.data is msgspec.UNSET else bytes(tensor.data)
        if data[:1] != b"[" or len(body) - len(data) > LARGEST_BYTES or body.count(data) != 1:
            return None
        before, _, after = body.partition(data)
        return cls(before, after, tensor.shape, request, inputs[tensor.name], limits)

    def read(self, body: bytes, limits: Limits) -> InferRequest | None:
        """The request in `body`; None where it says something else than data, where that does not fit, or `limits`."""
        before, after, request = self._before, self._after, self._request
        begin, end = len(before), len(body) - len(after)
        if limits is not self._limits or end <= begin or not body.startswith(before) or not body.endswith(after):
            return None
        name = self._spec.name
        try:
            array = v2_json.numbers(memoryview(body)[begin:end], self._shape, self._spec, name)
        except InvalidInput:
            return None  # who reads all of it says what is wrong
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
