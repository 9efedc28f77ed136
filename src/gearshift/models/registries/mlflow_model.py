"""Models that MLflow logged, from a folder or its registry, as models here."""

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gearshift.errors import InvalidInput
from gearshift.model import Arrays
from gearshift.support.extras import load_extra

MLMODEL = "MLmodel"
_URI_MARK = ":/"
SEVERAL = 2
MOST_SAID = 500
NAMED = {"label", "certainty", "scores"}


class MlflowModel:
    """A model of MLflow; one with `predict_proba` answers by it, others by MLflow's own `predict`.

    Columns of its signature are given as a data frame, in their order and types.
    """

    def __init__(self, loaded: Any, pandas: Any) -> None:
        self._loaded, self._pandas = loaded, pandas
        raw = _raw(loaded)
        self._predict = raw.predict_proba if hasattr(raw, "predict_proba") else loaded.predict
        if hasattr(raw, "predict_proba"):
            self.classes_ = raw.classes_
        self._schema = loaded.metadata.get_input_schema()
        self._columns = [] if self._schema is None or self._schema.is_tensor_spec() else self._schema.inputs

    def decode(self, inputs: Arrays) -> Any:
        """The data frame of the signature's columns; without these, the array, or arrays by name."""
        if not self._columns:
            return next(iter(inputs.values())) if len(inputs) == 1 else dict(inputs)
        if len(inputs) == 1 and next(iter(inputs)) not in self._names():
            return self._pandas.DataFrame(next(iter(inputs.values())), columns=self._names())
        lacking = [str(name) for name in self._names() if name not in inputs]
        if lacking:
            raise ValueError(f"its signature has a column {lacking[0]!r}, and the inputs are {', '.join(inputs)}")
        return self._pandas.DataFrame({one.name: _as(inputs[one.name], one.type.to_pandas()) for one in self._columns})

    def predict(self, batch: Any) -> Any:
        answer = self._predict(batch)
        if not isinstance(answer, self._pandas.DataFrame) or answer.shape[1] < SEVERAL:
            return answer
        of_classes = not NAMED & set(answer.columns) and all(kind.kind in "fiu" for kind in answer.dtypes)
        return answer.to_numpy() if of_classes else answer  # a column of scores for each class

    def example(self) -> dict[str, NDArray[Any]]:
        """A row of zeros or texts, by the signature."""
        if self._schema is None:
            raise ValueError("it has no signature")
        if not self._columns:
            tensors = self._schema.inputs
            return {
                str(one.name or "input"): np.zeros((1, *(abs(size) for size in one.shape[1:])), one.type)
                for one in tensors
            }
        return {
            str(one.name): np.array(["text"], object) if one.type.name == "string" else np.zeros(1, one.type.to_numpy())
            for one in self._columns
        }

    def _names(self) -> list[Any]:
        return [one.name for one in self._columns]


def _as(array: NDArray[Any], dtype: Any) -> NDArray[Any]:
    """Whole numbers in which some are missing stay fractions."""
    kind = np.dtype(dtype).kind
    if array.dtype.kind == "O" or kind == "O" or (kind in "iub" and array.dtype.kind == "f" and np.isnan(array).any()):
        return array
    return array.astype(dtype)


def _raw(loaded: Any) -> Any:
    try:
        return loaded.get_raw_model()
    except Exception:  # noqa: BLE001 - not all flavours have one
        return None


def open_mlflow(reference: str, directory: Path, *, where: str) -> MlflowModel:
    """Load `reference`: a folder with MLmodel, relative to `directory`, or a URI such as models:/name/1.

    Raises `InvalidInput` where mlflow or pandas is not installed, or the model cannot be loaded.
    """
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    pyfunc = load_extra("mlflow.pyfunc", extra="mlflow", where=where)
    pandas = load_extra("pandas", extra="mlflow", where=where)
    place = reference
    if _URI_MARK not in reference:
        folder = directory / reference
        if not (folder / MLMODEL).is_file():
            raise InvalidInput(
                f"there is no {MLMODEL} in {folder}", where=where, remedy="name a folder that MLflow wrote"
            )
        place = str(folder)
    try:
        return MlflowModel(pyfunc.load_model(place), pandas)
    except Exception as error:
        raise InvalidInput(
            f"MLflow cannot load {reference} ({' '.join(str(error).split())[:MOST_SAID]})",
            where=where,
            remedy="check the name, MLFLOW_TRACKING_URI, and that what the model needs is installed",
        ) from error
