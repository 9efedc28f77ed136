"""The world of `faults.py --graphs`: each pipeline is a graph with a fan-out, conditions, a join and an optional node.

`split` makes three rows of a request's, of which the first alone does what the request says; `read` is a cascade of
`small` and `large`. Odd numbers go through `check`, which is required, and all through `note`, which is not, and may
raise. `join` answers the number if all its rows agree on it, else -1.
"""

import shutil
from pathlib import Path

import numpy as np

from gearshift.cascade import Cascade
from gearshift.gear import Gear, GearPlan, LoadRange, PipelinePlan, ReplicaSettings, SourceFile
from gearshift.hardware import Device, Hardware
from gearshift.model import TensorSpec
from gearshift.objective import Objective
from gearshift.pipeline import Edge, FanOut, Node, When
from gearshift.placement import Placement, Replica
from gearshift.plans.plan_file import write_plan
from gearshift.profiles.profile import PredictionRecords, Profile, RunTimeCurve
from gearshift.profiles.store import write_profile

LARGEST_BATCH = 8
ROWS = 3
NOTE_RAISES, SMALL_RAISES = 6, 7
"""What a request says, beside the numbers of `faults.py`."""

PROJECT = """
[operators.{p}split]
function = "task.py:{p}split"
[operators.{p}read]
models.{p}small = {{load = "task.py:small"}}
models.{p}large = {{load = "task.py:large"}}
[operators.{p}check]
models.{p}check = {{load = "task.py:check"}}
[operators.{p}note]
models.{p}note = {{load = "task.py:note"}}
[operators.{p}join]
function = "task.py:{p}join"

[pipelines.{name}]
samples = "task.py:samples"
output = "join"
nodes.split = {{operator = "{p}split", inputs = {{x = "x"}}}}
nodes.read = {{operator = "{p}read", inputs = {{x = "split.parts"}}, fan_out = {{per_row = "split.parts", most = 3}}}}
nodes.check = {{operator = "{p}check", inputs = {{number = "read.number"}}}}
nodes.note = {{operator = "{p}note", inputs = {{x = "x"}}, required = false}}
nodes.join = {{operator = "{p}join", inputs = {{numbers = "read.number", checked = "check.half"}}, fan_in = true}}
edges = [
    {{from = "split", to = "read"}}, {{from = "split", to = "note"}}, {{from = "note", to = "join"}},
    {{from = "read", to = "check", when = {{output = "label", one_of = ["odd"]}}}},
    {{from = "read", to = "join"}}, {{from = "check", to = "join"}},
]
"""

TASK = """
def parts_of(x):
    return {{"parts": [np.array([row, [row[0], 0, 0], [row[0], 0, 0]]) for row in x]}}

def joined(numbers, checked=None):
    answers = []
    for row in range(len(numbers)):
        number = numbers[row][0]
        halves = [] if checked is None else [half for half in np.ravel(checked[row]) if half]
        wanted = [number / 2] * (3 if number % 2 else 0)
        answers.append(number if list(numbers[row]) == [number] * 3 and halves == wanted else -1.0)
    return {{"number": np.array(answers)}}

def {p}split(x):
    return parts_of(x)

def {p}join(numbers, checked=None):
    return joined(numbers, checked)

def check():
    return lambda number: ({{"half": number / 2}}, np.ones(len(number)))

def note():
    def model(x):
        if (x[:, 1] == 6).any():
            raise ValueError("a note that cannot be made")
        return {{"seen": x[:, 0]}}, np.ones(len(x))
    return model

plain_small, plain_large = small, large

def labelled(make):
    model = make()
    def with_label(x):
        if (x[:, 1] == 7).any():
            raise ValueError("small cannot do this")
        outputs, certainty = model(x)
        label = np.where(x[:, 0] % 2 == 1, "odd", "even").astype(object)
        return {{**outputs, "label": label}}, certainty
    return with_label

def small():
    return labelled(plain_small)

def large():
    return labelled(plain_large)
"""

X = TensorSpec(name="x", datatype="FP64", shape=(-1, 3))
NUMBER = TensorSpec(name="number", datatype="FP64", shape=(-1,))


def of_operators(p: str) -> dict[str, tuple[tuple[str, ...], tuple[TensorSpec, ...], tuple[TensorSpec, ...]]]:
    """Models, inputs and outputs of each operator."""
    half = TensorSpec(name="half", datatype="FP64", shape=(-1,))
    lists = tuple(TensorSpec(name=name, datatype="FP64", shape=(-1, -1)) for name in ("numbers", "checked"))
    label = TensorSpec(name="label", datatype="BYTES", shape=(-1,))
    parts = TensorSpec(name="parts", datatype="FP64", shape=(-1, -1, 3))
    return {
        f"{p}split": ((f"{p}split",), (X,), (parts,)),
        f"{p}read": ((f"{p}small", f"{p}large"), (X,), (NUMBER, label)),
        f"{p}check": ((f"{p}check",), (NUMBER,), (half,)),
        f"{p}note": ((f"{p}note",), (X,), (TensorSpec(name="seen", datatype="FP64", shape=(-1,)),)),
        f"{p}join": ((f"{p}join",), lists, (NUMBER,)),
    }


