from pathlib import Path
from typing import Any

import msgspec
import pytest

from gearshift.errors import InvalidInput
from gearshift.models.language_config import LanguageProject, is_language_project, read_language_project

PLAIN = """
operator = "chat"
prompts = "prompts.jsonl"
judge = "judge.py:score"
certainty = "least_logprob"

[models.small.engine]
url = "http://127.0.0.1:8001/v1"
model = "tiny"

[models.large.engine]
command = "vllm serve big --port {port} --tensor-parallel-size {tp} --gpu-memory-utilization {memory_share}"
model = "big"
tensor_parallel = 2
longest_start_s = 600
kv_tokens = 50_000

[profile]
concurrency = [1, 2, 4]
most_calls = 1000
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "gearshift.toml"
    path.write_text(text)
    return path


def test_a_project_is_read_with_its_engines(tmp_path: Path) -> None:
    project = read_language_project(write(tmp_path, PLAIN))
    small, large = (one.engine for one in project.models.values())
    assert [*project.models] == ["small", "large"]
    assert (small.urls, small.kind, small.held_tokens) == (("http://127.0.0.1:8001/v1",), "remote", 256 * 8192)
    assert (large.urls, large.kind, large.held_tokens) == ((), "cuda", 50_000)
    words = "vllm serve big --port 81 --tensor-parallel-size 2 --gpu-memory-utilization 0.45"
    assert large.argv(port=81, memory_share=0.45) == words.split()
    assert "--tensor-parallel-size 4" in " ".join(large.argv(port=81, tensor_parallel=4))


def test_a_command_is_told_the_contexts_of_its_replica(tmp_path: Path) -> None:
    text = PLAIN.replace("vllm serve big --port {port}", "server --port {port} -c {kv_tokens}")
    engine = read_language_project(write(tmp_path, text)).models["large"].engine
    assert engine.argv(port=81)[4] == "50000"
    assert engine.argv(port=81, kv_tokens=640)[4] == "640"


def test_a_command_is_told_its_key_where_it_has_a_place_for_it(tmp_path: Path) -> None:
    text = PLAIN.replace("vllm serve big --port {port}", "server --port {port} --api-key {api_key}")
    engine = read_language_project(write(tmp_path, text)).models["large"].engine
    assert engine.argv(port=81, api_key="abc")[3:5] == ["--api-key", "abc"]


def test_a_command_is_started_with_each_tensor_parallel(tmp_path: Path) -> None:
    text = PLAIN.replace("tensor_parallel = 2", "tensor_parallel = [1, 4]")
    engine = read_language_project(write(tmp_path, text)).models["large"].engine
    assert engine.degrees == (1, 4)
    assert [engine.on(degree).argv(port=1)[6] for degree in engine.degrees] == ["1", "4"]


def test_several_urls_are_a_replica_each(tmp_path: Path) -> None:
    text = PLAIN.replace('"http://127.0.0.1:8001/v1"', '["http://a:1/v1", "http://b:1/v1"]')
    engine = read_language_project(write(tmp_path, text)).models["small"].engine
    assert engine.urls == ("http://a:1/v1", "http://b:1/v1")


def test_language_projects_are_told_from_others_even_where_they_are_damaged(tmp_path: Path) -> None:
    assert is_language_project(write(tmp_path, PLAIN))
    assert is_language_project(write(tmp_path, '[models.a.engine]\nurl = "x"'))
    assert not is_language_project(write(tmp_path, 'operator = "a"\n[models.a]\nload = "a.onnx"'))
    assert not is_language_project(write(tmp_path, "models = 3"))
    assert not is_language_project(write(tmp_path, "]["))
    assert not is_language_project(tmp_path / "absent.toml")


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('operator = "chat"', 'operator = "a b"', "operator is 'a b'"),
        ('prompts = "prompts.jsonl"', 'prompts = ""', "prompts is empty"),
        ("judge.py:score", "judge.py", "judge is 'judge.py'; write it as file.py:function"),
        ("least_logprob", "entropy", "at `$.certainty`; use one of mean_logprob, least_logprob, "),
        ('model = "tiny"', 'model = ""', "model is empty"),
        ('model = "tiny"', "", "missing required field `model`"),
        ('url = "http://127.0.0.1:8001/v1"', "", "there is neither a url nor a command"),
        ('model = "big"', 'model = "big"\nurl = "http://a/v1"', "url and command are both given"),
        ("http://127.0.0.1:8001/v1", "ftp://a", "url is 'ftp://a'"),
        ("http://127.0.0.1:8001/v1", "http://a:99999999/v1", "url is 'http://a:99999999/v1'"),
        ("http://127.0.0.1:8001/v1", "http://me:secret@a/v1", "url holds more than host, port and path"),
        ("--port {port}", "--port 80", "command has no {port}"),
        ("{tp}", "{gpus}", "command contains {gpus}"),
        ("{tp}", "{tp", "command cannot be split into words"),
        ("kv_tokens = 50_000", "kv_tokens = 3", "kv_tokens is 3, needs at least one block of 16"),
        ("tensor_parallel = 2", "tensor_parallel = 0", "tensor_parallel is 0, needs 1 or more"),
        ("tensor_parallel = 2", "tensor_parallel = []", "tensor_parallel is [], needs 1 or more"),
        ("tensor_parallel = 2", "tensor_parallel = [2, 1]", "tensor_parallel is [2, 1], needs 1 or more, or rising"),
        ('model = "tiny"', 'model = "tiny"\ntensor_parallel = [1, 2]', "is [1, 2], and endpoints by url run with one"),
        ("tensor_parallel = 2", "cores = 0", "cores is 0, needs 1 or more"),
        ("tensor_parallel = 2", "weights_bytes = -1", "weights_bytes is -1, needs 0 (not known) or more"),
        ("longest_start_s = 600", "longest_start_s = -1", "longest_start_s is -1.0"),
        ("longest_start_s = 600", 'body = {stream = true}', "body holds 'stream', which is set otherwise"),
        ("[1, 2, 4]", "[2, 4]", "concurrency begins at 2, needs 1"),
        ("[1, 2, 4]", "[1, 4, 2]", "concurrency is [1, 4, 2], needs rising numbers from 1"),
        ("most_calls = 1000", "most_calls = 0", "most_calls is 0"),
        ("[models.small.engine]", "[models.'a b'.engine]", "a model is 'a b'"),
        ("[profile]", "[profil]", "unknown field `profil`"),
    ],
)  # fmt: skip
def test_a_bad_value_is_a_sentence_that_names_file_and_value(tmp_path: Path, old: str, new: str, sentence: str) -> None:
    assert old in PLAIN
    path = write(tmp_path, PLAIN.replace(old, new))
    with pytest.raises(InvalidInput) as caught:
        read_language_project(path)
    assert sentence in str(caught.value)
    assert str(path) in str(caught.value)


def test_several_tensor_parallel_need_a_place_in_the_command(tmp_path: Path) -> None:
    text = PLAIN.replace("tensor_parallel = 2", "tensor_parallel = [1, 2]").replace("{tp}", "2")
    with pytest.raises(InvalidInput, match=r"tensor_parallel is \[1, 2\], and command has no \{tp\}"):
        read_language_project(write(tmp_path, text))


def test_one_model_at_one_endpoint_under_two_names_is_refused() -> None:
    engine: dict[str, Any] = {"engine": {"url": "http://a/v1", "model": "m"}}
    with pytest.raises(msgspec.ValidationError, match="'b' are the same at"):
        msgspec.convert({"operator": "chat", "prompts": "p", "models": {"a": engine, "b": engine}}, LanguageProject)


def test_the_key_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = PLAIN.replace('model = "tiny"', 'model = "tiny"\napi_key_env = "A_KEY"')
    engine = read_language_project(write(tmp_path, text)).models["small"].engine
    monkeypatch.delenv("A_KEY", raising=False)
    with pytest.raises(InvalidInput, match="'A_KEY' holds no key"):
        engine.key("models.small")
    monkeypatch.setenv("A_KEY", "secret")
    assert engine.key("models.small") == "secret"
