import numpy as np
import pytest
from msgspec import UNSET

from gearshift.load_generator.language.stream_log import StreamedRequest, figures_of
from gearshift.objective import Objective
from tests.language_profiles import language_profile

PROFILE = language_profile()
OBJECTIVE = Objective(latency_s=0.1, metric="ttft")


def answered(
    due_s: float, ttft_s: float, *, tokens: int = 5, model: str = "small", **fields: object
) -> StreamedRequest:
    given = {"sent_s": due_s + 0.01, "problem": "", "status": 200, "record": 3, **fields}
    return StreamedRequest(
        due_s=due_s,
        first_s=due_s + ttft_s,
        last_s=due_s + ttft_s + 0.4,
        ended_s=due_s + ttft_s + 0.5,
        output_tokens=tokens,
        model=model,
        **given,  # type: ignore[arg-type]
    )


def test_times_count_from_when_a_request_was_due_or_sent() -> None:
    log = [answered(0.0, 0.05), answered(1.0, 0.2, model="large", discarded={"small": 4})]
    run = figures_of(log, PROFILE, OBJECTIVE, duration_s=2.0)
    tokens = run.result.tokens
    assert tokens is not UNSET
    assert (tokens.ttft_s.p50, tokens.ttft_s.p95) == pytest.approx((0.05, 0.2))
    assert tokens.per_token_s.p95 == pytest.approx(0.1)
    assert tokens.total_s.p95 == pytest.approx(0.7)
    assert run.result.latency_s.p95 == pytest.approx(0.2)
    assert run.result.share_late == 0.5
    assert tokens.discarded_tokens == {"small": 4}
    assert tokens.answered_by == {"small": 0.5, "large": 0.5}
    since_sent = figures_of(log, PROFILE, OBJECTIVE, duration_s=2.0, since="sent").result.tokens
    assert since_sent is not UNSET
    assert since_sent.ttft_s.p95 == pytest.approx(0.19)


def test_quality_is_as_judged_or_as_recorded_for_the_model_that_answered() -> None:
    recorded = float(PROFILE.answers.quality[PROFILE.models.index("small"), 3])
    judged = answered(0.0, 0.05)
    judged.quality = 0.25
    run = figures_of([judged, answered(1.0, 0.05)], PROFILE, OBJECTIVE, duration_s=2.0)
    assert run.result.accuracy == pytest.approx((0.25 + recorded) / 2)


@pytest.mark.parametrize(
    ("model", "named"), [("org/other", "by 'org/other', which the profile lacks"), ("", "no model")]
)
def test_a_recorded_quality_of_a_model_that_is_not_known_to_have_answered_is_told(model: str, named: str) -> None:
    judged, unknown = answered(0.0, 0.05, model=model, quality=0.25), answered(1.0, 0.05, model=model)
    run = figures_of([judged, unknown, answered(2.0, 0.05)], PROFILE, OBJECTIVE, duration_s=2.0)
    ((told, count),) = run.problems.items()
    assert count == 1
    assert named in told
    assert f"so with the quality recorded for {PROFILE.models[-1]!r}" in told


def test_what_was_not_answered_is_late_and_told() -> None:
    refused = StreamedRequest(due_s=0.5, record=1, sent_s=0.5, status=429, problem="status 429")
    run = figures_of([answered(0.0, 0.05), refused], PROFILE, OBJECTIVE, duration_s=1.0)
    assert run.problems == {"status 429": 1}
    assert (run.result.share_late, run.result.share_refused) == (0.5, 0.5)


def test_a_problem_is_told_with_the_words_of_the_first_that_had_it() -> None:
    log = [
        StreamedRequest(due_s=0.0, record=number, status=404, problem="status 404", said=f"nothing {number}")
        for number in range(3)
    ]
    run = figures_of(log, PROFILE, OBJECTIVE, duration_s=1.0)
    assert run.problems == {"status 404, such as 'nothing 0'": 3}
    assert (run.answered, run.valid) == (0, False)


def test_a_generator_that_sends_late_makes_the_figures_invalid() -> None:
    log = [answered(float(i), 0.05, sent_s=i + 0.2) for i in range(4)]
    run = figures_of(log, PROFILE, OBJECTIVE, duration_s=4.0)
    assert not run.valid
    assert run.lateness_s == pytest.approx((0.2, 0.2, 0.2))


def test_answers_of_one_token_have_no_time_between_tokens() -> None:
    run = figures_of(
        [answered(0.0, 0.05, tokens=1)], PROFILE, Objective(latency_s=0.1, metric="per_token"), duration_s=1.0
    )
    assert run.result.share_late == 0.0
    assert np.isfinite(run.result.latency_s.p95)
