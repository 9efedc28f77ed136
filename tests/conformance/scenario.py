"""Long cases under loads that swing: sixteen devices and eight gears; three pipelines over six shared devices."""

from collections.abc import Mapping, Sequence

import numpy as np

from gearshift.cascade import Cascade
from gearshift.gear import Gear, GearPlan, LoadRange, PipelinePlan, ReplicaSettings, SourceFile, alone
from gearshift.hardware import Device, Hardware
from gearshift.objective import Objective
from gearshift.pipeline import Edge, FanOut, Node, When
from gearshift.placement import Placement, Replica
from gearshift.plans.plan_tables import plan_tables
from gearshift.profiles.tuples import OUTERMOST, Items, JointRecords
from gearshift.simulator.kernel.recorded_rows import resolved
from gearshift.workload import Workload, merge_workloads
from tests.conformance.plans import MODELS, MS, Case


def long_case(*, samples: int, seed: int) -> Case:
    """Sixteen devices, three models, a replica that spans two devices, eight gears."""
    generator = np.random.default_rng(seed)
    hardware = Hardware(devices=tuple(Device(id=f"d{i:02d}") for i in range(16)))
    replicas = [Replica(id=f"{m}{i:02d}", model=m, device_ids=(f"d{i:02d}",)) for m in MODELS[:2] for i in range(16)]
    replicas += [Replica(id=f"c{i:02d}", model="c", device_ids=(f"d{i:02d}", f"d{i + 1:02d}")) for i in range(0, 16, 2)]
    placement = Placement(replicas=tuple(replicas))
    starts = [0, 500, 1000, 1500, 2000, 2500, 3000, 4000]
    gears = []
    for g, start in enumerate(starts):
        models = MODELS[:3] if g < 6 else MODELS[:2]
        share = {"a": 1 / 16, "b": 1 / 16, "c": 1 / 8 if g < 6 else 0.0}
        gears.append(
            Gear(
                load_range=LoadRange(from_=start, to=[*starts, None][g + 1]),
                cascades=alone(
                    "task", Cascade(models=models, thresholds=(0.6 - 0.06 * g, 0.5 - 0.06 * g)[: len(models) - 1])
                ),
                replicas=tuple(
                    ReplicaSettings(
                        replica=r.id,
                        load_share=share[r.model],
                        minimum_queue_length=1 + g % 3,
                        largest_batch_size=2 + 2 * g,
                        longest_wait_s=0.002,
                    )
                    for r in replicas
                ),
            )
        )
    operator = PipelinePlan(
        nodes={"task": Node(operator="task")},
        output="task",
        objective=Objective(latency_s=0.1),
        gears=tuple(gears),
        starvation_s=0.2,
        upshift_margin=0.1,
    )
    source = SourceFile(path="", sha256="")
    plan = GearPlan(
        planner="test",
        hardware=hardware,
        placement=placement,
        pipelines={"task": operator},
        profiles={"task": source},
        traces={"task": source},
    )
    sizes = np.arange(17)
    cost_ms = {"a": (1, 0.1), "b": (2, 0.5), "c": (4, 1.0)}
    run_ns = [((cost_ms[r.model][0] + sizes * cost_ms[r.model][1]) * MS).astype(np.int64) for r in replicas]
    swing = 0.25 + np.abs(np.sin(np.linspace(0, 40, samples)))
    gaps_ns = generator.exponential(1e9 / 3500, samples) / swing
    arrivals_ns = np.cumsum(gaps_ns).astype(np.int64)
    workload = Workload(
        arrivals_ns=arrivals_ns,
        record=generator.integers(0, 2000, samples).astype(np.int32),
        duration_s=float(arrivals_ns[-1]) / 1e9,
    )
    return Case(plan=plan, run_ns=run_ns, certainty=generator.random((3, 2000)), workload=workload)


