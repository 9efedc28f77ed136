"""Queries of several operators over one relation: planned as one, and run as streams."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from gearshift.bulk.operator import open_operator
from gearshift.bulk.relations import through
from gearshift.bulk.table import reader_of
from gearshift.errors import require
from gearshift.models.classes import class_name
from gearshift.sql.optimizer import QueryChoice, optimize
from gearshift.sql.recorded_together import recorded_together
from gearshift.sql.steps import Step, recorded

ANSWER_COLUMNS = 3


class Query:
    """Operators whose implementations and order were chosen together; `choice` explains them."""

    def __init__(self, steps: Sequence[Step], choice: QueryChoice) -> None:
        self._steps, self.choice = tuple(steps), choice

    def explain(self) -> str:
        return self.choice.explain()

    def run(self, relation: Any, *, workers: int | None = None) -> pa.RecordBatchReader:
        """The rows that all filters keep, with the columns of the maps, as a stream.

        All operators work at the same time, each on `workers` processes. A row without an answer of
        a filter, because it has a NULL or a model failed on it, is not kept.
        """
        reader = reader_of(relation)
        for chosen in self.choice.operators:
            step = self._steps[chosen.number]
            operator = open_operator(
                step.plan, step.pipeline, cascade=chosen.cascade, label=step.label, workers=workers
            )
            prefix = f"{operator.pipeline}_" if step.prefix is None else step.prefix
            answered = through(operator, reader, columns=step.columns, prefix=prefix)
            reader = answered if step.keep is None else _kept(answered, step.keep)
        return reader


def plan_query(
    steps: Sequence[Step], *, accuracy: float, confidence: float | None = None, assume_independent: bool = False
) -> Query:
    """Choose each operator's cascade and the order of filters, for a query that is right on `accuracy` of the rows.

    Work is the least on part A of the recorded rows; what is told is of part B. Where the operators
    are nodes of a pipeline that their project recorded, its joint records say which rows belong
    together. Else all operators must have been profiled on the same rows, unless they may be assumed
    to err independently, which the explanation then says. With a `confidence` the accuracy is
    certified. Raises `InvalidInput`.
    """
    require(len(steps) >= 1, "the query has no operators", remedy="give a Step for each")
    each = [recorded(step) for step in steps]
    records, words = [one.records for one in each], ""
    if not assume_independent and (joint := recorded_together(each)) is not None:
        records, words = joint
    choice = optimize(records, accuracy, confidence=confidence, assume_independent=assume_independent)
    return Query(steps, replace(choice, recorded=words) if words else choice)


def _kept(answered: pa.RecordBatchReader, keep: Sequence[str | int]) -> pa.RecordBatchReader:
    """The rows whose label is one of `keep`, without the columns of the filter."""
    names = {class_name(value) for value in keep}
    width = len(answered.schema) - ANSWER_COLUMNS
    schema = pa.schema([answered.schema.field(place) for place in range(width)])

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in answered:
            labels = batch.column(width).to_pylist()
            of_names = {label: label is not None and class_name(label) in names for label in set(labels)}
            mask = pa.array([of_names[label] for label in labels], pa.bool_())
            yield batch.filter(mask).select(list(range(width)))

    return pa.RecordBatchReader.from_batches(schema, batches())
