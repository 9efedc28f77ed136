"""Samples on which a project's models are measured, checked when they are made."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gearshift.errors import InvalidInput, ModelFailed, require
from gearshift.model import Arrays, TensorSpec, datatype_of, in_own_order, spec_of
from gearshift.models.config import Project
from gearshift.models.user_code import call_in_folder, said_in_one_line
from gearshift.support.frames import columns_of, without_gaps

DEFAULT_INPUT = "input"
ONE_TARGET = "an operator answers one label per row: serve one for each target, or make one class of each combination"
REGRESSION = (
    "a regression is not judged here: make classes of its values, or plan from records of how good each answer is"
)
MOST_FRACTIONS = 20
"""Up to this many different fractions, such as half stars, are classes even in few samples."""


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """Samples on which a task's models are measured: named inputs of n rows, labels, and groups.

    `inputs` is a mapping of arrays, one array (then named "input"), or a data frame of pandas, polars
    or pyarrow, whose columns are the inputs. NaN in an input of fractions, and None or NaN in one of
    texts, is a missing value; models must accept it.
    `labels` (n,) are compared with the models' output `label`. Samples that share a value of
    `groups` (n,), such as the frames of one video, stay in the same part when samples are split in
    two. For requests of a pipeline, `node_labels` has labels of nodes' items: for each node one
    label for each request, or where it runs for each row of a fan-out a list of them. Lists become
    arrays. Raises `InvalidInput` for lengths that differ, fewer than two rows,
    and unusable values.
    """

    inputs: Mapping[str, NDArray[Any]] | NDArray[Any]
    labels: NDArray[Any] | None = None
    groups: NDArray[Any] | None = None
    node_labels: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        named = _by_name(self.inputs)
        require(len(named) >= 1, "there are no inputs", where="samples", remedy="give at least one array")
        arrays = {str(name): _sample_array(f"input {name!r}", value, missing=True) for name, value in named.items()}
        object.__setattr__(self, "inputs", arrays)
        name, first = next(iter(arrays.items()))
        n = len(first)
        require(n >= 2, f"there are {n} rows, needs at least 2", where="samples", remedy="give more, better thousands")
        beside = {f"input {name!r}": array for name, array in arrays.items()}
        for what in ("labels", "groups"):
            if getattr(self, what) is not None:
                array = _sample_array(what, getattr(self, what))
                one_each = f"{what} have shape {array.shape}, needs one value per row"
                require(
                    array.ndim == 1, one_each, where="samples", remedy=f"give a one-dimensional array; {ONE_TARGET}"
                )
                object.__setattr__(self, what, array)
                beside[what] = array
        for node, each in self.node_labels.items():
            unequal = f"node_labels of {node!r} are {len(each)}, and there are {n} requests"
            require(len(each) == n, unequal, where="samples", remedy="give one label or one list for each request")
        for what, array in beside.items():
            unequal = f"{what} has {len(array)} rows, but input {name!r} has {n}"
            require(len(array) == n, unequal, where="samples", remedy="give one row of each per sample")

    def __len__(self) -> int:
        return len(next(iter(self.arrays.values())))

    @property
    def arrays(self) -> Arrays:
        return self.inputs if isinstance(self.inputs, Mapping) else {DEFAULT_INPUT: self.inputs}

    def batch(self, rows: NDArray[np.integer[Any]] | slice) -> dict[str, NDArray[Any]]:
        return {name: array[rows] for name, array in self.arrays.items()}

    def some(self, rows: NDArray[np.integer[Any]]) -> "Samples":
        """Samples of these rows alone, without labels of nodes; raises `InvalidInput` for fewer than two."""
        labels, groups = (None if one is None else one[rows] for one in (self.labels, self.groups))
        return Samples(self.batch(rows), labels=labels, groups=groups)

    @property
    def specs(self) -> tuple[TensorSpec, ...]:
        return tuple(spec_of(name, array) for name, array in self.arrays.items())

    def payloads(self, rows: Sequence[int]) -> list[dict[str, NDArray[Any]]]:
        """Each of `rows` as a sample's payload: arrays (1, ...) by name."""
        return [{name: array[row : row + 1] for name, array in self.arrays.items()} for row in rows]


def load_samples(project: Project, directory: Path, pipeline: str | None = None) -> Samples:
    """Call the `samples` function of a served pipeline, or of the only one.

    `directory` is the folder of `gearshift.toml`. Raises `InvalidInput` for a missing file or
    function and for unusable samples, `ModelFailed` where the function raises or returns another
    type.
    """
    served = project.served
    name = next(iter(served)) if pipeline is None and len(served) == 1 else pipeline
    require(name in served, f"there is no pipeline {name!r}", remedy=f"name one of {', '.join(served)}")
    return samples_at(served[str(name)].samples, directory)


def samples_at(reference: str, directory: Path) -> Samples:
    """As `load_samples`, for the function `reference` (`file.py:function`)."""
    samples = call_in_folder(reference, directory, field="samples")
    if not isinstance(samples, Samples):
        raise ModelFailed(f"{reference} answered {type(samples).__name__}; answer gearshift.Samples(inputs, labels)")
    _require_classes(samples.labels, reference)
    return samples


def _require_classes(labels: NDArray[Any] | None, where: str) -> None:
    if labels is None or labels.dtype.kind != "f" or bool((labels == np.floor(labels)).all()):
        return
    distinct = len(np.unique(labels))
    require(
        distinct <= max(MOST_FRACTIONS, len(labels) // 2),
        f"labels hold {distinct} different fractions in {len(labels)} rows, which are no classes",
        where=where,
        remedy=REGRESSION,
    )


def _by_name(inputs: Any) -> Mapping[Any, Any]:
    if isinstance(inputs, Mapping):
        return inputs
    columns = columns_of(inputs)
    return {DEFAULT_INPUT: inputs} if columns is None else columns


def _sample_array(what: str, value: Any, *, missing: bool = False) -> NDArray[Any]:
    """Convert to an array that can be sent; NaN is refused unless `missing` values are allowed."""
    remedy = "give a NumPy array of numbers or text"
    try:
        array = np.asarray(value)
    except Exception as error:
        raise InvalidInput(f"{what} is no array ({said_in_one_line(error)})", where="samples", remedy=remedy) from error
    require(array.ndim >= 1, f"{what} is {type(value).__name__}, no array of rows", where="samples", remedy=remedy)
    require(0 not in array.shape[1:], f"{what} has shape {array.shape}", where="samples", remedy=remedy)
    array = in_own_order(array)
    if missing:
        array = without_gaps(array)
    problem = unusable_values(array, missing=missing)
    require(not problem, f"{what} holds {problem}", where="samples", remedy=remedy)
    if array.dtype.kind == "f":
        usable = ~np.isinf(array) if missing else np.isfinite(array)
        bad = np.flatnonzero(~usable.all(axis=tuple(range(1, array.ndim))))
        kind = "infinity" if missing else "NaN or infinity"
        rows = f"{what} holds {kind} in {len(bad)} rows, the first is row {bad[0] if len(bad) else 0}"
        require(len(bad) == 0, rows, where="samples", remedy="fill it in or leave those rows out")
    return array


def unusable_values(array: NDArray[Any], *, missing: bool = False) -> str:
    """The first thing in an array that cannot be sent; empty if there is none. None is a missing text."""
    if array.dtype.kind == "O":
        known = (value for value in array.flat if not (missing and value is None))
        others = {type(value).__name__ for value in known if not isinstance(value, str | bytes)}
        return f"objects of type {min(others)}" if others else ""
    try:
        datatype_of(array)
    except ValueError as error:
        return str(error)
    return ""
