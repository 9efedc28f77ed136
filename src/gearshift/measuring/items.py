"""Items of an operator: samples whose rows may differ in their dimensions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gearshift.errors import require
from gearshift.model import Arrays, TensorSpec, datatype_of
from gearshift.models.samples import Samples

Rows = Sequence[NDArray[Any]]
"""One array for each item, of the same type and number of dimensions."""


@dataclass(frozen=True, slots=True, eq=False)
class Items(Samples):
    """`inputs` are by name; an input whose rows differ in shape is (n,) objects, each an array.

    Rows are not checked, because operators' outputs and a pipeline's samples have been.
    """

    def __post_init__(self) -> None:
        require(len(self) >= 2, f"there are {len(self)} items, needs at least 2", remedy="give more samples")

    @property
    def specs(self) -> tuple[TensorSpec, ...]:
        return tuple(spec_of_rows(name, list(array)) for name, array in self.arrays.items())

    def payloads(self, rows: Sequence[int]) -> list[dict[str, NDArray[Any]]]:
        return [{name: np.asarray(array[row])[None] for name, array in self.arrays.items()} for row in rows]


def items_of(columns: Mapping[str, Rows], labels: NDArray[Any] | None) -> Items:
    return Items(inputs={name: _column(rows) for name, rows in columns.items()}, labels=labels)


def rows_of_results(results: Sequence[Arrays], name: str) -> Rows:
    """Output `name` of each result of one row."""
    return [result[name][0] for result in results]


def spec_of_rows(name: str, rows: Rows) -> TensorSpec:
    """The tensor of which `rows` are rows; dimensions that differ are -1.

    Empty rows do not count where others have elements, because their type says nothing.
    """
    full = [row for row in rows if np.size(row)] or list(rows)
    shapes = {np.shape(row) for row in full}
    dimensions = {len(shape) for shape in shapes}
    require(
        len(dimensions) == 1,
        f"tensor {name!r} has rows of {' and '.join(map(str, sorted(dimensions)))} dimensions",
        remedy="let all rows have the same number of dimensions",
    )
    lengths = [set(each) for each in zip(*(np.shape(row) for row in full), strict=True)]
    if len(full) < len(rows) and lengths:
        lengths[0].add(0)
    shape = (-1, *(next(iter(each)) if len(each) == 1 and each != {0} else -1 for each in lengths))
    kinds = {np.asarray(row).dtype for row in full}
    text = any(dtype.kind in "OSU" for dtype in kinds)
    require(
        not text or all(dtype.kind in "OSU" for dtype in kinds),
        f"tensor {name!r} is text in some rows and numbers in others",
        remedy="let all rows have one type",
    )
    datatype = "BYTES" if text else datatype_of(np.empty(0, np.result_type(*kinds)))
    missing = datatype.startswith("FP") and any(bool(np.isnan(row).any()) for row in full)
    return TensorSpec(name=name, datatype=datatype, shape=shape, missing=missing)


def _column(rows: Rows) -> NDArray[Any]:
    if len({np.shape(row) for row in rows}) == 1 and np.asarray(rows[0]).dtype.kind != "O":
        return np.stack(rows)
    made = np.empty(len(rows), dtype=object)
    for i, row in enumerate(rows):
        made[i] = row
    return made
