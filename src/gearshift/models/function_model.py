"""A plain function as a model: arrays by name, with one element for each item, and back.

Elements of one output may differ in their dimensions, as where a strip is split into its digits.
Such answers are given in pieces of equal shape, because an array has one shape.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gearshift.errors import InvalidInput, require
from gearshift.model import Arrays, Predicted, in_own_order
from gearshift.models.user_code import function_in_folder, said_in_one_line
from gearshift.models.user_model import UserModel

CERTAINTY = 1.0
Pieces = list[tuple[list[int], Predicted]]
NAMES = 'answer arrays by name, such as {"label": ...}'


@dataclass(frozen=True, slots=True)
class FunctionModel(UserModel):
    """A function of named inputs; its certainty is 1. `inputs` are those it cannot do without."""

    inputs: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    """Inputs that have a default."""
    takes_any: bool = False

    def pieces(self, inputs: Arrays) -> Pieces:
        """Run the function on n items: item numbers and their answer, for each shape of answers.

        Raises `ModelFailed` where the function raises, lacks an input, or does not return one
        element for each item.
        """
        n = len(next(iter(inputs.values())))
        self._require_inputs(inputs)
        answer = self._call("its function", lambda: self.model(**inputs))
        if not isinstance(answer, Mapping) or not answer:
            raise self._refused(f"answered {type(answer).__name__}", NAMES)
        columns = {str(name): self._elements(str(name), value, n) for name, value in answer.items()}
        rows_by_shape: dict[tuple[tuple[int, ...], ...], list[int]] = {}
        for row in range(n):
            shapes = tuple(elements[row].shape for elements in columns.values())
            rows_by_shape.setdefault(shapes, []).append(row)
        return [
            (rows, self._piece({name: np.stack([elements[row] for row in rows]) for name, elements in columns.items()}))
            for rows in rows_by_shape.values()
        ]

    def run(self, inputs: Arrays) -> Predicted:
        """As `pieces`, where all answers have one shape; raises `ModelFailed` where they do not."""
        pieces = self.pieces(inputs)
        if len(pieces) > 1:
            raise self._refused("answered elements of several shapes", "run it in pieces")
        return pieces[0][1]

    def _piece(self, arrays: dict[str, NDArray[Any]]) -> Predicted:
        rows = len(next(iter(arrays.values())))
        return self._checked(arrays, np.full(rows, CERTAINTY), rows)

    def _require_inputs(self, inputs: Arrays) -> None:
        lacking = [name for name in self.inputs if name not in inputs]
        strange = [] if self.takes_any else [name for name in inputs if name not in (*self.inputs, *self.others)]
        given = ", ".join(map(repr, inputs))
        if lacking:
            raise self._refused(f"takes {lacking[0]!r}, and is given {given}", "name it in the node's inputs")
        if strange:
            raise self._refused(f"takes no {strange[0]!r}", "leave it out of the node's inputs")

    def _elements(self, name: str, value: Any, n: int) -> list[NDArray[Any]]:
        if isinstance(value, str | bytes) or not hasattr(value, "__len__"):
            raise self._refused(f"answered {type(value).__name__} as {name!r}", "answer one element for each item")
        if len(value) != n:
            raise self._refused(
                f"answered {len(value)} elements as {name!r} for a batch of {n}", "answer one element for each item"
            )
        if isinstance(value, np.ndarray) and value.dtype.kind != "O":
            return list(in_own_order(value))
        return self._alike(name, [self._element(name, one) for one in value])

    def _element(self, name: str, one: Any) -> NDArray[Any]:
        if isinstance(one, np.ndarray) and one.dtype.kind in "fiub":
            return in_own_order(one)
        try:
            array = in_own_order(np.asarray(one))
        except Exception as error:
            what = f"answered an element of {name!r} that is no array ({said_in_one_line(error)})"
            raise self._refused(what, "let the rows within one element have one shape") from error
        return array.astype(object) if array.dtype.kind in "USO" else array

    def _alike(self, name: str, elements: list[NDArray[Any]]) -> list[NDArray[Any]]:
        """Elements of one type; empty ones, whose type says nothing, take that of the others."""
        full = next((one for one in elements if one.size), self.declared.empty(name))
        if full is None:
            return elements
        dtype = np.result_type(*{one.dtype for one in elements if one.size} or {full.dtype})
        bare = np.empty((0, *full.shape[1:]), dtype)
        return [one.astype(dtype, copy=False) if one.size or one.shape == full.shape else bare for one in elements]


def load_function(name: str, reference: str, directory: Path) -> FunctionModel:
    """The function `reference` (`file.py:function`) as the model of operator `name`.

    Raises `InvalidInput` where it is missing, or its parameters cannot be given by name.
    """
    where = f"gearshift.toml, field operators.{name}.function"
    function = function_in_folder(reference, directory, field=f"operators.{name}.function", where=where)
    needed, others, takes_any = parameters_of(function, reference, where=where)
    return FunctionModel(name, function, _no_certainty, inputs=tuple(needed), others=tuple(others), takes_any=takes_any)


def parameters_of(function: Callable[..., Any], reference: str, *, where: str) -> tuple[list[str], list[str], bool]:
    """Names without a default, names with one, and whether any other name may be given."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"the parameters of {reference} are not known ({error})", where=where) from error
    unnamed = [one.name for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.VAR_POSITIONAL)]
    require(
        not unnamed,
        f"{reference} takes {unnamed[0]!r} by position" if unnamed else "",
        where=where,
        remedy="give the parameter a name that callers may use",
    )
    named = [one for one in parameters if one.kind is not one.VAR_KEYWORD]
    needed = [one.name for one in named if one.default is one.empty]
    others = [one.name for one in named if one.default is not one.empty]
    return needed, others, len(named) < len(parameters)


def _no_certainty(scores: NDArray[Any]) -> NDArray[np.float64]:
    return np.full(len(scores), CERTAINTY)
