"""One chunk through a graph of nodes, node by node, by the rules of the router."""

import itertools
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from gearshift.bulk.answers import ANSWERED, DEGRADED, FAILED, REFUSED, Answers
from gearshift.bulk.stages import Models, through_cascade
from gearshift.cascade import Cascade
from gearshift.gear import GearPlan
from gearshift.model import Arrays, TensorSpec
from gearshift.plans.plan_tables import plan_tables
from gearshift.request import Request, Sample
from gearshift.runtime.faults.failing import FailingReplicas
from gearshift.runtime.faults.retries import Retries
from gearshift.runtime.router.by_deadline import DeadlineRules
from gearshift.runtime.router.cascades import Cascades
from gearshift.runtime.router.decision_log import DecisionLog
from gearshift.runtime.router.dispatch import Dispatch
from gearshift.runtime.router.flows import Flows
from gearshift.runtime.router.pipeline import Pipeline
from gearshift.runtime.service.passing import OutputPassing

NO_ANSWER = "it has no answer in time, or none from its endpoint"
MODEL_FAILED = "its model failed"


class GraphRun:
    """Takes chunks through pipeline `name` of the plan; `cascades` has one for each of its nodes.

    `outputs` are those of each operator, `label` is one of the output node's. Of the router only
    what takes rows along edges is used: no queue, no device, and no gear.
    """

    def __init__(
        self,
        plan: GearPlan,
        name: str,
        cascades: Mapping[str, Cascade],
        outputs: Mapping[str, Sequence[TensorSpec]],
        label: str,
    ) -> None:
        self._tables = tables = plan_tables(plan)
        self._passing = OutputPassing(plan, tables, outputs)
        self._label, self._log = label, DecisionLog(None)
        pipelines = tuple(Pipeline(tables, number) for number in range(len(tables.pipelines)))
        pipeline_of = [pipelines[number] for number in tables.pipeline_of.tolist()]
        (self._pipeline,) = (one for one in pipelines if one.name == name)
        nodes = {self._pipeline.first_node + at: node for at, node in enumerate(self._pipeline.tables.nodes)}
        self._cascades = {number: cascades[nodes[number]] for number in tables.graph.order.tolist() if number in nodes}
        """By node, in topological order."""
        self._gears = Cascades(tables, pipeline_of)
        self._dispatch = Dispatch(
            tables,
            pipelines,
            pipeline_of,
            DeadlineRules(tables, late="answer"),
            Retries(tables.models),
            FailingReplicas(tables, [False] * len(tables.replica_ids)),
            self._log,
            start=lambda replica, samples, reason: None,
            end=lambda sample, replica, ending, now_ns: None,
            release=lambda sample, ending, now_ns: None,
        )

    async def answer(self, inputs: Arrays, rows: int, models: Models, is_late: Callable[[], bool]) -> Answers:
        """The answers to n rows of `inputs`; `models` answer with a dict of arrays for each row.

        A row ends as at a server: `FAILED` or `REFUSED` with the first required node that is,
        `DEGRADED` if an optional node has no answer, or a model for lack of time. Where no edge
        leads it to the output it is `DEGRADED`, without label.
        """
        waiting: dict[int, list[Sample]] = {node: [] for node in self._cascades}
        flows = Flows(
            self._tables,
            self._passing,
            self._gears,
            self._dispatch,
            self._log,
            numbers=itertools.count(rows),
            route=lambda item, model, now_ns: waiting[item.node].append(item),
            answered=lambda row: None,
            told=None,
        )
        request = Request(id=0, operator=self._pipeline.name, arrived_ns=0, rows=rows, pipeline=self._pipeline.number)
        samples = [Sample(request, row, row, payload=_row(inputs, row)) for row in range(rows)]
        for sample in samples:
            flows.arrive(sample, self._pipeline, 0)
        flows.go_on_to_the_end(0)
        for node, cascade in self._cascades.items():
            for items in _alike([item for item in waiting[node] if not item.error]):
                await _run(cascade, items, models, is_late)
                flows.ended.extend(items)
            flows.go_on_to_the_end(0)
        return _answers(samples, self._label)


def _row(inputs: Arrays, row: int) -> Arrays:
    return {name: array[row : row + 1] for name, array in inputs.items()}


def _alike(items: Sequence[Sample]) -> list[list[Sample]]:
    """Items whose inputs have the same names, types and shapes."""
    groups: dict[tuple[object, ...], list[Sample]] = {}
    for item in items:
        key = tuple((name, array.dtype, array.shape) for name, array in _inputs(item).items())
        groups.setdefault(key, []).append(item)
    return list(groups.values())


def _inputs(item: Sample) -> Arrays:
    inputs: Arrays = item.payload  # type: ignore[assignment]
    return inputs


async def _run(cascade: Cascade, items: Sequence[Sample], models: Models, is_late: Callable[[], bool]) -> None:
    each = [_inputs(item) for item in items]
    inputs = {name: np.concatenate([one[name] for one in each]) for name in each[0]}
    answers = await through_cascade(cascade, inputs, len(items), models, is_late)
    results = [None] * len(items) if answers.label is None else answers.label.tolist()
    given = zip(items, answers.outcome.tolist(), answers.certainty.tolist(), results, strict=True)
    for item, outcome, certainty, result in given:
        if outcome in (FAILED, REFUSED):
            item.error, item.refused = MODEL_FAILED if outcome == FAILED else NO_ANSWER, outcome == REFUSED
            continue
        item.result, item.certainty = result, certainty
        if outcome == DEGRADED:
            item.degraded_by = NO_ANSWER


def _answers(samples: Sequence[Sample], label: str) -> Answers:
    answers = Answers.none_yet(len(samples))
    answered = [sample for sample in samples if sample.result is not None and not sample.error]
    if answered:
        rows = np.array([sample.row for sample in answered])
        labels = np.concatenate([sample.result[label] for sample in answered])  # type: ignore[index]
        answers.keep(rows, labels, np.array([sample.certainty for sample in answered]))
    for sample in samples:
        answers.outcome[sample.row] = _outcome(sample)
    return answers


def _outcome(row: Sample) -> int:
    if row.error:
        return REFUSED if row.refused else FAILED
    return ANSWERED if row.result is not None and not row.degraded_by and not row.missing else DEGRADED
