"""Evaluate learned caches on samples that neither built nor chose them."""

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from gearshift.caches.building.exploration import CHECKED_ROWS, class_numbers
from gearshift.caches.building.timing import TIMED_ROWS, in_turn, scores_by
from gearshift.caches.network.chain import check_chain
from gearshift.caches.network.collect import as_tensor
from gearshift.caches.running.cached_model import EXIT_SEGMENT, SCORES, CachedModel
from gearshift.caches.store.validation import read_validation
from gearshift.errors import InvalidInput, require
from gearshift.result import LatencySummary, latency_summary, wilson_interval

BATCH = 64


class Evaluation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A cached model compared with its base model.

    `agreement` is the share of samples answered alike, with its 95 % Wilson interval; accuracies
    need labels. `exits` is the share of samples that leave after each block. `built_from` is how
    many samples are among those the caches were built from; 0 also if those are not known.
    Latencies are of `timed` single rows, run in turn: the base model, the same with folded batch
    norms (which caches include), and with caches. `gain` and `gain_over_folded` are the means of
    the first two divided by the last.
    """

    samples: int
    agreement: float
    agreement_interval: tuple[float, float]
    accuracy: float | None
    base_accuracy: float | None
    exits: dict[str, float]
    timed: int
    base_latency_s: LatencySummary
    folded_latency_s: LatencySummary
    latency_s: LatencySummary
    gain: float
    gain_over_folded: float
    built_from: int = 0

    def shortfall(self, target: float) -> str:
        """Return a sentence if agreement is below `target`, with whether that may be luck."""
        if self.agreement >= target:
            return ""
        low, high = self.agreement_interval
        luck = "may be luck" if high >= target else "is more than luck"
        return (
            f"agreement is below the {target:.2%} asked for, which {luck}: {self.agreement:.2%}, on new samples "
            f"{low:.2%} to {high:.2%}, by {self.samples} samples"
        )


def evaluate(
    model: CachedModel, inputs: NDArray[Any], labels: NDArray[Any] | None = None, *, timed_rows: int = TIMED_ROWS
) -> Evaluation:
    """Run `inputs` (n, ...) through both models in batches, and `timed_rows` of them one by one."""
    inputs, device = np.asarray(inputs), model.chain.device
    require(inputs.shape[:1] != (0,), "there are no samples", where="learned caches", remedy="give some")
    check_chain(model.chain, as_tensor(inputs if inputs.ndim == 0 else inputs[:CHECKED_ROWS]).to(device))
    base = scores_by(model.chain.module, device)
    parts = [inputs[begin : begin + BATCH] for begin in range(0, len(inputs), BATCH)]
    theirs = np.concatenate([base(part) for part in parts])
    answers = [model.predict(part) for part in parts]
    ours = np.concatenate([answer[SCORES] for answer in answers]).argmax(axis=1)
    exits = np.bincount(np.concatenate([answer[EXIT_SEGMENT] for answer in answers]), minlength=len(model.chain))
    best = theirs.argmax(axis=1)
    classes = theirs.shape[1]
    known = None if labels is None else class_numbers(model.chain.module, np.asarray(labels), len(inputs), classes)
    agreement = float((ours == best).mean())
    base_s, folded_s, cached_s = in_turn(model, inputs[:timed_rows])
    return Evaluation(
        samples=len(inputs),
        agreement=agreement,
        agreement_interval=wilson_interval(agreement, len(inputs)),
        accuracy=None if known is None else float((ours == known).mean()),
        base_accuracy=None if known is None else float((best == known).mean()),
        exits=dict(zip(model.chain.names, (exits / len(inputs)).tolist(), strict=True)),
        timed=len(base_s),
        base_latency_s=latency_summary(base_s),
        folded_latency_s=latency_summary(folded_s),
        latency_s=latency_summary(cached_s),
        gain=float(base_s.mean() / cached_s.mean()),
        gain_over_folded=float(folded_s.mean() / cached_s.mean()),
        built_from=_built_from(model, inputs),
    )


def _built_from(model: CachedModel, inputs: NDArray[Any]) -> int:
    try:
        known = np.zeros(0) if model.origin is None else read_validation(model.origin.folder).inputs
    except InvalidInput:
        return 0
    if known.shape[1:] != inputs.shape[1:]:
        return 0
    seen = {hash(row.tobytes()) for row in known}
    return sum(hash(row.astype(known.dtype).tobytes()) in seen for row in inputs)
