"""Profiles a project of several operators: recorded requests go through the nodes of its pipelines.

Operators are measured one after another, so that each gets the answers of the strongest models
before it. All edges count as live, and a fan-out has all its rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gearshift.errors import InvalidInput, require
from gearshift.measuring.functions import as_published
from gearshift.measuring.items import items_of, spec_of_rows
from gearshift.measuring.measured_models import Assignment, FrontEnd, MeasuredModel, Progress, no_front_end
from gearshift.measuring.paid import PaidWork
from gearshift.measuring.passing import Flow, NodeItems
from gearshift.measuring.profile_project import Measuring, Notice, core_counts, profile_operator
from gearshift.model import LABEL, Arrays
from gearshift.models.classes import class_names
from gearshift.models.config import PipelineSettings, Project, read_project
from gearshift.models.declared_outputs import DeclaredOutputs
from gearshift.models.function_model import load_function
from gearshift.models.samples import Samples, samples_at
from gearshift.profiles.curves import strongest_of
from gearshift.profiles.pipelines.fitting import require_condition, require_fits, require_same
from gearshift.profiles.pipelines.profile_folder import Profiles, RecordedPipeline
from gearshift.profiles.profile import Profile, split_parts
from gearshift.profiles.tuples import OUTERMOST, Items, JointRecords, around_nodes

UNLABELLED = (
    "operator {!r} has no labels: its answers are compared with those of its strongest model, {!r}; give node_labels"
)


def profile_pipelines(
    project_path: Path,
    *,
    progress: Progress,
    seed: int = 0,
    folder: Path | None = None,
    front_end: FrontEnd = no_front_end,
    cores: Sequence[int] = (1,),
    core_share: float = 1.0,
    notice: Notice = lambda text: None,
) -> Profiles:
    """Profile all operators of the project, and record its pipelines; arguments as `profile_project`.

    Raises `InvalidInput` and `ModelFailed` as that, and where nodes do not fit together.
    """
    project_path = project_path.resolve()
    project = read_project(project_path)
    counts = core_counts(cores, core_share, project, where=str(project_path))
    order = operator_order(project)
    _require_parameters(project, project_path.parent)
    flows = {
        name: Flow(name, pipeline, samples_at(pipeline.samples, project_path.parent))
        for name, pipeline in project.pipelines.items()
        if pipeline.samples
    }
    for flow in flows.values():
        _require_labels_of_models(project, flow)
    parts = {name: _parts(flow.samples, seed) for name, flow in flows.items()}
    run = _Run(project, flows, parts)
    paid = PaidWork(folder)
    for done, operator in enumerate(order):

        def told(what: str, share: float, operator: str = operator, done: int = done) -> None:
            progress(f"{operator}: {what}", (done + share) / len(order))

        own = project.operators[operator].samples
        samples = samples_at(own, project_path.parent) if own else run.items(operator)
        part = None if own else run.part(operator)
        task = Assignment(project, operator, project_path, samples, seed, front_end, paid, part)
        how = Measuring(counts, core_share, told, notice)
        profile, measured = profile_operator(task, how, None if folder is None else folder / operator)
        run.take(operator, profile, measured)
    profiles = {name: run.profiles[name] for name in project.operators}
    for name, pipeline in project.served.items():
        require_fits(name, pipeline.nodes, pipeline.edges, profiles)
    return Profiles(
        operators=profiles,
        pipelines={name: run.recorded(name, pipeline) for name, pipeline in project.served.items()},
        tuples={name: joint_records(flow, parts[name]) for name, flow in flows.items()},
        seed=seed,
    )


@dataclass(slots=True, eq=False)
class _Run:
    """The measurements so far: items and results of nodes, and profiles of operators."""

    project: Project
    flows: Mapping[str, Flow]
    parts: Mapping[str, NDArray[np.int8]]
    profiles: dict[str, Profile] = field(default_factory=dict)
    warnings: dict[str, list[str]] = field(default_factory=dict)

    def nodes(self, operator: str) -> list[tuple[Flow, str]]:
        """Nodes of recorded pipelines that name `operator`."""
        return [
            (flow, name)
            for flow in self.flows.values()
            for name, node in flow.pipeline.nodes.items()
            if node.operator == operator
        ]

    def items(self, operator: str) -> Samples:
        """The items of all nodes of `operator`, one node after another."""
        made: list[NodeItems] = []
        labels: list[NDArray[Any] | None] = []
        for flow, node in self.nodes(operator):
            made.append(flow.begin(node, first_row=sum(map(len, made))))
            known, sentence = (None, "") if self._is_function(operator) else flow.labels(node)
            labels.append(known)
            if sentence:
                self.warnings.setdefault(flow.name, []).append(sentence)
            _require_alike(operator, made[0], made[-1], node)
        columns = {to: [row for one in made for row in one.inputs[to]] for to in made[0].inputs}
        together = [one for one in labels if one is not None]
        return items_of(columns, _joined(together) if len(together) == len(labels) else None)

    def part(self, operator: str) -> NDArray[np.int8]:
        """The part of each item: that of its request, so that no request is in both."""
        return np.concatenate([self.parts[flow.name][flow.items[node].of_tuple] for flow, node in self.nodes(operator)])

    def take(self, operator: str, profile: Profile, measured: Sequence[MeasuredModel]) -> None:
        """Keep the profile, pass the strongest model's answers on, and check conditions on them."""
        if not profile.predictions.labelled:
            sentence = UNLABELLED.format(operator, strongest_of(profile, profile.models))
            profile = _with_warning(profile, sentence)
        self.profiles[operator] = profile
        nodes = self.nodes(operator)
        if not nodes:
            return
        results = _passed_on(profile, measured)
        for flow, node in nodes:
            first = flow.items[node].first_row
            flow.results[node] = results[first : first + len(flow.items[node])]
            for edge in flow.pipeline.edges:
                if edge.from_ == node:
                    require_condition(flow.name, edge, profile)

    def recorded(self, name: str, pipeline: PipelineSettings) -> RecordedPipeline:
        flow = self.flows.get(name)
        return RecordedPipeline(
            output=pipeline.output,
            nodes=pipeline.nodes,
            edges=pipeline.edges,
            requests=0 if flow is None else len(flow.samples),
            right=None if flow is None else share_right(flow),
            warnings=tuple(self.warnings.get(name, ())),
        )

    def _is_function(self, operator: str) -> bool:
        return bool(self.project.operators[operator].function)


