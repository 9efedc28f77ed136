"""A task of a small graph in a folder: a project of two models and two functions, with a plan made by hand.

The request's `x` (rows, 6) holds three pairs, as three rows of `split.parts`. `read` sums each pair, and is certain
where the first is at least 1; it answers `even` or `odd`. An odd one goes to `check`, which doubles the sum, and waits
`check_s` if the first is 4. `join` makes a text of all labels and of the doubled sums; `check` may be left out.
"""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import numpy as np

from gearshift.cascade import Cascade
from gearshift.gear import Gear, GearPlan, LoadRange, PipelinePlan, ReplicaSettings, SourceFile
from gearshift.hardware import identical_devices
from gearshift.model import TensorSpec
from gearshift.objective import Objective
from gearshift.pipeline import Edge, FanOut, Node, When
from gearshift.placement import Placement, Replica
from gearshift.plans.plan_file import write_plan
from gearshift.profiles.pipelines.profile_folder import Profiles, RecordedPipeline, write_profiles
from gearshift.profiles.profile import PredictionRecords, Profile, RunTimeCurve
from gearshift.profiles.store import write_profile
from gearshift.profiles.tuples import JointRecords
from gearshift.profiles.tuples_file import read_joint_records
from gearshift.runtime.backends.workers_backend import OperatorSource

PROJECT = """
[operators.split]
function = "task.py:split"
[operators.reader]
models.read = {load = "task.py:read"}
[operators.checker]
models.check = {load = "task.py:check"}
[operators.join]
function = "task.py:join"

[pipelines.pairs]
samples = "task.py:samples"
output = "join"
nodes.split = {operator = "split", inputs = {x = "x"}}
nodes.read = {operator = "reader", inputs = {pair = "split.parts"}, fan_out = {per_row = "split.parts", most = 3}}
nodes.check = {operator = "checker", inputs = {sums = "read.sum", first = "read.first"}, required = false}
nodes.join = {operator = "join", inputs = {labels = "read.label", doubled = "check.double"}, fan_in = true}
"""
"""Its edges are those of the plan: see `EDGES`."""

TASK = """
import time
import numpy as np

def split(x):
    if (x == 666).any():
        raise ValueError("a secret of the function")
    rows = x.reshape(len(x), -1, 2)
    return {"parts": [one[one[:, 0] >= 0] for one in rows]}

def read():
    def model(pair):
        total = pair.sum(axis=1)
        label = np.where(total % 2 == 0, "even", "odd").astype(object)
        return {"label": label, "sum": total, "first": pair[:, 0]}, np.where(pair[:, 0] >= 1, 1.0, 0.0)
    return model

def check():
    def model(inputs):
        sums, first = inputs["sums"], inputs["first"]
        if (sums == 13).any():
            raise ValueError("a secret of the model")
        if (first == 4).any():
            time.sleep(CHECK_S)
        return {"double": 2 * sums}, np.ones(len(sums))
    return model

def join(labels, doubled=None):
    texts = []
    for row in range(len(labels)):
        numbers = [] if doubled is None else [f"{one:g}" for one in doubled[row]]
        texts.append(" ".join([*labels[row], *numbers]) or "nothing")
    return {"text": texts}
"""

EDGES = (
    Edge(from_="split", to="read"),
    Edge(from_="read", to="check", when=When(output="label", one_of=("odd",))),
    Edge(from_="read", to="join"),
    Edge(from_="check", to="join"),
)
INPUTS = (TensorSpec(name="x", datatype="FP64", shape=(-1, 6)),)
OUTPUTS = {
    "split": (TensorSpec(name="parts", datatype="FP64", shape=(-1, -1, 2)),),
    "reader": (
        TensorSpec(name="label", datatype="BYTES", shape=(-1,)),
        TensorSpec(name="sum", datatype="FP64", shape=(-1,)),
        TensorSpec(name="first", datatype="FP64", shape=(-1,)),
    ),
    "checker": (TensorSpec(name="double", datatype="FP64", shape=(-1,)),),
    "join": (TensorSpec(name="text", datatype="BYTES", shape=(-1,)),),
}
TAKEN = {
    "split": INPUTS,
    "reader": (TensorSpec(name="pair", datatype="FP64", shape=(-1, 2)),),
    "checker": tuple(TensorSpec(name=name, datatype="FP64", shape=(-1,)) for name in ("sums", "first")),
    "join": (
        TensorSpec(name="labels", datatype="BYTES", shape=(-1, -1)),
        TensorSpec(name="doubled", datatype="FP64", shape=(-1, -1)),
    ),
}
MODELS = {"split": "split", "reader": "read", "checker": "check", "join": "join"}


