"""Random plans of pipelines of several nodes: conditions, fan-outs, fan-ins, first joins, shared operators."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from gearshift.cascade import Cascade
from gearshift.gear import Gear, GearPlan, LoadRange, PipelinePlan, ReplicaSettings
from gearshift.objective import Objective
from gearshift.pipeline import Edge, FanOut, Node, When
from gearshift.placement import Placement
from gearshift.plans.plan_tables import plan_tables
from gearshift.profiles.tuples import OUTERMOST, Items, JointRecords, around_nodes
from gearshift.simulator.kernel.recorded_rows import resolved
from gearshift.workload import merge_workloads
from tests.conformance.plans import MS, NO_SOURCE, Case, placements, workloads

RECORDS = 50
TUPLES = 20
SOMETIMES = When(output="certainty", at_least=0.5)
"""A condition; whether it holds for a recorded answer is drawn."""


@dataclass(frozen=True)
class Graph:
    nodes: dict[str, Node]
    edges: tuple[Edge, ...]
    output: str


@st.composite
def graphs(draw: st.DrawFn, operators: Sequence[str]) -> Graph:
    """A graph of two to some six nodes. Scopes are fan-out nodes' names, "" the outermost."""
    nodes: dict[str, Node] = {}
    edges: list[Edge] = []
    scope_of: dict[str, str] = {}
    around = {"": ""}

    def add(sources: Sequence[str], scope: str, *, fan_out: bool = False, fan_in: bool = False) -> None:
        name = f"n{len(nodes)}"
        nodes[name] = Node(
            operator=draw(st.sampled_from(operators)),
            fan_out=FanOut(
                per_row=f"{sources[0]}.rows" if sources else "rows",
                most=draw(st.integers(1, 3)),
                beyond=draw(st.sampled_from(["refuse", "cut"])),
            )
            if fan_out
            else None,
            fan_in=fan_in,
            join="all" if fan_in else draw(st.sampled_from(["all", "all", "first"])),
            required=draw(st.integers(0, 3)) > 0,
        )
        edges.extend(Edge(from_=each, to=name, when=SOMETIMES if draw(st.booleans()) else None) for each in sources)
        scope_of[name] = name if fan_out else scope
        if fan_out:
            around[name] = scope

    def some_of(names: Sequence[str]) -> list[str]:
        return draw(st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True))

    def within(scope: str) -> list[str]:
        return [name for name, its in scope_of.items() if its == scope]

    def close(scope: str, inner: Sequence[str]) -> None:
        """Gather rows of `scope`, with those of other fan-outs beside it and nodes around it."""
        outer = around[scope]
        beside = [
            name for name, its in scope_of.items() if its == outer or (its != scope and its and around[its] == outer)
        ]
        more = draw(st.lists(st.sampled_from(beside), max_size=2, unique=True)) if beside else []
        add(
            [*inner, *(name for name in more if name not in inner)],
            outer,
            fan_in=True,
            fan_out=draw(st.integers(0, 7)) == 7,  # not 0, which is drawn first, and again and again: no end to it
        )

    add([], "", fan_out=draw(st.integers(0, 3)) == 0)
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["entry", "node", "node", "fan_out", "fan_out", "fan_in"]))
        scope = scope_of[draw(st.sampled_from(sorted(scope_of)))]
        if kind == "entry":
            add([], "", fan_out=draw(st.integers(0, 3)) == 0)
        elif kind == "fan_in" and scope:
            close(scope, some_of(within(scope)))
        else:
            add(some_of(within(scope)), scope, fan_out=kind == "fan_out")
    while True:
        leaves = [name for name in nodes if all(edge.from_ != name for edge in edges)]
        deep = sorted({scope_of[name] for name in leaves if scope_of[name]}, key=lambda s: (-_depth(s, around), s))
        if deep:
            close(deep[0], [name for name in leaves if scope_of[name] == deep[0]])
        elif len(leaves) > 1 or len(nodes) == 1:
            add(leaves, "")
        else:
            return Graph(nodes, tuple(edges), leaves[0])


def _depth(scope: str, around: Mapping[str, str]) -> int:
    return 1 + _depth(around[scope], around) if scope else 0


@st.composite
def joint_records(draw: st.DrawFn, graph: Graph) -> JointRecords:
    """Tuples in which each fan-out has from no rows to one more than it may."""
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    number = {name: i for i, name in enumerate(graph.nodes)}
    items: list[tuple[int, int, int, int]] = []
    of_node: dict[tuple[int, str], list[int]] = {}
    for t in range(TUPLES):
        for name, outer in around_nodes(graph.nodes, graph.edges).items():
            of_node[t, name] = []
            fan_out = graph.nodes[name].fan_out
            for inside in of_node[t, outer] if outer else [OUTERMOST]:
                rows = 1 if fan_out is None else int(generator.integers(0, fan_out.most + 2))
                for _ in range(rows):
                    of_node[t, name].append(len(items))
                    items.append((t, number[name], int(generator.integers(0, RECORDS)), inside))
    columns = np.array(items, dtype=np.int64).T
    return Items(*columns).joint_records(
        graph.nodes,
        graph.edges,
        names=[f"t{t}" for t in range(TUPLES)],
        part=(np.arange(TUPLES) % 2).astype(np.int8),
    )


