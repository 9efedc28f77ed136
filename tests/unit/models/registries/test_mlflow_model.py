"""Real models that MLflow wrote, loaded through a project."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gearshift.errors import InvalidInput
from gearshift.model import spec_of
from gearshift.models.config import read_project
from gearshift.models.loading import load_model
from gearshift.models.registries.mlflow_model import MlflowModel, open_mlflow
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


@pytest.fixture(scope="module")
def optional(libraries: tuple[Any, Any], tmp_path_factory: pytest.TempPathFactory) -> MlflowModel:
    """Tells which values of each row it saw; MLflow itself checks what it is given."""
    import mlflow.pyfunc
    from mlflow.models.signature import ModelSignature
    from mlflow.types.schema import ColSpec, Schema

    _, pandas = libraries

    class Seen(mlflow.pyfunc.PythonModel):
        def predict(self, context: Any, model_input: Any, params: Any = None) -> Any:
            cells = model_input.astype(object).where(model_input.notna(), None)
            label = [
                " ".join(f"{name}={value}" for name, value in row.items() if value is not None)
                for row in cells.to_dict("records")
            ]
            return pandas.DataFrame({"label": label, "certainty": 1.0})

    columns = [ColSpec("double", "age")]
    columns += [
        ColSpec(kind, kind, required=False) for kind in ("long", "integer", "float", "string", "boolean", "datetime")
    ]
    folder = tmp_path_factory.mktemp("optional")
    signature = ModelSignature(inputs=Schema(columns))
    with warnings.catch_warnings(action="ignore"):  # it asks for an example
        mlflow.pyfunc.save_model(str(folder / "model"), python_model=Seen(), signature=signature)
    return open_mlflow("model", folder, where="field load")


@pytest.mark.long
def test_optional_columns_may_be_missing_in_the_example(optional: MlflowModel) -> None:
    specs = {name: spec_of(name, array) for name, array in optional.example().items()}
    assert {name: (spec.datatype, spec.missing) for name, spec in specs.items()} == {
        "age": ("FP64", False),
        "long": ("FP64", True),
        "integer": ("FP64", True),
        "float": ("FP32", True),
        "string": ("BYTES", True),
        "boolean": ("FP64", True),
    }


@pytest.mark.long
def test_each_row_has_the_optional_values_that_it_came_with(optional: MlflowModel) -> None:
    nan = np.nan
    inputs = {
        "age": np.array([1.0, 2.0, 3.0, 4.0]),
        "long": np.array([nan, 7.0, nan, 8.0]),
        "integer": np.array([5.0, 6.0, nan, nan]),
        "float": np.array([0.5, nan, nan, 0.25], np.float32),
        "string": np.array([None, "a", None, "b"], object),
        "boolean": np.array([1.0, nan, nan, 0.0]),
    }
    assert optional.predict(optional.decode(inputs))["label"].tolist() == [
        "age=1.0 integer=5 float=0.5 boolean=True",
        "age=2.0 long=7 integer=6 string=a",
        "age=3.0",
        "age=4.0 long=8 float=0.25 string=b boolean=False",
    ]
    assert optional.predict(optional.decode({"age": np.array([9.0])}))["label"].tolist() == ["age=9.0"]
    with pytest.raises(ValueError, match="its signature has a column 'age', and the inputs are long"):
        optional.decode({"long": np.array([1.0])})


@pytest.mark.long
def test_a_folder_without_a_model_is_refused(libraries: tuple[Any, Any], tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"field load: there is no MLmodel in .*nowhere; name a folder that MLflow"):
        open_mlflow("nowhere", tmp_path, where="field load")


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(__import__("sys").modules, "mlflow.pyfunc", None)
    with pytest.raises(InvalidInput, match=r"pip install 'gearshift\[mlflow\]'"):
        open_mlflow("models:/none/1", tmp_path, where="field load")
