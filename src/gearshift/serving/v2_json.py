"""The Open Inference Protocol V2 in JSON: requests checked and turned into arrays, answers turned into text."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from gearshift import __version__
from gearshift.errors import InvalidInput, require
from gearshift.model import DATATYPES, Arrays, TensorSpec
from gearshift.request import LEAST_URGENT, Answer, RowFacts
from gearshift.runtime.transport import datatype_named

MODEL_VERSION = "1"
MOST_ROWS = 1 << 20
LONGEST_TIMEOUT_US = 1 << 52
ROW_FACTS = ("gearshift_model", "gearshift_stage", "gearshift_certainty", "gearshift_exit_segment")

_FLOATS = frozenset({"FP16", "FP32", "FP64"})


class _Input(msgspec.Struct):
    name: str
    shape: list[int]
    datatype: str
    data: msgspec.Raw


class _Output(msgspec.Struct):
    name: str


class _Parameters(msgspec.Struct):
    priority: int = 0
    timeout: int = 0


class _Body(msgspec.Struct):
    inputs: list[_Input]
    id: str = ""
    parameters: _Parameters = msgspec.field(default_factory=_Parameters)
    outputs: list[_Output] | None = None


@dataclass(frozen=True, slots=True)
class InferRequest:
    """A request that fits the operator: arrays of `rows` rows, and what was asked beside.

    `outputs` are the names asked for, None for all.  `timeout_us` is 0 when absent.
    """

    id: str
    inputs: Arrays
    rows: int
    priority: int
    timeout_us: int
    outputs: tuple[str, ...] | None


_BODY = msgspec.json.Decoder(_Body)
_ENCODER = msgspec.json.Encoder()


# Requests ------------------------------------------------------------------------------------------------------------


def parse_request(body: bytes, inputs: Mapping[str, TensorSpec], outputs: Sequence[str]) -> InferRequest:
    """The request in `body`; raises `InvalidInput` that names the field and the reason.

    `outputs` are the names of the operator's outputs; without any, every name is let through.
    """
    try:
        request = _BODY.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"the body is no inference request: {error}") from None
    arrays = _arrays(request.inputs, inputs)
    rows = len(next(iter(arrays.values())))
    for name, array in arrays.items():
        require(len(array) == rows, f"has {len(array)} rows, other inputs have {rows}", where=f"input {name!r}")
    priority, timeout_us = request.parameters.priority, request.parameters.timeout
    require(0 <= priority <= LEAST_URGENT, f"priority is {priority}, needs 0 to {LEAST_URGENT}", where="parameters")
    require(0 <= timeout_us <= LONGEST_TIMEOUT_US, f"timeout is {timeout_us} microseconds", where="parameters")
    return InferRequest(
        id=request.id,
        inputs=arrays,
        rows=rows,
        priority=priority,
        timeout_us=timeout_us,
        outputs=None if request.outputs is None else _known_outputs(request.outputs, outputs),
    )


def _arrays(given: Sequence[_Input], specs: Mapping[str, TensorSpec]) -> dict[str, NDArray[Any]]:
    arrays: dict[str, NDArray[Any]] = {}
    for tensor in given:
        where = f"input {tensor.name!r}"
        spec = specs.get(tensor.name)
        if spec is None:
            raise InvalidInput("there is no such input", where=where, remedy=f"the inputs are {sorted(specs)}")
        require(tensor.name not in arrays, "is given twice", where=where)
        arrays[tensor.name] = _array(tensor, spec, where)
    missing = sorted(specs.keys() - arrays.keys())
    require(not missing, f"inputs {missing} are missing")
    return {name: arrays[name] for name in specs}


def _array(tensor: _Input, spec: TensorSpec, where: str) -> NDArray[Any]:
    require(tensor.datatype == spec.datatype, f"datatype is {tensor.datatype!r}, needs {spec.datatype!r}", where=where)
    _check_shape(tensor.shape, spec.shape, where)
    array = _numbers(bytes(tensor.data), tensor.shape, spec.datatype, where)
    if spec.datatype in _FLOATS and not np.isfinite(array).all():
        raise InvalidInput(f"data has a number that is not finite in {spec.datatype}", where=where)
    return array


def _check_shape(shape: list[int], wanted: tuple[int, ...], where: str) -> None:
    fits = len(shape) == len(wanted) and all(n >= 1 and w in (n, -1) for n, w in zip(shape, wanted, strict=True))
    require(fits, f"shape is {shape}, needs {list(wanted)}, -1 being any number from 1", where=where)
    require(shape[0] <= MOST_ROWS, f"shape has {shape[0]} rows, at most {MOST_ROWS} are taken", where=where)


def _numbers(data: bytes, shape: list[int], datatype: str, where: str) -> NDArray[Any]:
    """The array in `data`, written flat or nested as its shape is."""
    nested = len(shape) > 1 and data.lstrip()[:1] == b"[" and data.lstrip()[1:].lstrip()[:1] == b"["
    try:
        values = _decoder(datatype, len(shape) if nested else 1).decode(data)
        with np.errstate(over="ignore"):
            array = np.array(values, dtype=DATATYPES[datatype])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"data does not fit {datatype}: {error}", where=where) from None
    except OverflowError:
        raise InvalidInput(f"data has a number out of the range of {datatype}", where=where) from None
    except ValueError:
        raise InvalidInput("data is nested unevenly", where=where, remedy="write it flat or as its shape is") from None
    if nested:
        require(array.shape == tuple(shape), f"data has shape {list(array.shape)}, shape says {shape}", where=where)
        return array
    expected = math.prod(shape)
    require(len(array) == expected, f"data has {len(array)} elements, shape says {expected}", where=where)
    return array.reshape(shape)


@cache
def _decoder(datatype: str, depth: int) -> msgspec.json.Decoder[Any]:
    element: Any = int
    if datatype == "BYTES":
        element = str
    elif datatype == "BOOL":
        element = bool
    elif datatype in _FLOATS:
        element = float
    for _ in range(depth):
        element = list[element]
    return msgspec.json.Decoder(element)


def _known_outputs(asked: Sequence[_Output], known: Sequence[str]) -> tuple[str, ...]:
    for output in asked:
        if known and output.name not in known and output.name not in ROW_FACTS:
            raise InvalidInput(
                "there is no such output", where=f"output {output.name!r}", remedy=f"the outputs are {sorted(known)}"
            )
    return tuple(dict.fromkeys(output.name for output in asked))


# Answers -------------------------------------------------------------------------------------------------------------


def encode_answer(operator: str, request: InferRequest, answer: Answer) -> bytes:
    """The answer as the protocol's JSON; raises `InvalidInput` when an output asked for was not answered."""
    arrays: Any = answer.outputs
    if request.outputs is not None:
        arrays = _selected(request.outputs, arrays, answer.rows)
    response: dict[str, Any] = {"model_name": operator, "model_version": MODEL_VERSION}
    if request.id:
        response["id"] = request.id
    response["parameters"] = {
        "gear": answer.gear,
        "queue_s": answer.queue_s,
        "run_s": answer.run_s,
        "outcome": answer.outcome,
    }
    if answer.outcome == "degraded":
        response["parameters"]["reason"] = answer.reason
    response["outputs"] = [_tensor(name, array) for name, array in arrays.items()]
    return _ENCODER.encode(response)


