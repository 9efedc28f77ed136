"""What the Open Inference Protocol V2 carries, as structs: bodies in JSON, and a request whatever it was written in."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec

from gearshift.model import Arrays
from gearshift.request import LEAST_URGENT

LONGEST_TIMEOUT_US = 1 << 52
NO_INPUTS: Arrays = {}


class InferRequest(msgspec.Struct, frozen=True):
    """A request that fits the operator: arrays of `rows` rows, and what was asked beside.

    `outputs` are the names asked for, None for all.  `timeout_us` is 0 when absent.  `binary_output` and, by name,
    `binary_outputs` say which outputs are wanted as raw bytes where the protocol leaves a choice.
    """

    id: str
    inputs: Arrays
    rows: int
    priority: int
    timeout_us: int
    outputs: tuple[str, ...] | None
    binary_output: bool = False
    binary_outputs: Mapping[str, bool] | None = None

    def without_inputs(self) -> "InferRequest":
        """What the answer needs of it, so that the arrays are held by those alone who run them."""
        return InferRequest(
            self.id,
            NO_INPUTS,
            self.rows,
            self.priority,
            self.timeout_us,
            self.outputs,
            self.binary_output,
            self.binary_outputs,
        )

    def wants_binary(self, output: str) -> bool:
        """Whether `output` is wanted as raw bytes."""
        if self.binary_outputs is None:
            return self.binary_output
        return self.binary_outputs.get(output, self.binary_output)


# Requests in JSON -----------------------------------------------------------------------------------------------------
# A member that may be left out may be null, which means the same.


def _bounds(**bounds: int) -> msgspec.Meta:
    """What the description says of a number; the check itself, with a better sentence, is in `v2`."""
    return msgspec.Meta(extra_json_schema=bounds)


class InputParameters(msgspec.Struct):
    """How many bytes after the JSON are the tensor's; shared memory is refused."""

    binary_data_size: Annotated[int | None, _bounds(minimum=0)] = None
    shared_memory_region: str | None = None


class InputTensor(msgspec.Struct):
    """An input: its data flat or nested as its shape is, or in binary after the JSON."""

    name: str
    shape: list[Annotated[int, _bounds(minimum=1)]]
    datatype: str
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    parameters: InputParameters | None = None


class AskedParameters(msgspec.Struct):
    """Whether an output is wanted in binary; classification and shared memory are refused."""

    binary_data: bool | None = None
    classification: int | None = None
    shared_memory_region: str | None = None


class AskedOutput(msgspec.Struct):
    """An output that is wanted."""

    name: str
    parameters: AskedParameters | None = None


class InferParameters(msgspec.Struct):
    """Priority, 1 first and 0 for the operator's; timeout in microseconds, 0 for none; all outputs in binary."""

    priority: Annotated[int | None, _bounds(minimum=0, maximum=LEAST_URGENT)] = None
    timeout: Annotated[int | None, _bounds(minimum=0, maximum=LONGEST_TIMEOUT_US)] = None
    binary_data_output: bool | None = None


class InferBody(msgspec.Struct):
    """A request for inference; without `outputs`, or with none of them, all are answered."""

    inputs: list[InputTensor]
    id: str | None = None
    parameters: InferParameters | None = None
    outputs: list[AskedOutput] | None = None


class IndexBody(msgspec.Struct):
    """A request for the index, perhaps of what is ready alone."""

    ready: bool | None = None


# Answers in JSON ------------------------------------------------------------------------------------------------------


class WrittenTensor(msgspec.Struct):
    """An output: its data flat, or in binary after the JSON."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    data: list[Any] | msgspec.UnsetType = msgspec.UNSET
    parameters: dict[str, int] | msgspec.UnsetType = msgspec.UNSET


class WrittenAnswer(msgspec.Struct):
    """An answer, as `openapi.InferAnswer` describes it."""

    model_name: str
    model_version: str
    id: str | msgspec.UnsetType
    parameters: dict[str, Any]
    outputs: Sequence[WrittenTensor]
