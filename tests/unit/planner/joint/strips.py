"""A pipeline that cuts strips into parts, reads each part with one of two models, and joins them."""

import numpy as np

from gearshift.clock import NS_PER_S
from gearshift.hardware import identical_devices
from gearshift.objective import Objective
from gearshift.pipeline import Edge, FanOut, Node
from gearshift.planner.joint.request import PipelineRequest
from gearshift.profiles.profile import PredictionRecords, Profile, RunTimeCurve, split_parts
from gearshift.profiles.tuples import Items
from gearshift.workload import Trace

TUPLES, ROWS = 400, 3
NODES = {
    "split": Node(operator="split"),
    "read": Node(operator="read", fan_out=FanOut(per_row="split.parts", most=4)),
    "join": Node(operator="join", fan_in=True),
}
EDGES = (Edge(from_="split", to="read"), Edge(from_="read", to="join"))


def curve(model: str, ms: float) -> RunTimeCurve:
    seconds = tuple(1e-3 * ms * (0.4 + 0.6 * size) for size in (1, 2, 4, 8))
    return RunTimeCurve(model=model, batch_sizes=(1, 2, 4, 8), median_s=seconds, p95_s=seconds)


def profile(operator: str, models: dict[str, tuple[float, float]], part: np.ndarray, seed: int) -> Profile:
    """Models by name: run time in ms, and accuracy; certainty tells something about being right."""
    generator = np.random.default_rng(seed)
    hard = generator.random(len(part))
    right = np.array([(hard < accuracy).astype(float) for _, accuracy in models.values()])
    certainty = np.clip(1 - hard + 0.2 * generator.standard_normal(right.shape), 0, 1)
    return Profile(
        operator=operator,
        curves=tuple(curve(model, ms) for model, (ms, _) in models.items()),
        predictions=PredictionRecords(models=tuple(models), quality=right, certainty=certainty, part=part),
    )


def strips(*, latency_s: float, qps: float = 40.0, replanning: bool = False, **objective: float) -> PipelineRequest:
    part = split_parts(np.arange(TUPLES), 0)
    of_tuple = np.arange(TUPLES)
    items = Items(
        of_tuple=np.concatenate([of_tuple, np.repeat(of_tuple, ROWS), of_tuple]),
        node=np.repeat([0, 1, 2], [TUPLES, TUPLES * ROWS, TUPLES]),
        row=np.concatenate([of_tuple, np.arange(TUPLES * ROWS), of_tuple]),
        around=np.full(TUPLES * (ROWS + 2), -1),
    )
    generator = np.random.default_rng(1)
    rates = qps * (0.4 + 0.6 * np.abs(np.sin(np.arange(20) / 3)))
    arrivals = np.sort(np.concatenate([s + generator.random(int(rate)) for s, rate in enumerate(rates)]))
    return PipelineRequest(
        name="strips",
        nodes=NODES,
        edges=EDGES,
        output="join",
        profiles={
            "split": profile("split", {"cut": (0.5, 1.0)}, part, 2),
            "read": profile("read", {"small": (1.0, 0.9), "large": (6.0, 0.98)}, np.repeat(part, ROWS), 3),
            "join": profile("join", {"add": (0.3, 1.0)}, part, 4),
        },
        records=items.joint_records(NODES, EDGES, names=[str(t) for t in range(TUPLES)], part=part),
        trace=Trace(arrivals_ns=(arrivals * NS_PER_S).astype(np.int64), duration_s=20.0),
        hardware=identical_devices(2),
        objective=Objective(latency_s=latency_s, **objective),
        ranges=4,
        replanning=replanning,
    )
