"""Two pipelines and a single operator by one plan on one server, while the loads of all three move.

The claim: simulated p95 of each within 5 % of what is served.  `photos` is a graph with a fan-out, a condition and a
fan-in; `letters` a chain of two nodes; `read` a single operator, whose models both pipelines use, too: they share its
replicas, queues and batches.  Each has two gears and a trace of its own, a day, bursts and a step, on one clock.
Devices are emulated; models take 24 to 240 ms for a sample, so that other work on the machine matters little.
"""

import tempfile
from collections.abc import Mapping
from pathlib import Path

from benchmarks.pipelines.on_emulated_devices import (
    COLUMNS,
    Graph,
    Models,
    OnGear,
    Task,
    as_here,
    cells,
    served_and_simulated,
    write_task,
)
from benchmarks.shared.arguments import parser_of
from benchmarks.shared.machine import describe
from benchmarks.shared.tables import print_bar, print_table
from gearshift.pipeline import Edge, FanOut, Node, When
from gearshift.traces.generate import bursty, diurnal, step
from gearshift.workload import Trace

WITHIN = 0.05
OPERATORS: Mapping[str, Models] = {
    "find": {"finder": (0.060, 0.030)},
    "read": {"glance": (0.040, 0.020), "study": (0.160, 0.080)},
    "check": {"checker": (0.100, 0.060)},
    "join": {"joiner": (0.020, 0.004)},
}
DEVICES = {"a": ("finder", "glance", "joiner"), "b": ("glance", "study"), "c": ("study", "checker", "joiner")}
SURE, FAST = (("glance", "study"), (0.5,)), (("glance",), ())
FIND, CHECK, JOIN = (("finder",), ()), (("checker",), ()), (("joiner",), ())


def gears(edge_qps: float, **others: tuple[tuple[str, ...], tuple[float, ...]]) -> tuple[OnGear, OnGear]:
    """Reading surely up to a load, and fast from there on; the cascades of the other nodes stay."""
    return (
        OnGear(from_qps=0.0, cascades={"read": SURE, **others}),
        OnGear(from_qps=edge_qps, cascades={"read": FAST, **others}),
    )


PIPELINES = {
    "photos": Graph(
        nodes={
            "find": Node(operator="find"),
            "read": Node(operator="read", fan_out=FanOut(per_row="find.parts", most=3)),
            "check": Node(operator="check"),
            "join": Node(operator="join", fan_in=True),
        },
        edges=(
            Edge(from_="find", to="read"),
            Edge(from_="read", to="check", when=When(output="label", one_of=("dog",))),
            Edge(from_="read", to="join"),
            Edge(from_="check", to="join"),
        ),
        gears=gears(1.25, find=FIND, check=CHECK, join=JOIN),
        latency_s=4.0,
    ),
    "letters": Graph(
        nodes={"read": Node(operator="read"), "join": Node(operator="join")},
        edges=(Edge(from_="read", to="join"),),
        gears=gears(2.0, join=JOIN),
        latency_s=2.0,
    ),
    "read": Graph(nodes={"read": Node(operator="read")}, edges=(), gears=gears(3.0), latency_s=2.0),
}


def traces(seconds: float) -> dict[str, Trace]:
    return {
        "photos": diurnal(0.25, 2.0, seconds, seed=1),
        "letters": bursty(0.5, 3.0, seconds, bursts=3, seed=2),
        "read": step(1.0, 4.5, seconds, seed=3),
    }


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--seconds", type=float, default=120.0, help="the length of the traces")
    arguments = parser.parse_args()
    print(describe())
    task = Task(operators=OPERATORS, pipelines=PIPELINES, devices=DEVICES)
    with tempfile.TemporaryDirectory() as folder:
        runs = served_and_simulated(write_task(task, Path(folder), as_here()), traces(arguments.seconds))
    print_table(("pipeline", *COLUMNS), [(name, *cells(run)) for name, run in runs.items()])
    near = sum(abs(run.errors.p95) <= WITHIN for run in runs.values() if run.replay.valid)
    print_bar(near == len(runs), f"p95 within {WITHIN:.0%} for each of {len(runs)} (for {near})")


if __name__ == "__main__":
    main()
