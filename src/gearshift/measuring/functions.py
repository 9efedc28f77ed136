"""Records and outputs of a plain function: it is certain and right, by definition."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gearshift.measuring.items import rows_of_results, spec_of_rows
from gearshift.model import LABEL, Arrays, TensorSpec
from gearshift.models.classes import class_names
from gearshift.models.declared_outputs import DeclaredOutputs
from gearshift.models.samples import Samples
from gearshift.profiles.profile import PredictionRecords, split_parts


def function_outputs(results: Sequence[Arrays]) -> tuple[TensorSpec, ...]:
    """The outputs of a function, from its results for each item; raises `InvalidInput` if they differ."""
    return tuple(spec_of_rows(name, rows_of_results(results, name)) for name in results[0])


def as_published(results: Sequence[Arrays], specs: Sequence[TensorSpec]) -> list[Arrays]:
    """Results as a server passes them on: converted to `specs`, and empty rows of their type, too."""
    declared = DeclaredOutputs(specs)
    return [
        declared.of({name: _not_bare(array, declared.empty(name)) for name, array in result.items()})
        for result in results
    ]


def _not_bare(array: NDArray[Any], empty: NDArray[Any] | None) -> NDArray[Any]:
    return empty[None] if empty is not None and not array.size and not empty.size else array


def function_records(
    name: str, results: Sequence[Arrays], samples: Samples, part: NDArray[np.int8] | None, seed: int
) -> PredictionRecords:
    n = len(samples)
    groups = np.arange(n) if samples.groups is None else samples.groups
    return PredictionRecords(
        models=(name,),
        quality=np.ones((1, n)),
        certainty=np.ones((1, n)),
        part=split_parts(groups, seed) if part is None else part,
        prediction=_labels(results),
    )


def _labels(results: Sequence[Arrays]) -> NDArray[np.str_] | None:
    if any(LABEL not in result or result[LABEL].shape != (1,) for result in results):
        return None
    return class_names(np.concatenate([result[LABEL] for result in results]))[None]
