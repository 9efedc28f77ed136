"""Compile the kernel into the cache, with `--deadlines` or `--refine` for these too, with `--graphs` for graphs.

With `--whole` one for all that short tests simulate but the plainest plans, or with `--refine` for these that refine.
"""

import os
import sys
from itertools import pairwise

import numpy as np
from msgspec import UNSET

from gearshift.cascade import Cascade
from gearshift.clock import NS_PER_S
from gearshift.gear import Gear, GearPlan, LoadRange, PipelinePlan, ReplicaSettings, SourceFile
from gearshift.hardware import identical_devices
from gearshift.objective import Objective
from gearshift.pipeline import Edge, Node
from gearshift.placement import Placement, Replica
from gearshift.plans.plan_tables import plan_tables
from gearshift.profiles.profile import PART_A, PART_B
from gearshift.profiles.tuples import OUTERMOST, JointRecords
from gearshift.simulator.kernel.recorded_rows import resolved
from gearshift.simulator.simulate import simulate_tables
from gearshift.simulator.whole_kernel import WHOLE_KERNEL, takes_whole_kernel
from gearshift.support.compiling.ready import note_ready
from gearshift.workload import Workload


def warm_up(nodes: tuple[str, ...] = ("task",), *, deadline_ns: int | None = None, refines: bool = False) -> None:
    """Simulate one request through `nodes`, in the kernel compiled for deadlines or refinement, if asked for."""
    nothing = SourceFile(path="", sha256="")
    cascade = Cascade(models=("model",))
    gear = Gear(
        load_range=LoadRange(from_=0.0),
        cascades=dict.fromkeys(nodes, (cascade,)),
        replicas=(ReplicaSettings(replica="replica", load_share=1.0),),
        order="gain" if refines else UNSET,
    )
    pipeline = PipelinePlan(
        nodes={name: Node(operator="task") for name in nodes},
        edges=tuple(Edge(from_=one, to=other) for one, other in pairwise(nodes)),
        output=nodes[-1],
        objective=Objective(latency_s=1.0),
        gears=(gear,),
    )
    plan = GearPlan(
        planner="warm-up",
        hardware=identical_devices(1),
        placement=Placement(replicas=(Replica(id="replica", model="model", device_ids=("cpu-0",)),)),
        pipelines={"task": pipeline},
        profiles={"task": nothing},
        traces={"task": nothing},
    )
    workload = Workload(
        arrivals_ns=np.zeros(1, dtype=np.int64),
        record=np.zeros(1, dtype=np.int32),
        duration_s=1.0,
        deadline_ns=None if deadline_ns is None else np.full(1, deadline_ns),
    )
    tables = plan_tables(plan)
    held = np.ones((len(pipeline.edges), 1, 1), dtype=np.bool_)
    recorded = resolved(plan, tables, {"task": _records(nodes)}, held) if len(nodes) > 1 else None
    simulate_tables(tables, np.array([[0, 1]]), np.ones((1, 1)), workload, recorded=recorded)
    if refines and (deadline_ns is None or takes_whole_kernel()):
        note_ready("refinement")
    elif len(nodes) == 1 and deadline_ns is None:
        note_ready("gears")


def _records(nodes: tuple[str, ...]) -> JointRecords:
    count = len(nodes)
    return JointRecords(
        nodes=nodes,
        names=("first", "second"),
        begin=np.array([0, count, 2 * count]),
        node=np.tile(np.arange(count, dtype=np.int32), 2),
        row=np.zeros(2 * count, dtype=np.int32),
        parent=np.full(2 * count, OUTERMOST, dtype=np.int32),
        part=np.array([PART_A, PART_B], dtype=np.int8),
    )


def main() -> None:
    if "--whole" in sys.argv:
        os.environ[WHOLE_KERNEL] = "1"
        warm_up(deadline_ns=NS_PER_S, refines="--refine" in sys.argv)
        return
    of_graphs = ("task", "then") if "--graphs" in sys.argv else ("task",)
    warm_up(of_graphs)
    if "--refine" in sys.argv:
        warm_up(refines=True)
    if "--deadlines" in sys.argv:
        warm_up(of_graphs, deadline_ns=NS_PER_S)


if __name__ == "__main__":
    main()