@st.composite
def gears_of(draw: st.DrawFn, placement: Placement, models_of: Mapping[str, Sequence[str]]) -> tuple[Gear, ...]:
    """Gears of a pipeline whose nodes may use these models."""
    starts = [0.0, *sorted(draw(st.lists(st.sampled_from([20.0, 50.0, 100.0, 200.0]), unique=True, max_size=2)))]
    result = []
    for start, end in zip(starts, [*starts[1:], None], strict=True):
        cascades = {}
        for node, usable in models_of.items():
            order = draw(st.permutations(usable))
            models = tuple(order[: draw(st.integers(1, len(order)))])
            thresholds = tuple(draw(st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])) for _ in models[1:])
            cascades[node] = (Cascade(models=models, thresholds=thresholds),)
        used = {model for (cascade,) in cascades.values() for model in cascade.models}
        settings = []
        for model in placement.models:
            own = [r.id for r in placement.replicas if r.model == model]
            weights = [draw(st.integers(0, 3)) for _ in own] if model in used else [0] * len(own)
            if model in used and sum(weights) == 0:
                weights[0] = 1
            settings += [
                ReplicaSettings(
                    replica=replica,
                    load_share=weight / max(1, sum(weights)),
                    minimum_queue_length=draw(st.integers(1, 4)),
                    largest_batch_size=draw(st.integers(1, 4)),
                    longest_wait_s=draw(st.sampled_from([0.0, 0.001, 0.004, 0.02])),
                )
                for replica, weight in zip(own, weights, strict=True)
            ]
        result.append(Gear(load_range=LoadRange(from_=start, to=end), cascades=cascades, replicas=tuple(settings)))
    return tuple(result)


@st.composite
def graph_cases(draw: st.DrawFn) -> Case:
    """One or two graphs, at times beside a pipeline of one node, over operators that they share."""
    hardware, placement = draw(placements())
    models = placement.models
    cut = draw(st.integers(1, len(models)))
    operators = {"x": models[:cut], "y": models[cut:] or models[:cut]}
    if not models[cut:]:
        del operators["y"]
    graphs_of = {name: draw(graphs(sorted(operators))) for name in draw(st.sampled_from(["p", "p", "pq"]))}
    alone = draw(st.integers(0, 3)) == 0
    if alone:
        graphs_of["x"] = Graph({"x": Node(operator="x")}, (), "x")
    pipelines = {
        name: PipelinePlan(
            nodes=graph.nodes,
            edges=graph.edges,
            output=graph.output,
            objective=Objective(latency_s=0.1),
            gears=draw(gears_of(placement, {node: operators[of.operator] for node, of in graph.nodes.items()})),
            meter=draw(st.sampled_from(["backlog", "alpha"])),
            alpha=draw(st.sampled_from([0.5, 2.0, 8.0])),
            upshift_margin=draw(st.sampled_from([0.0, 0.5])),
            starvation_s=draw(st.sampled_from([None, 0.005, 0.03])),
        )
        for name, graph in graphs_of.items()
    }
    used = {node.operator for graph in graphs_of.values() for node in graph.nodes.values()}
    plan = GearPlan(
        planner="random",
        hardware=hardware,
        placement=placement,
        pipelines=pipelines,
        profiles=dict.fromkeys(used, NO_SOURCE),
        traces=dict.fromkeys(pipelines, NO_SOURCE),
    )
    sizes = np.arange(5)
    run_ns = [
        (draw(st.integers(1, 8)) + sizes * draw(st.integers(0, 3))).astype(np.int64) * MS for _ in placement.replicas
    ]
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    tables = plan_tables(plan)
    joint = {name: draw(joint_records(graph)) for name, graph in graphs_of.items() if name != "x"}
    holds = generator.random((len(tables.graph.edge_to), len(models), RECORDS)) < draw(st.sampled_from([0.5, 0.8]))
    each = [draw(workloads(RECORDS if name == "x" else TUPLES, most=100)) for name in graphs_of]
    workload = merge_workloads(each) if len(each) > 1 else each[0]
    return Case(
        plan=plan,
        run_ns=run_ns,
        certainty=generator.integers(0, 5, (len(models), RECORDS)) / 4,
        workload=workload,
        joint=joint,
        holds=holds,
        recorded=resolved(plan, tables, joint, holds),
    )
