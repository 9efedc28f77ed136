"""Answers that are not as recorded are told, and those that are never."""

import asyncio
import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gearshift.cascade import Cascade
from gearshift.observability.journal import JournalFile
from gearshift.profiles.engines.language_profile import AnswerRecords, LanguageProfile
from gearshift.runtime.engines.answers import drift as drift_module
from gearshift.runtime.engines.answers.drift import LEFT, SPAN, AnswerDrift, Change, Quantity
from gearshift.runtime.engines.emulated.answers import RecordedAnswers
from gearshift.support.event_loop import loop_factory
from tests.emulated_service import EmulatedService, Reading
from tests.two_language_models import SMALL_ALONE, cascade, language_plan, language_profile

PROFILE = language_profile(step_s=(0.0001, 0.0001), output_tokens=5)
ANSWERS = language_profile(records=400).answers


def served(drift: AnswerDrift, answers: AnswerRecords, spans: int, seed: int = 1) -> list[str]:
    """The changes after so many spans of random answers of the first model."""
    draw = np.random.default_rng(seed)
    for record in draw.integers(0, len(answers.part), spans * SPAN):
        drift.decided(0, 4, float(answers.certainty[0, record, 1]), -0.5)
        drift.ended(0, int(answers.output_tokens[0, record]), 1 << 30)
    return [f"{change.what}: {change.drifting}" for change in drift.changes()]


@pytest.mark.parametrize("seed", range(4))
def test_answers_as_recorded_are_no_drift_however_many_there_are(seed: int) -> None:
    drift = AnswerDrift(ANSWERS)
    assert served(drift, ANSWERS, 60, seed) == []
    assert not drift.drifts(0)


def test_another_certainty_another_share_and_another_length_are_told_and_the_end_of_it() -> None:
    other = dataclasses.replace(
        ANSWERS, certainty=np.minimum(ANSWERS.certainty * 2.5, 0), output_tokens=ANSWERS.output_tokens + 10
    )
    drift = AnswerDrift(ANSWERS)
    began = served(drift, other, 6)
    names = ["certainty at token 4", "share kept at token 4 above -0.5", "answer tokens"]
    assert sorted(began) == sorted(f"{name}: True" for name in names)
    assert (drift.drifts(0), drift.drifts(1)) == (True, False)
    assert sorted(served(drift, ANSWERS, 6)) == sorted(f"{name}: False" for name in names)
    assert not drift.drifts(0)


def test_an_engine_that_gives_no_log_probabilities_any_more_drifts() -> None:
    drift = AnswerDrift(ANSWERS)
    for _ in range(6 * SPAN):
        drift.decided(0, None, -np.inf, -0.5)
    assert all(change.drifting for change in drift.changes())
    assert drift.drifts(0)


def test_answers_that_clients_have_cut_short_tell_nothing() -> None:
    drift = AnswerDrift(ANSWERS)
    for _ in range(6 * SPAN):
        drift.ended(0, 1, 1)
    assert not list(drift.changes())


def test_answers_longer_than_the_recorded_ones_might_be_count_as_long_as_those() -> None:
    cut = dataclasses.replace(ANSWERS, output_tokens=np.minimum(ANSWERS.output_tokens, 16))
    drift = AnswerDrift(cut)
    assert served(drift, ANSWERS, 12) == []


def test_the_recorded_answers_are_looked_at_once_for_each_quantity(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Quantity] = []
    recorded = Quantity.recorded
    monkeypatch.setattr(Quantity, "recorded", lambda what, answers: (looked.append(what), recorded(what, answers))[1])
    served(AnswerDrift(ANSWERS), ANSWERS, 2)
    assert [str(what) for what in looked] == [
        "certainty at token 4",
        "share kept at token 4 above -0.5",
        "answer tokens",
    ]


def test_an_episode_ends_where_no_stage_decides_so_any_more() -> None:
    drift = AnswerDrift(ANSWERS)
    for _ in range(6 * SPAN):
        drift.decided(0, 4, -np.inf, -0.5)
    assert [change.drifting for change in drift.changes()] == [True, True]
    draw = np.random.default_rng(1)
    ended = list[str]()
    for number, record in enumerate(draw.integers(0, len(ANSWERS.part), LEFT)):
        drift.decided(0, 1, float(ANSWERS.certainty[0, record, 0]), -0.8)
        changes = list(drift.changes())
        assert not changes or number >= LEFT // 2 - SPAN
        ended += [f"{change.what}: {change.drifting}" for change in changes]
    assert sorted(ended) == ["certainty at token 4: False", "share kept at token 4 above -0.5: False"]
    assert not drift.drifts(0)


