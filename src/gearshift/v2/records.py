"""Plain JSON records beside the protocol: an object for each row, with a field for each input."""

import math
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from gearshift.errors import InvalidInput, require
from gearshift.model import DATATYPES, TensorSpec
from gearshift.request import Answer
from gearshift.v2.bodies import InferRequest
from gearshift.v2.json import elements, encode
from gearshift.v2.tensors import (
    FLOATS,
    Limits,
    answered_arrays,
    declared_input,
    may_be_left_out,
    require_finite,
    whole_request,
)

MOST_NAMED = 8
MOST_SHOWN = 64
MOST_DIGITS = 40
MOST_BYTES = 64 << 10
"""The largest body of records: it takes some milliseconds, and up to 20 where numbers are written as texts."""
_TRUE_OR_FALSE: dict[Any, bool] = {1: True, 0: False, "1": True, "0": False, "true": True, "false": False}


def parse_records(body: bytes, inputs: Mapping[str, TensorSpec], limits: Limits) -> tuple[InferRequest, bool]:
    """The request of one record, or of a list of them, and whether it was one alone.

    A field is a number, a text, or for a tensor of more dimensions a list. Numbers are taken however
    they are written: 1, 1.0 and "1". One that may be null may be left out.
    Raises `InvalidInput` with the record and the field.
    """
    try:
        decoded = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"the body is no JSON: {error}") from None
    alone = isinstance(decoded, dict)
    records = [decoded] if alone else decoded
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise InvalidInput("the body is neither a record nor a list of records", remedy=_example(inputs))
    require(len(records) > 0, "the list of records is empty", remedy=_example(inputs))
    most_rows = limits.most_rows or len(records)
    require(
        len(records) <= most_rows,
        f"there are {len(records)} records, at most {most_rows} are taken",
        remedy="send fewer records at once, or serve with --most-rows",
    )
    arrays = {name: _column(records, spec, alone) for name, spec in inputs.items()}
    for number, record in enumerate(records):
        if not record.keys() <= inputs.keys():
            unknown = next(name for name in record if name not in inputs)
            raise InvalidInput(
                f"there is no such input; the inputs are {_named(inputs)}", where=_where(number, str(unknown), alone)
            )
    for name, spec in inputs.items():
        declared_input(name, spec.datatype, arrays[name].shape, inputs, limits)
    return whole_request(arrays, inputs), alone


def encode_records(request: InferRequest, answer: Answer, alone: bool) -> bytes:
    """The outputs of each row by name; raises `NotAcceptable` where JSON cannot carry one."""
    columns = {}
    for name, array in answered_arrays(request, answer).items():
        whole = np.empty(array.size, dtype=object)
        whole[:] = elements(name, array)
        columns[name] = whole.reshape(array.shape).tolist()
    records = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return encode(records[0] if alone else records)


def _column(records: list[dict[str, Any]], spec: TensorSpec, alone: bool) -> NDArray[Any]:
    lacking = next((number for number, record in enumerate(records) if spec.name not in record), None)
    if lacking is not None and not may_be_left_out(spec):
        where = _where(lacking, spec.name, alone)
        raise InvalidInput("is missing", where=where, remedy=_example({spec.name: spec}))
    values = [record.get(spec.name) for record in records]
    if not _plain_numbers(values, spec):
        cells = enumerate(values)
        values = [_cell(one, len(spec.shape) - 1, spec, _where(number, spec.name, alone)) for number, one in cells]
    try:
        with np.errstate(over="ignore"):
            array = np.array(values, dtype=DATATYPES[spec.datatype])
    except (ValueError, OverflowError) as error:
        uneven = "inhomogeneous" in str(error)
        what = "holds lists of different lengths" if uneven else f"has a number out of the range of {spec.datatype}"
        raise InvalidInput(what, where=f"input {spec.name!r}") from None
    if array.ndim == 1 and spec.shape[1:] == (1,):
        array = array[:, None]
    require_finite(array, spec)
    return array


