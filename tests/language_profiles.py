"""A profile of three language models with certainties that rank, for tests of planner and verbs."""

from typing import Any

import numpy as np

from gearshift.clock import NS_PER_S
from gearshift.profiles.engines.engine_profile import EngineProfile, StepCurve
from gearshift.profiles.engines.language_profile import DECIDE_AT_TOKENS, AnswerRecords, LanguageProfile
from gearshift.profiles.profile import PART_A, PART_B
from gearshift.workload import Trace

MODELS = ("small", "middle", "large")
STEP_MS = (4.0, 10.0, 30.0)
RIGHT = (0.5, 0.7, 0.9)
KV_BYTES = (1000, 2000, 8000)


def engine_of(model: str, *, tensor_parallel: int = 1, memory_known: bool = True, **fields: Any) -> EngineProfile:
    """Steps of a few milliseconds, half as long on two devices."""
    step_s = STEP_MS[MODELS.index(model)] / 1e3 / tensor_parallel
    memory = {
        "weights_bytes": 1_000_000 * (1 + 4 * MODELS.index(model)),
        "kv_bytes_per_token": KV_BYTES[MODELS.index(model)],
    }
    given: dict[str, Any] = {
        "prefill": StepCurve(tokens=(1, 256), step_s=(step_s, 2 * step_s)),
        "decode": StepCurve(tokens=(1, 16, 64), step_s=(step_s, 1.1 * step_s, 1.6 * step_s)),
        "kv_blocks": 512,
        "largest_batched_tokens": 256,
        "largest_running": 32,
        **(memory if memory_known else {}),
    }
    return EngineProfile(model=model, device_kind="gpu", tensor_parallel=tensor_parallel, **{**given, **fields})


def ranked_answers(prompts: int = 120, seed: int = 0, *, ranked: bool = True) -> AnswerRecords:
    """Better models are right more often; right answers are more certain, if `ranked`."""
    generator, shape = np.random.default_rng(seed), (len(MODELS), prompts)
    difficulty = generator.random(prompts)
    quality = (difficulty[None, :] < np.array(RIGHT)[:, None]).astype(np.float64)
    sure = quality * 0.5 + 0.5 * generator.random(shape) if ranked else generator.random(shape)
    certainty = np.repeat(sure[:, :, None], len(DECIDE_AT_TOKENS), axis=2)
    return AnswerRecords(
        models=MODELS,
        quality=quality,
        certainty=certainty,
        prompt_tokens=np.repeat(generator.integers(10, 80, prompts)[None, :], len(MODELS), axis=0),
        output_tokens=generator.integers(5, 40, shape),
        part=np.where(np.arange(prompts) % 2, PART_B, PART_A).astype(np.int8),
    )


def language_profile(
    *, ranks: tuple[str, ...] = MODELS, tensor_parallel: tuple[int, ...] = (1,), **fields: Any
) -> LanguageProfile:
    engines = tuple(engine_of(model, tensor_parallel=tp, **fields) for model in MODELS for tp in tensor_parallel)
    return LanguageProfile(
        operator="chat", engines=engines, answers=ranked_answers(ranked=bool(ranks)), ranks=ranks, sha256="0" * 64
    )


def bursty_trace(quiet_qps: float = 2.0, busy_qps: float = 40.0, *, seconds: int = 20, seed: int = 0) -> Trace:
    """Poisson arrivals that are quiet, busy for a fifth of the time, and quiet again."""
    generator = np.random.default_rng(seed)
    rates = np.where((np.arange(seconds) >= 0.4 * seconds) & (np.arange(seconds) < 0.6 * seconds), busy_qps, quiet_qps)
    times = [second + generator.random(generator.poisson(rate)) for second, rate in enumerate(rates)]
    arrivals_ns = np.sort((np.concatenate(times) * NS_PER_S).astype(np.int64))
    return Trace(arrivals_ns, float(seconds), sha256="1" * 64)
