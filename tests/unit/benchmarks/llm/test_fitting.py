"""Times that the curves lack are found again from runs that were made with them."""

import msgspec
import pytest

from benchmarks.llm.fitting import RecordedSpan, fit_added
from gearshift.errors import InvalidInput
from gearshift.policies.engines.steps import pairs_of
from gearshift.profiles.engines.engine_profile import EngineProfile, StepCurve, StepWork

PLAIN = EngineProfile(
    model="small",
    device_kind="gpu",
    prefill=StepCurve(tokens=(1, 512), step_s=(0.010, 0.100)),
    decode=StepCurve(tokens=(1, 512), step_s=(0.008, 0.060)),
    kv_blocks=1000,
    largest_batched_tokens=512,
    largest_running=256,
)
TRUE = msgspec.structs.replace(
    PLAIN, per_kv_token_s=2e-7, per_attention_token_s=5e-9, overhead_per_step_s=3e-4, overhead_per_request_s=2e-5
)


def steps(prompts: int, rounds: int) -> list[StepWork]:
    made = [
        StepWork(prompt_tokens=400, prompts=1, decoding=i, kv_tokens=500 * i, attention_pairs=pairs_of(50 * i, 400))
        for i in range(prompts)
    ]
    for round_ in range(rounds):
        context = prompts * (500 + round_)
        made.append(StepWork(prompt_tokens=0, prompts=0, decoding=prompts, kv_tokens=context, attention_pairs=0))
    return made


def recorded(work: list[StepWork]) -> tuple[list[StepWork], list[RecordedSpan]]:
    times = [TRUE.step_s(one) for one in work]
    return work, [RecordedSpan(first=0, last=last, measured_s=sum(times[: last + 1])) for last in range(len(work))]


def test_added_times_are_found_again():
    found = fit_added(PLAIN, [recorded(steps(8, 20)), recorded(steps(2, 40)), recorded(steps(30, 5))])
    assert found.added_s == pytest.approx(TRUE.added_s, rel=1e-6)
    assert fit_added(TRUE, [recorded(steps(8, 20)), recorded(steps(2, 40))]).prefill == PLAIN.prefill


def test_no_time_is_below_zero_where_steps_were_faster_than_their_curves():
    work, spans = recorded(steps(8, 20))
    faster = [msgspec.structs.replace(span, measured_s=span.measured_s / 2) for span in spans]
    assert fit_added(PLAIN, [(work, faster)]).added_s == (0, 0, 0, 0, 0)


def test_a_run_without_a_measured_time_is_refused():
    with pytest.raises(InvalidInput, match="no measured span"):
        fit_added(PLAIN, [(steps(2, 2), [])])