def operator_order(project: Project) -> list[str]:
    """Operators such that each comes after those whose outputs its nodes take."""
    before: dict[str, set[str]] = {name: set() for name in project.operators}
    for pipeline in project.pipelines.values():
        for name, node in pipeline.nodes.items():
            sources = {edge.from_ for edge in pipeline.edges if edge.to == name}
            taken = (*node.inputs.values(), *([node.fan_out.per_row] if node.fan_out else []))
            sources |= {tensor.rpartition(".")[0] for tensor in taken} - {""}
            if pipeline.samples:
                before[node.operator] |= {pipeline.nodes[source].operator for source in sources}
    try:
        return list(TopologicalSorter(before).static_order())
    except CycleError as error:
        circle = " > ".join(reversed(error.args[1]))
        raise InvalidInput(
            f"operators {circle} pass items to each other, and none can be measured first",
            remedy="give the later node an operator of its own, with the same models under other names",
        ) from None


def share_right(flow: Flow) -> float | None:
    """The share of requests whose answer by the strongest models is their label; None without labels."""
    results = flow.results[flow.pipeline.output]
    labels = flow.samples.labels
    if labels is None or any(LABEL not in result or result[LABEL].shape != (1,) for result in results):
        return None
    said = class_names(np.concatenate([result[LABEL] for result in results]))
    return float((said == class_names(labels)).mean())