def _selected(names: Sequence[str], outputs: Arrays, rows: Sequence[RowFacts]) -> dict[str, NDArray[Any]]:
    selected = {}
    for name in names:
        if name in ROW_FACTS:
            selected[name] = _row_facts(name, rows)
        elif name in outputs:
            selected[name] = outputs[name]
        else:
            raise InvalidInput(
                "there is no such output", where=f"output {name!r}", remedy=f"the outputs are {sorted(outputs)}"
            )
    return selected


def _row_facts(name: str, rows: Sequence[RowFacts]) -> NDArray[Any]:
    match name:
        case "gearshift_model":
            return np.array([row.model for row in rows], dtype=object)
        case "gearshift_stage":
            return np.array([row.stage for row in rows], dtype=np.int64)
        case "gearshift_certainty":
            return np.array([row.certainty for row in rows], dtype=np.float64)
        case _:
            return np.array([row.exit_segment for row in rows], dtype=np.int64)


def _tensor(name: str, array: NDArray[Any]) -> dict[str, Any]:
    datatype = datatype_named(array.dtype)
    data = array.ravel().tolist()
    if datatype == "BYTES":
        data = [item.decode(errors="replace") if isinstance(item, bytes) else str(item) for item in data]
    return {"name": name, "datatype": datatype, "shape": array.shape, "data": data}


# Metadata ------------------------------------------------------------------------------------------------------------


def server_metadata() -> bytes:
    """`GET /v2`."""
    return _ENCODER.encode({"name": "gearshift", "version": __version__, "extensions": []})


def model_metadata(operator: str, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> bytes:
    """`GET /v2/models/{operator}`."""
    return _ENCODER.encode(
        {
            "name": operator,
            "versions": [MODEL_VERSION],
            "platform": "gearshift",
            "inputs": inputs,
            "outputs": outputs,
        }
    )


def encode_error(text: str) -> bytes:
    """An error as the protocol has it."""
    return _ENCODER.encode({"error": text})


def encode_readiness(name: str, ready: bool) -> bytes:
    """`GET /v2/models/{operator}/ready`."""
    return _ENCODER.encode({"name": name, "ready": ready})
