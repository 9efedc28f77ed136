"""Sources of replayed requests: recorded samples, and the quality of answers to them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gearshift.errors import InvalidInput, require
from gearshift.load_generator.tuples_source import ItemQualities, quality_of_items
from gearshift.model import LABEL
from gearshift.models.classes import same_class
from gearshift.profiles.profile import PredictionRecords

Label = bool | int | float | str | bytes | ItemQualities


class SampleSource(Protocol):
    """The recorded samples of one operator."""

    @property
    def operator(self) -> str: ...

    @property
    def output(self) -> str: ...

    def inputs(self, record: int) -> dict[str, NDArray[Any]]:
        """Return all inputs of one sample, as arrays of one row; raises `InvalidInput`."""
        ...

    def label(self, record: int) -> Label | None:
        """Return the correct value of `output`; None if `output` is the quality itself.

        Where `output` is `gearshift_items`, the recorded quality of each model for each item.
        """
        ...


@dataclass(frozen=True, slots=True)
class LabelledSamples:
    """Samples of a project, inputs (samples, ...); an answer is good if it equals the label."""

    operator: str
    samples: Mapping[str, NDArray[Any]]
    labels: NDArray[Any]
    output: str = LABEL

    def inputs(self, record: int) -> dict[str, NDArray[Any]]:
        _check_record(record, len(self.labels))
        return {name: array[record : record + 1] for name, array in self.samples.items()}

    def label(self, record: int) -> Label | None:
        label: Label = self.labels[record : record + 1].tolist()[0]
        return label


@dataclass(frozen=True, slots=True)
class RecordedSamples:
    """Samples of an emulated server: the input `sample` is their number, the answer a quality."""

    operator: str
    samples: int
    output: str = "quality"

    def inputs(self, record: int) -> dict[str, NDArray[Any]]:
        _check_record(record, self.samples)
        return {"sample": np.array([record], dtype=np.int64)}

    def label(self, record: int) -> Label | None:
        return None


def quality_of(answered: object, label: Label | None) -> float:
    """Return 1 if the answer is the label's class, else 0; without a label the answer itself.

    Of items it is the product of their qualities. Raises `InvalidInput` if it is not in [0, 1].
    """
    if isinstance(label, dict):
        return quality_of_items(answered, label)
    if label is not None:
        return float(same_class(answered, label))
    if not isinstance(answered, int | float) or not 0 <= answered <= 1:
        raise InvalidInput(f"the answer's quality is {answered!r}", remedy="an emulated server answers 0 to 1")
    return float(answered)


def source_from_samples(inputs: Mapping[str, NDArray[Any]], labels: NDArray[Any], operator: str) -> LabelledSamples:
    """Return samples of a project: named `inputs` (samples, ...) and `labels` (samples,).

    Raises `InvalidInput` if their lengths differ or there are none.
    """
    require(len(labels) > 0 and len(inputs) > 0, "there are no samples to replay", remedy="give inputs and labels")
    for name, array in inputs.items():
        require(
            len(array) == len(labels),
            f"input {name!r} has {len(array)} rows, but there are {len(labels)} labels",
            remedy="give one label per row",
        )
    return LabelledSamples(operator=operator, samples=inputs, labels=np.asarray(labels))


def source_from_records(predictions: PredictionRecords, operator: str) -> RecordedSamples:
    return RecordedSamples(operator=operator, samples=predictions.quality.shape[1])


def _check_record(record: int, samples: int) -> None:
    require(0 <= record < samples, f"the workload asks for sample {record}", remedy=f"there are {samples} samples")
