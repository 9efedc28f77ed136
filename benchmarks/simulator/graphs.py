"""Simulated node visits per second on one core: images are split, their rows read, doubtful ones checked, and joined.

A row of an image goes through a cascade of two models, and by its certainty to a check; a fan-in joins what was read
and checked, beside a node that looks at the whole image. 16 devices, a load that swings by a quarter. The claim: at
least 3 million node visits/s with fan-out and joins. A visit is an item; the models that answered it are counted, too.
"""

import numpy as np

from benchmarks.shared.arguments import parser_of
from benchmarks.shared.machine import describe, pin_to_last_core, seconds_of
from benchmarks.shared.tables import print_head
from benchmarks.simulator.speed import workload_of
from gearshift.cascade import Cascade
from gearshift.gear import Gear, GearPlan, LoadRange, PipelinePlan, ReplicaSettings, SourceFile
from gearshift.hardware import identical_devices
from gearshift.objective import Objective
from gearshift.pipeline import Edge, FanOut, Node, When
from gearshift.placement import Placement, Replica
from gearshift.plans.plan_tables import plan_tables
from gearshift.profiles.tuples import OUTERMOST, Items, JointRecords
from gearshift.simulator.kernel.recorded_rows import resolved
from gearshift.simulator.simulate import Simulation, simulate_tables

DEVICES = 16
RECORDS = 16_000
TUPLES = 4_000
ROWS = 4
BATCH_S = {
    "split": (0.0002, 0.00001),
    "small": (0.0005, 0.00002),
    "large": (0.0010, 0.00005),
    "check": (0.0005, 0.00002),
    "look": (0.0005, 0.00005),
    "join": (0.0001, 0.000005),
}
"""Seconds of a batch of b: first + b x second."""
CASCADES = {
    "split": ("split",),
    "look": ("look",),
    "read": ("small", "large"),
    "check": ("check",),
    "join": ("join",),
}
NODES = {
    "split": Node(operator="split"),
    "look": Node(operator="look"),
    "read": Node(operator="read", fan_out=FanOut(per_row="split.rows", most=8)),
    "check": Node(operator="check"),
    "join": Node(operator="join", fan_in=True),
}
DOUBTFUL = When(output="certainty", at_least=0.8)
EDGES = (
    Edge(from_="split", to="read"),
    Edge(from_="read", to="check", when=DOUBTFUL),
    Edge(from_="read", to="join"),
    Edge(from_="check", to="join"),
    Edge(from_="look", to="join"),
)


def plan_for(qps: float, largest_batch: int) -> GearPlan:
    replicas = tuple(
        Replica(id=f"{m}@{d:02d}", model=m, device_ids=(f"cpu-{d}",)) for m in BATCH_S for d in range(DEVICES)
    )
    starts = [0.0, *np.linspace(0.8 * qps, 1.25 * qps, 7)]
    gears = [
        Gear(
            load_range=LoadRange(from_=start, to=end),
            cascades={
                node: (Cascade(models=models, thresholds=(0.45 - 0.03 * g,) * (len(models) - 1)),)
                for node, models in CASCADES.items()
            },
            replicas=tuple(
                ReplicaSettings(replica=r.id, load_share=1 / DEVICES, largest_batch_size=largest_batch)
                for r in replicas
            ),
        )
        for g, (start, end) in enumerate(zip(starts, [*starts[1:], None], strict=True))
    ]
    nothing = SourceFile(path="", sha256="")
    return GearPlan(
        planner="by hand",
        hardware=identical_devices(DEVICES),
        placement=Placement(replicas=replicas),
        pipelines={
            "images": PipelinePlan(nodes=NODES, edges=EDGES, output="join", objective=Objective(), gears=tuple(gears))
        },
        profiles=dict.fromkeys(NODES, nothing),
        traces={"images": nothing},
    )


def joint_records(generator: np.random.Generator) -> JointRecords:
    """From none to twice `ROWS` rows a tuple, `ROWS` on average."""
    number = {name: i for i, name in enumerate(NODES)}
    of_rows = np.repeat(np.arange(TUPLES), generator.integers(0, 2 * ROWS + 1, TUPLES))
    own = [np.arange(TUPLES)] * 3 + [of_rows] * 2
    node = [
        np.full(len(t), number[name]) for t, name in zip(own, ("split", "look", "join", "read", "check"), strict=True)
    ]
    around = [np.full(len(t), OUTERMOST) for t in own[:4]] + [3 * TUPLES + np.arange(len(of_rows))]
    items = sum(map(len, own))
    return Items(
        np.concatenate(own), np.concatenate(node), generator.integers(0, RECORDS, items), np.concatenate(around)
    ).joint_records(NODES, EDGES, names=[str(t) for t in range(TUPLES)], part=(np.arange(TUPLES) % 2).astype(np.int8))


def run(qps: float, largest_batch: int, requests: int) -> tuple[list[float], Simulation]:
    plan = plan_for(qps, largest_batch)
    tables = plan_tables(plan)
    generator = np.random.default_rng(1)
    seconds = np.array([BATCH_S[tables.models[m]] for m in tables.replica_model])
    run_ns = np.rint((seconds[:, :1] + seconds[:, 1:] * np.arange(largest_batch + 1)) * 1e9).astype(np.int64)
    certainty = generator.random((len(tables.models), RECORDS))
    held = np.ones((len(tables.graph.edge_to), len(tables.models), RECORDS), dtype=np.bool_)
    for edge, when in enumerate(tables.graph.conditions):
        if when is not None:
            held[edge] = certainty >= DOUBTFUL.at_least
    joint = {"images": joint_records(generator)}
    recorded = resolved(plan, tables, joint, held)
    workload = workload_of(qps, requests)
    workload.record[:] = workload.record % TUPLES
    last: list[Simulation] = []

    def once() -> None:
        last[:] = [simulate_tables(tables, run_ns, certainty, workload, recorded=recorded)]

    once()
    return seconds_of(once, repeats=5), last[0]


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--requests", type=int, default=300_000)
    arguments = parser.parse_args()
    pin_to_last_core()
    print(describe())
    print_head(
        "| requests/s | largest batch | mean batch | items a request | models a request | busy | million items/s |"
    )
    for qps, largest_batch in ((2_000, 64), (4_000, 64), (8_000, 64), (1_000, 1)):
        times, simulation = run(qps, largest_batch, arguments.requests)
        requests, items = len(simulation.workload), len(simulation.items or ())
        batches = simulation.batches
        visits = float((batches * np.arange(batches.shape[1])).sum())
        speeds = sorted(items / t / 1e6 for t in times)
        busy = float(simulation.busy_s.mean()) / simulation.duration_s
        print(
            f"| {qps} | {largest_batch} | {visits / batches.sum():.2f} | {items / requests:.2f} "
            f"| {visits / requests:.2f} | {busy:.0%} | {speeds[2]:.1f} ({speeds[0]:.1f}..{speeds[-1]:.1f}) |"
        )


if __name__ == "__main__":
    main()
