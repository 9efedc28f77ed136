"""Conditions on a node's output, as its recorded answers meet them."""

import numpy as np
from numpy.typing import NDArray

from gearshift.errors import InvalidInput
from gearshift.models.classes import class_name
from gearshift.pipeline import When
from gearshift.profiles.profile import PredictionRecords

Bools = NDArray[np.bool_]

CERTAINTY = "certainty"


def holds(when: When, records: PredictionRecords) -> Bools:
    """Whether the answer of each model to each sample meets the condition (models, samples).

    `one_of` is compared with the recorded class; `at_least` with the certainty, or, for any other
    output, with the class as a number. Raises `InvalidInput` where that was not recorded.
    """
    if when.at_least is not None and when.output == CERTAINTY:
        return np.asarray(records.certainty >= when.at_least)
    if records.prediction is None:
        raise InvalidInput(
            f"the condition on output {when.output!r} needs recorded predictions, and there are none",
            remedy="record the column 'prediction'",
        )
    return holds_for_classes(when, records.prediction)


def holds_for_classes(when: When, classes: NDArray[np.str_]) -> Bools:
    """Whether each class meets a condition that is not on certainty; same shape."""
    if when.one_of is not None:
        equal = [classes == class_name(value) for value in when.one_of]
        return np.asarray(np.logical_or.reduce(equal)) if equal else np.zeros(classes.shape, dtype=np.bool_)
    names, which = np.unique(classes, return_inverse=True)
    met = np.array([_number(name, when.output) for name in names.tolist()]) >= when.at_least
    return np.asarray(met[which].reshape(classes.shape))


def _number(name: str, output: str) -> float:
    try:
        return float(name)
    except ValueError:
        raise InvalidInput(
            f"the condition on output {output!r} compares numbers, and a recorded prediction is {name!r}",
            remedy="give one_of in place of at_least, or record numbers",
        ) from None
