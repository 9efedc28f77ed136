"""Compile the kernel for language models into the cache, by simulating one request."""

import numpy as np

from gearshift.cascade import Cascade
from gearshift.gear import Gear, GearPlan, LoadRange, PipelinePlan, ReplicaSettings, SourceFile
from gearshift.hardware import Device, Hardware
from gearshift.language_workload import LanguageWorkload
from gearshift.objective import Objective
from gearshift.pipeline import Node
from gearshift.placement import Placement, Replica
from gearshift.profiles.engines.engine_profile import EngineProfile, StepCurve
from gearshift.profiles.engines.engine_tables import engine_tables
from gearshift.profiles.engines.language_profile import DECIDE_AT_TOKENS, AnswerRecords, LanguageProfile
from gearshift.profiles.profile import PART_A, PART_B
from gearshift.simulator.engines.simulate_language import simulate_language


def warm_up() -> None:
    curve, nothing = StepCurve(tokens=(1, 2), step_s=(0.1, 0.1)), SourceFile(path="", sha256="")
    engine = EngineProfile(
        model="model", device_kind="remote", prefill=curve, decode=curve, kv_blocks=8, largest_batched_tokens=2,
        largest_running=1,
    )  # fmt: skip
    answers = AnswerRecords(
        models=("model",),
        quality=np.ones((1, 2)),
        certainty=np.zeros((1, 2, len(DECIDE_AT_TOKENS))),
        prompt_tokens=np.ones((1, 2), dtype=np.int64),
        output_tokens=np.ones((1, 2), dtype=np.int64),
        part=np.array([PART_A, PART_B], dtype=np.int8),
    )
    profile = LanguageProfile(operator="chat", engines=(engine,), answers=answers)
    gear = Gear(
        load_range=LoadRange(from_=0.0),
        cascades={"chat": (Cascade(models=("model",)),)},
        replicas=(ReplicaSettings(replica="replica", load_share=1.0),),
    )
    pipeline = PipelinePlan(
        nodes={"chat": Node(operator="chat")}, output="chat", objective=Objective(), gears=(gear,), load_unit="drain_s"
    )
    plan = GearPlan(
        planner="warm-up",
        hardware=Hardware(devices=(Device(id="remote-0", kind="remote"),)),
        placement=Placement(replicas=(Replica(id="replica", model="model", device_ids=("remote-0",)),)),
        pipelines={"chat": pipeline},
        profiles={"chat": nothing},
        traces={"chat": nothing},
    )
    workload = LanguageWorkload(
        arrivals_ns=np.zeros(1, dtype=np.int64), record=np.zeros(1, dtype=np.int32), by_id=np.zeros(1), duration_s=1.0
    )
    simulate_language(engine_tables(plan, profile), profile, workload)


if __name__ == "__main__":
    warm_up()
