from pathlib import Path

import pytest

from gearshift.errors import InvalidInput
from gearshift.models.config import ProfileSettings, project_file, read_project
from gearshift.models.remote_settings import RemoteSettings

PROJECT = """\
operator = "pets"
samples = "samples.py:load"
[models.small]
load = "models.py:small"
[models.large]
load = "models.py:large"
memory_mib = 12.5
"""


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "gearshift.toml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_a_project_is_read_with_its_defaults(tmp_path: Path) -> None:
    project = read_project(write(tmp_path, PROJECT))
    assert list(project.models) == ["small", "large"]
    assert project.models["large"].memory_mib == 12.5
    assert (project.operators["pets"].certainty, project.profile) == ("top_two_difference", ProfileSettings())


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_byte_order_mark_is_left_out(tmp_path: Path, encoding: str) -> None:
    assert list(read_project(write(tmp_path, PROJECT.encode(encoding))).operators) == ["pets"]


@pytest.mark.parametrize(("load", "is_onnx_file"), [("models.py:large", False), ("folder/large.onnx", True)])
def test_a_model_is_a_loader_or_an_onnx_file(tmp_path: Path, load: str, is_onnx_file: bool) -> None:
    project = read_project(write(tmp_path, PROJECT.replace("models.py:large", load)))
    assert project.models["large"].is_onnx_file == is_onnx_file


@pytest.mark.parametrize("kind", ["cpu", "cpu-old", "cuda", "cuda-x"])
def test_kinds_of_devices_that_can_be_measured(tmp_path: Path, kind: str) -> None:
    project = read_project(write(tmp_path, f'{PROJECT}[profile]\ndevice_kind = "{kind}"\n'))
    assert project.profile.device_kind == kind


def test_a_folder_stands_for_the_project_in_it(tmp_path: Path) -> None:
    assert project_file(tmp_path) == tmp_path / "gearshift.toml"
    assert project_file(tmp_path / "other.toml") == tmp_path / "other.toml"


def test_how_to_measure_can_be_set(tmp_path: Path) -> None:
    project = read_project(write(tmp_path, PROJECT + "[profile]\nbatch_sizes = [1, 3]\nrepeats = 5\nlongest_s = 1.5\n"))
    assert project.profile == ProfileSettings(batch_sizes=(1, 3), repeats=5, longest_s=1.5)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('operator = "pets"\n', "", "required field `operator`"),
        ('operator = "pets"', 'operator = "my pets"', "operator is 'my pets'; use up to 64 letters"),
        ('operator = "pets"', 'operator = ""', "operator is ''"),
        ('operator = "pets"', "operator = 3", r"Expected `str`, got `int` - at `\$.operator`"),
        ('operator = "pets"', 'operator = "pets"\ncolour = "red"', "unknown field `colour`"),
        ("memory_mib = 12.5", "memory_mb = 12.5", "unknown field `memory_mb`"),
        ("memory_mib = 12.5", "memory_mib = 0", "memory_mib is 0.0, needs more than 0"),
        (
            "models.py:large",
            "models.large",
            "load is 'models.large'; write it as file.py:function, file.onnx, mlflow:FOLDER",
        ),
        ("models.py:large", "large.pkl", "load is 'large.pkl'; write it as file.py:function, file.onnx, mlflow:FOLDER"),
        ("memory_mib = 12.5", "softmax = 1", r"Expected `bool`, got `int` - at `\$.models\[...\].softmax`"),
        ("samples.py:load", "samples.py", "samples is 'samples.py'; write it as file.py:function"),
        ("samples.py:load", "samples.py:load()", r"samples is 'samples.py:load\(\)'"),
        ("[models.small]", "[models.small", "gearshift.toml: "),
    ],
)
def test_a_wrong_project_names_file_and_field(tmp_path: Path, old: str, new: str, told: str) -> None:
    path = write(tmp_path, PROJECT.replace(old, new))
    with pytest.raises(InvalidInput, match=told) as caught:
        read_project(path)
    assert str(caught.value).startswith(str(path))


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("batch_sizes = []", r"batch_sizes is \[\], needs numbers from 1 to 65536"),
        ("batch_sizes = [0]", r"batch_sizes is \[0\]"),
        ("batch_sizes = [1.5]", "Expected `int`, got `float`"),
        ("repeats = 2", "repeats is 2, needs 3 to 10000"),
        ("longest_s = 0.0", "longest_s is 0.0, needs a positive number"),
        ("longest_s = nan", "longest_s is nan, needs a positive number"),
        ('device_kind = "gpu"', "device_kind is 'gpu'; use cpu or cuda, or a name that begins with cpu- or cuda-"),
        ('device_kind = "cudax"', "device_kind is 'cudax'"),
    ],
)
def test_a_wrong_measurement_setting_is_named(tmp_path: Path, setting: str, told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        read_project(write(tmp_path, f"{PROJECT}[profile]\n{setting}\n"))


def test_a_project_needs_a_model(tmp_path: Path) -> None:
    text = 'operator = "pets"\nsamples = "samples.py:load"\n[models]\n'
    with pytest.raises(InvalidInput, match=r"there are no models; add a \[models.NAME\] section"):
        read_project(write(tmp_path, text))


def test_two_outputs_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="two outputs have the same name here"):
        read_project(write(tmp_path, PROJECT + 'outputs = {a = "scores", b = "scores"}\n'))


