from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gearshift.planner.language.candidates import (
    BY_ID,
    Answers,
    Stage,
    answers_of,
    candidate_table,
    cascade_of,
    fronts,
    measured,
)
from gearshift.policies.engines.deciding import first_stage
from gearshift.profiles.profile import PART_A
from tests.language_profiles import MODELS, language_profile
from tests.often import often

FIRST, FOURTH, END = 0, 1, 3


def two_models() -> Answers:
    """Four prompts; the small model is right on the first two, and surest of them at the end alone."""
    certainty = np.zeros((2, 4, 4))
    certainty[0, :, END] = [0.9, 0.8, 0.3, 0.1]
    certainty[0, :, FOURTH] = [0.9, 0.1, 0.8, 0.1]
    return Answers(
        models=("small", "large"),
        quality=np.array([[1.0, 1.0, 0.0, 0.0], [1.0, 0.0, 1.0, 1.0]]),
        certainty=certainty,
        prompt_tokens=np.full((2, 4), 10.0),
        output_tokens=np.array([[8.0, 8.0, 2.0, 8.0], [20.0, 20.0, 20.0, 20.0]]),
        ranks=np.ones((2, 4), dtype=bool),
    )


def test_what_a_stage_discards_depends_on_when_it_decides() -> None:
    quality, prompts, outputs = measured((Stage(0, FOURTH, 0.5), Stage(1)), two_models())
    assert quality == 1.0 / 4 + 0.0 / 4 + 0.0 / 4 + 1.0 / 4  # 2 and 4 go on; 3 stays, and is wrong
    assert prompts.tolist() == [10.0, 5.0]
    assert outputs.tolist() == [(8 + 4 + 2 + 4) / 4, 10.0]
    quality, _, outputs = measured((Stage(0, END, 0.5), Stage(1)), two_models())
    assert quality == 1.0
    assert outputs.tolist() == [(8 + 8 + 2 + 8) / 4, 10.0]


def test_a_stage_that_decides_by_id_runs_only_for_those_that_stay() -> None:
    quality, prompts, outputs = measured((Stage(0, BY_ID, 0.25), Stage(1)), two_models())
    assert quality == 0.75 * 0.5 + 0.25 * 0.75
    assert prompts.tolist() == [7.5, 2.5]
    assert outputs.tolist() == [0.75 * 6.5, 0.25 * 20]


@settings(max_examples=often(100))
@given(first=st.floats(0.05, 0.95), second=st.floats(0.05, 0.95))
def test_shares_by_id_are_those_that_the_router_sends(first: float, second: float) -> None:
    answers = answers_of(language_profile(), np.arange(60, dtype=np.int32))
    stages = (Stage(0, BY_ID, first), Stage(1, BY_ID, second), Stage(2))
    _, prompts, _ = measured(stages, answers)
    by_id = (np.arange(20_000) + 0.5) / 20_000
    sent = [first_stage(one, 3, [first, second, 0.0], [0, 0, -1], 0) for one in by_id.tolist()]
    shares = np.bincount(sent, minlength=3) / len(sent)
    np.testing.assert_allclose(prompts / answers.prompt_tokens.mean(axis=1), shares, atol=1e-3)


def test_models_whose_certainty_ranks_nothing_are_split_by_id_alone() -> None:
    answers = answers_of(language_profile(ranks=("middle",)), np.arange(60, dtype=np.int32))
    table = candidate_table(answers, np.array([1.0, 2.0, 4.0]))
    by_certainty = {stage.model for stages in table.stages for stage in stages[:-1] if stage.at != BY_ID}
    assert by_certainty == {MODELS.index("middle")}
    by_id = {stage.model for stages in table.stages for stage in stages[:-1] if stage.at == BY_ID}
    assert by_id == {0, 1}


def test_thresholds_are_put_at_the_tokens_where_certainty_ranks() -> None:
    profile = replace(language_profile(), ranks_at=(("small", 4), ("middle", None)))
    table = candidate_table(answers_of(profile, np.arange(60, dtype=np.int32)), np.array([1.0, 2.0, 4.0]))
    by_certainty = {(stage.model, stage.at) for stages in table.stages for stage in stages[:-1] if stage.at != BY_ID}
    assert by_certainty == {(0, FOURTH), (1, END)}
    assert any(len(stages) == 3 and all(one.at != BY_ID for one in stages[:-1]) for stages in table.stages)


def test_a_cascade_says_when_its_stages_decide() -> None:
    made = cascade_of((Stage(0, BY_ID, 0.2), Stage(1, END, 0.7), Stage(2)), MODELS)
    assert made.decide_at_tokens == (0, None)
    assert made.thresholds == (0.2, 0.7)


def test_fronts_keep_early_decisions_though_late_ones_have_more_quality() -> None:
    profile = language_profile()
    answers = answers_of(profile, profile.answers.indices(PART_A))
    table = candidate_table(answers, np.array([1.0, 3.0, 10.0]))
    work_s = table.output_tokens @ np.array([1.0, 3.0, 10.0])
    kept = fronts(table, work_s, most=20)
    assert len(kept) <= 20
    assert (np.diff(work_s[kept]) >= 0).all()
    for at in (BY_ID, FIRST):
        among = [i for i in kept if table.latest[i] <= at]
        best = max(table.quality[i] for i in range(len(table.stages)) if table.latest[i] <= at)
        assert max(table.quality[i] for i in among) == pytest.approx(best)


def test_single_models_alone_where_no_cascade_is_wanted() -> None:
    answers = answers_of(language_profile(), np.arange(60, dtype=np.int32))
    table = candidate_table(answers, np.array([1.0, 3.0, 10.0]), single_models=True)
    assert [len(stages) for stages in table.stages] == [1, 1, 1]


def test_tokens_of_a_trace_stand_in_for_those_of_the_records() -> None:
    answers = answers_of(language_profile(), np.arange(60, dtype=np.int32), prompt_tokens=100.0, output_tokens=50.0)
    _, prompts, outputs = measured((Stage(2),), answers)
    assert (prompts[2], outputs[2]) == (100.0, 50.0)
