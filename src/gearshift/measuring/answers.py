"""Models' answers to all samples, alone and in other batches, and the records that they make."""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gearshift.errors import ModelFailed, require
from gearshift.measuring.bench import Bench
from gearshift.measuring.paid import Kept
from gearshift.model import LABEL, Predicted
from gearshift.models.classes import class_names
from gearshift.models.samples import Samples
from gearshift.profiles.doubts import require_common_class, require_some_right
from gearshift.profiles.profile import PredictionRecords, split_parts
from gearshift.request import Sample
from gearshift.runtime.service.answers import stack_results


async def answers_to_all(
    bench: Bench, name: str, size: int, samples: Samples, progress: Callable[[float], None], kept: Kept
) -> list[Sample]:
    """Run model `name` on all samples, in batches of `size`; returns these with their results."""
    answered = dict(kept.answered(name))
    left = [row for row in range(len(samples)) if row not in answered]
    for begin in range(0, len(left), size):
        rows = left[begin : begin + size]
        batch, _, _ = await bench.run(name, samples, rows, keep=lambda *said, rows=rows: kept.keep(name, rows, *said))
        answered.update(zip(rows, batch, strict=True))
        progress(len(answered) / len(samples))
    return [answered[row] for row in range(len(samples))]


def predicted_of(name: str, finished: Sequence[Sample], *, segmented: bool) -> Predicted:
    """The answers of model `name` to all samples as arrays; raises `ModelFailed` if they do not fit."""
    try:
        outputs = stack_results(finished)
    except (KeyError, ValueError) as error:
        raise ModelFailed(f"model {name!r} answers outputs of different names or shapes from batch to batch") from error
    exits = np.array([sample.exit_segment for sample in finished]) if segmented else None
    certainty = np.array([sample.certainty for sample in finished])
    unusable = np.array([sample.unanswered for sample in finished])
    return Predicted(outputs, certainty, exit_segment=exits, unusable=unusable if unusable.any() else None)


def records_from_answers(
    models: Sequence[str],
    answers: Mapping[str, Predicted],
    samples: Samples,
    seed: int,
    *,
    strongest: str | None = None,
) -> PredictionRecords:
    """Records of the answers of `models` to all `samples`; quality is 1 where `label` is right.

    Without labels, quality is agreement with the model `strongest`. Raises `InvalidInput` for a
    certainty or a label that is not finite, for a model without an output `label` or with outputs
    that match no label, and where no model is right on any sample.
    """
    prediction = np.stack([class_names(_labels_said(model, answers[model], len(samples))) for model in models])
    labels = samples.labels
    if labels is None:
        require(strongest in models, "there are no labels and no strongest model to compare with")
        truth = prediction[list(models).index(str(strongest))]
    else:
        truth = class_names(labels)
        for model, names in zip(models, prediction, strict=True):
            require_common_class(model, names, truth, where="samples, labels")
    groups = np.arange(len(samples)) if samples.groups is None else samples.groups
    records = PredictionRecords(
        models=tuple(models),
        quality=(prediction == truth).astype(np.float64),
        certainty=np.stack([np.asarray(answers[model].certainty, dtype=np.float64) for model in models]),
        part=split_parts(groups, seed),
        labelled=labels is not None,
        label=None if labels is None else truth,
        prediction=prediction,
        exit_segment=_exits(models, answers, len(samples)),
    )
    require_some_right(records, where="samples, labels")
    return records


def without_unusable(records: PredictionRecords, answers: Mapping[str, Predicted]) -> PredictionRecords:
    quality = records.quality.copy()
    for row, model in enumerate(records.models):
        if (unusable := answers[model].unusable) is not None:
            quality[row, unusable] = 0.0
    return replace(records, quality=quality)


def unusable_counted(answers: Mapping[str, Predicted]) -> list[str]:
    return [
        f"{np.count_nonzero(answer.unusable)} of {len(answer.certainty)} answers of model {model!r} were none of the "
        "classes, or none at all, and count as wrong"
        for model, answer in answers.items()
        if answer.unusable is not None
    ]


def _exits(models: Sequence[str], answers: Mapping[str, Predicted], n: int) -> NDArray[np.int64] | None:
    exits = [answers[model].exit_segment for model in models]
    if all(each is None for each in exits):
        return None
    return np.stack([np.zeros(n, dtype=np.int64) if each is None else each for each in exits])


