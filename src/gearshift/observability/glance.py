"""A pipeline's metrics as sums since the start: two of them give what happened in between."""

from collections.abc import Sequence

import msgspec


class NodeSums(msgspec.Struct, frozen=True, kw_only=True):
    """Items of a node that ended, those of them that failed, and their time in queues and batches."""

    items: float = 0.0
    failed: float = 0.0
    seconds: float = 0.0


class Glance(msgspec.Struct, frozen=True, kw_only=True):
    """Times are counts by bucket of `families.SECONDS`, with one more for those beyond; busy seconds are by device.

    `ttft`, `per_token` and `output_tokens` are of language models.
    """

    outcomes: dict[str, float]
    latency: list[int]
    late: float = 0.0
    dropped: dict[str, float] = {}
    answers_by_model: dict[str, float] = {}
    busy_s: dict[str, float] = {}
    nodes: dict[str, NodeSums] = {}
    ttft: list[int] = []
    per_token: list[int] = []
    output_tokens: float = 0.0


def summed(counts: Sequence[Sequence[int]]) -> list[int]:
    """Counts by bucket of several histograms with the same buckets."""
    return [sum(column) for column in zip(*counts, strict=True)]


def percentile_of(counts: Sequence[int], bounds: Sequence[float], share: float) -> float | None:
    """The value below which `share` of the counted lie, linear within a bucket; None where none are.

    `counts` has one more than `bounds`, for values beyond; of those only the last bound is known.
    """
    total, below = sum(counts), 0
    if total <= 0:
        return None
    for number, bound in enumerate(bounds):
        if below + counts[number] >= share * total:
            start = bounds[number - 1] if number else 0.0
            return start + (bound - start) * (share * total - below) / max(1, counts[number])
        below += counts[number]
    return bounds[-1]