def three_pipelines(*, requests: int, seed: int) -> Case:
    """Two graphs and an operator by itself over six shared devices, with three gears each; the load of each swings.

    Images ("faces") are split into rows, which are read and joined; "doubts" asks a second operator where the first
    is in doubt; "alone" is the first operator by itself.
    """
    generator = np.random.default_rng(seed)
    operators = {"first": "ab", "second": "c"}
    graphs = {
        "faces": (
            {
                "split": Node(operator="second"),
                "read": Node(operator="first", fan_out=FanOut(per_row="split.rows", most=6)),
                "join": Node(operator="second", fan_in=True),
            },
            (Edge(from_="split", to="read"), Edge(from_="read", to="join")),
        ),
        "doubts": (
            {"ask": Node(operator="first"), "check": Node(operator="second"), "tell": Node(operator="first")},
            (
                Edge(from_="ask", to="check", when=When(output="certainty", at_least=0.5)),
                Edge(from_="ask", to="tell"),
                Edge(from_="check", to="tell"),
            ),
        ),
        "first": ({"first": Node(operator="first")}, ()),
    }
    hardware = Hardware(devices=tuple(Device(id=f"d{i}") for i in range(6)))
    replicas = tuple(Replica(id=f"{m}{i}", model=m, device_ids=(f"d{i}",)) for m in "abc" for i in range(6))
    peak_qps = {"faces": 90.0, "doubts": 250.0, "first": 500.0}
    pipelines, workloads, joint = {}, [], {}
    for phase, (name, (nodes, edges)) in enumerate(graphs.items()):
        starts = [0.0, 0.5 * peak_qps[name], 0.8 * peak_qps[name]]
        cascades = [
            {
                node: (Cascade(models=models, thresholds=(0.7 - 0.3 * g,) * (len(models) - 1)),)
                for node, of in nodes.items()
                for models in [tuple(operators[of.operator][: 1 if g == 2 else 2])]
            }
            for g in range(3)
        ]
        used = [{m for (cascade,) in each.values() for m in cascade.models} for each in cascades]
        pipelines[name] = PipelinePlan(
            nodes=nodes,
            edges=edges,
            output=[*nodes][-1],
            objective=Objective(latency_s=0.2),
            gears=tuple(
                Gear(
                    load_range=LoadRange(from_=start, to=[*starts, None][g + 1]),
                    cascades=cascades[g],
                    replicas=tuple(
                        ReplicaSettings(
                            replica=r.id,
                            load_share=1 / 6 if r.model in used[g] else 0.0,
                            largest_batch_size=2 + 3 * g + phase,
                            minimum_queue_length=1 + g % 2,
                            longest_wait_s=0.002 + 0.001 * phase,
                        )
                        for r in replicas
                    ),
                )
                for g, start in enumerate(starts)
            ),
            starvation_s=0.2,
        )
        swing = 0.2 + 0.8 * np.abs(np.sin(np.linspace(phase, phase + 12, requests)))
        arrivals_ns = np.cumsum(generator.exponential(1e9 / peak_qps[name], requests) / swing).astype(np.int64)
        joint |= {name: _tuples(nodes, edges, generator)} if len(nodes) > 1 else {}
        workloads.append(
            Workload(
                arrivals_ns=arrivals_ns,
                record=generator.integers(0, 200, requests).astype(np.int32),
                duration_s=float(arrivals_ns[-1]) / 1e9,
            )
        )
    source = SourceFile(path="", sha256="")
    plan = GearPlan(
        planner="test",
        hardware=hardware,
        placement=Placement(replicas=replicas),
        pipelines=pipelines,
        profiles=dict.fromkeys(operators, source),
        traces=dict.fromkeys(graphs, source),
    )
    certainty = generator.random((3, 200))
    tables = plan_tables(plan)
    held = np.ones((len(tables.graph.edge_to), 3, 200), dtype=np.bool_)
    held[[when is not None for when in tables.graph.conditions]] = certainty < 0.5
    cost_ms = {"a": (1, 0.2), "b": (2, 0.6), "c": (1, 0.4)}
    return Case(
        plan=plan,
        run_ns=[((cost_ms[r.model][0] + np.arange(17) * cost_ms[r.model][1]) * MS).astype(np.int64) for r in replicas],
        certainty=certainty,
        workload=merge_workloads(workloads),
        joint=joint,
        holds=held,
        recorded=resolved(plan, tables, joint, held),
    )


def _tuples(nodes: Mapping[str, Node], edges: Sequence[Edge], generator: np.random.Generator) -> JointRecords:
    """200 tuples of one item a node, and of one to six rows where there is a fan-out."""
    items: list[tuple[int, int, int, int]] = []
    for t in range(200):
        for number, node in enumerate(nodes.values()):
            rows = 1 if node.fan_out is None else int(generator.integers(1, 7))
            items += [(t, number, int(record), OUTERMOST) for record in generator.integers(0, 200, rows)]
    return Items(*np.array(items, dtype=np.int64).T).joint_records(
        nodes, edges, names=[f"t{t}" for t in range(200)], part=(np.arange(200) % 2).astype(np.int8)
    )
