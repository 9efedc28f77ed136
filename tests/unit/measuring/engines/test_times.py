import msgspec
import numpy as np
import pytest

from benchmarks.shared.engine_runs import run_engine
from gearshift.errors import InvalidInput
from gearshift.measuring.engines.times import DecodeRun, DecodeTime, PrefillTime, decode_times, engine_from_times
from gearshift.models.language_config import EngineSettings
from gearshift.profiles.engines.engine_profile import EngineProfile, StepCurve, StepWork

SETTINGS = EngineSettings(
    url="http://a/v1", model="m", largest_batched_tokens=512, largest_running=8, kv_tokens=32_000, block_tokens=16
)
TRUE = EngineProfile(
    model="small",
    device_kind="remote",
    prefill=StepCurve(tokens=(1, 64, 512), step_s=(0.010, 0.013, 0.060)),
    decode=StepCurve(tokens=(1, 4, 8), step_s=(0.010, 0.011, 0.014)),
    per_kv_token_s=4e-7,
    per_attention_token_s=5e-9,
    kv_blocks=2000,
    largest_batched_tokens=512,
    largest_running=8,
)
BESIDE_S = 0.002


def alone(tokens: int) -> PrefillTime:
    run = run_engine(TRUE, np.array([0]), [tokens], [1])
    return PrefillTime(prompt_tokens=tokens, first_token_s=run.first_token_ns[0] / 1e9 + BESIDE_S)


def together(requests: int, context: int) -> DecodeTime:
    work = StepWork(
        prompt_tokens=0, prompts=0, decoding=requests, kv_tokens=requests * context, attention_pairs=0
    )  # fmt: skip
    return DecodeTime(requests=requests, kv_tokens=float(requests * context), step_s=TRUE.step_s(work))


PREFILL = [alone(tokens) for tokens in (1, 64, 512, 1024, 2048)]
DECODE = [together(requests, context) for requests in (1, 2, 4, 8) for context in (80, 1040)]


def test_the_times_of_an_engine_are_found_again() -> None:
    found, overhead_s, warnings = engine_from_times("small", SETTINGS, PREFILL, DECODE)
    assert warnings == []
    assert found.per_kv_token_s == pytest.approx(TRUE.per_kv_token_s, rel=1e-6)
    assert overhead_s == pytest.approx(BESIDE_S, rel=0.02)
    assert found.per_attention_token_s == pytest.approx(TRUE.per_attention_token_s, rel=0.1)
    for tokens in (1, 64, 200, 512):
        work = StepWork(prompt_tokens=tokens, prompts=1, decoding=0, kv_tokens=0, attention_pairs=tokens * tokens // 2)
        assert found.step_s(work) == pytest.approx(TRUE.step_s(work), rel=0.02)
    for requests in range(1, 9):
        assert found.decode.seconds(requests) == pytest.approx(TRUE.decode.seconds(requests), rel=1e-3)
    assert (found.kv_blocks, found.largest_batched_tokens, found.largest_running) == (2000, 512, 8)


def test_the_first_tokens_of_prompts_of_several_steps_are_predicted() -> None:
    found, overhead_s, _ = engine_from_times("small", SETTINGS, PREFILL, DECODE)
    for tokens in (700, 1500, 3000):
        predicted = run_engine(found, np.array([0]), [tokens], [1]).first_token_ns[0] / 1e9 + overhead_s
        assert predicted == pytest.approx(alone(tokens).first_token_s, rel=0.02)


def test_disturbed_times_change_little() -> None:
    late = [msgspec.structs.replace(one, first_token_s=one.first_token_s + 0.5) for one in PREFILL]
    found, _, _ = engine_from_times("small", SETTINGS, PREFILL + late, DECODE)
    assert found == engine_from_times("small", SETTINGS, PREFILL, DECODE)[0]


def run_of(requests: int, context: int, *late_s: float, seen_s: float | None = None) -> DecodeRun:
    """Two and eight tokens of requests whose step takes 10 ms, with disturbances."""
    return DecodeRun(
        requests=requests,
        context=context,
        kv_tokens=float(requests * context),
        steps=6,
        ended_s=(0.12 + late_s[0], 0.18 + late_s[1]) if late_s else None,
        seen_s=seen_s,
    )


def test_a_step_is_the_difference_of_the_least_times() -> None:
    runs = [run_of(2, 80, 0.0, 0.5), run_of(2, 80, 0.3, 0.0), run_of(2, 80, 0.1, 0.2, seen_s=1e-6)]
    (found,) = decode_times(runs)
    assert (found.requests, found.kv_tokens) == (2, 160.0)
    assert found.step_s == pytest.approx(0.010)


def test_the_stream_counts_only_where_answers_ended_early() -> None:
    runs = [run_of(1, 80, seen_s=seen) for seen in (0.010, 0.011, 0.5)] + [run_of(4, 80), run_of(2, 80, 0.5, 0.0)]
    assert [(one.requests, one.step_s) for one in decode_times(runs)] == [(1, 0.011)]


def test_one_context_leaves_all_to_the_curve() -> None:
    found, _, _ = engine_from_times("small", SETTINGS, PREFILL, [together(1, 80), together(4, 80)])
    assert found.per_kv_token_s == 0
    assert found.decode.step_s[0] == pytest.approx(together(1, 80).step_s)


def test_what_was_not_measured_bounds_the_engine_and_is_told() -> None:
    few = [one for one in DECODE if one.requests <= 2]
    unbounded = msgspec.structs.replace(SETTINGS, kv_tokens=None)
    found, _, warnings = engine_from_times("small", unbounded, PREFILL[:2], few)
    assert (found.largest_running, found.largest_batched_tokens) == (2, 64)
    assert found.kv_blocks == 8 * 8192 // 16
    assert [("may batch 512" in one, "may run 8" in one, "kv_tokens" in one) for one in warnings] == [
        (True, False, False),
        (False, True, False),
        (False, False, True),
    ]


def test_memory_that_the_project_states_is_kept() -> None:
    settings = msgspec.structs.replace(SETTINGS, weights_bytes=10_000_000, kv_bytes_per_token=512)
    found, _, _ = engine_from_times("small", settings, PREFILL, DECODE)
    assert (found.weights_bytes, found.kv_bytes_per_token) == (10_000_000, 512)


def test_a_bound_between_two_prompts_is_interpolated() -> None:
    settings = msgspec.structs.replace(SETTINGS, largest_batched_tokens=300)
    found, _, _ = engine_from_times("small", settings, PREFILL[:3], DECODE)
    assert found.prefill.tokens[-1] == found.largest_batched_tokens == 300


@pytest.mark.parametrize(("prefill", "decode"), [(PREFILL[:1], DECODE), (PREFILL, [])])
def test_too_few_times_are_a_sentence(prefill: list[PrefillTime], decode: list[DecodeTime]) -> None:
    with pytest.raises(InvalidInput, match=r"prefill needs two|no time of a decoding step"):
        engine_from_times("small", SETTINGS, prefill, decode)