def test_a_user_certainty_is_a_reference(tmp_path: Path) -> None:
    project = read_project(write(tmp_path, f'certainty = "c.py:sure"\n{PROJECT}'))
    assert project.operators["pets"].certainty == "c.py:sure"
    with pytest.raises(InvalidInput, match="certainty is 'c:sure'"):
        read_project(write(tmp_path, f'certainty = "c:sure"\n{PROJECT}'))


@pytest.mark.parametrize("text", [b"", b" \n", b'operator = "\xff"'])
def test_an_empty_or_garbled_project_names_the_file(tmp_path: Path, text: bytes) -> None:
    with pytest.raises(InvalidInput, match=r"gearshift\.toml(, line 1)?: "):
        read_project(write(tmp_path, text))


def test_a_missing_project_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"no such file; make one with `gearshift init`"):
        read_project(tmp_path / "gearshift.toml")


V2 = {"url": "https://models.example/prefix", "protocol": "v2", "model": "large"}
CHAT = {"url": "http://127.0.0.1:8080/v1", "protocol": "openai", "model": "chat", "prompt": "Is {text} good?"}


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"url": "ftp://models.example"}, "url is 'ftp://models.example'; give it as https://HOST"),
        ({"url": "file:///etc/passwd"}, "url is 'file:///etc/passwd'"),
        ({"url": "https://"}, "url is 'https://'"),
        ({"url": "https://host:port"}, "url is 'https://host:port'"),
        ({"url": "https://user:secret@host"}, "url holds more than host, port and path; .* by api_key_env"),
        ({"url": "https://host/#part"}, "url holds more than host"),
        ({"url": "https://host/a b"}, "write it in plain ASCII"),
        ({"url": "https://host/\r\nx: y"}, "url is|plain ASCII"),
        ({"model": ""}, "model is empty"),
        ({"longest_s": 0.0}, "longest_s is 0.0"),
        ({"longest_s": float("nan")}, "longest_s is nan"),
        ({"most_requests": 0}, "most_requests is 0"),
        ({"largest_answer_bytes": 0}, "largest_answer_bytes is 0"),
        ({"most_attempts": 0}, "most_attempts is 0"),
        ({"most_attempts_served": 101}, "most_attempts_served is 101, needs 1 to 100"),
        ({"longest_asking_s": 0.0}, "longest_asking_s is 0.0"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"headers": {"a b": "c"}}, "'a b' is no name of a header"),
        ({"headers": {"a": "b\r\nc: d"}}, "the header 'a' holds more than one line"),
        (
            {"headers": {"authorization": "Bearer x"}},
            "headers hold 'authorization', which is set otherwise; .*api_key_env",
        ),
        ({"headers": {"Content-Length": "0"}}, "headers hold 'Content-Length'"),
        ({"headers": {"api-key": "k"}, "api_key_header": "API-Key"}, "headers hold 'api-key'"),
        ({"api_key_header": "Host"}, "api_key_header is 'Host'"),
        ({"body": {"seed": 1}}, "body, leave_out, .* are of protocol openai alone"),
        ({"leave_out": ("temperature",)}, "of protocol openai alone"),
        ({"tokens_field": "max_tokens"}, "of protocol openai alone"),
        ({"prompt": "{x}"}, "prompt and classes are of protocol openai alone"),
        ({"outputs": {"a": "x", "b": "x"}}, "two outputs have the same name here"),
    ],
)
def test_what_makes_no_sense_is_refused(changed, told):
    with pytest.raises(InvalidInput, match=told):
        RemoteSettings(**(V2 | changed))


