"""What a node of a graph costs of the router's processor: the router alone, without models, sockets and threads.

Requests of one row come as fast as they are answered, `OPEN` at a time.  Each node has a model on a device of its own,
whose batches end one after another.  What flows along edges costs nothing here.
"""

import time
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import pairwise

from benchmarks.shared.arguments import parser_of
from benchmarks.shared.machine import describe
from benchmarks.shared.tables import print_bar, print_table, spread
from gearshift.cascade import Cascade
from gearshift.gear import Gear, GearPlan, LoadRange, PipelinePlan, ReplicaSettings, SourceFile
from gearshift.hardware import Device, Hardware
from gearshift.objective import Objective
from gearshift.pipeline import Edge, FanOut, Node, When
from gearshift.placement import Placement, Replica
from gearshift.plans.plan_tables import plan_tables
from gearshift.request import Request, Sample
from gearshift.runtime.router.graph import Scope
from gearshift.runtime.router.router import Router

OPEN = 32
ROWS = 4
MOST_US = 50
SURE = When(output="certainty", at_least=0.5)

Shape = tuple[dict[str, Node], list[Edge]]


class NoData:
    """Conditions hold, and fan-outs have `ROWS` rows."""

    def holds(self, edge: int, item: Sample) -> bool:
        return True

    def rows(self, node: int, scope: Scope) -> int:
        return ROWS

    def payload(self, node: int, scope: Scope) -> object:
        return None


def node(**fields: object) -> Node:
    return Node(operator="task", **fields)  # type: ignore[arg-type]


def chain(length: int) -> Shape:
    names = [f"n{i}" for i in range(length)]
    if length == 1:
        return {"task": node()}, []
    return {name: node() for name in names}, [Edge(from_=a, to=b) for a, b in pairwise(names)]


def fork() -> Shape:
    ends = [("first", "left"), ("first", "right"), ("left", "last"), ("right", "last")]
    edges = [Edge(from_=a, to=b, when=SURE if b == "left" else None) for a, b in ends]
    return {name: node() for name in ("first", "left", "right", "last")}, edges


def fan() -> Shape:
    nodes = {"first": node(), "part": node(fan_out=FanOut(per_row="rows", most=ROWS)), "join": node(fan_in=True)}
    return nodes, [Edge(from_="first", to="part"), Edge(from_="part", to="join")]


SHAPES: Mapping[str, tuple[Shape, int]] = {
    "one node": (chain(1), 1),
    "chain of 2": (chain(2), 2),
    "chain of 4": (chain(4), 4),
    "fork and join, one condition": (fork(), 4),
    f"fan-out of {ROWS}, and its join": (fan(), ROWS + 2),
}
"""Nodes and edges, and how many items a request row has."""


def plan_of(nodes: Mapping[str, Node], edges: Sequence[Edge], *, largest: int) -> GearPlan:
    names, source = [*nodes], SourceFile(path="", sha256="")
    settings = [ReplicaSettings(replica=name, load_share=1.0, largest_batch_size=largest) for name in names]
    cascades = {name: (Cascade(models=(name,), thresholds=()),) for name in names}
    pipeline = PipelinePlan(
        nodes=dict(nodes),
        edges=tuple(edges),
        output=names[-1],
        objective=Objective(latency_s=1.0),
        gears=(Gear(load_range=LoadRange(from_=0.0), cascades=cascades, replicas=tuple(settings)),),
    )
    return GearPlan(
        planner="by hand",
        hardware=Hardware(devices=tuple(Device(id=name) for name in names)),
        placement=Placement(replicas=tuple(Replica(id=name, model=name, device_ids=(name,)) for name in names)),
        pipelines={"task": pipeline},
        profiles={"task": source},
        traces={"task": source},
    )


def cost_us(nodes: Mapping[str, Node], edges: Sequence[Edge], *, requests: int, largest: int) -> float:
    """Microseconds of processor time for each request."""
    started: deque[tuple[int, list[Sample]]] = deque()
    answered = 0

    def start(replica: int, samples: list[Sample], reason: int) -> None:
        started.append((replica, samples))

    def take(sample: Sample) -> None:
        nonlocal answered
        answered += 1

    router = Router(plan_tables(plan_of(nodes, edges, largest=largest)), start=start, answered=take, passing=NoData())
    now_ns = arrived = 0
    begun = time.process_time()
    while answered < requests:
        now_ns += 1000
        while arrived < min(requests, answered + OPEN):
            of = Request(id=arrived, operator="task", arrived_ns=now_ns)
            router.arrive([Sample(of, 0, arrived)], now_ns)
            arrived += 1
        replica, samples = started.popleft()
        for sample in samples:
            sample.certainty = 1.0
        router.stage_ended(replica, samples, now_ns)
        router.executor_free(replica, now_ns)
    return 1e6 * (time.process_time() - begun) / requests


def main() -> None:
    parser = parser_of(__doc__, quick="a few requests")
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    requests, rounds = (500, 1) if arguments.quick else (arguments.requests, arguments.rounds)
    print(describe())
    dearest = 0.0
    for largest in (1, 8):
        taken: dict[str, list[float]] = {shape: [] for shape in SHAPES}
        for _ in range(rounds):
            for shape, ((nodes, edges), _) in SHAPES.items():
                taken[shape].append(cost_us(nodes, edges, requests=requests, largest=largest))
        per_item = {shape: [us / SHAPES[shape][1] for us in each] for shape, each in taken.items()}
        dearest = max(dearest, *(sorted(each)[len(each) // 2] for each in per_item.values()))
        rows = [
            (shape, SHAPES[shape][1], spread(taken[shape], ".1f"), spread(per_item[shape], ".1f")) for shape in SHAPES
        ]
        print_table((f"batches of up to {largest}", "items", "us per request", "us per item"), rows)
    print_bar(dearest <= MOST_US, f"an item costs at most {MOST_US} us of the router's processor ({dearest:.1f} us)")


if __name__ == "__main__":
    main()