@pytest.mark.long
@pytest.mark.parametrize("at", [4, None])
def test_an_engine_swapped_for_one_of_the_same_name_with_other_answers_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, at: int | None
) -> None:
    other = dataclasses.replace(
        PROFILE, answers=dataclasses.replace(PROFILE.answers, certainty=np.minimum(PROFILE.answers.certainty * 3, 0))
    )
    path = tmp_path / "journal.jsonl"

    async def ask(service: EmulatedService, rounds: int) -> None:
        for number in range(rounds):
            readings = [Reading() for _ in range(SPAN)]
            for place, reading in enumerate(readings):
                service.submit((number * SPAN + place) % 64, reading)
            for reading in readings:
                await reading.over.wait()

    async def main() -> None:
        journal = JournalFile(path)
        drift = AnswerDrift(PROFILE.answers)
        plan = language_plan([cascade(-0.5, at)])
        async with asyncio.timeout(60), EmulatedService(PROFILE, plan, drift=drift, journal=journal) as service:
            await ask(service, 7)
            service.service.certainties.tell_drift()
            assert service.service.drifting_models == []
            service.engines[0].answers = RecordedAnswers(other, "small")  # another engine at the same address
            await ask(service, 7)
            service.service.certainties.tell_drift()
            assert service.service.drifting_models == ["small"]
            assert 'gearshift_profile_drift{model="small"} 1.0' in service.service.metrics.text().decode()
        journal.close()

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(main())
    assert '"profile_drift"' in path.read_text()
    assert any("answers of model 'small' are not as recorded" in one.getMessage() for one in caplog.records)


SHORTER = dataclasses.replace(
    PROFILE, answers=dataclasses.replace(PROFILE.answers, output_tokens=PROFILE.answers.output_tokens - 2)
)


def told_of(profile: LanguageProfile, answers: AnswerRecords, of: Cascade, **fields: Any) -> list[Change]:
    """The changes after six spans of requests to engines that answer as in `profile`."""

    async def main() -> list[Change]:
        drift = AnswerDrift(answers)
        async with asyncio.timeout(30), EmulatedService(profile, language_plan([of]), drift=drift) as service:
            service.service.certainties.tell_drift = lambda: None  # type: ignore[method-assign]  # else it takes the changes
            readings = [Reading() for _ in range(6 * SPAN)]
            for place, reading in enumerate(readings):
                service.submit(place % 64, reading, **fields)
            for reading in readings:
                await reading.over.wait()
            return list(drift.changes())

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(main())


def test_the_last_stage_is_judged_by_its_length_alone() -> None:
    (change,) = told_of(SHORTER, PROFILE.answers, SMALL_ALONE)
    assert (change.what, change.served, change.recorded) == ("answer tokens", 3, 5)


def test_answers_that_a_client_may_have_stopped_tell_nothing() -> None:
    assert told_of(SHORTER, PROFILE.answers, SMALL_ALONE, stop=["."]) == []


@pytest.mark.long
@pytest.mark.parametrize("at", [16, None])
def test_lengths_count_where_a_stage_decides_at_the_end_and_not_where_it_may_cut(
    at: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drift_module, "SPAN", 8)
    profile = of_many_lengths()
    assert told_of(profile, profile.answers, cascade(-0.5, at)) == []
    longer = dataclasses.replace(profile.answers, output_tokens=profile.answers.output_tokens + 20)
    told = [change.what for change in told_of(profile, longer, cascade(-0.5, at))]
    assert told == (["answer tokens"] if at is None else [])


def of_many_lengths() -> LanguageProfile:
    """With answers of 2 to 40 tokens."""
    answers = PROFILE.answers
    lengths, certainty = np.random.default_rng(5).integers(2, 41, answers.output_tokens.shape), answers.certainty.copy()
    for place, at in enumerate((1, 4, 16)):
        certainty[lengths <= at, place] = certainty[lengths <= at, -1]
    return dataclasses.replace(
        PROFILE, answers=dataclasses.replace(answers, output_tokens=lengths, certainty=certainty)
    )