def prefix_of(name: str) -> str:
    return "" if name == "faults" else f"{name}-".replace("-", "_")


def placed_of(p: str) -> list[tuple[str, int]]:
    """Models and the numbers of their devices: three replicas on the first, four on the second."""
    first = [(f"{p}{model}", 0) for model in ("split", "small", "join")]
    return first + [(f"{p}{model}", 1) for model in ("small", "large", "check", "note")]


REPLICAS_OF_WORKER = (3, 4)


def pipeline_of(p: str, placed: list[tuple[str, str]]) -> PipelinePlan:
    shares = {f"{p}small": 0.5} | {f"{p}{model}": 1.0 for model in ("split", "large", "check", "note", "join")}
    cascades = {node: (Cascade(models=(f"{p}{node}",)),) for node in ("split", "check", "note", "join")}
    gear = Gear(
        load_range=LoadRange(from_=0),
        cascades={**cascades, "read": (Cascade(models=(f"{p}small", f"{p}large"), thresholds=(0.5,)),)},
        replicas=tuple(
            ReplicaSettings(replica=replica, load_share=shares.get(model, 0.0), largest_batch_size=LARGEST_BATCH)
            for replica, model in placed
        ),
    )
    rows = FanOut(per_row="split.parts", most=ROWS)
    nodes = {
        "split": Node(operator=f"{p}split", inputs={"x": "x"}),
        "read": Node(operator=f"{p}read", inputs={"x": "split.parts"}, fan_out=rows),
        "check": Node(operator=f"{p}check", inputs={"number": "read.number"}),
        "note": Node(operator=f"{p}note", inputs={"x": "x"}, required=False),
        "join": Node(operator=f"{p}join", inputs={"numbers": "read.number", "checked": "check.half"}, fan_in=True),
    }
    edges = (
        Edge(from_="split", to="read"),
        Edge(from_="split", to="note"),
        Edge(from_="note", to="join"),
        Edge(from_="read", to="check", when=When(output="label", one_of=("odd",))),
        Edge(from_="read", to="join"),
        Edge(from_="check", to="join"),
    )
    return PipelinePlan(nodes=nodes, edges=edges, output="join", objective=Objective(latency_s=0.1), gears=(gear,))


def write_graph_world(folder: Path, served: list[str], task: str, other_plan: str) -> Path:
    """Projects, profiles and plan of graphs of these names; `task` has `small` and `large`. The path of the plan."""
    sources = dict[str, SourceFile]()
    for name in served:
        p, here = prefix_of(name), folder / name
        here.mkdir()
        (here / "gearshift.toml").write_text(PROJECT.format(name=name, p=p))
        (here / "task.py").write_text(task + TASK.format(p=p))
        for operator, (models, inputs, outputs) in of_operators(p).items():
            quality = np.tile([0.0, 1.0], (len(models), 2))
            profile = Profile(
                operator=operator,
                curves=tuple(
                    RunTimeCurve(
                        model=model, batch_sizes=(1, LARGEST_BATCH), median_s=(0.001, 0.002), p95_s=(0.001, 0.002)
                    )
                    for model in models
                ),
                predictions=PredictionRecords(
                    models=models, quality=quality, certainty=quality, part=np.array([0, 0, 1, 1], dtype=np.int8)
                ),
                inputs=inputs,
                outputs=outputs,
                project="../../gearshift.toml",
            )
            written = write_profile(profile, here / "profile" / operator)
            sources[operator] = SourceFile(path=f"{name}/profile/{operator}", sha256=written.sha256)
    placed = [(f"{model}-{at}", model, f"cpu-{at}") for name in served for model, at in placed_of(prefix_of(name))]
    plan = GearPlan(
        planner="by hand",
        hardware=Hardware(devices=(Device(id="cpu-0", node="first"), Device(id="cpu-1", node="second"))),
        placement=Placement(
            replicas=tuple(Replica(id=replica, model=model, device_ids=(device,)) for replica, model, device in placed)
        ),
        pipelines={name: pipeline_of(prefix_of(name), [each[:2] for each in placed]) for name in served},
        profiles=sources,
        traces={name: SourceFile(path="trace.csv", sha256="") for name in served},
    )
    write_plan(plan, folder / "plan.json")
    shutil.copy(folder / "plan.json", folder / other_plan)
    return folder / "plan.json"
