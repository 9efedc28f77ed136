"""The times that a step's curve leaves out, fitted from recorded runs."""

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from gearshift.errors import require
from gearshift.profiles.engines.engine_profile import EngineProfile, StepWork

Floats = NDArray[np.float64]


class RecordedSpan(msgspec.Struct, frozen=True, kw_only=True):
    """A time measured from the begin of step `first` to the end of step `last` of a run."""

    first: int
    last: int
    measured_s: float


FITTED = 4
"""The first of `StepWork.added`."""


def fit_added(
    profile: EngineProfile, runs: Sequence[tuple[Sequence[StepWork], Sequence[RecordedSpan]]]
) -> EngineProfile:
    """The profile whose `added_s` make up best for what its curves lack; `overhead_per_prompt_s` stays.

    Each run has the work of its steps in order, and spans that were measured; relative errors are
    squared, and no time is below zero. Runs count alike, however many spans each has.
    """
    plain = msgspec.structs.replace(
        profile,
        per_kv_token_s=0.0,
        per_attention_token_s=0.0,
        overhead_per_step_s=0.0,
        overhead_per_request_s=0.0,
    )
    rows: list[Floats] = []
    lacking: list[Floats] = []
    for steps, spans in runs:
        require(len(spans) > 0, "a recorded run has no measured span")
        added = _summed(np.array([step.added[:FITTED] for step in steps], dtype=np.float64))
        known = _summed(np.array([[plain.step_s(step)] for step in steps]))[:, 0]
        first, end = np.array([span.first for span in spans]), np.array([span.last + 1 for span in spans])
        measured = np.array([span.measured_s for span in spans])
        weight = 1 / (measured * np.sqrt(len(spans)))
        rows.append((added[end] - added[first]) * weight[:, None])
        lacking.append((measured - (known[end] - known[first])) * weight)
    work, left = np.concatenate(rows), np.concatenate(lacking)
    scale = np.maximum(work.max(axis=0), np.finfo(float).tiny)
    found = nnls(work / scale, left)[0] / scale
    return msgspec.structs.replace(
        profile,
        per_kv_token_s=float(found[0]),
        per_attention_token_s=float(found[1]),
        overhead_per_step_s=float(found[2]),
        overhead_per_request_s=float(found[3]),
    )


def _summed(each: Floats) -> Floats:
    """Sums of the first 0, 1, ... rows."""
    return np.concatenate([np.zeros((1, each.shape[1])), np.cumsum(each, axis=0)])
