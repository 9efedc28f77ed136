"""One row that a model takes, from the model itself or as JSON, where there are no samples."""

from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from gearshift.errors import GearshiftError, InvalidInput, ModelFailed, require
from gearshift.models.config import project_file, read_project
from gearshift.models.loading import load_model
from gearshift.models.samples import DEFAULT_INPUT
from gearshift.models.user_model import fitted_columns
from gearshift.support.decoding import UNREADABLE, why_unreadable

Row = dict[str, NDArray[Any]]
GIVE_ONE = "give one record that it takes with --example, such as --example '[1.5, 2.0]', or samples with --samples"


def example_of_json(text: str) -> Row:
    """Arrays (1, ...) by name of one record: an object by input, or the only input's value.

    Fractions become 32-bit floats, whole numbers 64-bit ones. Raises `InvalidInput` for what is no
    record.
    """
    where = "--example"
    try:
        record = msgspec.json.decode(text)
    except UNREADABLE as error:
        raise InvalidInput(
            f"is no JSON: {why_unreadable(error)}", where=where, remedy="give an object, a list or a number"
        ) from None
    named = record if isinstance(record, dict) else {DEFAULT_INPUT: record}
    require(bool(named), "has no inputs", where=where, remedy="give a value for each input")
    return {name: _column(value, f"{where}, field {name!r}") for name, value in named.items()}


def _column(value: Any, where: str) -> NDArray[Any]:
    try:
        array = np.asarray([value])
    except ValueError:
        array = np.asarray([None])
    kinds = {"f": np.float32, "i": np.int64, "b": np.bool_, "U": np.object_}
    usable = array.dtype.kind in kinds and 0 not in array.shape
    require(usable, f"is {value!r:.60}", where=where, remedy="give numbers or text, in lists of equal lengths")
    return array.astype(kinds[array.dtype.kind])


def example_of_model(project_path: Path, model: str) -> Row:
    """A row of what a model says that it takes; it is loaded for this, in a process of its own.

    Raises `InvalidInput` where it does not say, and as `load_model` does.
    """
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as child:
        try:
            row, failed = child.submit(_asked, project_path, model).result()
        except BrokenProcessPool:
            raise ModelFailed(f"model {model!r} ended the process that loaded it") from None
    if failed:
        raise ModelFailed(failed)
    if row is None:
        raise InvalidInput("does not say what it takes", where=f"model {model!r}", remedy=GIVE_ONE)
    return row


def _asked(project_path: Path, model: str) -> tuple[Row | None, str]:
    try:
        project = read_project(project_file(project_path))
        loaded = load_model(project, project_path.parent, model).model
    except GearshiftError as error:
        return None, str(error)
    try:
        return taken_by(loaded), ""
    except Exception as error:  # noqa: BLE001  the model's own code
        return None, f"model {model!r} does not say what it takes ({' '.join(str(error).split())}); {GIVE_ONE}"


def taken_by(model: Any) -> Row | None:
    """A row (1, ...) by input of a model that says what it takes: an ONNX file or an estimator.

    Other models may have `example()`, which returns such arrays.
    """
    if hasattr(model, "example"):
        given = model.example()
        rows = given if isinstance(given, Mapping) else {DEFAULT_INPUT: given}
        return {str(name): np.asarray(value) for name, value in rows.items()}
    columns = fitted_columns(model)
    if columns is not None:
        return {column: np.zeros(1) for column in columns}
    count = getattr(model, "n_features_in_", None)
    return None if count is None else {DEFAULT_INPUT: np.zeros((1, int(count)))}