@pytest.mark.parametrize(
    "prompt", ["", "no input", "{x.__class__}", "{x[0]}", "{x!r}", "{x:>9999999}", "{", "{}", "{0}", "{x} {y z}"]
)
def test_a_prompt_holds_names_of_inputs_and_nothing_else_in_braces(prompt):
    with pytest.raises(InvalidInput, match="prompt"):
        RemoteSettings(**(CHAT | {"prompt": prompt}))


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"classes": ("good", " ")}, "a class is empty"),
        ({"body": {"temperature": 1}}, "body holds 'temperature', which is set otherwise"),
        ({"body": {"stream": True}}, "body holds 'stream'"),
    ],
)
def test_what_makes_no_sense_of_chat_completions_is_refused(changed, told):
    with pytest.raises(InvalidInput, match=told):
        RemoteSettings(**(CHAT | changed))


def test_what_follows_the_path_of_a_url_is_not_shown():
    settings = RemoteSettings(**(CHAT | {"url": "https://host/v1?api-version=2026-01-01&key=secret"}))
    assert settings.shown_url == "https://host/v1"


def test_a_prompt_may_hold_braces_of_its_own():
    assert RemoteSettings(**(CHAT | {"prompt": "{{a}} {x}"})).prompt == "{{a}} {x}"


def test_the_key_comes_from_the_named_variable(monkeypatch):
    monkeypatch.setenv("THE_KEY", "abc")
    assert RemoteSettings(**V2, api_key_env="THE_KEY").key("here") == "abc"
    assert RemoteSettings(**V2).key("here") is None


@pytest.mark.parametrize("value", [None, "", "a\r\nb", "é"])
def test_a_key_that_is_not_there_or_unusable_names_its_variable_and_not_itself(monkeypatch, value):
    monkeypatch.delenv("THE_KEY", raising=False)
    if value is not None:
        monkeypatch.setenv("THE_KEY", value)
    with pytest.raises(InvalidInput, match="here: the environment variable 'THE_KEY' holds no key; set it where") as e:
        RemoteSettings(**V2, api_key_env="THE_KEY").key("here")
    assert not value or value not in str(e.value)


WITH_REMOTE = """\
operator = "pets"
samples = "samples.py:load"
[models.small]
load = "models.py:small"
[models.large.remote]
url = "https://models.example"
protocol = "v2"
model = "large"
"""


def test_a_model_of_a_project_may_be_remote(tmp_path):
    (tmp_path / "gearshift.toml").write_text(WITH_REMOTE)
    models = read_project(tmp_path / "gearshift.toml").models
    assert models["small"].remote is None
    assert models["large"].remote == RemoteSettings(url="https://models.example", protocol="v2", model="large")


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("[models.large.remote]", 'load = "a.py:b"\n[models.small.remote]', "load and remote are both given"),
        ('protocol = "v2"', 'protocol = "v3"', "v3"),
        ('model = "large"', 'model = "large"\napi_key = "secret"', "unknown field `api_key`"),
    ],
)
def test_a_wrong_declaration_names_the_file(tmp_path, old, new, told):
    path = tmp_path / "gearshift.toml"
    text = WITH_REMOTE.replace('load = "models.py:small"\n', "") if "both" in told else WITH_REMOTE
    path.write_text(text.replace(old, new))
    with pytest.raises(InvalidInput, match=told):
        read_project(path)


PIPELINES = """\
[operators.split]
function = "steps.py:split"
[operators.read.models.small]
load = "models.py:small"
[operators.read.models.large]
load = "models.py:large"
[operators.join]
function = "steps.py:join"

[pipelines.digits]
output = "join"
samples = "samples.py:load"
edges = [{from = "split", to = "read"}, {from = "read", to = "join"}]
[pipelines.digits.nodes.split]
operator = "split"
inputs = {strip = "strip"}
[pipelines.digits.nodes.read]
operator = "read"
inputs = {image = "split.parts"}
fan_out = {per_row = "split.parts", most = 8}
[pipelines.digits.nodes.join]
operator = "join"
inputs = {labels = "read.label"}
fan_in = true
"""


def test_operators_and_pipelines_are_read(tmp_path: Path) -> None:
    project = read_project(write(tmp_path, PIPELINES))
    assert list(project.models) == ["split", "small", "large", "join"]
    assert project.operator_with("large") is project.operators["read"]
    assert list(project.served) == ["digits"]
    assert project.pipelines["digits"].nodes["join"].fan_in


