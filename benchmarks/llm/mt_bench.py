"""MT-Bench as it was recorded: Llamas on two A100, their answers, and the arrivals of the published runs.

What is known of engines on two GPUs is four percentiles for each model alone. The shape of step
times is that of the published step times on four GPUs; `benchmarks/llm/mt_bench_fit.py` finds how
much longer steps take on two. Sizes of contexts come from the models' published shapes.
"""

import csv
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from gearshift.cascade import Cascade
from gearshift.clock import NS_PER_S
from gearshift.gear import Gear, GearPlan, LoadRange, LoadUnit, PipelinePlan, ReplicaSettings, SourceFile, alone
from gearshift.hardware import Hardware, identical_devices
from gearshift.language_workload import LanguageWorkload, numbers_by_id
from gearshift.objective import Objective
from gearshift.pipeline import Node
from gearshift.placement import Placement, Replica
from gearshift.profiles.engines.engine_profile import EngineProfile, StepCurve
from gearshift.profiles.engines.language_profile import DECIDE_AT_TOKENS, AnswerRecords, LanguageProfile
from gearshift.profiles.profile import PART_A, PART_B

MODELS = ("1b", "3b", "8b", "70b")
PROMPTS, QUESTIONS, CATEGORIES = 160, 80, 8
CURVES = {
    "1b": "a100_llama3b_fp8_tp4", "3b": "a100_llama3b_fp8_tp4", "8b": "a100_llama8b_fp8_tp4",
    "70b": "a100_llama70b_fp8_tp4",
}  # fmt: skip
KV_BYTES = {"1b": 32_768, "3b": 114_688, "8b": 131_072, "70b": 327_680}
"""2 x layers x key-value heads x width of a head x 2 bytes: 16 x 8 x 64, 28 x 8 x 128, 32 x 8 x 128, 80 x 8 x 128."""
WEIGHTS_BYTES = {"1b": 1_500_000_000, "3b": 3_600_000_000, "8b": 8_500_000_000, "70b": 71_000_000_000}
GPU_BYTES, MEMORY_SHARE = 80_000_000_000, 0.9
BANDWIDTH = 2.0e12 * 0.8
"""Bytes per second that an A100 reads, as a part of its peak: assumed."""
GPUS = 2
LARGEST_RUNNING = 256
CUT_TOKENS = 985
"""Recorded answers of so many tokens and more end at a bound of about 1,000: 5 % of the 1b, nearly all of the 8b."""


@dataclass(frozen=True)
class Fitted:
    """A model's steps on two GPUs against the published ones on four, and a request's time beside them."""

    prefill_scale: float
    decode_scale: float
    per_running_s: float
    """For each request in a step."""
    per_request_s: float
    largest_batched_tokens: int = 512
    scheduler: str = "mixed"
    longer: float = 1.0
    """How many times as long as recorded the served answers were of those whose text was cut (`CUT_TOKENS`)."""


def curve_of(data: Path, model: str) -> StepCurve:
    rows = list(csv.DictReader((data / "profiles" / "llm_steps" / f"{CURVES[model]}.csv").open()))
    return StepCurve(
        tokens=(1, *(int(row["batch_size"]) for row in rows)),
        step_s=(float(rows[0]["runtime_ms"]) / 1e3, *(float(row["runtime_ms"]) / 1e3 for row in rows)),
    )


def scaled(curve: StepCurve, factor: float, most: int) -> StepCurve:
    """The curve times a factor, to `most` tokens: beyond its points it goes on in its last line (assumed)."""
    tokens, step_s = list(curve.tokens), list(curve.step_s)
    if tokens[-1] < most:
        slope = (step_s[-1] - step_s[-2]) / (tokens[-1] - tokens[-2])
        step_s.append(step_s[-1] + slope * (most - tokens[-1]))
        tokens.append(most)
    return StepCurve(tokens=tuple(tokens), step_s=tuple(factor * one for one in step_s))


def engine_of(data: Path, model: str, fitted: Fitted, *, kv_bytes: float | None = None) -> EngineProfile:
    curve = curve_of(data, model)
    room = GPUS * GPU_BYTES * MEMORY_SHARE - WEIGHTS_BYTES[model] if kv_bytes is None else kv_bytes
    return EngineProfile(
        model=model,
        device_kind="a100",
        tensor_parallel=GPUS,
        prefill=scaled(curve, fitted.prefill_scale, max(fitted.largest_batched_tokens, LARGEST_RUNNING)),
        decode=scaled(curve, fitted.decode_scale, LARGEST_RUNNING),
        per_kv_token_s=KV_BYTES[model] / (GPUS * BANDWIDTH),
        kv_blocks=int(room / KV_BYTES[model] / 16),
        largest_batched_tokens=fitted.largest_batched_tokens,
        largest_running=LARGEST_RUNNING,
        scheduler="mixed" if fitted.scheduler == "mixed" else "prefill_first",
        overhead_per_request_s=fitted.per_running_s,
        weights_bytes=WEIGHTS_BYTES[model],
        kv_bytes_per_token=KV_BYTES[model],
    )


def scores_of(data: Path) -> dict[str, np.ndarray]:
    """Judged scores (160,) of each model, from 1 to 10; -1 where the judge failed."""
    found = {}
    for line in (data / "predictions" / "mt_bench" / "scores.txt").read_text().splitlines():
        match = re.search(r"_(\d+b)\.txt: [\d.]+, \[(.*)\]", line)
        if match:
            found[match[1]] = np.array([float(one) for one in match[2].split(",")])
    return found