def graph_nodes(**fan_out: Any) -> dict[str, Node]:
    pairs = FanOut(**{"per_row": "split.parts", "most": 3, **fan_out})
    return {
        "split": Node(operator="split", inputs={"x": "x"}),
        "read": Node(operator="reader", inputs={"pair": "split.parts"}, fan_out=pairs),
        "check": Node(operator="checker", inputs={"sums": "read.sum", "first": "read.first"}, required=False),
        "join": Node(operator="join", inputs={"labels": "read.label", "doubled": "check.double"}, fan_in=True),
    }


def graph_profile(operator: str, model: str) -> Profile:
    """Recorded by the name of the model alone."""
    return Profile(
        operator=operator,
        curves=(RunTimeCurve(model=model, batch_sizes=(1, 8), median_s=(0.001, 0.002), p95_s=(0.001, 0.002)),),
        predictions=PredictionRecords(
            models=(model,),
            quality=np.ones((1, 2)),
            certainty=np.ones((1, 2)),
            part=np.array([0, 1], dtype=np.int8),
            prediction=np.array([[model] * 2]),
        ),
        inputs=TAKEN[operator],
        outputs=OUTPUTS[operator],
        project="../../gearshift.toml",
    )


def write_graph_plan(folder: Path, *, check_s: float = 0.0, **fan_out: Any) -> Path:
    """Write the project, profiles and plan of the task; the path of the plan."""
    write_graph_task(folder, check_s=check_s)
    plan, sources = graph_plan(**fan_out), dict[str, SourceFile]()
    for operator, model in MODELS.items():
        profile = write_profile(graph_profile(operator, model), folder / "profile" / operator)
        sources[operator] = SourceFile(path=f"profile/{operator}", sha256=profile.sha256)
    write_plan(msgspec.structs.replace(plan, profiles=sources), folder / "plan.json")
    return folder / "plan.json"


def graph_plan(**fan_out: Any) -> GearPlan:
    """All on one device but `check`, which has a second one for itself."""
    nodes, hardware = graph_nodes(**fan_out), identical_devices(2)
    on = {model: ("cpu-1" if model == "check" else "cpu-0",) for model in MODELS.values()}
    replicas = tuple(Replica(id=f"{model}-0", model=model, device_ids=device) for model, device in on.items())
    gear = Gear(
        load_range=LoadRange(from_=0.0),
        cascades={name: (Cascade(models=(MODELS[node.operator],)),) for name, node in nodes.items()},
        replicas=tuple(ReplicaSettings(replica=one.id, load_share=1.0, largest_batch_size=8) for one in replicas),
    )
    nowhere = SourceFile(path="", sha256="")
    pipeline = PipelinePlan(nodes=nodes, edges=EDGES, output="join", objective=Objective(latency_s=5.0), gears=(gear,))
    return GearPlan(
        planner="by hand",
        hardware=hardware,
        placement=Placement(replicas=replicas),
        pipelines={"pairs": pipeline},
        profiles=dict.fromkeys(MODELS, nowhere),
        traces={"pairs": nowhere},
    )


def write_graph_task(folder: Path, *, check_s: float = 0.0, task: str = "") -> list[OperatorSource]:
    """Write project and code, with `task` behind it; what a backend needs of each operator."""
    edges = ", ".join(
        f'{{from = "{edge.from_}", to = "{edge.to}"'
        + (f', when = {{output = "{edge.when.output}", one_of = ["odd"]}}' if edge.when else "")
        + "}"
        for edge in EDGES
    )
    project = folder / "gearshift.toml"
    project.write_text(f"{PROJECT}edges = [{edges}]\n")
    (folder / "task.py").write_text(f"CHECK_S = {check_s}\n{TASK}{task}")
    return [
        OperatorSource(project=project, inputs=(), outputs=OUTPUTS[operator], models=(model,))
        for operator, model in MODELS.items()
    ]


STOPPING = """

class Stopping:
    segments = 2

    def exits(self, pair):
        early = pair[:, 0] >= 2
        total = pair.sum(axis=1)
        label = np.where(total % 2 == 0, "even", "odd").astype(object)
        for segment, rows in enumerate((np.flatnonzero(early), np.flatnonzero(~early))):
            outputs = {"label": label[rows], "sum": total[rows], "first": pair[rows, 0]}
            yield rows, {**outputs, "certainty": np.ones(len(rows)), "exit_segment": [segment] * len(rows)}

    def predict(self, pair):
        raise AssertionError

    through = predict

def read():
    return Stopping()
"""
"""In place of `read`: a model whose rows leave at two exits, as those with learned caches do."""


# With records --------------------------------------------------------------------------------------------------------

