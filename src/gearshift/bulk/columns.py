"""Arrow columns as a model's input arrays, and answers as Arrow columns.

A row with a NULL in one of its inputs has no input at all, unless that input may be missing: then
it is NaN, or None among texts.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from gearshift.bulk.answers import FAILED, NULL, OUTCOMES, Answers
from gearshift.errors import InvalidInput, require
from gearshift.model import DATATYPES, TensorSpec

OUTCOME_TYPE = pa.string()
_OUTCOME_NAMES = pa.array(OUTCOMES, OUTCOME_TYPE)


class Chunk:
    """The rows of `columns`, one for each of `specs`, as arrays.

    `usable` (k,) are the rows that have an input of the right shape; `inputs` hold those alone.
    `unlike` (n,) marks rows whose lists have another length than their input has.
    """

    def __init__(self, columns: Sequence[pa.Array], specs: Sequence[TensorSpec]) -> None:
        columns = [plain_column(column) for column in columns]
        self.rows = len(columns[0])
        null, self.unlike = np.zeros(self.rows, bool), np.zeros(self.rows, bool)
        for column, spec in zip(columns, specs, strict=True):
            if not (spec.missing and (spec.datatype == "BYTES" or DATATYPES[spec.datatype].startswith("float"))):
                null |= _with_null(column)
            else:
                null |= _is_null(column) & _is_list(column.type)  # no number of a list is known
            self.unlike |= _of_another_length(column, spec)
        self.unlike &= ~null
        self.usable: NDArray[np.int64] = np.flatnonzero(~null & ~self.unlike)
        if len(self.usable) < self.rows:
            kept = pa.array(self.usable)
            columns = [column.take(kept) for column in columns]
        self.inputs = {spec.name: as_array(column, spec) for column, spec in zip(columns, specs, strict=True)}

    def whole(self, answers: Answers) -> Answers:
        """The answers to all rows from those to the usable ones."""
        if len(self.usable) == self.rows:
            return answers
        made = Answers.none_yet(self.rows, NULL)
        made.outcome[self.unlike] = FAILED
        made.put(self.usable, answers)
        return made


def plain_column(column: pa.Array) -> pa.Array:
    """A column of the same values without its encoding: extensions, dictionaries, runs and views are undone.

    Arrow takes, joins and counts few encoded columns. A NULL among the values of a dictionary or of runs counts as
    one of the rows that have it.
    """
    kind = column.type
    if isinstance(kind, pa.ExtensionType):
        return plain_column(column.storage)
    if pa.types.is_dictionary(kind):
        return _taken(column.dictionary, column.indices)
    if pa.types.is_run_end_encoded(kind):
        rows = np.arange(column.offset, column.offset + len(column))
        return _taken(column.values, pa.array(np.searchsorted(np.asarray(column.run_ends), rows, side="right")))
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        return column.cast(_PLAIN[kind])
    if pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        return _list_of_view(column)
    return _plain_list(column) if _is_list(kind) else column


_PLAIN = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}


def _taken(values: pa.Array, places: pa.Array) -> pa.Array:
    """Plain values at these places; of many values, such as a whole table's, only those that are used are looked at."""
    if len(values) > len(places):
        used, counted = np.unique(np.asarray(places.drop_null()), return_inverse=True)
        among = np.zeros(len(places), np.int64)
        null = np.asarray(places.is_null())
        among[~null] = counted
        parts = [plain_column(values.slice(place, 1)) for place in used.tolist()]
        if not parts:
            return pa.nulls(len(places), plain_column(values.slice(0, 0)).type)
        values, places = pa.concat_arrays(parts), pa.array(among, mask=null)
    return plain_column(values).take(places)


def _plain_list(column: pa.Array) -> pa.Array:
    """A list column whose innermost values are plain; itself where they are."""
    rows, kind = len(column), column.type
    null = np.asarray(column.is_null())
    if pa.types.is_fixed_size_list(kind):
        size = kind.list_size
        held = column.values.slice(column.offset * size, rows * size)
        inner = plain_column(held)
        return column if inner is held else pa.FixedSizeListArray.from_arrays(inner, size, mask=pa.array(null))
    ends = np.asarray(column.offsets)
    held = column.values.slice(ends[0], ends[-1] - ends[0])
    inner = plain_column(held)
    if inner is held:
        return column
    made = pa.LargeListArray if pa.types.is_large_list(kind) else pa.ListArray
    return made.from_arrays(pa.array(ends - ends[0]), inner, mask=pa.array(null))


def _list_of_view(column: pa.Array) -> pa.Array:
    """A list column of a view of lists, by hand: Arrow's cast loses rows after a NULL."""
    null = np.asarray(column.is_null())
    sizes = np.where(null, 0, np.asarray(column.sizes)).astype(np.int64)
    ends = np.concatenate([[0], np.cumsum(sizes)])
    places = np.repeat(np.asarray(column.offsets) - ends[:-1], sizes) + np.arange(ends[-1])
    return pa.LargeListArray.from_arrays(pa.array(ends), _taken(column.values, pa.array(places)), mask=pa.array(null))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _is_null(column: pa.Array) -> NDArray[np.bool_]:
    return np.asarray(column.is_null()) if column.null_count else np.zeros(len(column), bool)


