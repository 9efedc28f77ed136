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

    Columns of its signature are given as a data frame, in their order and types. One that it calls optional may be
    missing in a row, or left out.
    """

    def __init__(self, loaded: Any, pandas: Any) -> None:
        self._loaded, self._pandas = loaded, pandas
        raw = _raw(loaded)
        self._by_mlflow = not hasattr(raw, "predict_proba")
        self._predict = loaded.predict if self._by_mlflow else raw.predict_proba
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
        lacking = [str(one.name) for one in self._columns if one.name not in inputs and not _optional(one)]
        if lacking:
            raise ValueError(f"its signature has a column {lacking[0]!r}, and the inputs are {', '.join(inputs)}")
        given = [one for one in self._columns if one.name in inputs]
        return self._pandas.DataFrame({one.name: _as(inputs[one.name], one.type.to_pandas()) for one in given})

    def predict(self, batch: Any) -> Any:
        answer = self._predicted(batch) if self._columns and self._by_mlflow else self._predict(batch)
        if not isinstance(answer, self._pandas.DataFrame) or answer.shape[1] < SEVERAL:
            return answer
        of_classes = not NAMED & set(answer.columns) and all(kind.kind in "fiu" for kind in answer.dtypes)
        return answer.to_numpy() if of_classes else answer  # a column of scores for each class

    def _predicted(self, frame: Any) -> Any:
        """MLflow takes no column of whole numbers in which some are missing: rows go without those that they lack."""
        whole = [one.name for one in self._columns if _optional(one) and one.name in frame and _is_whole(one)]
        lacks = {name: frame[name].isna().to_numpy() for name in whole}
        lacks = {name: rows for name, rows in lacks.items() if rows.any()}
        if not lacks:
            return self._predict(frame)
        kinds, kind_of_row = np.unique(np.stack(list(lacks.values()), axis=1), axis=0, return_inverse=True)
        order, answers = [], []
        for number, without in enumerate(kinds):
            rows = np.flatnonzero(kind_of_row.reshape(-1) == number)
            part = frame.iloc[rows].drop(
                columns=[name for name, left_out in zip(lacks, without, strict=True) if left_out]
            )
            types = {one.name: one.type.to_pandas() for one in self._columns if one.name in lacks and one.name in part}
            answers.append(self._predict(part.reset_index(drop=True).astype(types)))
            order.append(rows)
        back = np.argsort(np.concatenate(order))
        if all(isinstance(answer, self._pandas.DataFrame | self._pandas.Series) for answer in answers):
            return self._pandas.concat(answers, ignore_index=True).iloc[back].reset_index(drop=True)
        return np.concatenate([np.asarray(answer) for answer in answers])[back]

    def example(self) -> dict[str, NDArray[Any]]:
        """A row of zeros or texts, by the signature; optional columns are missing, so that they may be."""
        if self._schema is None:
            raise ValueError("it has no signature")
        if not self._columns:
            tensors = self._schema.inputs
            return {
                str(one.name or "input"): np.zeros((1, *(abs(size) for size in one.shape[1:])), one.type)
                for one in tensors
            }
        return {str(one.name): _example(one) for one in self._columns if not _optional(one) or _can_lack(one)}

    def _names(self) -> list[Any]:
        return [one.name for one in self._columns]


def _optional(column: Any) -> bool:
    return not getattr(column, "required", True)  # before 2.9 there was no such word


def _is_whole(column: Any) -> bool:
    return getattr(column.type, "name", "") in ("integer", "long")


def _can_lack(column: Any) -> bool:
    """Whether a tensor can hold it with some missing; times, lists and objects cannot be sent, and are left out."""
    return _is_whole(column) or getattr(column.type, "name", "") in ("string", "binary", "float", "double", "boolean")


def _example(column: Any) -> NDArray[Any]:
    text = column.type.name in ("string", "binary")
    if _optional(column):  # a fraction is the only number that can be missing
        return (
            np.array([None], object)
            if text
            else np.full(1, np.nan, np.float32 if column.type.name == "float" else float)
        )
    return np.array(["text"], object) if column.type.name == "string" else np.zeros(1, column.type.to_numpy())


def _as(array: NDArray[Any], dtype: Any) -> NDArray[Any]:
    """An array of the column's type, where it can hold the values: no whole number can be missing."""
    kind = np.dtype(dtype).kind
    if array.dtype.kind == "O" or kind == "O":
        return array
    if kind in "iub" and array.dtype.kind == "f":
        missing = np.isnan(array)
        if missing.any() and kind == "b":
            return np.array([None if lacks else bool(one) for one, lacks in zip(array, missing, strict=True)], object)
        if missing.any() or (array != np.floor(array)).any():
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
