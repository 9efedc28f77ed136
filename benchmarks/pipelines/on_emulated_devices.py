"""Plans of graphs made by hand, with drawn answers, served on emulated devices and simulated."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from benchmarks.shared.as_served_here import SECONDS, as_served_here
from gearshift.cascade import Cascade
from gearshift.gear import Gear, GearPlan, LoadRange, PipelinePlan, ReplicaSettings, SourceFile
from gearshift.hardware import Device, Hardware
from gearshift.objective import Objective
from gearshift.pipeline import Edge, Node
from gearshift.placement import Placement, Replica
from gearshift.plans.plan_file import write_plan
from gearshift.profiles.profile import PART_A, PART_B, PredictionRecords, Profile, RunTimeCurve, split_parts
from gearshift.profiles.store import TUPLES_FILE, write_profile
from gearshift.profiles.tuples import OUTERMOST, Items, JointRecords, around_nodes
from gearshift.profiles.tuples_file import encoded_joint_records
from gearshift.verbs.rows.validate import Validation
from gearshift.verbs.validate import validate
from gearshift.workload import Trace

SAMPLES, TUPLES = 3000, 1000
LARGEST_BATCH = 8
LABELS = np.array(["cat", "dog", "bird"])
MOST_TRIES = 3
COLUMNS = (
    *("requests", "p50 in ms: predicted, served", "p95 predicted", "served", "error"),
    *("late: predicted, served", "refused", "degraded", "shifts simulated", "generator in time"),
)
MODEL_QUALITY = 0.75, 0.85, 0.92

Models = Mapping[str, tuple[float, float]]
"""By name, cheap to dear: seconds of a batch of b are first + b x second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnGear:
    """A gear from a load on: the cascade of each node, as models and thresholds."""

    from_qps: float
    cascades: Mapping[str, tuple[tuple[str, ...], tuple[float, ...]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """A pipeline with its gears, in order of load; the last node is its output."""

    nodes: Mapping[str, Node]
    edges: Sequence[Edge]
    gears: Sequence[OnGear]
    latency_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Pipelines over operators, whose models `devices` hold: names of models by device."""

    operators: Mapping[str, Models]
    pipelines: Mapping[str, Graph]
    devices: Mapping[str, Sequence[str]]
    seed: int = 0


def write_task(task: Task, folder: Path, here: Profile | None = None) -> Path:
    """Write profiles, joint records and plan; the path of the plan.

    Profiles take the overheads and the front end of `here`, measured on this machine.
    """
    generator = np.random.default_rng(task.seed)
    sources = {}
    for operator, models in task.operators.items():
        profile = write_profile(_profile(operator, models, generator, here), folder / "profile" / operator)
        sources[operator] = SourceFile(path=f"profile/{operator}", sha256=profile.sha256)
    for name, graph in task.pipelines.items():
        if graph.edges:
            place = folder / "profile" / name
            place.mkdir(parents=True, exist_ok=True)
            (place / TUPLES_FILE).write_bytes(encoded_joint_records(_drawn_tuples(graph, generator)))
    write_plan(_plan(task, sources), folder / "plan.json")
    return folder / "plan.json"


def _profile(operator: str, models: Models, generator: np.random.Generator, here: Profile | None) -> Profile:
    sizes = (1, LARGEST_BATCH)
    curves = []
    for name, (first_s, each_s) in models.items():
        times = tuple(first_s + size * each_s for size in sizes)
        curves.append(RunTimeCurve(model=name, batch_sizes=sizes, median_s=times, p95_s=times))
    if here is not None:
        one = here.curves[0]
        overheads = {name: getattr(one, name) for name in ("overhead_per_batch_s", "overhead_per_request_s")}
        curves = [msgspec.structs.replace(curve, **overheads) for curve in curves]
    certainty = generator.random((len(models), SAMPLES))
    right = generator.random((len(models), SAMPLES)) < np.array(MODEL_QUALITY[: len(models)])[:, None]
    return Profile(
        operator=operator,
        curves=tuple(curves),
        predictions=PredictionRecords(
            models=tuple(models),
            quality=right.astype(np.float64),
            certainty=certainty,
            part=split_parts(np.arange(SAMPLES), 0),
            prediction=generator.choice(LABELS, (len(models), SAMPLES)),
        ),
        front_end_s=0.0 if here is None else here.front_end_s,
        router_s=0.0 if here is None else here.router_s,
    )


def _drawn_tuples(graph: Graph, generator: np.random.Generator) -> JointRecords:
    """From none to the most rows of each fan-out, equally often."""
    number = {name: place for place, name in enumerate(graph.nodes)}
    made: dict[str, Items] = {}
    begin: dict[str, int] = {}
    for name, outer in around_nodes(graph.nodes, graph.edges).items():
        of_tuple = made[outer].of_tuple if outer else np.arange(TUPLES)
        around = begin[outer] + np.arange(len(of_tuple)) if outer else np.full(TUPLES, OUTERMOST)
        fan_out = graph.nodes[name].fan_out
        if fan_out is not None:
            rows = generator.integers(0, fan_out.most + 1, len(of_tuple))
            of_tuple, around = np.repeat(of_tuple, rows), np.repeat(around, rows)
        begin[name] = sum(len(items.row) for items in made.values())
        samples = generator.permutation(SAMPLES)[np.arange(len(of_tuple)) % SAMPLES]
        made[name] = Items(of_tuple, np.full(len(of_tuple), number[name]), samples, around)
    columns = ("of_tuple", "node", "row", "around")
    whole = Items(*(np.concatenate([getattr(items, column) for items in made.values()]) for column in columns))
    part = np.where(np.arange(TUPLES) % 2, PART_A, PART_B).astype(np.int8)
    return whole.joint_records(graph.nodes, graph.edges, names=[str(t) for t in range(TUPLES)], part=part)


def _plan(task: Task, sources: Mapping[str, SourceFile]) -> GearPlan:
    replicas = tuple(
        Replica(id=f"{model}@{device}", model=model, device_ids=(device,))
        for device, models in task.devices.items()
        for model in models
    )
    nowhere = SourceFile(path="", sha256="")
    return GearPlan(
        planner="by hand",
        hardware=Hardware(devices=tuple(Device(id=device) for device in task.devices)),
        placement=Placement(replicas=replicas),
        pipelines={
            name: PipelinePlan(
                nodes=dict(graph.nodes),
                edges=tuple(graph.edges),
                output=list(graph.nodes)[-1],
                objective=Objective(latency_s=graph.latency_s),
                gears=tuple(_gears(graph, replicas)),
            )
            for name, graph in task.pipelines.items()
        },
        profiles=dict(sources),
        traces=dict.fromkeys(task.pipelines, nowhere),
    )


def _gears(graph: Graph, replicas: Sequence[Replica]) -> list[Gear]:
    ends = [*(gear.from_qps for gear in graph.gears[1:]), None]
    made = []
    for gear, end in zip(graph.gears, ends, strict=True):
        used = {model for models, _ in gear.cascades.values() for model in models}
        copies = {model: sum(one.model == model for one in replicas) for model in used}
        made.append(
            Gear(
                load_range=LoadRange(from_=gear.from_qps, to=end),
                cascades={
                    node: (Cascade(models=models, thresholds=thresholds),)
                    for node, (models, thresholds) in gear.cascades.items()
                },
                replicas=tuple(
                    ReplicaSettings(
                        replica=one.id,
                        load_share=1 / copies[one.model] if one.model in used else 0.0,
                        largest_batch_size=LARGEST_BATCH,
                    )
                    for one in replicas
                ),
            )
        )
    return made


def as_here(seconds: float = SECONDS) -> Profile:
    """The overheads of this machine, measured for so long; see `shared/as_served_here.py`."""
    return as_served_here(_profile("any", {"any": (0.001, 0.0)}, np.random.default_rng(0), None), seconds)


def served_and_simulated(plan: Path, traces: Mapping[str, Trace]) -> dict[str, Validation]:
    """`validate` on emulated devices; again, twice at most, where the generator did not keep its time."""
    for _ in range(MOST_TRIES):
        runs = validate(plan, traces, backend="emulated", seed=0)
        if all(run.replay.valid for run in runs.values()):
            break
    return runs


def cells(run: Validation) -> tuple[object, ...]:
    """What a table tells of a pipeline; see `COLUMNS`."""
    predicted, measured = run.predicted, run.measured
    return (
        measured.requests,
        f"{1e3 * predicted.latency_s.p50:.1f}, {1e3 * measured.latency_s.p50:.1f}",
        f"{1e3 * predicted.latency_s.p95:.1f}",
        f"{1e3 * measured.latency_s.p95:.1f}",
        f"{run.errors.p95:+.1%}",
        f"{predicted.share_late:.2%}, {measured.share_late:.2%}",
        f"{predicted.share_refused:.2%}, {measured.share_refused:.2%}",
        f"{predicted.share_degraded:.2%}, {measured.share_degraded:.2%}",
        len(run.simulation.shifts),
        "yes" if run.replay.valid else "no",
    )
