"""Answers of pipelines of several nodes: outputs of rows that may have none, and facts of each node."""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from gearshift.clock import NS_PER_S
from gearshift.plans.plan_tables import PipelineTables
from gearshift.request import Answer, CutRows, ItemFacts, MissingNode, RowFacts, Sample
from gearshift.runtime.service.answers import OpenRequest, answer_of

NO_BRANCH = "no branch led to it"
NO_ANSWER = "no_answer"
"""The reason of a degraded answer with a row of which the output node has no answer."""


def facts_of(item: Sample, models: Sequence[str], of: PipelineTables) -> ItemFacts:
    node, queue_s, run_s = of.nodes[item.node - of.first_node], item.queue_ns / NS_PER_S, item.run_ns / NS_PER_S
    inside = inside_of(item)
    if item.error:
        return ItemFacts(node=node, row=item.row, error=item.error, queue_s=queue_s, run_s=run_s, inside=inside)
    return ItemFacts(
        node=node,
        row=item.row,
        model=models[item.model],
        stage=item.stage,
        certainty=item.certainty,
        exit_segment=item.exit_segment,
        queue_s=queue_s,
        run_s=run_s,
        inside=inside,
    )


def inside_of(item: Sample) -> tuple[int, ...]:
    """The number of the item's row in each fan-out around it, the outermost first."""
    rows, scope = list[int](), item.scope
    while scope is not None and scope.around is not None:
        rows.append(scope.row)
        scope = scope.around
    return tuple(reversed(rows))


def graph_answer(opened: OpenRequest, models: Sequence[str], gear: int, of: PipelineTables) -> Answer:
    """The answer of a request whose rows passed through the graph of pipeline `of`.

    Rows without an answer of the output node are empty: 0, or "" in text; `missing` names them. If
    all rows lack one, there are no outputs.
    """
    samples = opened.samples
    output = of.nodes[of.output - of.first_node]
    lacking = [sample for sample in samples if sample.result is None and not sample.error]
    missing = [
        MissingNode(node=of.nodes[node - of.first_node], row=sample.row, reason=reason, is_output=node == of.output)
        for sample in samples
        for node, reason in sample.missing
    ]
    told = {(one.node, one.row) for one in missing}
    missing += [
        MissingNode(node=output, row=sample.row, reason=NO_BRANCH, is_output=True)
        for sample in lacking
        if (output, sample.row) not in told
    ]
    answer = answer_of(samples, models, gear) if not lacking else _answer_in_part(samples, models, gear)
    cut = [
        CutRows(node=of.nodes[node - of.first_node], row=sample.row, rows=rows)
        for sample in samples
        for node, rows in sample.cut
    ]
    return msgspec.structs.replace(answer, items=tuple(opened.items or ()), missing=tuple(missing), cut=tuple(cut))


def _answer_in_part(samples: Sequence[Sample], models: Sequence[str], gear: int) -> Answer:
    if any(sample.error for sample in samples):
        return answer_of(samples, models, gear)
    given = [sample for sample in samples if sample.result is not None]
    if not given:
        queue_ns, run_ns = (max(getattr(s, name) for s in samples) for name in ("queue_ns", "run_ns"))
        whole = Answer(outcome="degraded", gear=gear, queue_s=queue_ns / NS_PER_S, run_s=run_ns / NS_PER_S, outputs={})
    else:
        whole = answer_of(given, models, gear)
    if whole.outcome == "failed":
        return whole
    facts, outputs = iter(whole.rows), whole.outputs
    rows = [RowFacts(model="", stage=0, certainty=0.0) if s.result is None else next(facts) for s in samples]
    places = [place for place, sample in enumerate(samples) if sample.result is not None]
    spread = {name: _spread(array, places, len(samples)) for name, array in dict(outputs or {}).items()}  # type: ignore[call-overload]
    return msgspec.structs.replace(
        whole, outcome="degraded", reason=whole.reason or NO_ANSWER, rows=tuple(rows), outputs=spread
    )


def _spread(array: NDArray[Any], places: Sequence[int], rows: int) -> NDArray[Any]:
    whole = np.zeros((rows, *array.shape[1:]), array.dtype)
    if array.dtype.kind == "O":
        whole[...] = ""
    whole[places] = array
    return whole
