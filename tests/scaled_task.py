"""A task of one model that computes for a known time, with a profile made by hand of 1 to 4 cores of 1/4 each."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
from msgspec.structs import replace

from gearshift.cascade import Cascade
from gearshift.gear import Gear, GearPlan, LoadRange, PipelinePlan, ReplicaSettings, SourceFile, alone
from gearshift.hardware import identical_devices
from gearshift.model import TensorSpec
from gearshift.objective import Objective
from gearshift.pipeline import Node
from gearshift.placement import Placement, Replica
from gearshift.plans.plan_file import write_plan
from gearshift.profiles.curves import performance_models
from gearshift.profiles.profile import PredictionRecords, Profile, RunTimeCurve
from gearshift.profiles.store import write_profile

CORES, SHARE = (1, 2, 3, 4), 0.25
PER_BATCH_S, PER_SAMPLE_S = 0.002, 0.004
SIZES = (1, 2, 4)

PROJECT = """
operator = "numbers"
samples = "task.py:samples"
[models.net]
load = "task.py:net"
"""

TASK = f"""
import time
import gearshift
import numpy as np

def samples():
    return gearshift.Samples(inputs={{"x": np.arange(20.0).reshape(20, 1)}}, labels=np.array(["a"] * 20))

def net():
    def model(x):
        until = time.thread_time() + {PER_BATCH_S} + {PER_SAMPLE_S} * len(x)
        while time.thread_time() < until:
            pass
        return {{"label": np.array(["a"] * len(x), dtype=object)}}, np.ones(len(x))
    return model
"""


def scaled_profile(cores: tuple[int, ...] = CORES) -> Profile:
    """Twenty samples, and run times that are the inverse of the cores."""

    def curve(count: int) -> RunTimeCurve:
        seconds = tuple((PER_BATCH_S + PER_SAMPLE_S * size) / (SHARE * count) for size in SIZES)
        return RunTimeCurve(model="net", cores=count, batch_sizes=SIZES, median_s=seconds, p95_s=seconds)

    curves = tuple(curve(count) for count in cores)
    return Profile(
        operator="numbers",
        curves=curves,
        predictions=PredictionRecords(
            models=("net",),
            quality=np.ones((1, 20)),
            certainty=np.ones((1, 20)),
            part=(np.arange(20) % 2).astype(np.int8),
            prediction=np.array([["a"] * 20]),
        ),
        inputs=(TensorSpec(name="x", datatype="FP64", shape=(-1, 1)),),
        outputs=(TensorSpec(name="label", datatype="BYTES", shape=(-1,)),),
        performance=performance_models(curves),
        project="../gearshift.toml",
    )


def scaled_plan(sha256: str, *, cores: int = 4, replicas: int = 1, devices: int | None = None) -> GearPlan:
    """Replicas of the model, each on a device of so many cores, unless there are fewer devices."""
    hardware = identical_devices(devices or replicas, cores=cores)
    ids = [f"net-{i}" for i in range(replicas)]
    return GearPlan(
        planner="by hand",
        hardware=hardware,
        placement=Placement(
            replicas=tuple(
                Replica(id=name, model="net", device_ids=(hardware.devices[i].id,), cores=cores)
                for i, name in enumerate(ids)
            )
        ),
        pipelines={
            "numbers": PipelinePlan(
                nodes={"numbers": Node(operator="numbers")},
                output="numbers",
                objective=Objective(latency_s=1.0),
                gears=(
                    Gear(
                        load_range=LoadRange(from_=0),
                        cascades=alone("numbers", Cascade(models=("net",))),
                        replicas=tuple(
                            ReplicaSettings(replica=name, load_share=1 / replicas, largest_batch_size=4, cores=cores)
                            for name in ids
                        ),
                    ),
                ),
            )
        },
        profiles={"numbers": SourceFile(path="profile", sha256=sha256)},
        traces={"numbers": SourceFile(path="trace.csv", sha256="")},
    )


def write_scaled_cascade(folder: Path, *, devices: int, cores: int, most_net: int = 4) -> None:
    """Profile and plan of a cascade on emulated devices: `net`, sure of every other sample, then `big`, 3x slower.

    Each has a replica: on one device, where they take turns, or on two.  `net` is measured on up to `most_net` cores.
    """
    one = scaled_profile()
    slower = [tuple(3 * seconds for seconds in curve.median_s) for curve in one.curves]
    big = [replace(curve, model="big", median_s=s, p95_s=s) for curve, s in zip(one.curves, slower, strict=True)]
    curves = (*(curve for curve in one.curves if curve.cores <= most_net), *big)
    predictions = PredictionRecords(
        models=("net", "big"),
        quality=np.ones((2, 20)),
        certainty=np.array([np.arange(20) % 2, np.ones(20)], dtype=np.float64),
        part=(np.arange(20) // 2 % 2).astype(np.int8),
        prediction=np.array([["a"] * 20] * 2),
    )
    profile = write_profile(
        dataclasses.replace(one, curves=curves, predictions=predictions, performance=performance_models(curves)),
        folder / "profile",
    )
    hardware = identical_devices(devices, cores=cores)
    plan = scaled_plan(profile.sha256, cores=cores)
    operator = plan.pipelines["numbers"]
    settings = tuple(
        ReplicaSettings(replica=f"{model}-0", load_share=1.0, largest_batch_size=4, cores=cores)
        for model in ("net", "big")
    )
    cascade = Cascade(models=("net", "big"), thresholds=(0.5,))
    gear = replace(operator.gears[0], cascades=alone("numbers", cascade), replicas=settings)
    replicas = tuple(
        Replica(id=f"{model}-0", model=model, device_ids=(hardware.devices[i % devices].id,), cores=cores)
        for i, model in enumerate(("net", "big"))
    )
    write_plan(
        replace(
            plan,
            hardware=hardware,
            placement=Placement(replicas=replicas),
            pipelines={"numbers": replace(operator, gears=(gear,))},
        ),
        folder / "plan.json",
    )


def write_scaled_task(folder: Path, **plan: int) -> Path:
    """Write project, profile and plan; the path of the plan."""
    (folder / "gearshift.toml").write_text(PROJECT)
    (folder / "task.py").write_text(TASK)
    profile = write_profile(scaled_profile(), folder / "profile")
    write_plan(scaled_plan(profile.sha256, **plan), folder / "plan.json")
    return folder / "plan.json"


def write_geared_task(folder: Path, below: Sequence[int], above: Sequence[int], *, pool: int, qps: float = 1e3) -> Path:
    """Write project, profile and plan of a replica per count, which has these cores in the gear below `qps` and above.

    Answers the path of the plan.
    """
    profile = write_profile(scaled_profile(), folder / "profile")
    plan = scaled_plan(profile.sha256, cores=1, replicas=len(below))
    (gear,) = plan.pipelines["numbers"].gears
    gears = tuple(
        msgspec.structs.replace(
            gear,
            load_range=load_range,
            replicas=tuple(
                msgspec.structs.replace(each, cores=count) for each, count in zip(gear.replicas, counts, strict=True)
            ),
        )
        for load_range, counts in ((LoadRange(from_=0, to=qps), below), (LoadRange(from_=qps), above))
    )
    operator = msgspec.structs.replace(plan.pipelines["numbers"], gears=gears)
    hardware = msgspec.structs.replace(plan.hardware, pool_cores=pool)
    path = write_scaled_task(folder)
    write_plan(msgspec.structs.replace(plan, hardware=hardware, pipelines={"numbers": operator}), path)
    return path
