"""Tests whether a model's answers depend on the other rows of a batch, by running rows again."""

from collections.abc import Awaitable, Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from gearshift.model import LABEL, Predicted
from gearshift.models.classes import class_names
from gearshift.request import Sample

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
