import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import gearshift
from gearshift.errors import InvalidInput
from gearshift.measuring.engines.judging import judge_of
from gearshift.models.language_config import is_language_project, read_language_project
from gearshift.profiles.engines.prompts import read_prompts
from gearshift.verbs.init.order_lines import order_lines, right
from tests.llama import answers_of, llama_server, needs_llama
from tests.unit.cli.little import run


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", [*sys.path])
    gearshift.init(tmp_path, llm=True)
    return tmp_path


def test_the_project_can_be_read_with_its_prompts_and_its_judge(folder: Path) -> None:
    path = folder / "gearshift.toml"
    assert is_language_project(path)
    project = read_language_project(path)
    assert [*project.models] == ["small", "medium", "large"]
    prompts = read_prompts(folder / project.prompts)
    judge = judge_of(project, folder)
    assert judge is not None
    assert len(prompts) == 400
    assert judge(list(prompts[0].messages), f" {prompts[0].reference}\n", prompts[0].reference) == 1
    assert judge(list(prompts[0].messages), "AB1234", prompts[0].reference) == 0
    sizes = [(folder / f"{name}.gguf").stat().st_size for name in project.models]
    assert 200_000 < sizes[0] < sizes[1] < sizes[2] < 2_700_000


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


@pytest.mark.long
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


@contextmanager
def listing(models: object) -> Iterator[str]:
    """The URL of an endpoint that answers nothing but which models it has."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(models).encode())

        def log_message(self, *said: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, args=(0.01,)).start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()


@pytest.mark.parametrize(
    ("models", "name", "context"),
    [
        ({"data": [{"id": "org/model", "max_model_len": 4096}]}, "org/model", 4096),  # vLLM
        ({"data": [{"id": "tiny", "meta": {"n_ctx": 512}}]}, "tiny", 512),  # llama.cpp
        ({"data": [{"id": "hosted"}]}, "hosted", 8192),
        ({"data": []}, "small", 8192),
        (["nothing"], "small", 8192),
    ],
)
def test_endpoints_are_asked_for_model_and_context(models: object, name: str, context: int, tmp_path: Path) -> None:
    with listing(models) as url:
        gearshift.init(tmp_path, llm=True, urls=[url, "http://127.0.0.1:1/v1"])
    project = read_language_project(tmp_path / "gearshift.toml")
    small = project.models["small"].engine
    assert (small.urls, small.model, small.context_tokens) == ((url,), name, context)
    assert project.models["large"].engine.model == "large"
    assert len(read_prompts(tmp_path / project.prompts)) == 6
    assert f"put its {'name' if name == 'small' else 'own'} here" in (tmp_path / "gearshift.toml").read_text()


def test_prompts_of_ones_own_are_named_from_the_project(tmp_path: Path) -> None:
    mine = tmp_path / "mine.jsonl"
    mine.write_text('{"id": 1, "prompt": "a"}\n{"id": 2, "prompt": "b"}\n')
    url = "http://127.0.0.1:1/v1"
    paths = gearshift.init(tmp_path / "project", llm=True, urls=[url, url.replace("1/v1", "2/v1")], prompts=mine)
    assert [path.name for path in paths] == ["gearshift.toml", "judge.py"]
    assert read_language_project(paths[0]).prompts == "../mine.jsonl"
    mine.write_text("{}")
    with pytest.raises(InvalidInput, match=r"mine\.jsonl, line 1"):
        gearshift.init(tmp_path / "other", llm=True, urls=[url, url], prompts=mine)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"llm": True, "urls": ["http://a/v1"]}, "1 endpoint is given, and a cascade needs two"),
        ({"llm": True, "urls": ["http://a/v1", "gpu-2:8000"]}, "url is 'gpu-2:8000'"),
        ({"urls": ["http://a/v1", "http://b/v1"]}, "endpoints are given, which only language models have"),
        ({"prompts": Path("mine.jsonl")}, "prompts are given, which only language models have"),
        ({"commands": ["a {port}", "b {port}"]}, "commands are given, which only language models have"),
        ({"llm": True, "commands": ["a {port}"]}, "1 command is given, and a cascade needs two"),
        ({"llm": True, "commands": ["a {port}", "b"]}, "command has no {port}"),
        ({"llm": True, "commands": ["a {port}"] * 2, "urls": ["http://a/v1"] * 2}, "endpoints and commands are both"),
    ],
)
def test_endpoints_that_make_no_project_are_a_sentence(options: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=re.escape(sentence)):
        gearshift.init(tmp_path / "project", **options)
    assert not (tmp_path / "project").exists()


def test_a_project_is_written_around_commands_and_prompts_of_ones_own(tmp_path: Path) -> None:
    mine = tmp_path / "mine.jsonl"
    mine.write_text('{"id": 1, "prompt": "a"}\n{"id": 2, "prompt": "b"}\n')
    words = ("--command", "vllm serve org/small --port {port}", "--command", 'run "a, b" --port {port} --alias=big')
    done = run("init", tmp_path / "project", "--llm", "--prompts", mine, *words)
    assert done.exit_code == 0, done.output
    project = read_language_project(tmp_path / "project/gearshift.toml")
    small, large = (one.engine for one in project.models.values())
    assert (small.model, large.model) == ("org/small", "big")
    assert large.argv(port=5) == ["run", "a, b", "--port", "5", "--alias=big"]
    assert (project.prompts, project.judge) == ("../mine.jsonl", "")  # without references, nothing is judged
    assert f"check {tmp_path}" in done.output.replace("\n", "")


def test_prompts_alone_go_with_the_engines_of_the_example(tmp_path: Path) -> None:
    mine = tmp_path / "mine.jsonl"
    rows = [{"id": i, "prompt": "a", "reference": "b"} for i in range(2)]
    mine.write_text("".join(json.dumps(row) + "\n" for row in rows))
    paths = gearshift.init(tmp_path / "project", llm=True, prompts=mine)
    project = read_language_project(paths[0])
    assert (project.prompts, project.judge) == ("../mine.jsonl", "judge.py:score")
    assert all((tmp_path / "project" / f"{name}.gguf").is_file() for name in project.models)
    assert not (tmp_path / "project/prompts.jsonl").exists()
    judge = judge_of(project, tmp_path / "project")
    assert judge is not None
    assert judge("a", "so: B", "b") == 1.0