def _labels_said(model: str, answer: Predicted, n: int) -> NDArray[Any]:
    where = f"model {model!r}"
    bad = np.count_nonzero(~np.isfinite(answer.certainty))
    require(
        bad == 0,
        f"the certainty of {bad} of {n} samples is NaN or infinite",
        where=where,
        remedy="mend its certainty, or leave such samples out",
    )
    require(
        "label" in answer.outputs,
        f"its outputs are {sorted(answer.outputs)}, and without 'label' its answers cannot be judged",
        where=where,
        remedy="name its answer `label`, or bring judged answers with `gearshift profile --from-records`",
    )
    values = np.asarray(answer.outputs["label"])
    require(
        values.shape == (n,) and answer.certainty.shape == (n,),
        f"output 'label' has shape {values.shape} for {n} samples",
        where=where,
        remedy="answer one label per sample",
    )
    unknown = np.count_nonzero(np.isnan(values)) if values.dtype.kind == "f" else 0
    require(unknown == 0, f"output 'label' is NaN for {unknown} of {n} samples", where=where, remedy="answer a class")
    return values


ROWS = 64
"""At most this many rows are run again."""
NOISE = 0.01
"""Certainties may differ by this share of their range, as sums in another order do,"""
ROUNDING = 1e-6
"""and by this share of the largest."""
REMEDY = (
    "call eval() where batches are normalised or dropped out, and pad and scale each row by itself, "
    "or what is planned is not what is served"
)

RunBatch = Callable[[list[int]], Awaitable[tuple[list[Sample], float]]]
"""Runs these rows as one batch; returns the finished samples, and seconds."""


async def found_in_other_batches(
    model: str, run: RunBatch, answers: Predicted, sizes: Sequence[int], *, seed: int, longest_s: float
) -> list[str]:
    """Sentences about rows whose answers in other batches differ from those in `answers`.

    One batch of the first rows is run a second time, then up to `ROWS` rows in another order, in
    batches of the largest and the middle of `sizes` and alone, for about `longest_s`.
    """
    n, largest = len(answers.certainty), max(sizes)
    labels = np.asarray(answers.outputs.get(LABEL, ()))
    if labels.shape != (n,) or not np.isfinite(answers.certainty).all():
        return []  # such answers are refused elsewhere
    names = class_names(labels)
    noise = NOISE * float(np.ptp(answers.certainty)) + ROUNDING * float(np.abs(answers.certainty).max())
    again, took_s = await run(list(range(min(n, largest))))
    unsteady = _differing(again, names)
    if unsteady:
        return [f"model {model!r} answers {len(unsteady)} of {len(again)} rows otherwise when they are run again"]
    rows = np.random.default_rng([seed, 4]).permutation(n)[:ROWS]
    ran, changed, moved = set[int](), set[int](), dict[int, float]()
    for size in sorted({1, sizes[len(sizes) // 2], largest}, reverse=True):
        for batch in _batches(rows, size):
            if took_s > longest_s and ran:
                break
            finished, batch_s = await run(batch)
            took_s += batch_s
            ran.update(batch)
            changed |= _differing(finished, names)
            moved |= _moved(finished, answers.certainty, noise)
    if changed:
        what = f"answers {len(changed)} of {len(ran)} rows otherwise"
    elif moved:
        what = f"has another certainty, by up to {max(moved.values()):.3g}, for {len(moved)} of {len(ran)} rows"
    else:
        return []
    return [f"model {model!r} {what} when they run alone or in other batches; {REMEDY}"]


def _batches(rows: NDArray[np.int64], size: int) -> Iterator[list[int]]:
    for begin in range(0, len(rows), size):
        yield rows[begin : begin + size].tolist()


def _differing(finished: Sequence[Sample], names: NDArray[np.str_]) -> set[int]:
    said = class_names(np.concatenate([sample.result[LABEL] for sample in finished]))  # type: ignore[index]
    rows = np.array([sample.row for sample in finished])
    return set(rows[said != names[rows]].tolist())


def _moved(finished: Sequence[Sample], certainty: NDArray[np.float64], noise: float) -> dict[int, float]:
    by = {sample.row: abs(sample.certainty - float(certainty[sample.row])) for sample in finished}
    return {row: difference for row, difference in by.items() if difference > noise}
