from pathlib import Path

import pytest

from gearshift.runtime.workers.worker_process import worker_variables

PROJECT = """
operator = "task"
samples = "task.py:samples"
[models.here]
load = "task.py:here"
environment = ["HF_TOKEN"]
[models.there]
remote = {url = "https://models.example", protocol = "v2", model = "m", api_key_env = "NAME_OF_NOTHING_SECRET_IN_IT"}
[models.elsewhere]
remote = {url = "https://models.example", protocol = "v2", model = "m", api_key_env = "MODELS_KEY"}
"""
HARMLESS = {
    "PATH": "/bin", "HOME": "/root", "MODEL_DIR": "/srv", "TOKENIZERS_PARALLELISM": "false",
    "CUDA_VISIBLE_DEVICES": "0",
    "KEYBOARD": "us", "AUTHOR": "me", "PWD": "/srv",
}  # fmt: skip
SECRETS = {
    "MODELS_KEY": "1", "NAME_OF_NOTHING_SECRET_IN_IT": "2", "HF_TOKEN": "3", "AWS_SECRET_ACCESS_KEY": "4",
    "AWS_ACCESS_KEY_ID": "5", "DB_PASSWORD": "6", "PGPASSWORD": "7", "OPENAI_API_KEY": "8", "API_KEY_2": "9",
    "OTEL_EXPORTER_OTLP_HEADERS": "10", "GEARSHIFT_SERVE_API_KEYS": "/keys", "CREDENTIALS_DIRECTORY": "/run",
    "my_token": "11",
}  # fmt: skip


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "gearshift.toml").write_text(PROJECT)
    return tmp_path / "gearshift.toml"


@pytest.mark.parametrize(
    ("models", "needed"),
    [
        ([], set()),
        (["here"], {"HF_TOKEN"}),
        (["there"], {"NAME_OF_NOTHING_SECRET_IN_IT"}),
        (["here", "elsewhere", "nowhere"], {"HF_TOKEN", "MODELS_KEY"}),
    ],
)
def test_a_worker_gets_of_the_secrets_only_those_that_its_models_name(project, models, needed):
    given = worker_variables(HARMLESS | SECRETS, [project], models)
    assert given == HARMLESS | {name: SECRETS[name] for name in needed}


def test_without_a_project_that_can_be_read_no_secret_is_given(tmp_path):
    environment = HARMLESS | {"MODELS_KEY": "1"}
    assert worker_variables(environment, [tmp_path / "gearshift.toml"], ["here"]) == HARMLESS