def certainty_of(data: Path, model: str) -> np.ndarray:
    """Certainty (160,) of a model's first token."""
    known = json.loads((data / "predictions" / "mt_bench" / f"certainty_{model}.json").read_text())
    return np.array([known[str(i)] for i in range(PROMPTS)])


def answers_of(
    data: Path,
    *,
    certainty_by: str | None = None,
    models: tuple[str, ...] = MODELS,
    longer: Mapping[str, float] | None = None,
) -> AnswerRecords:
    """Quality is score / 10; the turn without a score counts as 0 for all, and is told apart by `judged_turns`.

    `certainty_by` takes one model's certainty for all, as the published runs did with the 3b's.
    `longer` has for each model `Fitted.longer`.
    """
    tokens = json.loads((data / "llm" / "mt_bench_tokens.json").read_text())
    scores = scores_of(data)
    known = judged_turns(data)
    quality = np.array([np.where(known, np.maximum(scores[model], 0) / 10, 0.0) for model in models])
    sure = np.array([certainty_of(data, certainty_by or model) for model in models])
    return AnswerRecords(
        models=models,
        quality=quality,
        certainty=np.repeat(sure[:, :, None], len(DECIDE_AT_TOKENS), axis=2),
        prompt_tokens=np.array([tokens["prompt"]] * len(models)),
        output_tokens=np.array([_as_served(tokens[model], (longer or {}).get(model, 1.0)) for model in models]),
        part=np.where(np.arange(PROMPTS) % 2, PART_B, PART_A).astype(np.int8),
    )


def _as_served(tokens: list[int], longer: float) -> np.ndarray:
    recorded = np.array(tokens)
    return np.where(recorded >= CUT_TOKENS, np.rint(longer * recorded), recorded).astype(np.int64)


def judged_turns(data: Path) -> np.ndarray:
    """Whether (160,) all models have a score for a turn."""
    return np.asarray(np.all([scores >= 0 for scores in scores_of(data).values()], axis=0))


def categories() -> np.ndarray:
    """The category (160,) of each turn: eight of ten questions, whose first turns come before all second ones."""
    return np.asarray(np.arange(PROMPTS) % QUESTIONS // (QUESTIONS // CATEGORIES))


def certainty_by_category(quality: np.ndarray, better: np.ndarray, known: np.ndarray) -> np.ndarray:
    """How little (160,) the other model gains on other questions of a turn's category, of turns with a score.

    Nothing serves so yet: it says what knowing a prompt's category would be worth.
    """
    question, category = np.arange(PROMPTS) % QUESTIONS, categories()
    gain = better - quality
    alike = (category[:, None] == category) & (question[:, None] != question) & known
    return np.asarray(-(alike @ gain) / alike.sum(axis=1))


def by_category(profile: LanguageProfile, known: np.ndarray) -> LanguageProfile:
    """The profile with certainties by the category of the prompt, each against the last model."""
    answers = profile.answers
    certainty = answers.certainty.copy()
    for model in range(len(answers.models) - 1):
        certainty[model] = certainty_by_category(answers.quality[model], answers.quality[-1], known)[:, None]
    return replace(profile, answers=replace(answers, certainty=certainty), ranks=answers.models, ranks_at=())


def workload_at(data: Path, rate: str) -> LanguageWorkload:
    """The arrivals of a rate: request i has prompt i modulo 160, and a second's requests come at its start."""
    per_second = json.loads((data / "llm" / "mt_bench_arrivals.json").read_text())["arrivals"][rate]
    arrivals_s = np.repeat(np.arange(len(per_second)), per_second)
    n = len(arrivals_s)
    return LanguageWorkload(
        arrivals_ns=arrivals_s.astype(np.int64) * NS_PER_S,
        record=(np.arange(n) % PROMPTS).astype(np.int32),
        by_id=numbers_by_id(n, 0),
        duration_s=float(len(per_second)),
    )


def single_runs(data: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((data / "llm" / "mt_bench_single_models.csv").open()))


def hardware() -> Hardware:
    return identical_devices(GPUS, kind="a100", memory_bytes=GPU_BYTES)


def plan_of(
    profile: LanguageProfile,
    models: tuple[str, ...],
    gears: list[tuple[float, Cascade]],
    *,
    load_unit: LoadUnit = "queued_tokens",
) -> GearPlan:
    """Models on both GPUs, with gears (load from which, cascade); memory is parted into as many tokens for each."""
    left = GPUS * GPU_BYTES * MEMORY_SHARE - sum(WEIGHTS_BYTES[model] for model in models)
    tokens = int(left / sum(KV_BYTES[model] for model in models)) // 16 * 16
    devices = hardware()
    ids = tuple(device.id for device in devices.devices)
    replicas = tuple(
        Replica(id=f"{model}-0", model=model, device_ids=ids, tensor_parallel=GPUS, kv_tokens=tokens)
        for model in models
    )
    made = []
    for i, (begins, cascade) in enumerate(gears):
        end = gears[i + 1][0] if i + 1 < len(gears) else None
        settings = tuple(
            ReplicaSettings(replica=f"{model}-0", load_share=float(model in cascade.models)) for model in models
        )
        made.append(
            Gear(load_range=LoadRange(from_=begins, to=end), cascades=alone("chat", cascade), replicas=settings)
        )
    source = SourceFile(path="", sha256="")
    return GearPlan(
        planner="by hand",
        hardware=devices,
        placement=Placement(replicas=replicas),
        pipelines={
            "chat": PipelinePlan(
                nodes={"chat": Node(operator="chat")},
                output="chat",
                objective=Objective(latency_s=1.0, metric="ttft"),
                gears=tuple(made),
                load_unit=load_unit,
            )
        },
        profiles={"chat": source},
        traces={"chat": source},
    )
