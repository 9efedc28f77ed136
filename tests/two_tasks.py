"""The tasks `sums` (`little_task`) and `numbers` (`scaled_task`) served by one plan, on one device that they share.

`sums` has two gears, `small` > `large` below `edge_qps` and `small` alone from there on; `numbers` has one, and one
model, `net`, which takes some 6 ms for a sample.
"""

from pathlib import Path

import msgspec

from gearshift.gear import Gear, GearPlan, PipelinePlan, ReplicaSettings, SourceFile
from gearshift.objective import Objective
from gearshift.placement import Placement, Replica
from gearshift.plans.plan_file import write_plan
from gearshift.profiles.store import write_profile
from tests import little_task, scaled_task


def two_task_plan(sums_sha256: str, numbers_sha256: str, *, edge_qps: float = 50.0) -> GearPlan:
    sums = little_task.two_gear_plan(sums_sha256, edge_qps=edge_qps)
    numbers = scaled_task.scaled_plan(numbers_sha256, cores=1)
    net = Replica(id="net-0", model="net", device_ids=("cpu-0",))
    replicas = (*sums.placement.replicas, net)
    return msgspec.structs.replace(
        sums,
        placement=Placement(replicas=replicas),
        pipelines={
            "sums": _among(replicas, sums.pipelines["sums"]),
            "numbers": _among(replicas, numbers.pipelines["numbers"]),
        },
        profiles={
            "sums": SourceFile(path="sums/profile", sha256=sums_sha256),
            "numbers": SourceFile(path="numbers/profile", sha256=numbers_sha256),
        },
        traces=sums.traces | numbers.traces,
    )


def _among(replicas: tuple[Replica, ...], pipeline: PipelinePlan) -> PipelinePlan:
    """The same in a placement with other replicas, to which it gives no share."""

    def among(gear: Gear) -> Gear:
        own = {settings.replica: settings for settings in gear.replicas}
        every = tuple(own.get(one.id) or ReplicaSettings(replica=one.id, load_share=0.0) for one in replicas)
        return msgspec.structs.replace(gear, replicas=every)

    return msgspec.structs.replace(pipeline, gears=tuple(map(among, pipeline.gears)))


def write_two_tasks(folder: Path, *, edge_qps: float = 50.0) -> Path:
    """Write a project and a profile of each task in a folder of its own, and the plan; the path of the plan."""
    sha256 = {}
    for name, project, task, profile in (
        ("sums", little_task.PROJECT, little_task.TASK, little_task.little_profile()),
        ("numbers", scaled_task.PROJECT, scaled_task.TASK, scaled_task.scaled_profile((1,))),
    ):
        here = folder / name
        here.mkdir()
        (here / "gearshift.toml").write_text(project)
        (here / "task.py").write_text(task)
        sha256[name] = write_profile(profile, here / "profile").sha256
    write_plan(two_task_plan(sha256["sums"], sha256["numbers"], edge_qps=edge_qps), folder / "plan.json")
    return folder / "plan.json"


def refined(plan: GearPlan, *, latency_s: float = 10.0) -> GearPlan:
    """The plan with all rows of `sums` refined that `small` is not sure of, and rows of `numbers` screened alone."""
    gains = little_task.refining_plan("").pipeline.gains
    pipelines = {
        name: msgspec.structs.replace(
            pipeline,
            gears=tuple(msgspec.structs.replace(gear, order="gain") for gear in pipeline.gears),
            gains=gains if name == "sums" else (),
            objective=Objective(latency_s=latency_s),
        )
        for name, pipeline in plan.pipelines.items()
    }
    return msgspec.structs.replace(plan, pipelines=pipelines)
