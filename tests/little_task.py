"""A little task of plain functions in a folder: project, profile and plan, made by hand so that nothing is measured.

Input `x` (rows, 2) of FP64.  Model `small` is certain where x[0] >= 1, `large` always; both answer x[0] + x[1] as
`sum` and their own name as `by`.  Both raise where x[0] is 666, after they have set all of x to 0; `small` is certain
of nothing (NaN) where it is 13, kills its process where it is 9, takes x[1] seconds where x[0] is 5, and waits where it
is 4 while the folder's gate is `closed`.  It is loaded when the gate `LOADING` is open.
"""

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import msgspec
import numpy as np

from gearshift.cascade import Cascade, ExpectedGain
from gearshift.gear import Gear, GearPlan, LoadRange, PipelinePlan, ReplicaSettings, SourceFile, alone
from gearshift.hardware import identical_devices
from gearshift.model import TensorSpec
from gearshift.objective import Objective
from gearshift.pipeline import Node
from gearshift.placement import Placement, Replica
from gearshift.plans.plan_file import write_plan
from gearshift.profiles.profile import PredictionRecords, Profile, RunTimeCurve
from gearshift.profiles.store import write_profile

PROJECT = """
operator = "sums"
samples = "task.py:samples"
[models.small]
load = "task.py:small"
[models.large]
load = "task.py:large"
"""

TASK = """
import fcntl, os, pathlib, signal, time
import numpy as np

def answer(name, certainty):
    def model(x):
        first = x[:, 0]
        if (first == 666).any():
            x[:] = 0
            raise ValueError("a secret of the model")
        if name == "small" and (first == 9).any():
            os.kill(os.getpid(), signal.SIGKILL)
        if name == "small" and (first == 4).any():
            pass_gate("gate")
        if name == "small":
            time.sleep(float(x[first == 5, 1].sum()))
        by = np.array([name] * len(x), dtype=object)
        return {"sum": x.sum(axis=1), "by": by}, certainty(first)
    return model

def pass_gate(name):
    with pathlib.Path(__file__).with_name(name).open("a") as gate:
        fcntl.flock(gate, fcntl.LOCK_SH)

def small():
    pass_gate("loading")
    return answer("small", lambda first: np.where(first == 13, np.nan, np.where(first >= 1, 1.0, 0.0)))

def large():
    return answer("large", lambda first: np.ones(len(first)))
"""

GATE, LOADING = "gate", "loading"

INPUTS = (TensorSpec(name="x", datatype="FP64", shape=(-1, 2)),)
OUTPUTS = (TensorSpec(name="sum", datatype="FP64", shape=(-1,)), TensorSpec(name="by", datatype="BYTES", shape=(-1,)))


def little_profile() -> Profile:
    """Ten recorded samples; `small` is certain of the even ones."""
    even = (np.arange(10) % 2 == 0).astype(np.float64)
    return Profile(
        operator="sums",
        curves=tuple(
            RunTimeCurve(model=model, batch_sizes=(1, 8), median_s=(seconds, 2 * seconds), p95_s=(seconds, 2 * seconds))
            for model, seconds in (("small", 0.001), ("large", 0.004))
        ),
        predictions=PredictionRecords(
            models=("small", "large"),
            quality=np.array([even, np.ones(10)]),
            certainty=np.array([even, np.ones(10)]),
            part=(np.arange(10) % 4 < 2).astype(np.int8),
            prediction=np.array([[f"{model}-{i}" for i in range(10)] for model in ("small", "large")]),
        ),
        inputs=INPUTS,
        outputs=OUTPUTS,
        project="../gearshift.toml",
    )


def little_plan(sha256: str, *, largest_batch_size: int = 8) -> GearPlan:
    """One device with both models; small > large in the one gear."""
    settings = tuple(
        ReplicaSettings(replica=replica, load_share=1.0, largest_batch_size=largest_batch_size)
        for replica in ("large-0", "small-0")
    )
    gear = Gear(
        load_range=LoadRange(from_=0),
        cascades=alone("sums", Cascade(models=("small", "large"), thresholds=(0.5,))),
        replicas=settings,
    )
    return GearPlan(
        planner="by hand",
        hardware=identical_devices(1),
        placement=Placement(
            replicas=(
                Replica(id="small-0", model="small", device_ids=("cpu-0",)),
                Replica(id="large-0", model="large", device_ids=("cpu-0",)),
            )
        ),
        pipelines={
            "sums": PipelinePlan(
                nodes={"sums": Node(operator="sums")}, output="sums", objective=Objective(latency_s=0.1), gears=(gear,)
            )
        },
        profiles={"sums": SourceFile(path="profile", sha256=sha256)},
        traces={"sums": SourceFile(path="trace.csv", sha256="")},
    )