def joint_records(flow: Flow, part: NDArray[np.int8]) -> JointRecords:
    """The items of all requests of a pipeline whose nodes have run."""
    nodes, edges = flow.pipeline.nodes, flow.pipeline.edges
    around = around_nodes(nodes, edges)
    begin = dict(zip(nodes, np.cumsum([0, *(len(flow.items[node]) for node in nodes)]).tolist(), strict=False))
    columns: list[tuple[NDArray[np.int64], ...]] = []
    for number, node in enumerate(nodes):
        items = flow.items[node]
        outer = begin[around[node]] + items.around if around[node] else np.full(len(items), OUTERMOST)
        row = np.arange(items.first_row, items.first_row + len(items))
        columns.append((items.of_tuple, np.full(len(items), number), row, outer))
    whole = Items(*(np.concatenate(column).astype(np.int64) for column in zip(*columns, strict=True)))
    return whole.joint_records(nodes, edges, names=[str(name) for name in range(len(part))], part=part)


def _passed_on(profile: Profile, measured: Sequence[MeasuredModel]) -> Sequence[Arrays]:
    function = next((one for one in measured if one.results), None)
    if function is not None:
        return as_published(function.results, profile.outputs)
    strongest = strongest_of(profile, profile.models)
    one = next(one for one in measured if one.model == strongest and one.answers is not None)
    assert one.answers is not None
    outputs = DeclaredOutputs(profile.outputs, one.classes).of(one.answers.outputs)
    return [
        {name: array[row : row + 1] for name, array in outputs.items()} for row in range(len(one.answers.certainty))
    ]


def _require_parameters(project: Project, directory: Path) -> None:
    """Raise `InvalidInput` where a node passes inputs that its function does not take."""
    functions = {
        name: load_function(name, one.function, directory) for name, one in project.operators.items() if one.function
    }
    for pipeline_name, pipeline in project.pipelines.items():
        for name, node in pipeline.nodes.items():
            function = functions.get(node.operator)
            if function is None or not node.inputs:
                continue
            takes = (*function.inputs, *function.others)
            lacking = [one for one in function.inputs if one not in node.inputs]
            strange = [] if function.takes_any else [one for one in node.inputs if one not in takes]
            require(
                not lacking and not strange,
                f"function {node.operator!r} takes {', '.join(map(repr, takes))}, and is passed "
                f"{', '.join(map(repr, node.inputs))}",
                where=f"pipeline {pipeline_name!r}, node {name!r}",
                remedy="name the node's inputs as the function's parameters",
            )


def _require_labels_of_models(project: Project, flow: Flow) -> None:
    """Raise `InvalidInput` where labels are given for an unknown node, or for one of a function."""
    nodes = flow.pipeline.nodes
    for name in flow.samples.node_labels:
        where = f"{flow.pipeline.samples}, node_labels"
        require(
            name in nodes,
            f"pipeline {flow.name!r} has no node {name!r}",
            where=where,
            remedy=f"name one of {', '.join(nodes)}",
        )
        require(
            not project.operators[nodes[name].operator].function,
            f"node {name!r} is a function, which counts as right",
            where=where,
            remedy="leave its labels out; those of the request judge the answer",
        )


def _require_alike(operator: str, first: NodeItems, other: NodeItems, node: str) -> None:
    """Raise `InvalidInput` unless two nodes of an operator pass it the same tensors."""
    where = f"node {node!r} of operator {operator!r}"
    require(
        first.inputs.keys() == other.inputs.keys(),
        f"it passes {', '.join(map(repr, other.inputs))}, and another node {', '.join(map(repr, first.inputs))}",
        where=where,
        remedy="let all nodes of an operator pass the same inputs",
    )
    if first is not other:
        for to in first.inputs:
            specs = (spec_of_rows(to, list(one.inputs[to])) for one in (other, first))
            require_same(to, *specs, where=where)


def _parts(samples: Samples, seed: int) -> NDArray[np.int8]:
    return split_parts(np.arange(len(samples)) if samples.groups is None else samples.groups, seed)


def _joined(labels: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return labels[0] if len(labels) == 1 else np.concatenate([class_names(one) for one in labels])


def _with_warning(profile: Profile, sentence: str) -> Profile:
    return replace(profile, warnings=(*profile.warnings, sentence))
