"""How requests flow through the pipelines of a simulated run: items, edges and time on devices, by node."""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from gearshift.clock import NS_PER_S
from gearshift.gear import GearPlan
from gearshift.pipeline import Edge, When
from gearshift.plans.plan_tables import PipelineTables, PlanTables
from gearshift.profiles.conditions import holds
from gearshift.profiles.profile import Profile
from gearshift.profiles.run_times import expected_ns
from gearshift.profiles.several import as_one
from gearshift.simulator.kernel.recorded_rows import is_graph
from gearshift.simulator.simulation import Simulation

Ints = NDArray[np.int64]


class NodeFlow(msgspec.Struct, frozen=True, kw_only=True):
    """A node in a run: its `items` per request row, and the shares of them that each model answered.

    `share_of_time` is its part of the pipeline's time on devices. The time of a model that several
    nodes use is divided by their visits.
    """

    operator: str
    items: float
    answered: dict[str, float]
    share_of_time: float


class EdgeFlow(msgspec.Struct, frozen=True, kw_only=True, rename={"from_": "from"}):
    """An edge, its condition in words (empty for none), and how many times per request row it is live."""

    from_: str
    to: str
    when: str
    rows: float


class PipelineFlow(msgspec.Struct, frozen=True, kw_only=True):
    """A pipeline in a run; `share_of_busy` is its part of the time for which devices were busy."""

    nodes: dict[str, NodeFlow]
    edges: tuple[EdgeFlow, ...] = ()
    share_of_busy: float


@dataclass(frozen=True, slots=True, eq=False)
class _Answered:
    """The `items` of a node, and of those with an answer the model, gear and record (answered,)."""

    items: int
    model: Ints
    gear: Ints
    record: Ints


def flows(plan: GearPlan, profiles: Mapping[str, Profile], run: Simulation) -> dict[str, PipelineFlow]:
    """The flow of each pipeline of `run`, by name."""
    tables = run.tables
    answered = {one.name: _answered(run, one) for one in tables.pipelines}
    visits = visits_of(run)
    every = np.maximum(np.sum(list(visits.values()), axis=0), 1)
    of_models_s = model_seconds(plan, as_one(profiles), run)
    seconds = {key: float((of_models_s * counts / every).sum()) for key, counts in visits.items()}
    found = {}
    for one in tables.pipelines:
        pipeline, here, rows = plan.pipelines[one.name], answered[one.name], len(run.of(one.name).model)
        own_s = sum(seconds[one.name, node] for node in one.nodes)
        found[one.name] = PipelineFlow(
            nodes={
                node: NodeFlow(
                    operator=pipeline.nodes[node].operator,
                    items=here[node].items / rows,
                    answered=_shares(tables, here[node]),
                    share_of_time=seconds[one.name, node] / own_s if own_s else 0.0,
                )
                for node in one.nodes
            },
            edges=tuple(
                _edge(tables, edge, here[edge.from_], profiles[pipeline.nodes[edge.from_].operator], rows)
                for edge in pipeline.edges
            ),
            share_of_busy=own_s / max(float(of_models_s.sum()), 1e-12),
        )
    return found


def model_seconds(plan: GearPlan, profile: Profile, run: Simulation, device: str = "") -> NDArray[np.float64]:
    """Seconds for which each model (models,) kept its replicas busy, or those on `device`.

    They are those of its batches, each of its expected time.
    """
    tables = run.tables
    run_ns = expected_ns(plan, tables, profile)
    of_replicas_s = (run.batches * run_ns[:, : run.batches.shape[1]]).sum(axis=1) / NS_PER_S
    if device:
        of_replicas_s = of_replicas_s * [device in tables.devices_of(r) for r in range(len(tables.replica_ids))]
    of_models_s: NDArray[np.float64] = np.zeros(len(tables.models))
    np.add.at(of_models_s, tables.replica_model, of_replicas_s)
    return of_models_s


def in_words(when: When | None) -> str:
    """For example "label is cat or dog", or "certainty >= 0.8"."""
    if when is None:
        return ""
    if when.one_of is None:
        return f"{when.output} >= {when.at_least:g}"
    return f"{when.output} is {' or '.join(map(str, when.one_of))}"


def _answered(run: Simulation, one: PipelineTables) -> dict[str, _Answered]:
    own = run.of(one.name)
    if not is_graph(run.tables, one):
        done = own.finished_ns >= 0
        columns = (own.model[done], own.gear[done], own.workload.record[done])
        return {one.nodes[0]: _Answered(len(done), *(column.astype(np.int64) for column in columns))}
    assert own.items is not None
    found = {}
    for place, node in enumerate(one.nodes):
        here = own.items.node == one.first_node + place
        done = here & (own.items.gear >= 0)
        columns = (own.items.model[done], own.items.gear[done], own.items.record[done])
        found[node] = _Answered(int(here.sum()), *(column.astype(np.int64) for column in columns))
    return found


def visits_of(run: Simulation) -> dict[tuple[str, str], NDArray[np.float64]]:
    """By pipeline and node, how many of its items visited each model (models,)."""
    return {
        (one.name, node): _visits(run.tables, one.first_node + place, here)
        for one in run.tables.pipelines
        for place, (node, here) in enumerate(_answered(run, one).items())
    }


def _visits(tables: PlanTables, node: int, here: _Answered) -> NDArray[np.float64]:
    """How many items of the node visited each model (models,): the stages up to the one that answered."""
    visits = np.zeros(len(tables.models))
    pairs, counts = np.unique(np.stack([here.gear, here.model], axis=1), axis=0, return_counts=True)
    for (gear, model), count in zip(pairs.tolist(), counts.tolist(), strict=True):
        visits[_up_to(tables, node, gear, model)] += count
    return visits


def _up_to(tables: PlanTables, node: int, gear: int, model: int) -> list[int]:
    """The models of the node's cheapest cascade with `model` up to it; `model` alone where none has it."""
    row = int(tables.first_row[node]) + gear
    for choice in range(int(tables.choice_begin[row]), int(tables.choice_begin[row + 1])):
        stage = int(tables.stage_of[choice * len(tables.models) + model])
        if stage >= 0:
            first = choice * tables.most_stages
            return [int(each) for each in tables.stage_models[first : first + stage + 1]]
    return [model]


def _shares(tables: PlanTables, here: _Answered) -> dict[str, float]:
    counts = np.bincount(here.model, minlength=len(tables.models))
    return {tables.models[m]: int(n) / here.items for m, n in enumerate(counts) if n}


def _edge(tables: PlanTables, edge: Edge, source: _Answered, profile: Profile, rows: int) -> EdgeFlow:
    live = len(source.model)
    if edge.when is not None:
        own = profile.predictions
        row_of = np.array([own.models.index(m) if m in own.models else 0 for m in tables.models])
        live = int(holds(edge.when, own)[row_of[source.model], source.record].sum())
    return EdgeFlow(from_=edge.from_, to=edge.to, when=in_words(edge.when), rows=live / rows)
