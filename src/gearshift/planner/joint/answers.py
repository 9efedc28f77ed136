"""The answers of a node's implementations to every recorded item, wherever the query passes it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gearshift.cascade import Cascade
from gearshift.errors import require
from gearshift.pipeline import When
from gearshift.planner.joint.composed import ComposedQuery
from gearshift.profiles.conditions import CERTAINTY, holds, holds_for_classes
from gearshift.profiles.profile import PredictionRecords

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Bools = NDArray[np.bool_]

NONE: Bools = np.empty((0, 0), dtype=np.bool_)


def rows_of(array: NDArray[Any], rows: Sequence[int] | NDArray[np.int64]) -> NDArray[Any]:
    """Rows of the first axis, also repeated; an array with one row for all, or none, as it is."""
    return array if len(array) <= 1 else array[np.asarray(rows, dtype=np.int64)]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Answers:
    """Answers of k implementations of one node in each slot of its scope.

    All arrays are (k, slots), or (1, slots) where all agree: `quality`, `work_s`, for each edge
    from the node whether its condition holds in `live`, and at the output node whether the result
    is `positive`, elsewhere empty.
    """

    quality: Floats
    work_s: Floats
    live: tuple[Bools, ...]
    positive: Bools

    def __len__(self) -> int:
        return len(self.quality)

    def of(self, rows: Sequence[int] | NDArray[np.int64]) -> "Answers":
        """The answers of some of the implementations, in that order, also repeated."""
        return Answers(
            quality=rows_of(self.quality, rows),
            work_s=rows_of(self.work_s, rows),
            live=tuple(rows_of(each, rows) for each in self.live),
            positive=rows_of(self.positive, rows),
        )


def answers(
    query: ComposedQuery, node: str, cascades: Sequence[Cascade], work_s: Mapping[str, float | Doubles]
) -> Answers:
    """Replay cascades on the samples of a node; `work_s` is the cost of a visit of each model.

    A cost is one for all samples of the operator, or one for each (samples,).
    """
    records = query.records(node)
    positive = _positive_at(query, node)
    slots = query.samples[node]
    last = np.empty((len(cascades), len(records.part)), dtype=np.int64)
    work = np.empty(last.shape, dtype=np.float32)
    for k, cascade in enumerate(cascades):
        last[k], work[k] = _stages(cascade, records, work_s)
    samples = np.arange(last.shape[1])

    def met(when: When | None) -> Bools:
        if when is None:
            return np.ones((1, len(slots)), dtype=np.bool_)
        return np.asarray(holds(when, records)[last, samples][:, slots])

    return Answers(
        quality=records.quality[last, samples].astype(np.float32)[:, slots],
        work_s=work[:, slots],
        live=tuple(met(when) for when in query.conditions[node]),
        positive=NONE if positive is None else met(positive),
    )


def true_answers(query: ComposedQuery, node: str) -> Answers:
    """The answers of a model that is always right, at no cost: the labels.

    Raises `InvalidInput` where labels were not recorded, or an edge depends on certainty.
    """
    records = query.records(node)
    labels = records.label
    if labels is None and len(records.models) == 1 and records.prediction is not None:
        labels = records.prediction[0]  # a function is right
    conditions = [when for when in (*query.conditions[node], _positive_at(query, node)) if when is not None]
    require(
        labels is not None or not conditions,
        f"operator {query.operators[node]!r} has no labels, and recall and precision need the right answers",
        remedy="record the column 'label', or ask for accuracy",
    )
    require(
        all(when.output != CERTAINTY for when in conditions),
        f"node {node!r} has an edge on certainty, and recall and precision need edges on answers",
        remedy="ask for accuracy, or for agreement",
    )
    slots = query.samples[node]
    known = np.zeros(len(records.part), dtype=np.str_) if labels is None else labels

    def met(when: When | None) -> Bools:
        right = np.ones(known.shape, dtype=np.bool_) if when is None else holds_for_classes(when, known)
        return right[None, slots]

    positive = _positive_at(query, node)
    return Answers(
        quality=np.ones((1, len(slots)), dtype=np.float32),
        work_s=np.zeros((1, len(slots)), dtype=np.float32),
        live=tuple(met(when) for when in query.conditions[node]),
        positive=NONE if positive is None else met(positive),
    )


def _positive_at(query: ComposedQuery, node: str) -> When | None:
    return query.positive if node == query.output else None


def _stages(
    cascade: Cascade, records: PredictionRecords, work_s: Mapping[str, float | Doubles]
) -> tuple[NDArray[np.int64], Floats]:
    """The model that answers each sample (samples,), and the cost of all that it visits."""
    rows = records.rows(cascade.models)
    last = np.full(len(records.part), rows[0])
    work = np.full(len(records.part), work_s[cascade.models[0]], dtype=np.float32)
    forwarded = np.ones(len(records.part), dtype=np.bool_)
    for stage, threshold in enumerate(cascade.thresholds):
        forwarded &= records.certainty[rows[stage]] < threshold
        last[forwarded] = rows[stage + 1]
        work += forwarded * np.float32(work_s[cascade.models[stage + 1]])
    return last, work
