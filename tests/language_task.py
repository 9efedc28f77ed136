"""Small plans of language models: engines of a few blocks, random answers, gears of several kinds."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from hypothesis import strategies as st

from gearshift.cascade import Cascade
from gearshift.gear import Gear, GearPlan, LoadRange, LoadUnit, PipelinePlan, ReplicaSettings, SourceFile, alone
from gearshift.hardware import Device, Hardware
from gearshift.language_workload import LanguageWorkload, numbers_by_id
from gearshift.objective import Objective
from gearshift.pipeline import Node
from gearshift.placement import Placement, Replica
from gearshift.profiles.engines.engine_profile import EngineProfile, Sharing, StepCurve
from gearshift.profiles.engines.engine_tables import EngineTables, engine_tables
from gearshift.profiles.engines.language_profile import DECIDE_AT_TOKENS, AnswerRecords, LanguageProfile
from gearshift.profiles.profile import PART_A, PART_B

MODELS = ("small", "middle", "large")
MS = 1_000_000


def small_engine(model: str, *, step_ms: float = 4.0, **fields: Any) -> EngineProfile:
    """Steps of a few milliseconds that take longer with more tokens."""
    given: dict[str, Any] = {
        "prefill": StepCurve(tokens=(1, 32), step_s=(step_ms / 1e3, 2 * step_ms / 1e3)),
        "decode": StepCurve(tokens=(1, 8, 32), step_s=(step_ms / 1e3, step_ms / 1e3, 1.5 * step_ms / 1e3)),
        "block_tokens": 4,
        "kv_blocks": 64,
        "largest_batched_tokens": 16,
        "largest_running": 8,
    }
    return EngineProfile(model=model, device_kind="gpu", **{**given, **fields})


def random_answers(
    models: Sequence[str], prompts: int, seed: int, *, longest_prompt: int = 40, longest_output: int = 24
) -> AnswerRecords:
    generator, shape = np.random.default_rng(seed), (len(models), prompts)
    return AnswerRecords(
        models=tuple(models),
        quality=generator.integers(0, 2, shape).astype(np.float64),
        certainty=generator.random((*shape, len(DECIDE_AT_TOKENS))),
        prompt_tokens=generator.integers(1, longest_prompt + 1, shape),
        output_tokens=generator.integers(1, longest_output + 1, shape),
        part=np.where(np.arange(prompts) % 2, PART_B, PART_A).astype(np.int8),
    )


def language_gear(
    placed: Mapping[str, str],
    cascade: Cascade,
    *,
    load: tuple[float, float | None] = (0.0, None),
    most_outstanding: int | None = None,
) -> Gear:
    """Replicas of a model, which their ids begin with, share its load evenly."""
    count = {model: sum(_model(id) == model for id in placed) for model in cascade.models}
    bound: dict[str, int] = {} if most_outstanding is None else {"most_outstanding": most_outstanding}
    settings = [
        ReplicaSettings(replica=id, load_share=1 / count[_model(id)] if _model(id) in count else 0.0, **bound)
        for id in placed
    ]
    return Gear(
        load_range=LoadRange(from_=load[0], to=load[1]), cascades=alone("chat", cascade), replicas=tuple(settings)
    )


def language_plan(placed: Mapping[str, str], *gears: Gear, load_unit: LoadUnit = "drain_s", **fields: Any) -> GearPlan:
    """Replicas by id ("small-0") with their devices ("d0 d1")."""
    devices = sorted({device for span in placed.values() for device in span.split()})
    source = SourceFile(path="", sha256="")
    return GearPlan(
        planner="test",
        hardware=Hardware(devices=tuple(Device(id=device, kind="gpu") for device in devices)),
        placement=Placement(
            replicas=tuple(
                Replica(id=id, model=_model(id), device_ids=tuple(span.split())) for id, span in placed.items()
            )
        ),
        pipelines={
            "chat": PipelinePlan(
                nodes={"chat": Node(operator="chat")},
                output="chat",
                objective=Objective(latency_s=0.5, metric="ttft"),
                gears=gears,
                load_unit=load_unit,
                **fields,
            )
        },
        profiles={"chat": source},
        traces={"chat": source},
    )


def language_workload(arrivals_ms: Sequence[float], records: Sequence[int], *, seed: int = 0) -> LanguageWorkload:
    n = len(arrivals_ms)
    return LanguageWorkload(
        arrivals_ns=(np.array(arrivals_ms) * MS).astype(np.int64),
        record=np.array(records, dtype=np.int32),
        by_id=numbers_by_id(n, seed),
        duration_s=max(arrivals_ms) / 1e3 + 1.0,
    )


@st.composite
def language_cases(draw: st.DrawFn) -> tuple[EngineTables, LanguageProfile, LanguageWorkload]:
    """Engines with little memory, up to three models on up to three devices, one to three gears, a burst."""
    models = MODELS[: draw(st.integers(1, 3))]
    answers = random_answers(models, 12, draw(st.integers(0, 1000)))
    engines = tuple(
        small_engine(
            model,
            step_ms=draw(st.sampled_from([2.0, 4.0, 7.3])),
            block_tokens=draw(st.sampled_from([1, 4, 5])),
            kv_blocks=64 + draw(st.integers(3, 60)),
            watermark_blocks=draw(st.integers(0, 2)),
            largest_running=draw(st.integers(1, 8)),
            scheduler=draw(st.sampled_from(["mixed", "prefill_first"])),
            prefill_gives_token=draw(st.booleans()),
            per_kv_token_s=draw(st.sampled_from([0.0, 3.1e-6])),
            overhead_per_request_s=draw(st.sampled_from([0.0, 1e-4])),
            overhead_per_prompt_s=draw(st.sampled_from([0.0, 1.7e-3])),
        )
        for model in models
    )
    tight = tuple(_tight(one) if draw(st.booleans()) else one for one in engines)
    sharing = tuple(
        Sharing(model=one, beside=other, device_kind="gpu", factor=draw(st.sampled_from([0.4, 1.0, 1.3, 2.0])))
        for one in models
        for other in models
        if draw(st.integers(0, 4))
    )
    profile = LanguageProfile(operator="chat", engines=tight, answers=answers, sharing=sharing, overhead_s=0.001)
    placed = {f"{model}-{i}": f"d{draw(st.integers(0, 1)) + 2 * i}" for model in models for i in range(draw(COPIES))}
    edges = sorted(draw(st.sets(st.sampled_from([0.02, 0.1, 0.3, 2.0, 5.0, 20.0]), max_size=2)))
    gears = [
        language_gear(
            placed,
            draw(cascades(models)),
            load=(start, end),
            most_outstanding=draw(st.sampled_from([None, 1, 2, 6])),
        )
        for start, end in zip([0.0, *edges], [*edges, None], strict=True)
    ]
    plan = language_plan(
        placed,
        *gears,
        load_unit=draw(st.sampled_from(["drain_s", "outstanding_requests", "queued_tokens"])),
        upshift_margin=draw(st.sampled_from([0.0, 0.2])),
    )
    n, generator = draw(st.integers(1, 60)), np.random.default_rng(draw(st.integers(0, 1000)))
    gaps = generator.choice(draw(st.sampled_from([(0, 1, 3), (0, 0, 20), (1, 90, 400), (0, 0, 0, 900)])), n)
    workload = language_workload(np.cumsum(gaps).tolist(), generator.integers(0, 12, n).tolist())
    return engine_tables(plan, profile), profile, workload


COPIES = st.integers(1, 2)


@st.composite
def cascades(draw: st.DrawFn, models: Sequence[str]) -> Cascade:
    used = draw(st.lists(st.sampled_from(models), min_size=1, unique=True))
    used.sort(key=models.index)
    stages = len(used) - 1
    by_id = min(stages, draw(st.sampled_from([0, 0, 0, 1, 2])))
    at = [0] * by_id + [draw(st.sampled_from([*DECIDE_AT_TOKENS])) for _ in range(stages - by_id)]
    thresholds = tuple(draw(st.sampled_from([0.0, 0.3, 0.6, 1.0])) for _ in range(stages))
    return Cascade(models=tuple(used), thresholds=thresholds, decide_at_tokens=tuple(at))


def _tight(engine: EngineProfile) -> EngineProfile:
    """Hardly more blocks than the longest request takes."""
    least = -(-64 // engine.block_tokens) + engine.watermark_blocks
    return msgspec.structs.replace(engine, kv_blocks=least + 2)


def _model(replica: str) -> str:
    return replica.partition("-")[0]
