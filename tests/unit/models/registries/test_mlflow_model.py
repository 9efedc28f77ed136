"""Real models that MLflow wrote, loaded through a project."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gearshift.errors import InvalidInput
from gearshift.models.config import read_project
from gearshift.models.loading import load_model
from gearshift.models.registries.mlflow_model import open_mlflow
from gearshift.models.user_model import UserModel

PROJECT = 'operator = "t"\nsamples = "m.py:samples"\n[models.m]\nload = "mlflow:{place}"\n'
CELLS = {"age": np.array([20.0, 60.0]), "height": np.array([1.5, 1.9])}


@pytest.fixture(scope="module")
def libraries() -> tuple[Any, Any]:
    pytest.importorskip("mlflow.pyfunc")
    return pytest.importorskip("mlflow.sklearn"), pytest.importorskip("pandas")


@pytest.fixture(scope="module")
def folder(libraries: tuple[Any, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    from mlflow.models import infer_signature
    from sklearn.linear_model import LogisticRegression

    flavour, pandas = libraries
    frame = pandas.DataFrame({name: np.tile(values, 20) for name, values in CELLS.items()})
    model = LogisticRegression().fit(frame, np.tile(["young", "old"], 20))
    path: Path = tmp_path_factory.mktemp("mlflow")
    flavour.save_model(model, str(path / "model"), signature=infer_signature(frame), serialization_format="cloudpickle")
    return path


def loaded(folder: Path) -> UserModel:
    (folder / "gearshift.toml").write_text(PROJECT.format(place="model"))
    return load_model(read_project(folder / "gearshift.toml"), folder, "m")


@pytest.mark.long
def test_an_estimator_answers_probabilities_of_its_classes(folder: Path) -> None:
    model = loaded(folder)
    answer = model.run(CELLS)
    assert model.classes == ("old", "young")
    assert answer.outputs["label"].tolist() == ["young", "old"]
    assert answer.outputs["scores"].shape == (2, 2)


@pytest.mark.long
def test_an_array_is_taken_as_the_columns_of_the_signature(folder: Path) -> None:
    answer = loaded(folder).run({"input": np.stack(list(CELLS.values()), axis=1)})
    assert answer.outputs["label"].tolist() == ["young", "old"]


@pytest.mark.long
def test_the_signature_is_the_example(folder: Path) -> None:
    row = loaded(folder).model.example()
    assert {name: (str(array.dtype), array.shape) for name, array in row.items()} == {
        "age": ("float64", (1,)),
        "height": ("float64", (1,)),
    }


@pytest.mark.long
def test_a_folder_without_a_model_is_refused(libraries: tuple[Any, Any], tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"field load: there is no MLmodel in .*nowhere; name a folder that MLflow"):
        open_mlflow("nowhere", tmp_path, where="field load")


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(__import__("sys").modules, "mlflow.pyfunc", None)
    with pytest.raises(InvalidInput, match=r"pip install 'gearshift\[mlflow\]'"):
        open_mlflow("models:/none/1", tmp_path, where="field load")