def _plain_numbers(values: list[Any], spec: TensorSpec) -> bool:
    """Whether all are numbers that the tensor takes as they are: no look at each is needed then."""
    if spec.datatype in ("BYTES", "BOOL") or any(_holds_text(value) for value in values):
        return False
    try:
        array = np.asarray(values)
    except (ValueError, OverflowError):
        return False
    if array.shape[1:] != spec.shape[1:] or array.dtype.kind not in "iuf":
        return False
    return spec.datatype in FLOATS or array.dtype.kind != "f"


def _holds_text(value: Any) -> bool:
    """Whether a text is somewhere in it: NumPy would give each element the room of the longest."""
    return isinstance(value, str) or (isinstance(value, list) and any(map(_holds_text, value)))


def _cell(value: Any, depth: int, spec: TensorSpec, where: str) -> Any:
    """A value as its tensor's type has it; a tensor of one column takes it without a list too."""
    if depth > 0 and isinstance(value, list):
        return [_cell(each, depth - 1, spec, where) for each in value]
    if isinstance(value, list | dict) or (depth > 0 and spec.shape[1:] != (1,)):
        given = "a list" if isinstance(value, list) else "an object" if isinstance(value, dict) else repr(value)[:40]
        raise InvalidInput(f"is {given}, needs {_wanted(spec)}", where=where)
    try:
        return _element(value, spec)
    except (ValueError, KeyError, TypeError, OverflowError, InvalidOperation):
        raise InvalidInput(f"is {value!r:.60}, needs {_wanted(spec)}", where=where) from None


def _element(value: Any, spec: TensorSpec) -> Any:
    if value is None and spec.missing:
        return None if spec.datatype == "BYTES" else np.nan
    if spec.datatype == "BYTES":
        if not isinstance(value, str):
            raise ValueError(value)
        return value
    if isinstance(value, str):
        if "_" in value or not value.isascii():
            raise ValueError(value)
        value = value.strip().lower() if spec.datatype == "BOOL" else value
    if spec.datatype == "BOOL":
        return value if isinstance(value, bool) else _TRUE_OR_FALSE[value]
    if spec.datatype in FLOATS:
        return float(value)
    exact = Decimal(value)
    if exact != exact.to_integral_value() or exact.adjusted() > MOST_DIGITS:
        raise ValueError(value)
    return int(exact)


def _wanted(spec: TensorSpec) -> str:
    kind = {"BYTES": "a text", "BOOL": "true or false"}.get(spec.datatype)
    kind = kind or ("a number" if spec.datatype in FLOATS else "a whole number")
    if spec.missing:
        kind += " or null"
    if len(spec.shape) == 1:
        return kind
    sizes = " by ".join("any number" if size == -1 else str(size) for size in spec.shape[1:])
    return f"a list of {sizes}, each {kind}"


def _where(number: int, field: str, alone: bool) -> str:
    name = field if len(field) <= 80 else field[:80] + "..."
    return f"field {name!r}" if alone else f"record {number}, field {name!r}"


def _named(inputs: Mapping[str, TensorSpec]) -> str:
    names = list(inputs)
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(map(repr, names[:MOST_NAMED])) + more


def _example(inputs: Mapping[str, TensorSpec]) -> str:
    few = dict(list(inputs.items())[:MOST_NAMED])
    whole = (
        encode(example_record(few)).decode() if _values(few) <= MOST_SHOWN else "one as the pipeline's metadata says"
    )
    return f"send {whole}"


def _values(inputs: Mapping[str, TensorSpec]) -> int:
    return sum(math.prod(abs(size) for size in spec.shape[1:]) for spec in inputs.values())


def example_record(inputs: Mapping[str, TensorSpec]) -> dict[str, Any]:
    """A record that would be taken."""
    record: dict[str, Any] = {}
    for name, spec in inputs.items():
        value: Any = {"BYTES": "text", "BOOL": True}.get(spec.datatype, 0.5 if spec.datatype in FLOATS else 1)
        for size in reversed(spec.shape[1:]):
            value = [value] * (2 if size == -1 else size)
        record[name] = value
    return record
