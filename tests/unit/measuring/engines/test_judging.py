"""Judges of answers, before and while they judge."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from gearshift.errors import InvalidInput, ModelFailed
from gearshift.measuring.engines.judging import judge_of, quality_of
from gearshift.measuring.engines.kept import KeptJudgements
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
PROMPTS = [Prompt(id="0", prompt="a", reference="b")]


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
    heard = list[tuple[int, int]]()
    quality, judged = quality_of(
        PROJECT, lambda *_: len(heard) / 4, PROMPTS, [["x"], ["y"]], step=lambda *told: heard.append(told)
    )
    assert (quality.tolist(), judged, heard) == ([[0.25], [0.75]], True, [(0, 0), (0, 1), (1, 0), (1, 1)])


def test_an_answer_is_judged_once_and_kept_before_the_next_is_judged(tmp_path: Path) -> None:
    asked = list[str]()

    def judge(prompt: str, answer: str, reference: str) -> float:
        asked.append(answer)
        return 1 / 3 if answer != "z" or len(asked) > 3 else 1 / 0

    def judged(*answers: str) -> list[list[float]]:
        kept = KeptJudgements(tmp_path, "judge.py:judge")
        return quality_of(PROJECT, judge, PROMPTS, [[answer] for answer in answers], kept=kept)[0].tolist()

    with pytest.raises(ModelFailed, match="ZeroDivisionError"):
        judged("x", "y", "x", "z")
    assert asked == ["x", "y", "z"]
    assert judged("x", "y", "x", "z") == [[1 / 3]] * 4
    assert asked[3:] == ["z"]


@pytest.mark.parametrize("changed", [{"prompt": "c"}, {"reference": "c"}, {"max_tokens": 3}])
def test_what_a_judge_is_given_is_part_of_what_is_kept(changed: dict[str, Any]) -> None:
    kept = KeptJudgements()
    kept.keep(PROMPTS[0], "x", 0.5)
    renamed = msgspec.structs.replace(PROMPTS[0], id="1")
    assert (kept.of(renamed, "x"), kept.of(renamed, "y")) == (0.5, None)
    assert kept.of(msgspec.structs.replace(renamed, **changed), "x") is None


def test_a_judgement_that_was_cut_short_costs_none_but_itself(tmp_path: Path) -> None:
    def kept() -> KeptJudgements:
        return KeptJudgements(tmp_path, "judge.py:judge")

    kept().keep(PROMPTS[0], "x", 0.5)
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes() + b'{"type":"judged","ans')
    kept().keep(PROMPTS[0], "y", 0.25)
    assert (len(kept()), kept().of(PROMPTS[0], "x"), kept().of(PROMPTS[0], "y")) == (2, 0.5, 0.25)
