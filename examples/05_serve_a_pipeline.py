"""Serve a pipeline by a plan that is written by hand, and ask it with a deadline for the whole of it."""

import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import gearshift
from gearshift.errors import DeadlinePassed
from gearshift.gear import LoadRange, PipelinePlan, ReplicaSettings, SourceFile
from gearshift.models.config import read_project
from gearshift.models.samples import load_samples
from gearshift.placement import Placement, Replica

SURE = gearshift.Cascade(models=("network", "forest"), thresholds=(0.9,))
FAST = gearshift.Cascade(models=("network",))
MODELS = ("split", "network", "forest", "join")


def plan_of(profiles: gearshift.Profiles) -> gearshift.GearPlan:
    """Read surely below 20 strips a second, and fast above; all models share one device."""
    hardware, pipeline = gearshift.identical_devices(1), profiles.pipelines["digits"]
    replicas = [Replica(id=model, model=model, device_ids=(hardware.devices[0].id,)) for model in MODELS]
    nowhere = SourceFile(path="", sha256="")

    def gear(load_range: LoadRange, reading: gearshift.Cascade) -> gearshift.Gear:
        used = {"split", "join", *reading.models}
        return gearshift.Gear(
            load_range=load_range,
            cascades={
                "split": (gearshift.Cascade(models=("split",)),),
                "read": (reading,),
                "join": (gearshift.Cascade(models=("join",)),),
            },
            replicas=tuple(
                ReplicaSettings(replica=model, load_share=float(model in used), largest_batch_size=16)
                for model in MODELS
            ),
        )

    return gearshift.GearPlan(
        planner="by hand",
        hardware=hardware,
        placement=Placement(replicas=tuple(replicas)),
        pipelines={
            "digits": PipelinePlan(
                nodes=pipeline.nodes,
                edges=pipeline.edges,
                output=pipeline.output,
                objective=gearshift.Objective(latency_s=0.5),
                gears=(gear(LoadRange(from_=0, to=20), SURE), gear(LoadRange(from_=20), FAST)),
            )
        },
        profiles={
            name: SourceFile(path=f"profile/{name}", sha256=one.sha256) for name, one in profiles.operators.items()
        },
        traces={"digits": nowhere},
    )


with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    project, _ = gearshift.init(folder, pipeline=True)
    project.write_text(
        project.read_text().replace("longest_s = 2.0", "longest_s = 0.2")
    )  # for an example, that will do
    profiles = gearshift.profile(folder, out=folder / "profile")
    gearshift.write_plan(plan_of(profiles), folder / "plan.json")
    samples = load_samples(read_project(folder / "gearshift.toml"), folder, "digits")

    command = [sys.executable, "-m", "gearshift", "serve", str(folder / "plan.json"), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            line = next(line for line in server.stderr if line.startswith("serving "))
            print(line.strip())
            with gearshift.Client(line.split(" at ")[1].split()[0], "digits") as client:
                strips = samples.batch(slice(20))
                answer = client.infer(strips, deadline_s=10)
                right = np.mean(answer.outputs["label"] == samples.labels[:20])
                print(f"{answer.parameters['outcome']}: {right:.0%} of 20 strips are right")
                try:
                    client.infer(strips, deadline_s=1e-4)
                except DeadlinePassed as error:
                    print(f"refused: {error}")
        finally:
            server.send_signal(signal.SIGTERM)
    print(f"exit code {server.returncode}")
