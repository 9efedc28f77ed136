"""Random cases whose gears order by expected gain, with random tables of gain."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations

import msgspec
from hypothesis import strategies as st
from msgspec import UNSET

from gearshift.cascade import ExpectedGain
from gearshift.gear import Gear, GearPlan, PipelinePlan
from gearshift.objective import Objective
from gearshift.placement import Placement
from tests.conformance.plans import Case


@st.composite
def with_refinement(draw: st.DrawFn, case: Case) -> Case:
    """The case on the first device of each replica, with some devices of another kind."""
    replicas = tuple(
        msgspec.structs.replace(each, device_ids=each.device_ids[:1]) for each in case.plan.placement.replicas
    )
    hardware = msgspec.structs.replace(
        case.plan.hardware,
        devices=tuple(
            msgspec.structs.replace(device, kind=draw(st.sampled_from(["cpu", "cpu", "other"])))
            for device in case.plan.hardware.devices
        ),
    )
    models = case.plan.placement.models
    pipelines = {name: draw(_refining(pipeline, models)) for name, pipeline in case.plan.pipelines.items()}
    plan: GearPlan = msgspec.structs.replace(
        case.plan, placement=Placement(replicas=replicas), hardware=hardware, pipelines=pipelines
    )
    return replace(case, plan=plan)


@st.composite
def _refining(draw: st.DrawFn, pipeline: PipelinePlan, models: Sequence[str]) -> PipelinePlan:
    return msgspec.structs.replace(
        pipeline,
        gears=tuple(draw(_by_gain(gear)) for gear in pipeline.gears),
        gains=tuple(draw(_gain(kept, later)) for kept, later in permutations(models, 2)),
        objective=Objective(latency_s=draw(st.sampled_from([0.004, 0.02, 0.05, 0.5]))),
        worth=draw(st.sampled_from([UNSET, 0.3, 3.0])),
    )


@st.composite
def _by_gain(draw: st.DrawFn, gear: Gear) -> Gear:
    return msgspec.structs.replace(
        gear,
        order="gain",
        answer_by_margin_s=draw(st.sampled_from([0.0, 0.001, 0.0021])),
        refine_for=draw(st.sampled_from(["gain", "rows"])),
    )


@st.composite
def _gain(draw: st.DrawFn, kept: str, later: str) -> ExpectedGain:
    certainty = sorted(draw(st.sets(st.sampled_from([0.0, 0.2, 0.4, 0.6, 0.8]), min_size=1, max_size=4)))
    gain = sorted((draw(st.sampled_from([-0.1, 0.0, 0.05, 0.2, 0.4])) for _ in certainty), reverse=True)
    return ExpectedGain(kept=kept, later=later, certainty=tuple(certainty), gain=tuple(gain))
