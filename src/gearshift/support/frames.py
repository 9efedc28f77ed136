"""Data frames of pandas, polars and pyarrow as arrays by column, and back.

Missing values are NaN among numbers and None among texts.
"""

from collections.abc import Mapping, Sequence
from math import isnan
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gearshift.support.extras import load_extra

FrameKind = Literal["pandas", "polars", "pyarrow"]
_NUMBERS = (bool, int, float, np.bool_, np.integer, np.floating)


def columns_of(table: Any) -> dict[str, NDArray[Any]] | None:
    """The columns (n,) of a data frame by name; None for anything else.

    Numbers of which some are missing become 64-bit floats.
    """
    if hasattr(table, "column_names") and hasattr(table, "column"):  # pyarrow
        return {str(name): _of_arrow(table.column(name)) for name in table.column_names}
    if hasattr(table, "columns") and hasattr(table, "__getitem__") and not isinstance(table, Mapping):
        return {str(name): _plain(table[name].to_numpy()) for name in table.columns}
    return None


def _of_arrow(column: Any) -> NDArray[Any]:
    if hasattr(column.type, "index_type") or hasattr(column.type, "run_end_type"):  # a dictionary, or runs
        # not by a cast, which Arrow lacks for a dictionary of views
        return _plain(
            np.array([*column.to_pylist(), None], dtype=object)[:-1]
        )  # the None keeps lists from being spread
    return _plain(column.to_numpy(zero_copy_only=False) if hasattr(column, "num_chunks") else np.asarray(column))


def _plain(array: NDArray[Any]) -> NDArray[Any]:
    """An array of objects: numbers as an array of numbers, and None for each value that is missing."""
    if array.dtype.kind != "O" or array.ndim != 1:
        return array
    values = array.tolist()
    missing = [_is_missing(value) for value in values]
    known = [value for value, lacks in zip(values, missing, strict=True) if not lacks]
    if known and all(isinstance(value, _NUMBERS) for value in known):
        if len(known) == len(values):
            return np.array(values)
        return np.array([np.nan if lacks else float(value) for value, lacks in zip(values, missing, strict=True)])
    plain = np.empty(len(values), dtype=object)
    plain[:] = [None if lacks else value for value, lacks in zip(values, missing, strict=True)]
    return plain


def _is_missing(value: object) -> bool:
    if isinstance(value, float):
        return isnan(value)
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def without_gaps(array: NDArray[Any]) -> NDArray[Any]:
    """An array of texts, with NaN and other marks of missing values as None; others as they are."""
    if array.dtype.kind != "O":
        return array
    return np.array([None if _is_missing(value) else value for value in array.flat], dtype=object).reshape(array.shape)


def frame_of(
    kind: FrameKind,
    columns: Mapping[str, NDArray[Any]],
    *,
    where: str,
    categories: Mapping[str, Sequence[str | int]] | None = None,
) -> Any:
    """A data frame of arrays of n rows; one of two dimensions becomes columns NAME.0, NAME.1, ...

    With pandas, columns of `categories` become categorical with these values; others are missing.
    Raises `InvalidInput` where the library is not installed.
    """
    flat: dict[str, NDArray[Any]] = {}
    for name, array in columns.items():
        parts = array.reshape(len(array), -1)
        flat |= {name: array} if array.ndim == 1 else {f"{name}.{i}": parts[:, i] for i in range(parts.shape[1])}
    library = load_extra(kind, extra=_EXTRA_OF[kind], where=where)
    if kind == "pyarrow":
        text = library.string()
        return library.table(
            {name: library.array(array, type=text if _without_texts(array) else None) for name, array in flat.items()}
        )
    if kind == "polars":
        return library.DataFrame(
            {name: array.tolist() if array.dtype.kind == "O" else array for name, array in flat.items()},
            schema_overrides={name: library.String for name, array in flat.items() if _without_texts(array)},
        )
    known = (categories or {}).items()
    texts = library.Series(["text"]).dtype
    gaps = {name: library.Series(array, dtype=texts) for name, array in flat.items() if _without_texts(array)}
    return library.DataFrame(flat | gaps | {name: _categorical(library, flat[name], values) for name, values in known})


def _without_texts(array: NDArray[Any]) -> bool:
    """True for texts of which all are missing: their type would be guessed otherwise than beside others."""
    return array.dtype.kind == "O" and all(value is None for value in array.flat)


def _categorical(pandas: Any, array: NDArray[Any], values: Sequence[str | int]) -> Any:
    codes = {value: code for code, value in enumerate(values)}
    return pandas.Categorical.from_codes([codes.get(value, -1) for value in array.tolist()], list(values))


_EXTRA_OF: dict[FrameKind, str] = {"pandas": "pandas", "polars": "polars", "pyarrow": "parquet"}
