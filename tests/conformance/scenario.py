"""One long case: sixteen devices, three models, a replica that spans two devices, eight gears, a load that swings."""

import numpy as np

from gearshift.cascade import Cascade
from gearshift.gear import Gear, GearPlan, LoadRange, PipelinePlan, ReplicaSettings, SourceFile, alone
from gearshift.hardware import Device, Hardware
from gearshift.objective import Objective
from gearshift.pipeline import Node
from gearshift.placement import Placement, Replica
from gearshift.workload import Workload
from tests.conformance.plans import MODELS, MS, Case


def long_case(*, samples: int, seed: int) -> Case:
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
