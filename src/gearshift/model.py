"""A model, as Gearshift sees it: from arrays of n rows to outputs and a certainty per row."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import msgspec
import numpy as np
from numpy.typing import NDArray

from gearshift.errors import require

Arrays = Mapping[str, NDArray[Any]]

LABEL = "label"
SCORES = "scores"

DATATYPES: dict[str, str] = {
    "BOOL": "bool",
    "INT8": "int8",
    "INT16": "int16",
    "INT32": "int32",
    "INT64": "int64",
    "UINT8": "uint8",
    "UINT16": "uint16",
    "UINT32": "uint32",
    "UINT64": "uint64",
    "FP16": "float16",
    "FP32": "float32",
    "FP64": "float64",
    "BYTES": "object",
}
STRING_BYTES = 64
"""Memory of an element of a BYTES tensor besides its text."""


class TensorSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A named tensor of an operator, as in the Open Inference Protocol; dimension 0 is rows, -1.

    `classes` names the class of each column, where models say so. With `missing` an input may hold
    missing values: NaN, or None among texts, which are null in JSON.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    classes: tuple[str, ...] = ()
    missing: bool = False

    def __post_init__(self) -> None:
        require(bool(self.name), "a tensor's name is empty")
        require(
            self.datatype in DATATYPES,
            f"tensor {self.name!r} has datatype {self.datatype!r}",
            remedy=f"use one of {', '.join(DATATYPES)}",
        )
        require(
            len(self.shape) >= 1 and all(d == -1 or d > 0 for d in self.shape),
            f"tensor {self.name!r} has shape {list(self.shape)}",
            remedy="give -1 for rows first, then positive dimensions (-1 where they vary)",
        )
        require(
            not self.classes or self.shape[1:] == (len(self.classes),),
            f"tensor {self.name!r} has shape {list(self.shape)} and {len(self.classes)} classes",
            remedy="name one class per column",
        )


@dataclass(frozen=True, slots=True)
class Predicted:
    """A model's answer to n rows: named outputs and the certainty (n,) of each row.

    A row whose certainty is NaN has failed. `failure` says why the first of these has no answer,
    for example because a remote endpoint did not respond; in a cascade, an earlier stage's answer
    is then used. `unusable` (n,) marks failed rows for which an answer came that does not count,
    such as none of the classes: they count as wrong in profiling. `exit_segment` (n,) is the
    segment after which each row left a model with learned caches.
    """

    outputs: Arrays
    certainty: NDArray[np.float64]
    failure: str = ""
    exit_segment: NDArray[np.int64] | None = None
    unusable: NDArray[np.bool_] | None = None


@runtime_checkable
class Model(Protocol):
    """A user's model: `predict` is required, the other methods have defaults (`user_model.py`).

    `setup()` runs once in the worker. `decode(inputs)` turns named arrays of n rows into the
    argument of `predict` (default: the only input's array, or several by name). `predict(batch)`
    returns scores (n, classes), `Predicted`, outputs by name that include `certainty` or `scores`
    (and optionally `exit_segment`), or (outputs, certainty), where outputs are arrays by name,
    labels (n,) or scores (n, classes). `encode(scores)` turns scores into named outputs of n rows
    (default: `label`, the best class, and `scores`).

    A model that stops early may have `segments`, the number of its segments; `exits(batch)`, which
    yields row numbers and the answer of `predict` for them as they leave; and `through(batch)`,
    which returns the answer of `predict` if no row left early, and the seconds of each segment.

    An estimator with `predict_proba` and `classes_`, a plain function in place of `predict`, a
    PyTorch module, and an ONNX file are models too.
    """

    def predict(self, batch: Any) -> Any: ...


def datatype_of(array: NDArray[Any]) -> str:
    """The protocol's name of an array's type; text and objects are BYTES."""
    if array.dtype.kind in "OSU":
        return "BYTES"
    for name, dtype in DATATYPES.items():
        if array.dtype == np.dtype(dtype):
            return name
    raise ValueError(f"arrays of type {array.dtype} have no datatype in the protocol")


def in_own_order(array: NDArray[Any]) -> NDArray[Any]:
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def spec_of(name: str, array: NDArray[Any]) -> TensorSpec:
    if array.dtype.kind == "O":
        missing = any(value is None for value in array.flat)
    else:
        missing = array.dtype.kind == "f" and bool(np.isnan(array).any())
    return TensorSpec(name=name, datatype=datatype_of(array), shape=(-1, *array.shape[1:]), missing=missing)


def zeros(spec: TensorSpec, rows: int) -> NDArray[Any]:
    shape = (rows, *(1 if dimension == -1 else dimension for dimension in spec.shape[1:]))
    if spec.datatype == "BYTES":
        return np.full(shape, "", dtype=object)
    return np.zeros(shape, dtype=DATATYPES[spec.datatype])


def require_operator_name(name: str) -> None:
    """Raise `InvalidInput` unless `name` can be part of a URL and of a metric."""
    require_name(name, "operator")


def require_name(name: str, what: str, *, where: str = "") -> None:
    """Raise `InvalidInput` unless `name`, that of `what`, can be part of a URL and of a metric."""
    plain = name.replace("-", "").replace("_", "").replace(".", "")
    require(
        plain.isalnum() and name.isascii() and len(name) <= 64,
        f"{what} is {name!r}",
        where=where,
        remedy="use up to 64 letters, digits, '-', '_' and '.'",
    )
