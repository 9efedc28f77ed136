"""Two language models, `small` and `large`, in engines whose steps take known times; and plans for them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import UNSET

from gearshift.cascade import Cascade
from gearshift.gear import Gear, GearPlan, LoadRange, LoadUnit, PipelinePlan, ReplicaSettings, SourceFile, alone
from gearshift.hardware import Device, Hardware
from gearshift.objective import Objective
from gearshift.pipeline import Node
from gearshift.placement import Placement, Replica
from gearshift.plans.plan_file import write_plan
from gearshift.profiles.engines.engine_profile import EngineProfile, StepCurve
from gearshift.profiles.engines.language_profile import DECIDE_AT_TOKENS, AnswerRecords, LanguageProfile
from gearshift.profiles.engines.store import write_language_profile

SMALL, LARGE = 0, 1
ALONE = Cascade(models=("large",))
SMALL_ALONE = Cascade(models=("small",))


def engine(
    model: str, step_s: float, *, running: int = 8, kv_blocks: int = 1000, flat: int | None = None
) -> EngineProfile:
    """Steps take `step_s` for one token, and twice as much for 512; with `flat`, the same up to so many tokens."""
    most = flat or 512
    curve = StepCurve(tokens=(1, most), step_s=(step_s, step_s if flat else 2 * step_s))
    return EngineProfile(
        model=model,
        device_kind="remote",
        prefill=curve,
        decode=curve,
        kv_blocks=kv_blocks,
        largest_batched_tokens=most,
        largest_running=running,
    )


def language_profile(
    *, step_s: tuple[float, float] = (0.001, 0.004), records: int = 64, seed: int = 0, output_tokens: int | None = None
) -> LanguageProfile:
    """The certainty of `small` is in [-1, 0], and tells how likely its answer is right; `large` is always right."""
    draw = np.random.default_rng(seed)
    certainty = -np.sort(draw.random((2, records, len(DECIDE_AT_TOKENS))), axis=2)
    quality = np.stack([(draw.random(records) < 1 + certainty[0, :, -1]).astype(float), np.ones(records)])
    lengths = draw.integers(8, 32, (2, records)) if output_tokens is None else np.full((2, records), output_tokens)
    for place, at in enumerate((1, 4, 16)):
        certainty[lengths <= at, place] = certainty[lengths <= at, -1]
    answers = AnswerRecords(
        models=("small", "large"),
        quality=quality,
        certainty=certainty,
        prompt_tokens=np.broadcast_to(draw.integers(10, 60, records), (2, records)).copy(),
        output_tokens=lengths,
        part=(np.arange(records) % 2).astype(np.int8),
    )
    engines = (engine("small", step_s[0]), engine("large", step_s[1]))
    return LanguageProfile(operator="chat", engines=engines, answers=answers, ranks=("small",))


def cascade(threshold: float, decide_at: int | None) -> Cascade:
    return Cascade(models=("small", "large"), thresholds=(threshold,), decide_at_tokens=(decide_at,))


def language_plan(
    cascades: Sequence[Cascade],
    starts: Sequence[float] = (0.0,),
    *,
    replicas: Mapping[str, int] | None = None,
    load_unit: LoadUnit = "outstanding_requests",
    most_outstanding: int | None = 8,
    profile_sha256: str = "",
    upshift_margin: float = 0.0,
) -> GearPlan:
    """One gear for each cascade, from each of `starts` on; every replica has a device of its own."""
    counts = dict(replicas or {"small": 1, "large": 1})
    placed = [
        Replica(id=f"{model}-{i}", model=model, device_ids=(f"{model}-{i}",))
        for model, count in counts.items()
        for i in range(count)
    ]
    gears = tuple(
        Gear(
            load_range=LoadRange(from_=start, to=end),
            cascades=alone("chat", one),
            replicas=tuple(
                ReplicaSettings(
                    replica=replica.id,
                    load_share=1 / counts[replica.model] if replica.model in one.models else 0.0,
                    most_outstanding=UNSET if most_outstanding is None else most_outstanding,
                )
                for replica in placed
            ),
        )
        for one, start, end in zip(cascades, starts, [*starts[1:], None], strict=True)
    )
    pipeline = PipelinePlan(
        nodes={"chat": Node(operator="chat")},
        output="chat",
        objective=Objective(latency_s=1.0, metric="ttft"),
        gears=gears,
        load_unit=load_unit,
        upshift_margin=upshift_margin,
    )
    return GearPlan(
        planner="by-hand",
        hardware=Hardware(devices=tuple(Device(id=one.id, kind="remote") for one in placed)),
        placement=Placement(replicas=tuple(placed)),
        pipelines={"chat": pipeline},
        profiles={"chat": SourceFile(path="profile", sha256=profile_sha256)},
        traces={"chat": SourceFile(path="trace.csv", sha256="")},
    )


def write_language_plan(
    folder: Path,
    cascades: Sequence[Cascade],
    starts: Sequence[float] = (0.0,),
    *,
    profile: LanguageProfile,
    **asked: Any,
) -> Path:
    """Write profile and plan; the path of the plan."""
    written = write_language_profile(folder / "profile", profile)
    plan = language_plan(cascades, starts, profile_sha256=written.sha256, **asked)
    write_plan(plan, folder / "plan.json")
    return folder / "plan.json"
