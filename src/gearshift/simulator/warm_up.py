"""Compile the kernel, with `--deadlines` also the one for deadlines, into the cache."""

import sys

import numpy as np

from gearshift.cascade import Cascade
from gearshift.clock import NS_PER_S
from gearshift.gear import Gear, GearPlan, LoadRange, PipelinePlan, ReplicaSettings, SourceFile, alone
from gearshift.hardware import identical_devices
from gearshift.objective import Objective
from gearshift.pipeline import Node
from gearshift.placement import Placement, Replica
from gearshift.plans.plan_tables import plan_tables
from gearshift.simulator.simulate import simulate_tables
from gearshift.workload import Workload


def warm_up(*, deadline_ns: int | None = None) -> None:
    """Simulate one request; with a deadline, in the kernel compiled for deadlines."""
    nothing = SourceFile(path="", sha256="")
    gear = Gear(
        load_range=LoadRange(from_=0.0),
        cascades=alone("task", Cascade(models=("model",))),
        replicas=(ReplicaSettings(replica="replica", load_share=1.0),),
    )
    plan = GearPlan(
        planner="warm-up",
        hardware=identical_devices(1),
        placement=Placement(replicas=(Replica(id="replica", model="model", device_ids=("cpu-0",)),)),
        pipelines={
            "task": PipelinePlan(
                nodes={"task": Node(operator="task")}, output="task", objective=Objective(), gears=(gear,)
            )
        },
        profiles={"task": nothing},
        traces={"task": nothing},
    )
    workload = Workload(
        arrivals_ns=np.zeros(1, dtype=np.int64),
        record=np.zeros(1, dtype=np.int32),
        duration_s=1.0,
        deadline_ns=None if deadline_ns is None else np.full(1, deadline_ns),
    )
    simulate_tables(plan_tables(plan), np.array([[0, 1]]), np.ones((1, 1)), workload)


if __name__ == "__main__":
    warm_up()
    if "--deadlines" in sys.argv:
        warm_up(deadline_ns=NS_PER_S)