def _with_null(column: pa.Array) -> NDArray[np.bool_]:
    """Which rows are NULL, or hold one."""
    null = _is_null(column)
    if _is_list(column.type):
        inner = _with_null(column.drop_null().flatten())
        if inner.any():
            parents = np.asarray(pc.list_parent_indices(column.drop_null()))
            null[np.flatnonzero(~null)[parents[inner]]] = True
    return null


def _of_another_length(column: pa.Array, spec: TensorSpec) -> NDArray[np.bool_]:
    """Which rows' lists have other than as many elements as a row of the tensor."""
    sizes = spec.shape[1:]
    varies = not _is_list(column.type) or pa.types.is_fixed_size_list(column.type)
    if varies or not sizes or -1 in sizes:
        return np.zeros(len(column), bool)
    expected = sizes[0] if _is_list(column.type.value_type) else math.prod(sizes)
    another: NDArray[np.bool_] = np.asarray(column.value_lengths().fill_null(expected)) != expected
    return another


def as_array(column: pa.Array, spec: TensorSpec) -> NDArray[Any]:
    """A column without NULL as the tensor of `spec`; lists may be nested, or flat.

    Raises `InvalidInput` for a type or a number of elements that it cannot hold.
    """
    rows, column = len(column), plain_column(column)
    while _is_list(column.type):
        column = column.flatten()
    flat = _flat(column, spec)
    known = math.prod(size for size in spec.shape[1:] if size != -1)
    vary = spec.shape.count(-1) - 1
    left = len(flat) // max(1, rows) // known if vary == 1 else 1
    shape = (rows, *(left if size == -1 else size for size in spec.shape[1:]))
    require(
        math.prod(shape) == len(flat) and vary <= 1,
        f"the column holds {len(flat)} elements in {rows} rows, and input {spec.name!r} has shape {list(spec.shape)}",
        remedy="give a list of that many elements in each row",
    )
    shaped: NDArray[Any] = flat.reshape(shape)
    return shaped


def _flat(column: pa.Array, spec: TensorSpec) -> NDArray[Any]:
    text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    if spec.datatype == "BYTES":
        blob = pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)
        if pa.types.is_fixed_size_binary(column.type):
            column = column.cast(pa.binary())
        elif not (text or blob):
            if not pa.types.is_null(column.type):
                raise _unlike(column, spec, "cast it to VARCHAR")
            column = column.cast(pa.string())
        objects: NDArray[Any] = column.to_numpy(zero_copy_only=False)
        return objects
    if text or not _is_number(column.type):
        raise _unlike(column, spec, "give numbers")
    wanted = np.dtype(DATATYPES[spec.datatype])
    if pa.types.is_decimal(column.type) or pa.types.is_null(column.type):
        column = column.cast(pa.float64())
    array = column.to_numpy(zero_copy_only=False)
    with np.errstate(all="ignore"):
        made: NDArray[Any] = array.astype(wanted, copy=False)
    if wanted.kind != "f" and not np.array_equal(made.astype(array.dtype), array):
        raise _unlike(column, spec, f"give whole numbers that {spec.datatype} can hold, without NULL")
    return made


def _is_number(kind: pa.DataType) -> bool:
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    return bool(number or pa.types.is_decimal(kind) or pa.types.is_null(kind))


def _unlike(column: pa.Array, spec: TensorSpec, remedy: str) -> InvalidInput:
    return InvalidInput(f"the column has type {column.type}, and input {spec.name!r} is {spec.datatype}", remedy=remedy)


# Answers -------------------------------------------------------------------------------------------------------------


def label_type(spec: TensorSpec) -> pa.DataType:
    kind = "FP32" if spec.datatype == "FP16" else spec.datatype  # few tools know halves
    return pa.string() if kind == "BYTES" else pa.from_numpy_dtype(np.dtype(DATATYPES[kind]))


def answer_columns(answers: Answers, kind: pa.DataType) -> list[pa.Array]:
    """Columns `label` (of type `kind`), `certainty` and `outcome` of the answers."""
    unlabelled = ~answers.has_label
    if answers.label is None:
        label = pa.nulls(len(unlabelled), kind)
    elif answers.label.dtype == object:
        label = _texts(answers.label, unlabelled, kind)
    else:
        label = pa.array(answers.label, mask=unlabelled).cast(kind)
    codes = pa.array(answers.outcome, mask=answers.outcome == NULL)
    return [label, pa.array(answers.certainty, mask=np.isnan(answers.certainty)), _OUTCOME_NAMES.take(codes)]


def _texts(label: NDArray[Any], unlabelled: NDArray[np.bool_], kind: pa.DataType) -> pa.Array:
    try:
        return pa.array(label, kind, mask=unlabelled)
    except (pa.ArrowException, UnicodeError):  # bytes that are no UTF-8
        texts = [one.decode("utf-8", "replace") if isinstance(one, bytes) else one for one in label.tolist()]
        return pa.array(texts, kind, mask=unlabelled)
