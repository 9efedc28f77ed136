"""Signs that predictions were compared with the wrong labels: some are errors, others warnings."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from gearshift.errors import InvalidInput, require
from gearshift.profiles.profile import PredictionRecords

LEAST_SHARE = 0.01
"""Share of the samples; a value that is rarer causes no warning."""
MOST_TOLD = 3
LONGEST_TOLD = 40
REMEDY = "let labels and predictions be the same names or numbers"

Names = NDArray[np.str_]


def require_common_class(model: str, predictions: Names, labels: Names, *, where: str) -> None:
    """Raise `InvalidInput` where no prediction (n,) of a model is a class that any of `labels` (n,) is."""
    examples = f"for example {told(labels[0])} and {told(predictions[0])}"
    common = bool(np.isin(predictions, labels).any())
    require(
        common, f"no output of model {model!r} is ever a value that the labels have, {examples}", where=where,
        remedy=REMEDY,
    )  # fmt: skip


def require_some_right(records: PredictionRecords, *, where: str) -> None:
    """Raise `InvalidInput` where no model is right on any sample."""
    if not records.labelled or records.quality.any():
        return
    example, remedy = "", "check how they were judged"
    if records.label is not None and records.prediction is not None:
        model, label, said = records.models[0], records.label[0], records.prediction[0, 0]
        example = f", for example sample 0 is labelled {told(label)}, and model {model!r} answers {told(said)}"
        remedy = REMEDY
    raise InvalidInput(f"no model is right on any sample{example}", where=where, remedy=remedy)


def doubts_about(records: PredictionRecords) -> tuple[str, ...]:
    """Warnings, as sentences, about models whose predictions do not seem to fit the labels."""
    if records.prediction is None:
        return ()
    return tuple(
        sentence for row, model in enumerate(records.models) for sentence in _doubts_about_model(records, row, model)
    )


def _doubts_about_model(records: PredictionRecords, row: int, model: str) -> Iterator[str]:
    said: Names = records.prediction[row]  # type: ignore[index]
    label, n = records.label, len(said)
    expected: Names = records.prediction if label is None else label  # type: ignore[assignment]
    if bool((said == said[0]).all() and (expected != said[0]).any()):
        yield f"model {model!r} answers {told(said[0])} to all {n} samples"
    if label is None or not _judged_by(label, said, records.quality[row]):
        return
    if not records.quality[row].any():
        example = f"sample 0 is labelled {told(label[0])}, it answers {told(said[0])}"
        yield f"model {model!r} is right on no sample: {example}"
    if missed := _only_among(label, said):
        yield "model {!r} never answers {}, which the labels of {} of the samples are".format(model, *missed)
    if strange := _only_among(said, label):
        yield "model {!r} answers {}, which no label is, to {} of the samples".format(model, *strange)


def _only_among(values: Names, others: Names) -> tuple[str, str] | None:
    """Frequent `values` (n,) that none of `others` is, and the share of the samples that they have."""
    lacking, counts = np.unique(values[~np.isin(values, others)], return_counts=True)
    often = counts >= LEAST_SHARE * len(values)
    if not often.any():
        return None
    more = " and others" if int(often.sum()) > MOST_TOLD else ""
    return ", ".join(map(told, lacking[often][:MOST_TOLD])) + more, f"{100 * counts[often].sum() / len(values):.1f} %"


def _judged_by(label: Names, said: Names, quality: NDArray[np.float64]) -> bool:
    """Whether quality is equality with the label, and no score by another judge."""
    return bool(np.array_equal(quality, said == label))


def told(value: object) -> str:
    """A label or a prediction as it stands in a sentence, printable and short."""
    text = value if isinstance(value, bytes) else str(value)
    more = "..." if len(text) > LONGEST_TOLD else ""
    return f"{text[:LONGEST_TOLD]!a}{more}"