NONE_LEFT = [-1.0, 0.0]
"""A pair that `split` leaves out."""
REQUESTS = [
    [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]],
    [[1.0, 2.0], [2.0, 2.0], [3.0, 4.0]],
    [[1.0, 1.0], [8.0, 2.0], NONE_LEFT],
    [[1.0, 4.0], [2.0, 1.0], [3.0, 2.0]],
    [NONE_LEFT, NONE_LEFT, NONE_LEFT],
    [[5.0, 2.0], [9.0, 2.0], NONE_LEFT],
    [[1.0, 3.0], [3.0, 2.0], [2.0, 2.0]],
    [[7.0, 2.0], [6.0, 2.0], [5.0, 5.0]],
]
"""Those with an even number are of part A."""
SAMPLES = f"""

def samples():
    import gearshift
    return gearshift.Samples({{"x": np.array({REQUESTS}).reshape({len(REQUESTS)}, -1)}})
"""


def pairs_of(request: list[list[float]]) -> list[list[float]]:
    return [pair for pair in request if pair[0] >= 0]


def read_is_right(pair: list[float]) -> float:
    """As recorded: it is wrong on 8 and 9."""
    return float(pair[0] < 8)


def check_is_right(pair: list[float]) -> float:
    """As recorded: it is wrong on even sums, which it is never asked for, and on 7."""
    return float(sum(pair) % 2 == 1 and sum(pair) != 7)


def recorded_quality(request: list[list[float]]) -> float:
    """The product of the qualities of all items that the request visits."""
    pairs = pairs_of(request)
    read = [read_is_right(pair) for pair in pairs]
    checked = [check_is_right(pair) for pair in pairs if sum(pair) % 2 == 1]
    return float(np.prod([*read, *checked]))


PAIRS = [(number, pair) for number, request in enumerate(REQUESTS) for pair in pairs_of(request)]
"""The pairs of all requests, each with the number of its request: the samples of `reader` and `checker`."""


def recorded_profiles() -> dict[str, Profile]:
    of_request, of_pair = np.arange(len(REQUESTS)), np.array([number for number, _ in PAIRS])
    sums = np.array([sum(pair) for _, pair in PAIRS])
    quality = {
        "split": np.ones(len(REQUESTS)),
        "reader": np.array([read_is_right(pair) for _, pair in PAIRS]),
        "checker": np.array([check_is_right(pair) for _, pair in PAIRS]),
        "join": np.ones(len(REQUESTS)),
    }
    profiles = {}
    for operator, model in MODELS.items():
        samples = of_request if operator in ("split", "join") else of_pair
        said = np.where(sums % 2 == 0, "even", "odd") if operator == "reader" else np.full(len(samples), model)
        predictions = PredictionRecords(
            models=(model,),
            quality=quality[operator][None],
            certainty=np.ones((1, len(samples))),
            part=(samples % 2).astype(np.int8),
            prediction=said[None],
        )
        profiles[operator] = replace(graph_profile(operator, model), predictions=predictions)
    return profiles


def recorded_tuples(profiles: dict[str, Profile]) -> JointRecords:
    lines = ["tuple,node,parent,row"]
    for number in range(len(REQUESTS)):
        mine = [row for row, (of, _) in enumerate(PAIRS) if of == number]
        lines += [f"{number},split,,{number}", f"{number},join,,{number}"]
        lines += [f"{number},read,,{row}" for row in mine] + [f"{number},check,{row},{row}" for row in mine]
    counts = {name: len(one.predictions.part) for name, one in profiles.items()}
    with TemporaryDirectory() as folder:
        (Path(folder) / "tuples.csv").write_text("\n".join(lines) + "\n")
        return read_joint_records(Path(folder), graph_nodes(), EDGES, counts)


def write_recorded_graph(folder: Path, *, trace: str = "") -> Path:
    """As `write_graph_plan`, with `REQUESTS` as recorded samples, and a folder of profiles; the path of the plan."""
    write_graph_task(folder, task=SAMPLES)
    profiles = recorded_profiles()
    pipeline = RecordedPipeline(output="join", nodes=graph_nodes(), edges=EDGES, requests=len(REQUESTS))
    made = write_profiles(
        Profiles(operators=profiles, pipelines={"pairs": pipeline}, tuples={"pairs": recorded_tuples(profiles)}),
        folder / "profile",
    )
    sources = {name: SourceFile(path=f"profile/{name}", sha256=one.sha256) for name, one in made.operators.items()}
    plan = msgspec.structs.replace(graph_plan(), profiles=sources, traces={"pairs": SourceFile(path=trace, sha256="")})
    write_plan(plan, folder / "plan.json")
    return folder / "plan.json"
