"""Small plans spelt out in a line or two, for examples that are worked out by hand."""

from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Any

import msgspec
import numpy as np
from msgspec import UNSET

from gearshift.cascade import Cascade, ExpectedGain
from gearshift.gear import Gear, GearPlan, LoadRange, PipelinePlan, ReplicaSettings, SourceFile, alone
from gearshift.hardware import Device, Hardware
from gearshift.objective import Objective
from gearshift.pipeline import Edge, Node
from gearshift.placement import Placement, Replica
from gearshift.workload import Workload
from tests.conformance.plans import MS


def small_gear(
    placed: Mapping[str, str],
    cascade: str,
    thresholds: Sequence[float] = (),
    *,
    load: tuple[float, float | None] = (0.0, None),
    shares: Mapping[str, float] | None = None,
    minimum: int | Mapping[str, int] = 1,
    largest: int | Mapping[str, int] = 4,
    wait_ms: float | Mapping[str, float] = 0.0,
    node: str = "task",
) -> Gear:
    """A gear of `cascade` ("a b"); a replica's model is its first letter, shares are equal unless given."""
    models = tuple(cascade.split())

    def share(replica: str) -> float:
        if replica[0] not in models:
            return 0.0
        if shares is not None and replica in shares:
            return shares[replica]
        return 1 / sum(other[0] == replica[0] for other in placed)

    def value(setting: Any, replica: str, default: Any) -> Any:
        return setting.get(replica, default) if isinstance(setting, Mapping) else setting

    return Gear(
        load_range=LoadRange(from_=load[0], to=load[1]),
        cascades=alone(node, Cascade(models=models, thresholds=tuple(thresholds))),
        replicas=tuple(
            ReplicaSettings(
                replica=replica,
                load_share=share(replica),
                minimum_queue_length=value(minimum, replica, 1),
                largest_batch_size=value(largest, replica, 4),
                longest_wait_s=value(wait_ms, replica, 0.0) / 1e3,
            )
            for replica in placed
        ),
    )


def small_plan(placed: Mapping[str, str], *gears: Gear, **operator: Any) -> GearPlan:
    """Replicas by id with their devices ("d0 d1"), on the devices that they name."""
    return small_plan_of(placed, {"task": gears}, **operator)


def refining(
    plan: GearPlan,
    gain: Mapping[float, float],
    *,
    latency_ms: float | Mapping[str, float] = 100,
    worth: Mapping[str, float] = {},
    **gear: Any,
) -> GearPlan:
    """The plan with gears that order by gain, which for all pairs of models is the same by certainty.

    Latency and worth may be by pipeline.
    """
    gains = tuple(
        ExpectedGain(kept=kept, later=later, certainty=tuple(gain), gain=tuple(gain.values()))
        for kept, later in permutations(plan.placement.models, 2)
    )
    changed = {}
    for name, pipeline in plan.pipelines.items():
        ms = latency_ms[name] if isinstance(latency_ms, Mapping) else latency_ms
        changed[name] = msgspec.structs.replace(
            pipeline,
            gears=tuple(msgspec.structs.replace(each, order="gain", **gear) for each in pipeline.gears),
            gains=gains,
            objective=Objective(latency_s=ms / 1e3),
            worth=worth.get(name, UNSET),
        )
    return msgspec.structs.replace(plan, pipelines=changed)


def small_plan_of(placed: Mapping[str, str], pipelines: Mapping[str, Sequence[Gear]], /, **fields: Any) -> GearPlan:
    """As `small_plan`, of several pipelines of one node."""
    devices = sorted({device for span in placed.values() for device in span.split()})
    source = SourceFile(path="", sha256="")
    return GearPlan(
        planner="test",
        hardware=Hardware(devices=tuple(Device(id=device) for device in devices)),
        placement=Placement(
            replicas=tuple(
                Replica(id=replica, model=replica[0], device_ids=tuple(span.split()))
                for replica, span in placed.items()
            )
        ),
        pipelines={
            name: PipelinePlan(
                nodes={name: Node(operator=name)},
                output=name,
                objective=Objective(latency_s=0.1),
                gears=tuple(gears),
                **fields,
            )
            for name, gears in pipelines.items()
        },
        profiles=dict.fromkeys(pipelines, source),
        traces=dict.fromkeys(pipelines, source),
    )


def small_graph_gear(
    placed: Mapping[str, str],
    cascades: Mapping[str, str],
    thresholds: float = 0.5,
    *,
    load: tuple[float, float | None] = (0.0, None),
    **settings: Any,
) -> Gear:
    """A gear of the cascades of several nodes ("a b"), all with the same thresholds."""
    models = " ".join({model: "" for cascade in cascades.values() for model in cascade.split()})
    gear = small_gear(placed, models, [0.0] * (len(models.split()) - 1), load=load, **settings)
    made = {
        node: (Cascade(models=tuple(each.split()), thresholds=(thresholds,) * (len(each.split()) - 1)),)
        for node, each in cascades.items()
    }
    return msgspec.structs.replace(gear, cascades=made)


def small_graph(
    placed: Mapping[str, str], nodes: Mapping[str, Node], edges: Sequence[Edge], *gears: Gear, **pipeline: Any
) -> GearPlan:
    """The plan of one pipeline, "graph", whose last node is its output."""
    source = SourceFile(path="", sha256="")
    operators = {node.operator for node in nodes.values()}
    graph = PipelinePlan(
        nodes=dict(nodes),
        edges=tuple(edges),
        output=list(nodes)[-1],
        objective=Objective(latency_s=0.1),
        gears=gears,
        **pipeline,
    )
    models = list(dict.fromkeys(replica[0] for replica in placed))
    plan = small_plan(placed, small_gear(placed, " ".join(models), [0.0] * (len(models) - 1)))
    return msgspec.structs.replace(
        plan, pipelines={"graph": graph}, profiles=dict.fromkeys(operators, source), traces={"graph": source}
    )


def small_workload(arrivals_ms: Sequence[float], **columns: Any) -> Workload:
    """Sample i carries record i; times in milliseconds."""
    arrivals_ns = np.rint(np.array(arrivals_ms) * MS).astype(np.int64)
    return Workload(
        arrivals_ns=arrivals_ns,
        record=np.arange(len(arrivals_ns), dtype=np.int32),
        duration_s=float(arrivals_ns[-1]) / 1e9,
        **{name: np.array(column) for name, column in columns.items()},
    )
