import sys
from pathlib import Path

import pytest

import gearshift
from gearshift.errors import InvalidInput
from gearshift.measuring.engines.judging import judge_of
from gearshift.models.language_config import is_language_project, read_language_project
from gearshift.profiles.engines.prompts import read_prompts
from gearshift.verbs.init.order_lines import order_lines, right
from tests.llama import answers_of, llama_server, needs_llama


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", [*sys.path])
    gearshift.init(tmp_path, llm=True)
    return tmp_path


def test_the_project_can_be_read_with_its_prompts_and_its_judge(folder: Path) -> None:
    path = folder / "gearshift.toml"
    assert is_language_project(path)
    project = read_language_project(path)
    assert [*project.models] == ["small", "medium"]
    prompts = read_prompts(folder / project.prompts)
    judge = judge_of(project, folder)
    assert judge is not None
    assert len(prompts) == 400
    assert judge(list(prompts[0].messages), f" {prompts[0].reference}\n", prompts[0].reference) == 1
    assert judge(list(prompts[0].messages), "AB1234", prompts[0].reference) == 0
    sizes = [(folder / f"{name}.gguf").stat().st_size for name in project.models]
    assert 200_000 < sizes[0] < sizes[1] < 1_400_000


def test_nothing_is_replaced(folder: Path) -> None:
    with pytest.raises(InvalidInput, match="there is such a file already"):
        gearshift.init(folder, llm=True)
    with pytest.raises(InvalidInput, match="pipeline and llm are both given"):
        gearshift.init(folder / "other", llm=True, pipeline=True)


def test_lines_about_orders_are_the_same_for_the_same_seed_and_have_one_right_answer() -> None:
    assert order_lines(5, 3) == order_lines(5, 3) != order_lines(5, 4)
    for line in order_lines(200, 0):
        reference, date, total = line.answer.split()
        assert reference[2:] in line.text
        assert date[:3] == "202"
        assert total.replace(".", "")[:-2] in line.text.replace(",", "").replace(".", "")
        assert right(line.answer + "\n", line.answer) == 1.0
        assert right(line.answer[:-1], line.answer) == 0.0


@needs_llama
def test_the_models_that_come_with_it_answer_many_lines_right(folder: Path) -> None:
    """In llama.cpp's server, started by the project's own commands."""
    project = read_language_project(folder / "gearshift.toml")
    prompts = read_prompts(folder / project.prompts)[:60]
    shares = []
    for model in project.models.values():
        with llama_server(model.engine, folder) as url:
            texts = answers_of(url, model.engine.model, prompts)
        shares.append(sum(text.strip() == one.reference for text, one in zip(texts, prompts, strict=True)) / 60)
    assert 0.3 < shares[0] < 0.75 < shares[1]