def refining_plan(sha256: str, *, margin_s: float = 0.0, latency_s: float = 10.0) -> GearPlan:
    """As `little_plan`, with rows refined until `margin_s` before `latency_s` have passed."""
    plan = little_plan(sha256)
    changed = msgspec.structs.replace(
        plan.pipeline,
        gears=(msgspec.structs.replace(plan.pipeline.gears[0], order="gain", answer_by_margin_s=margin_s),),
        gains=tuple(
            ExpectedGain(kept=kept, later=later, certainty=(0.0, 0.5), gain=(0.5, 0.0))
            for kept, later in (("small", "large"), ("large", "small"))
        ),
        objective=Objective(latency_s=latency_s),
    )
    return msgspec.structs.replace(plan, pipelines={"sums": changed})


def spanning_plan(sha256: str) -> GearPlan:
    """As `little_plan`, with a second device, which `large` spans together with the first."""
    plan = little_plan(sha256)
    small, large = plan.placement.replicas
    across = msgspec.structs.replace(large, device_ids=("cpu-0", "cpu-1"))
    return msgspec.structs.replace(plan, hardware=identical_devices(2), placement=Placement(replicas=(small, across)))


def renamed(plan: GearPlan, name: str) -> GearPlan:
    """The same plan for a pipeline and an operator of another name."""
    (pipeline,) = plan.pipelines.values()
    gears = tuple(msgspec.structs.replace(gear, cascades=alone(name, gear.cascade)) for gear in pipeline.gears)
    pipeline = msgspec.structs.replace(pipeline, nodes={name: Node(operator=name)}, output=name, gears=gears)
    return msgspec.structs.replace(
        plan, pipelines={name: pipeline}, profiles={name: plan.profile}, traces={name: plan.trace}
    )


def two_gear_plan(sha256: str, *, edge_qps: float = 50.0, alpha: float = 8.0) -> GearPlan:
    """As `little_plan`, with `small` alone in a second gear from `edge_qps` on, and an upshift margin of a tenth."""
    plan = little_plan(sha256)
    operator = plan.pipelines["sums"]
    low, settings = operator.gears[0], operator.gears[0].replicas
    gears = (
        msgspec.structs.replace(low, load_range=LoadRange(from_=0, to=edge_qps)),
        Gear(
            load_range=LoadRange(from_=edge_qps),
            cascades=alone("sums", Cascade(models=("small",))),
            replicas=tuple(
                msgspec.structs.replace(one, load_share=float(one.replica == "small-0")) for one in settings
            ),
        ),
    )
    changed = msgspec.structs.replace(operator, gears=gears, alpha=alpha, upshift_margin=0.1)
    return msgspec.structs.replace(plan, pipelines={"sums": changed})


@contextmanager
def closed(folder: Path, gate: str = GATE) -> Iterator[Callable[[], None]]:
    """A gate of the task in `folder` is closed until what this yields is called, or the block ends."""
    with (folder / gate).open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield partial(fcntl.flock, file, fcntl.LOCK_UN)


def write_little_task(folder: Path, make_plan: Callable[[str], GearPlan] = little_plan) -> Path:
    """Write project, profile and plan; the path of the plan."""
    (folder / "gearshift.toml").write_text(PROJECT)
    (folder / "task.py").write_text(TASK)
    profile = write_profile(little_profile(), folder / "profile")
    write_plan(make_plan(profile.sha256), folder / "plan.json")
    return folder / "plan.json"


def under_other_names(plan: GearPlan) -> GearPlan:
    """The plan of one operator, served as pipeline `shop`, whose only node is `look`."""
    only, replace = plan.pipeline, msgspec.structs.replace
    gears = tuple(replace(gear, cascades=alone("look", gear.cascade)) for gear in only.gears)
    shop = replace(only, nodes={"look": only.nodes[only.output]}, output="look", gears=gears)
    predictions = {"shop": plan.predictions[plan.name]} if plan.predictions else {}
    return replace(plan, pipelines={"shop": shop}, traces={"shop": plan.trace}, predictions=predictions)