def test_an_operator_that_no_pipeline_uses_is_a_pipeline_of_one_node(tmp_path: Path) -> None:
    other = '[operators.spam]\nsamples = "spam.py:load"\n[operators.spam.models.rules]\nload = "spam.py:rules"\n'
    served = read_project(write(tmp_path, PIPELINES + other)).served
    assert list(served) == ["digits", "spam"]
    assert (served["spam"].output, list(served["spam"].nodes)) == ("spam", ["spam"])


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            'edges = [{from = "split", to = "read"}',
            'edges = [{from = "join", to = "split"}, {from = "split", to = "read"}',
            r"pipelines.digits: the nodes .*split > read > join.* form a cycle",
        ),
        (
            'operator = "read"\n',
            'operator = "reader"\n',
            r"node 'read' names operator 'reader', which is not there; use one of split, read, join, or add "
            r"\[operators.reader\]",
        ),
        (
            ', {from = "read", to = "join"}]',
            "]",
            r"pipelines.digits: nodes \['read', 'split'\] do not lead to the output 'join'; leave them out, or add",
        ),
        (
            'edges = [{from = "split", to = "read"}, ',
            "edges = [",
            "node 'read' takes 'split.parts', and no node 'split' comes before it|do not lead to the output",
        ),
        ('output = "join"', 'output = "sum"', "the output is node 'sum', which the pipeline does not have"),
        ('output = "join"', 'output = ["join", "read"]', r"Expected `str`, got `array` - at `\$.pipelines"),
        ("models.large]", "models.split]", "operators 'split' and 'read' both have a model 'split'; give one of them"),
        ("pipelines.digits", "pipelines.read", "pipelines.read: the pipeline has the name of an operator that it is"),
        (
            '[operators.split]\n',
            '[operators.split]\nsamples = "s.py:s"\n',
            "operators.split: it has samples, and gets its items from pipeline 'digits'; leave its samples out",
        ),
        (
            'samples = "samples.py:load"\n',
            "",
            "operators.split: neither it nor pipeline 'digits' has samples; add samples",
        ),
        (
            '[operators.split]\n',
            '[operators.split.models.a]\nload = "a.py:a"\n[operators.split]\n',
            "function and models are both given; give one of them",
        ),
        ('[operators.split]\nfunction = "steps.py:split"', "[operators.split]", "there are no models; .*or name a"),
        ("steps.py:split", "split", "function is 'split'; write it as file.py:function"),
        ("most = 8", "most = 0", "fan-out over 'split.parts' has most 0, needs at least 1"),
        ("fan_in = true\n", "", "the output node 'join' runs for each row of a fan-out; give it fan_in"),
        ("[operators.join]", "[operators.'joi n']", "operator is 'joi n'; use up to 64 letters"),
    ],
)  # fmt: skip
def test_a_wrong_pipeline_is_told_in_a_sentence(tmp_path: Path, old: str, new: str, told: str) -> None:
    assert old in PIPELINES
    path = write(tmp_path, PIPELINES.replace(old, new))
    with pytest.raises(InvalidInput, match=told) as caught:
        read_project(path)
    assert str(caught.value).startswith(str(path))


def test_a_pipeline_named_like_another_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="digits"):
        read_project(write(tmp_path, PIPELINES + '[pipelines.digits]\noutput = "join"\n'))


def test_a_pipeline_of_one_node_may_be_named_like_its_operator(tmp_path: Path) -> None:
    text = PIPELINES + '[pipelines.read]\noutput = "read"\nsamples = "s.py:s"\n[pipelines.read.nodes.read]\n'
    assert list(read_project(write(tmp_path, text + 'operator = "read"\n')).served) == ["digits", "read"]


def test_pipelines_without_samples_take_those_of_their_operators(tmp_path: Path) -> None:
    text = PIPELINES.replace('samples = "samples.py:load"\n', "")
    for name in ("split", "read", "join"):
        head = f"[operators.{name}]\n"
        text = text.replace(head, "") if name != "read" else text
        text += "" if name != "read" else f'{head}samples = "s.py:s"\n'
        text = text.replace(f'function = "steps.py:{name}"', f'{head}samples = "s.py:s"\nfunction = "steps.py:{name}"')
    assert read_project(write(tmp_path, text)).served["digits"].samples == ""
