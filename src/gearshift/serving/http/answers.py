"""Answers in JSON, as OpenAPI describes them; those that tell of the server are in `door.metadata`."""

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from gearshift.model import DATATYPES


class Error(msgspec.Struct):
    """Why a request was refused or failed."""

    error: str


class Live(msgspec.Struct):
    """The process is alive."""

    live: bool


class Ready(msgspec.Struct):
    """Requests are accepted, and every model has a replica."""

    ready: bool
    name: str | UnsetType = UNSET


class BinarySize(msgspec.Struct):
    """Bytes of the tensor after the JSON."""

    binary_data_size: int


class AnsweredTensor(msgspec.Struct):
    """An output: its data as a flat list, or as bytes after the JSON."""

    name: str
    datatype: Literal[tuple(DATATYPES)]  # type: ignore[valid-type]
    shape: list[int]
    data: list[bool | int | float | str | None] | UnsetType = UNSET
    parameters: BinarySize | UnsetType = UNSET


class HowAnswered(msgspec.Struct):
    """The gear at the end, the longest queueing and run time of any row, and the outcome.

    `degraded` answers lack a later model of the cascade, `late` ones came after the deadline.
    """

    gear: int
    queue_s: float
    run_s: float
    outcome: Literal["answered", "degraded", "late"]
    reason: str | UnsetType = UNSET
    remaining_s: float | UnsetType = UNSET


class InferAnswer(msgspec.Struct):
    """The answer to an inference."""

    model_name: str
    model_version: str
    parameters: HowAnswered
    outputs: list[AnsweredTensor]
    id: str | UnsetType = UNSET
