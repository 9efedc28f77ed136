from pathlib import Path

import pytest

from gearshift.errors import InvalidInput
from gearshift.verbs.quick.sources import models_at

TWO = """
def load_small(): ...
def load_large(retries=3): ...
def load_samples(): ...
def load_from(path): ...
def helper(): ...
"""


def written(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    return folder


def test_a_function_of_a_file_is_one_model_named_by_it(tmp_path: Path) -> None:
    found = models_at(f"{written(tmp_path, models=TWO)}/models.py:load_small")
    assert found is not None
    assert (found.name, found.models) == ("small", {"small": f"{tmp_path}/models.py:load_small"})


def test_a_plain_loader_has_the_name_of_its_file(tmp_path: Path) -> None:
    found = models_at(f"{written(tmp_path, spam='def load(): ...')}/spam.py:load")
    assert found is not None
    assert found.name == "spam"


def test_a_file_gives_all_loaders_without_arguments_and_its_samples(tmp_path: Path) -> None:
    found = models_at(written(tmp_path, models=TWO) / "models.py")
    assert found is not None
    assert list(found.models) == ["small", "large"]
    assert found.samples == f"{tmp_path}/models.py:load_samples"


def test_a_folder_gives_its_onnx_files_and_loaders(tmp_path: Path) -> None:
    written(tmp_path, models="def load_small(): ...")
    (tmp_path / "big model.onnx").write_bytes(b"")
    found = models_at(tmp_path)
    assert found is not None
    assert list(found.models) == ["big-model", "small"]


def test_a_folder_with_a_project_is_that_project(tmp_path: Path) -> None:
    (written(tmp_path, models=TWO) / "gearshift.toml").write_text("")
    found = models_at(tmp_path)
    assert found is not None
    assert found.project == tmp_path / "gearshift.toml"


def test_a_folder_with_plans_is_a_folder_of_plans(tmp_path: Path) -> None:
    (written(tmp_path, models=TWO) / "plan-000.json").write_text("{}")
    assert models_at(tmp_path) is None


@pytest.mark.parametrize("name", ["plan.json", "plan", "nowhere/plan.json"])
def test_other_names_are_those_of_plans(tmp_path: Path, name: str) -> None:
    assert models_at(tmp_path / name) is None


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("models.py:load_medium", "has no function 'load_medium', but load_small, load_large, helper"),
        ("models.py:load_from", "has no function 'load_from'"),
        ("none.py:load", "there is no such file"),
        ("none.py", "no such file"),
        ("empty", "in it, and no model"),
        ("broken.py", "is no Python"),
        ("twice", "has two models of the name 'small'"),
    ],
)
def test_what_is_no_model_is_refused_with_a_sentence(tmp_path: Path, source: str, told: str) -> None:
    written(tmp_path, models=TWO, broken="def load(:")
    (tmp_path / "empty").mkdir()
    (tmp_path / "twice").mkdir()
    written(tmp_path / "twice", a="def load_small(): ...", b="def load_small(): ...")
    with pytest.raises(InvalidInput, match=told):
        models_at(tmp_path / source)


def test_a_file_is_looked_at_without_running_it(tmp_path: Path) -> None:
    assert models_at(written(tmp_path, models="def load(): ...\nraise SystemExit") / "models.py") is not None


@pytest.mark.parametrize(
    ("source", "name", "load"),
    [
        ("models:/wine/1", "wine", "mlflow:models:/wine/1"),
        ("models:/wine@champion", "wine", "mlflow:models:/wine@champion"),
        ("mlflow:models:/wine/1", "wine", "mlflow:models:/wine/1"),
        ("mlflow:/at/wine", "wine", "mlflow:/at/wine"),
        ("huggingface:/at/my model", "my-model", "huggingface:/at/my model"),
    ],
)
def test_models_of_registries_are_named_by_their_place(source: str, name: str, load: str) -> None:
    found = models_at(source)
    assert found is not None
    assert found.models == {name: load}


def test_folders_of_registries_are_known_by_their_files(tmp_path: Path) -> None:
    for folder, file in (("wine", "MLmodel"), ("mood", "config.json"), ("other", "notes.txt")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / file).write_text("")
    found, one = models_at(tmp_path), models_at(tmp_path / "mood")
    assert found is not None
    assert one is not None
    assert found.models == {"mood": f"huggingface:{tmp_path}/mood", "wine": f"mlflow:{tmp_path}/wine"}
    assert one.models == {"mood": f"huggingface:{tmp_path}/mood"}
