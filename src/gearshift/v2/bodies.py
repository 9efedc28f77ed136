"""Structs of the Open Inference Protocol V2: JSON bodies, and a request in any encoding."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, UnsetType

from gearshift.model import DATATYPES, Arrays
from gearshift.request import LEAST_URGENT, BulkWork

LONGEST_TIMEOUT_US = 1 << 52
NO_INPUTS: Arrays = {}


class InferRequest(msgspec.Struct, frozen=True):
    """A request that fits the operator: arrays of `rows` rows, and its parameters.

    `outputs` are the requested names, None for all.  `timeout_us` is 0 if absent; `bulk` None if the
    request is no bulk work.  `binary_output` and, by name, `binary_outputs` choose outputs as raw
    bytes if the protocol leaves a choice. With `columns`, inputs of one value for each row came as (n, 1), and
    outputs are answered so.
    """

    id: str
    inputs: Arrays
    rows: int
    priority: int
    timeout_us: int
    outputs: tuple[str, ...] | None
    binary_output: bool = False
    binary_outputs: Mapping[str, bool] | None = None
    bulk: BulkWork | None = None
    columns: bool = False

    def without_inputs(self) -> "InferRequest":
        """Return the part that the answer needs, so that only backends hold the arrays."""
        return InferRequest(
            self.id,
            NO_INPUTS,
            self.rows,
            self.priority,
            self.timeout_us,
            self.outputs,
            self.binary_output,
            self.binary_outputs,
            columns=self.columns,
        )

    def wants_binary(self, output: str) -> bool:
        if self.binary_outputs is None:
            return self.binary_output
        return self.binary_outputs.get(output, self.binary_output)


# Requests in JSON --------------------------------------------------------------------------------
# An optional member may also be null, with the same meaning.


def _bounds(**bounds: int) -> msgspec.Meta:
    """Put bounds into the JSON schema only; `v2` checks them, with a better message."""
    return msgspec.Meta(extra_json_schema=bounds)


class InputParameters(msgspec.Struct):
    """Bytes of the tensor after the JSON; shared memory is refused."""

    binary_data_size: Annotated[int | None, _bounds(minimum=0)] = None
    shared_memory_region: str | None = None


class InputTensor(msgspec.Struct):
    """An input: its data flat or nested as its shape is, or as bytes after the JSON."""

    name: str
    shape: list[Annotated[int, _bounds(minimum=1)]]
    datatype: str
    data: msgspec.Raw | UnsetType = UNSET
    parameters: InputParameters | None = None


class AskedParameters(msgspec.Struct):
    """Whether an output is wanted in binary; classification and shared memory are refused."""

    binary_data: bool | None = None
    classification: int | None = None
    shared_memory_region: str | None = None


class AskedOutput(msgspec.Struct):
    """A requested output."""

    name: str
    parameters: AskedParameters | None = None


class InferParameters(msgspec.Struct):
    """Priority, timeout and encoding of outputs, and whether the request is bulk work.

    `priority` is 1 for the most urgent, 0 for the operator's default; `timeout` is in
    microseconds, 0 for none; `binary_data_output` asks for all outputs in binary. Bulk work waits
    behind all other requests and is not metered. It keeps the cascades of `gear`, or of the cheapest gear that
    is predicted to reach `accuracy`; by default the accuracy of the plan's objective counts.
    """

    priority: Annotated[int | None, _bounds(minimum=0, maximum=LEAST_URGENT)] = None
    timeout: Annotated[int | None, _bounds(minimum=0, maximum=LONGEST_TIMEOUT_US)] = None
    binary_data_output: bool | None = None
    bulk: bool | None = None
    gear: Annotated[int | None, _bounds(minimum=0)] = None
    accuracy: float | None = None


class InferBody(msgspec.Struct):
    """A request for inference; without `outputs`, or with an empty list, all are answered."""

    inputs: list[InputTensor]
    id: str | None = None
    parameters: InferParameters | None = None
    outputs: list[AskedOutput] | None = None


class IndexBody(msgspec.Struct):
    """A request for the index; with `ready`, only ready models."""

    ready: bool | None = None


# Answers in JSON ---------------------------------------------------------------------------------


class BinarySize(msgspec.Struct):
    """Bytes of the tensor after the JSON."""

    binary_data_size: int


class AnsweredTensor(msgspec.Struct):
    """An output: its data as a flat list, or as bytes after the JSON."""

    name: str
    datatype: Literal[tuple(DATATYPES)]  # type: ignore[valid-type]
    shape: Sequence[int]
    data: list[bool | int | float | str | None] | UnsetType = UNSET
    parameters: BinarySize | UnsetType = UNSET


class HowAnswered(msgspec.Struct):
    """The gear at the end, the longest queueing and run time of any row, and the outcome.

    `degraded` answers lack a later model of the cascade, `late` ones came after the deadline. Of a
    pipeline `gearshift_missing` has the nodes without an answer, with `node`, `row` and `reason`,
    and with `is_output` where the row has no answer at all; `gearshift_cut` has the fan-outs that
    took a part of their `rows`; both are lists in JSON.
    """

    gear: int
    queue_s: float
    run_s: float
    outcome: Literal["answered", "degraded", "late"]
    reason: str | UnsetType = UNSET
    remaining_s: float | UnsetType = UNSET
    gearshift_missing: str | UnsetType = UNSET
    gearshift_cut: str | UnsetType = UNSET


class InferAnswer(msgspec.Struct, kw_only=True):
    """The answer to an inference."""

    model_name: str
    model_version: str
    id: str | UnsetType = UNSET
    parameters: HowAnswered
    outputs: Sequence[AnsweredTensor]
