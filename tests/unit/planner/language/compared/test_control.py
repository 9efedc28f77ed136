import numpy as np
import pytest

from gearshift.hardware import identical_devices
from gearshift.objective import Objective
from gearshift.planner.language.candidates import answers_of, candidate_table, measured
from gearshift.planner.language.compared.compare import CONTROL, compare_language, permuted
from gearshift.planner.language.compared.explain import explain_language, stages_of
from gearshift.planner.language.request import LanguageRequest
from gearshift.planner.planners import plan
from gearshift.profiles.profile import PART_A, PART_B
from tests.language_profiles import MODELS, bursty_trace, language_profile

WORK_S = np.array([1.0, 3.0, 10.0])


def request() -> LanguageRequest:
    return LanguageRequest(
        profile=language_profile(),
        trace=bursty_trace(1, 10, seconds=6),
        hardware=identical_devices(1, kind="gpu", memory_bytes=30_000_000),
        objective=Objective(latency_s=0.3, metric="ttft"),
        most_candidates=6,
        most_tried=20,
    )


def test_permuted_certainties_stay_in_their_part_and_with_their_model() -> None:
    profile = language_profile()
    dealt = permuted(profile, seed=3)
    assert (dealt.answers.certainty != profile.answers.certainty).any()
    for part in (PART_A, PART_B):
        mine = profile.answers.indices(part)
        for model in range(len(MODELS)):
            before, after = profile.answers.certainty[model, mine, 0], dealt.answers.certainty[model, mine, 0]
            np.testing.assert_array_equal(np.sort(before), np.sort(after))
    np.testing.assert_array_equal(dealt.answers.quality, profile.answers.quality)


def test_a_permutation_is_behind() -> None:
    profile = language_profile()
    a = profile.answers.indices(PART_A)
    best = []
    for of in (profile, permuted(profile)):
        table = candidate_table(answers_of(of, a), WORK_S)
        work = table.output_tokens @ WORK_S
        cheap = work <= 0.5 * float((answers_of(of, a).output_tokens.mean(axis=1) * WORK_S)[-1])
        best.append(float(table.quality[cheap].max()))
    assert best[0] > best[1]


@pytest.mark.long
def test_an_explanation_has_the_costs_of_each_gear() -> None:
    asked = request()
    made = plan("optimal", asked)
    told = explain_language(made, asked.profile, asked.trace)
    assert [gear.cascade for gear in told.gears] == [gear.cascade for gear in made.pipeline.gears]
    assert sum(gear.share_of_requests for gear in told.gears) == 1.0
    answers = answers_of(asked.profile, asked.planned_on)
    for gear in told.gears:
        quality, _, outputs = measured(stages_of(gear.cascade, MODELS), answers)
        assert gear.quality == quality
        assert gear.output_tokens == {model: tokens for model, tokens in zip(MODELS, outputs, strict=True) if tokens}
        assert 0 <= gear.discarded < 1
    assert told.replayed.tokens.answered_by  # type: ignore[union-attr]


@pytest.mark.long
def test_a_comparison_has_the_control_and_what_certainty_is_worth() -> None:
    found = compare_language([request()], ["optimal", CONTROL])
    assert [run.planner for run in found.runs] == ["optimal", CONTROL]
    ((devices, limit_s, worth),) = found.worth
    assert (devices, limit_s) == (1, 0.3)
    first, control = (run.predicted.accuracy for run in found.runs if run.predicted is not None)
    assert worth == first - control


def test_a_planner_that_finds_nothing_is_a_row_with_its_error() -> None:
    impossible = LanguageRequest(
        profile=language_profile(),
        trace=bursty_trace(1, 10, seconds=6),
        hardware=identical_devices(1, kind="gpu", memory_bytes=30_000_000),
        objective=Objective(latency_s=0.001, metric="ttft"),
        most_candidates=4,
    )
    found = compare_language([impossible], ["single"])
    assert found.runs[0].predicted is None
    assert (found.runs[0].error or {})["kind"] == "infeasible"


def test_ctrl_c_keeps_finished_runs_and_names_the_others() -> None:
    told: list[str] = []

    def interrupt(what: str, share: float) -> None:
        told.append(what)
        if what.startswith("static-cascade"):
            raise KeyboardInterrupt

    found = compare_language([request()], ["single", "static-cascade", CONTROL], progress=interrupt)
    assert [(run.error or {}).get("kind") for run in found.runs] == [None, "interrupted", "interrupted"]
    assert found.interrupted == 2
    assert told[-1] == "interrupted: 1 of 3 runs are kept"
    with pytest.raises(KeyboardInterrupt):
        compare_language([request()], ["static-cascade"], progress=interrupt)
