"""The outputs that an operator publishes, and the conversion of models' answers to these."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gearshift.errors import InvalidInput, require
from gearshift.model import DATATYPES, LABEL, SCORES, Arrays, TensorSpec, datatype_of
from gearshift.models.classes import class_names


class DeclaredOutputs:
    """Converts a model's answer to the outputs that `specs` publish; without any, all pass.

    `classes` are those of the model's scores, in its own order: columns are put into the published
    one. Raises `InvalidInput` where the classes differ.
    """

    def __init__(self, specs: Sequence[TensorSpec], classes: Sequence[str] = ()) -> None:
        self._specs = [(one, None if one.datatype == "BYTES" else np.dtype(DATATYPES[one.datatype])) for one in specs]
        self._columns: list[int] | None = None
        published = next((one.classes for one in specs if one.name == SCORES), ())
        if published and classes and tuple(classes) != published:
            require(
                sorted(classes) == sorted(published),
                f"its classes are {_listed(classes)}, and those that are published {_listed(published)}",
                remedy="profile it again",
            )
            self._columns = [list(classes).index(name) for name in published]

    def of(self, outputs: Mapping[str, NDArray[Any]]) -> Mapping[str, NDArray[Any]]:
        """Convert `outputs` to the published ones with their datatypes; others are left out.

        Raises `ValueError` where one is missing, has another shape, or would lose information in
        its datatype.
        """
        if not self._specs:
            return outputs
        made = {spec.name: _as_published(outputs.get(spec.name), spec, dtype) for spec, dtype in self._specs}
        if self._columns is not None:
            made[SCORES] = made[SCORES][:, self._columns]
        return made

    def empty(self, name: str) -> NDArray[Any] | None:
        """One element of the published output `name` without rows; None if it is not published."""
        for spec, dtype in self._specs:
            if spec.name == name:
                return np.empty([max(0, dimension) for dimension in spec.shape[1:]], dtype or object)
        return None


EVERY_OUTPUT = DeclaredOutputs(())


def _as_published(array: NDArray[Any] | None, spec: TensorSpec, dtype: np.dtype[Any] | None) -> NDArray[Any]:
    if array is None:
        raise ValueError(f"answered without output {spec.name!r}")
    if len(array.shape) != len(spec.shape) or any(
        wanted not in (given, -1) for given, wanted in zip(array.shape, spec.shape, strict=True)
    ):
        raise ValueError(f"answered output {spec.name!r} of shape {list(array.shape)}, not {list(spec.shape)}")
    is_text = array.dtype.kind in "OSU"
    if array.dtype == dtype or (is_text and dtype is None):
        return array
    if is_text or dtype is None:
        raise ValueError(f"answered output {spec.name!r} of type {array.dtype}, not {spec.datatype}")
    with np.errstate(all="ignore"):
        made = array.astype(dtype)
        back = made.astype(array.dtype)
    if not np.array_equal(back, array, equal_nan=array.dtype.kind == "f"):
        raise ValueError(f"answered output {spec.name!r} of type {array.dtype}, which {spec.datatype} cannot hold")
    return made


# What can be published -----------------------------------------------------------------------------------------------


def common_outputs(
    answers: Mapping[str, Arrays], classes: Mapping[str, Sequence[str]] | None = None
) -> tuple[tuple[TensorSpec, ...], tuple[str, ...]]:
    """The outputs to publish for an operator, and a sentence for each output that is left out.

    `answers` are by model, all for the same rows. An output is published if all models give it in
    the same shape and kind; numbers get a datatype that holds them all. Where all models name the
    `classes` of their scores' columns, scores are published in the first model's order, and left
    out where the classes differ. Raises `InvalidInput` where `label` would be left out.
    """
    known = {model: tuple((classes or {}).get(model, ())) for model in answers}
    specs, sentences = list[TensorSpec](), list[str]()
    for name in dict.fromkeys(name for outputs in answers.values() for name in outputs):
        given = {model: np.asarray(outputs[name]) for model, outputs in answers.items() if name in outputs}
        by_class = name == SCORES and all(
            model in given and given[model].shape[1:] == (len(names),) for model, names in known.items()
        )
        why = _other_classes(known) if by_class else _why_not(name, given, answers)
        if not why:
            first = next(iter(given.values()))
            order = next(iter(known.values())) if by_class else ()
            specs.append(
                TensorSpec(name=name, datatype=_common_datatype(given), shape=(-1, *first.shape[1:]), classes=order)
            )
        elif name == LABEL:
            raise InvalidInput(f"output {name!r} {why}", where="models", remedy="let all models answer it alike")
        else:
            sentences.append(f"output {name!r} is not answered by the server: it {why}")
    return tuple(specs), tuple(sentences)


def _why_not(name: str, given: Mapping[str, NDArray[Any]], answers: Mapping[str, Arrays]) -> str:
    first, *others = given
    lacking = next((model for model in answers if model not in given), None)
    if lacking is not None:
        return f"is answered by model {first!r}, but not by {lacking!r}"
    for other in others:
        a, b = given[first], given[other]
        if a.shape[1:] != b.shape[1:]:
            return f"has shape {_told(a)} from model {first!r} and {_told(b)} from {other!r}"
        if (a.dtype.kind in "OSU") != (b.dtype.kind in "OSU"):
            return f"is {datatype_of(a)} from model {first!r} and {datatype_of(b)} from {other!r}"
        if name == SCORES:
            meant, also = (_meaning(answers[model]) for model in (first, other))
            column = next((column for column in meant if meant[column] != also.get(column, meant[column])), None)
            if column is not None:
                return (
                    f"has the class {meant[column]!a} in column {column} from model {first!r} "
                    f"and {also[column]!a} from {other!r}"
                )
    return ""


def _other_classes(known: Mapping[str, Sequence[str]]) -> str:
    first, *others = known
    other = next((other for other in others if sorted(known[other]) != sorted(known[first])), None)
    if other is None:
        return ""
    return f"is of the classes {_listed(known[first])} from model {first!r} and {_listed(known[other])} from {other!r}"


def _listed(names: Sequence[str], most: int = 6) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(f"{name!a}" for name in names[:most]) + more


def _meaning(outputs: Arrays) -> dict[int, str]:
    if LABEL not in outputs or np.ndim(outputs[SCORES]) != 2:
        return {}
    best, labels = np.argmax(outputs[SCORES], axis=1), class_names(np.asarray(outputs[LABEL]))
    found = {int(column): np.unique(labels[best == column]) for column in np.unique(best)}
    return {column: str(names[0]) for column, names in found.items() if len(names) == 1}


def _common_datatype(given: Mapping[str, NDArray[Any]]) -> str:
    if next(iter(given.values())).dtype.kind in "OSU":
        return "BYTES"
    return datatype_of(np.empty(0, np.result_type(*(array.dtype for array in given.values()))))


def _told(array: NDArray[Any]) -> list[int]:
    return [-1, *array.shape[1:]]
