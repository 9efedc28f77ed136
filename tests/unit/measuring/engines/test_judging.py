"""Judges of answers, before and while they judge."""

from pathlib import Path

import pytest

from gearshift.errors import InvalidInput
from gearshift.measuring.engines.judging import judge_of, quality_of
from gearshift.models.language_config import EngineSettings, LanguageModel, LanguageProject
from gearshift.profiles.engines.prompts import Prompt

ENGINE = EngineSettings(url="http://127.0.0.1:8000/v1", model="m")
PROJECT = LanguageProject(
    operator="chat",
    prompts="prompts.jsonl",
    judge="judge.py:judge",
    models={
        "small": LanguageModel(engine=ENGINE),
        "large": LanguageModel(engine=EngineSettings(url="http://b/v1", model="m")),
    },
)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("def judge(prompt, answer): return 1", "cannot be called: too many positional arguments"),
        (
            "def judge(prompt, answer, reference, more): return 1",
            "cannot be called: missing a required argument: 'more'",
        ),
        ("async def judge(prompt, answer, reference): return 1", "is async or a generator"),
        ("def judge(prompt, answer, reference): yield 1", "is async or a generator"),
    ],
)
def test_a_judge_that_could_judge_nothing_is_refused_before_an_answer_is_paid_for(
    tmp_path: Path, code: str, said: str
) -> None:
    (tmp_path / "judge.py").write_text(code)
    with pytest.raises(InvalidInput, match=f"field judge: judge.py:judge {said}"):
        judge_of(PROJECT, tmp_path)


@pytest.mark.parametrize("code", ["judge = max", "judge = lambda *given: 1", "judge = lambda a, b, c, d=1: 1"])
def test_a_judge_may_be_any_function_of_three(tmp_path: Path, code: str) -> None:
    (tmp_path / "judge.py").write_text(code)
    assert judge_of(PROJECT, tmp_path) is not None


def test_who_waits_hears_whose_answers_are_judged() -> None:
    begun = list[int]()
    prompts = [Prompt(id="0", prompt="a", reference="b")]
    quality, judged = quality_of(PROJECT, lambda *_: len(begun) / 2, prompts, [["x"], ["y"]], begin=begun.append)
    assert (quality.tolist(), judged, begun) == ([[0.5], [1.0]], True, [0, 1])
