"""Signs of wrong predictions, certainties or run times; some are errors, others warnings."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from gearshift.errors import InvalidInput, require
from gearshift.profiles.profile import PART_A, PART_B, PredictionRecords, RunTimeCurve
from gearshift.result import wilson_interval

LEAST_SHARE = 0.01
"""Share of the samples; a rarer value causes no warning."""
LEAST_GROWTH = 0.9
"""Time of the largest batch over the smallest; less cannot be noise."""
LONGEST_SAMPLE_S = 60.0
LEAST_OF_EACH = 20
"""Right and wrong answers needed to compare their certainty."""
LEAST_CHANCE = 0.4
WIDEST_INTERVAL = 0.25
"""The widest 95 % interval of an accuracy from one part's samples that is not warned of."""
MOST_TOLD = 3
LONGEST_TOLD = 40
REMEDY = "let labels and predictions be the same names or numbers"

Names = NDArray[np.str_]


def require_common_class(model: str, predictions: Names, labels: Names, *, where: str) -> None:
    """Raise `InvalidInput` where no prediction (n,) of a model is a class of `labels` (n,)."""
    examples = f"for example {told(labels[0])} and {told(predictions[0])}"
    common = bool(np.isin(predictions, labels).any())
    require(
        common, f"no output of model {model!r} is ever a value that the labels have, {examples}", where=where,
        remedy=REMEDY,
    )  # fmt: skip


def require_some_right(records: PredictionRecords, *, where: str) -> None:
    if not records.labelled or records.quality.any():
        return
    example, remedy = "", "check how they were judged"
    if records.label is not None and records.prediction is not None:
        model, label, said = records.models[0], records.label[0], records.prediction[0, 0]
        example = f", for example sample 0 is labelled {told(label)}, and model {model!r} answers {told(said)}"
        remedy = REMEDY
    raise InvalidInput(f"no model is right on any sample{example}", where=where, remedy=remedy)


def doubts_about(records: PredictionRecords) -> tuple[str, ...]:
    return tuple(
        sentence
        for row, model in enumerate(records.models)
        for doubts in (_doubts_about_model, _doubts_about_certainty)
        for sentence in doubts(records, row, model)
    )


def doubts_about_number(records: PredictionRecords) -> tuple[str, ...]:
    """A sentence where the smaller part has too few samples for an accuracy."""
    on_a, on_b = (len(records.indices(part)) for part in (PART_A, PART_B))
    accuracy, least = float(records.quality.mean(axis=1).max()), min(on_a, on_b)
    low, high = wilson_interval(accuracy, least)
    if high - low <= WIDEST_INTERVAL:
        return ()
    return (
        f"{on_a + on_b} samples are too few for accuracies to mean much: plans are chosen on {on_a} of them and judged "
        f"on {on_b}, and with {least} an accuracy of {100 * accuracy:.1f} % may be anything from {100 * low:.0f} to "
        f"{100 * high:.0f} %; bring some hundreds",
    )


def doubts_about_run_times(curves: Sequence[RunTimeCurve]) -> tuple[str, ...]:
    sentences = []
    for curve in curves:
        small, large = curve.batch_sizes[0], curve.largest_batch_size
        first_s, last_s = curve.median_s[0], curve.median_s[-1]
        of = f"model {curve.model!r} takes {first_s:.4g} s for a batch of {small}"
        if last_s < LEAST_GROWTH * first_s:
            sentences.append(
                f"{of} and {last_s:.4g} s for one of {large}: `seconds` are of the whole batch, not of a sample"
            )
        if first_s / small > LONGEST_SAMPLE_S:
            sentences.append(f"{of}: if these are milliseconds, write seconds")
    return tuple(sentences)


def _doubts_about_certainty(records: PredictionRecords, row: int, model: str) -> Iterator[str]:
    """Check that certainty differs between samples, and is higher where answers are right."""
    certainty, right = records.certainty[row], records.quality[row] > 0.5
    if not records.labelled or min(right.sum(), (~right).sum()) < LEAST_OF_EACH:
        return
    if bool((certainty == certainty[0]).all()):
        yield f"model {model!r} is as certain of all samples, so that it can only be the last of a cascade"
    else:
        chance = _chance_above(certainty[right], certainty[~right])
        if chance < LEAST_CHANCE:
            yield (
                f"model {model!r} is more certain where it is wrong than where it is right, {100 * (1 - chance):.0f} "
                "times in 100: is its certainty a doubt, such as an entropy or a distance?"
            )


def _chance_above(these: NDArray[np.float64], those: NDArray[np.float64]) -> float:
    """The chance that one of `these` (n,) exceeds one of `those` (m,); ties count half."""
    ordered = np.sort(those)
    below, up_to = (np.searchsorted(ordered, these, side=side) for side in ("left", "right"))
    return float((below + up_to).mean() / (2 * len(those)))


def _doubts_about_model(records: PredictionRecords, row: int, model: str) -> Iterator[str]:
    if records.prediction is None:
        return
    said: Names = records.prediction[row]
    label, n = records.label, len(said)
    expected: Names = records.prediction if label is None else label
    if bool((said == said[0]).all() and (expected != said[0]).any()):
        yield f"model {model!r} answers {told(said[0])} to all {n} samples"
    if label is None or not np.array_equal(records.quality[row], said == label):
        return
    if not records.quality[row].any():
        example = f"sample 0 is labelled {told(label[0])}, it answers {told(said[0])}"
        yield f"model {model!r} is right on no sample: {example}"
    if missed := _only_among(label, said):
        yield "model {!r} never answers {}, which the labels of {} of the samples are".format(model, *missed)
    if strange := _only_among(said, label):
        yield "model {!r} answers {}, which no label is, to {} of the samples".format(model, *strange)


def _only_among(values: Names, others: Names) -> tuple[str, str] | None:
    """Frequent `values` (n,) missing from `others`, and their share of the samples."""
    lacking, counts = np.unique(values[~np.isin(values, others)], return_counts=True)
    often = counts >= LEAST_SHARE * len(values)
    if not often.any():
        return None
    more = " and others" if int(often.sum()) > MOST_TOLD else ""
    return ", ".join(map(told, lacking[often][:MOST_TOLD])) + more, f"{100 * counts[often].sum() / len(values):.1f} %"


def told(value: object) -> str:
    text = value if isinstance(value, bytes) else str(value)
    more = "..." if len(text) > LONGEST_TOLD else ""
    return f"{text[:LONGEST_TOLD]!a}{more}"
