"""Plans of language models as arrays, and which plans are refused."""

from typing import Any

import msgspec
import numpy as np
import pytest

from gearshift.cascade import Cascade, ExpectedGain
from gearshift.errors import InvalidInput
from gearshift.gear import SHARE_UNIT, GearPlan
from gearshift.objective import Objective
from gearshift.placement import Placement
from gearshift.policies.engines.deciding import DECIDES_AT_END, DECIDES_BY_ID
from gearshift.policies.engines.outstanding import LOAD_QUEUED_TOKENS
from gearshift.profiles.engines.engine_profile import StepWork
from gearshift.profiles.engines.engine_tables import OUTSTANDING_PER_RUNNING, engine_tables, work_rates
from gearshift.profiles.engines.language_profile import BIN_EDGES, LanguageProfile
from tests.language_task import language_gear, language_plan, random_answers, small_engine

MODELS = ("small", "middle", "large")
PLACED = {"large-0": "d0 d1", "small-0": "d2", "small-1": "d3", "middle-0": "d3"}
WIDE = msgspec.structs.replace(small_engine("large"), tensor_parallel=2)
PROFILE = LanguageProfile(
    operator="chat",
    engines=(small_engine("small"), small_engine("middle"), WIDE),
    answers=random_answers(MODELS, 12, 0),
    overhead_s=0.002,
)
CASCADES = (
    Cascade(models=MODELS, thresholds=(0.25, 0.5), decide_at_tokens=(0, 4)),
    Cascade(models=("small", "large"), thresholds=(0.75,)),
)


def plan_of(*cascades: Cascade, **fields: Any) -> GearPlan:
    edges = [0.0, 2.0, None]
    gears = [
        language_gear(PLACED, cascade, load=(edges[g], edges[g + 1]), most_outstanding=None if g else 3)  # type: ignore[arg-type]
        for g, cascade in enumerate(cascades)
    ]
    if len(gears) == 1:
        gears[0] = msgspec.structs.replace(gears[0], load_range=msgspec.structs.replace(gears[0].load_range, to=None))
    plan = language_plan(PLACED, *gears, **fields)
    replicas = [
        msgspec.structs.replace(one, tensor_parallel=2, kv_tokens=130) if one.model == "large" else one
        for one in plan.placement.replicas
    ]
    return msgspec.structs.replace(plan, placement=Placement(replicas=tuple(replicas)))


def changed(**fields: Any) -> GearPlan:
    plan = plan_of(*CASCADES)
    return msgspec.structs.replace(plan, pipelines={"chat": msgspec.structs.replace(plan.pipelines["chat"], **fields)})


def test_replicas_are_by_model_and_those_on_the_same_devices_are_a_group() -> None:
    tables = engine_tables(plan_of(*CASCADES), PROFILE)
    assert tables.replicas == ("small-0", "small-1", "middle-0", "large-0")
    assert tables.replica_model.tolist() == [0, 0, 1, 2]
    assert tables.replica_begin.tolist() == [0, 2, 3, 4]
    assert tables.device_groups == (("d2",), ("d3",), ("d0", "d1"))
    assert tables.device.tolist() == [0, 1, 1, 2]
    assert tables.device_ids == ("d0", "d1", "d2", "d3")
    assert [one.kv_blocks for one in tables.engines] == [64, 64, 64, 130 // 4]
    assert tables.overhead_ns == 2_000_000


def test_gears_are_rows_of_cascades_and_of_settings() -> None:
    tables = engine_tables(plan_of(*CASCADES, load_unit="queued_tokens", upshift_margin=0.1), PROFILE)
    assert (tables.most_stages, tables.stage_count.tolist()) == (3, [3, 2])
    assert tables.stage_models.tolist() == [0, 1, 2, 0, 2, 0]
    assert tables.thresholds.tolist() == [0.25, 0.5, 0.0, 0.75, 0.0, 0.0]
    assert tables.decide_at.tolist() == [DECIDES_BY_ID, 4, *[DECIDES_AT_END] * 4]
    half, whole = SHARE_UNIT // 2, SHARE_UNIT
    assert tables.shares.tolist() == [half, half, whole, whole, half, half, 0, whole]
    assert tables.most_outstanding.tolist() == [3] * 4 + [
        OUTSTANDING_PER_RUNNING * one.largest_running for one in tables.engines
    ]
    assert (tables.load_unit, tables.upshift_margin) == (LOAD_QUEUED_TOKENS, 0.1)
    assert tables.range_starts.tolist() == [0.0, 2.0]
    expected = np.concatenate([PROFILE.answers.expected_output_tokens(model) for model in MODELS])
    assert (tables.expected_output == expected).all()
    assert tables.bin_edges.tolist() == list(BIN_EDGES)


def test_work_is_at_the_rates_of_a_busy_engine() -> None:
    engine = small_engine("small", kv_blocks=40)
    prompt_s, output_s = work_rates(engine, PROFILE)
    whole = StepWork(prompt_tokens=16, prompts=1, decoding=0, kv_tokens=0, attention_pairs=0)
    assert prompt_s == engine.step_s(whole) / 16
    mean = (PROFILE.answers.prompt_tokens[0] + PROFILE.answers.output_tokens[0] / 2).mean()
    at_once = min(8, 160 // int(np.ceil(mean)))
    assert output_s == pytest.approx(engine.decode.seconds(at_once) / at_once)


SHARED = {"large-0": "d0 d1", "small-0": "d1"}
OTHER = {"huge-0": "d0"}
UNSERVED: dict[str, GearPlan] = {
    "language models are served by outstanding work": changed(load_unit="requests_per_s"),
    "the plan has expected gains, which this version": changed(
        gains=(ExpectedGain(kept="small", later="large", certainty=(0.5,), gain=(0.1,)),)
    ),
    "an objective with median_s": changed(objective=Objective(latency_s=0.5, median_s=0.1)),
    "order by gain in the gear": changed(
        gears=(msgspec.structs.replace(plan_of(CASCADES[0]).pipeline.gears[0], order="gain"),)
    ),
    "several cascades of a node in the gear": changed(
        gears=(msgspec.structs.replace(plan_of(CASCADES[0]).pipeline.gears[0], cascades={"chat": CASCADES}),)
    ),
    r"a gear decides at token 7, and certainty is recorded at \(1, 4, 16, None\)": plan_of(
        Cascade(models=("small", "large"), thresholds=(0.5,), decide_at_tokens=(7,))
    ),
    "decides by certainty before a stage that decides by the request's id": plan_of(
        Cascade(models=MODELS, thresholds=(0.5, 0.5), decide_at_tokens=(4, 0))
    ),
    "shares only a part of its devices with another": language_plan(SHARED, language_gear(SHARED, CASCADES[1])),
    r"the plan places models \['huge'\], and the profile has \['small', 'middle', 'large'\]": language_plan(
        OTHER, language_gear(OTHER, Cascade(models=("huge",)))
    ),
    r"no engine of model 'large' on device kind 'gpu' with tensor_parallel 1": language_plan(
        {"large-0": "d0"}, language_gear({"large-0": "d0"}, Cascade(models=("large",)))
    ),
}


@pytest.mark.parametrize("message", UNSERVED)
def test_plans_that_engines_do_not_serve_are_refused(message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        engine_tables(UNSERVED[message], PROFILE)
