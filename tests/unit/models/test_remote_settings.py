import pytest

from gearshift.errors import InvalidInput
from gearshift.models.config import read_project
from gearshift.models.remote_settings import RemoteSettings

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


PROJECT = """\
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
    (tmp_path / "gearshift.toml").write_text(PROJECT)
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
    text = PROJECT.replace('load = "models.py:small"\n', "") if "both" in told else PROJECT
    path.write_text(text.replace(old, new))
    with pytest.raises(InvalidInput, match=told):
        read_project(path)
