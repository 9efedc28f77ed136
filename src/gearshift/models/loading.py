"""A user's models and samples: loaded from files, run on arrays, and checked."""

import hashlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gearshift.errors import GearshiftError, InvalidInput, ModelFailed, printable, require
from gearshift.model import LABEL, SCORES, Arrays, Predicted, datatype_of, in_own_order
from gearshift.models.certainty import BUILT_IN, OF_CLASSES, CertaintyFunction, softmax
from gearshift.models.classes import class_names
from gearshift.models.config import PROJECT_FILE, Project
from gearshift.models.declared_outputs import EVERY_OUTPUT, DeclaredOutputs
from gearshift.models.onnx_file import open_onnx_file
from gearshift.models.torch_module import is_module, placed

DEFAULT_INPUT = "input"
CERTAINTY = "certainty"
EXIT_SEGMENT = "exit_segment"
NAMES_OF_SCORES = (SCORES, "probabilities", "probability", "output_probability", "logits")
NAMES_OF_LABELS = (LABEL, "output_label")
"""Names that exporters use for the outputs called scores and label here."""
ONE_TARGET = "an operator answers one label per row: serve one for each target, or make one class of each combination"
REGRESSION = (
    "a regression is not judged here: make classes of its values, or plan from records of how good each answer is"
)
MOST_FRACTIONS = 20
"""Up to this many different fractions, such as half stars, are classes even in few samples."""
_USER_MODULE = "gearshift_user_"
_LONGEST_MESSAGE = 500


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """Samples on which a task's models are measured: named inputs of n rows, labels, and groups.

    `inputs` is a mapping of arrays, one array (then named "input"), or a data frame whose columns
    are the inputs. NaN in an input of fractions is a missing value; models must accept it.
    `labels` (n,) are compared with the models' output `label`. Samples that share a value of
    `groups` (n,), such as the frames of one video, stay in the same part when samples are split in
    two. Lists become arrays. Raises `InvalidInput` for lengths that differ, fewer than two rows,
    and unusable values.
    """

    inputs: Mapping[str, NDArray[Any]] | NDArray[Any]
    labels: NDArray[Any] | None = None
    groups: NDArray[Any] | None = None

    def __post_init__(self) -> None:
        named = _by_name(self.inputs)
        require(len(named) >= 1, "there are no inputs", where="samples", remedy="give at least one array")
        arrays = {str(name): _sample_array(f"input {name!r}", value, missing=True) for name, value in named.items()}
        object.__setattr__(self, "inputs", arrays)
        name, first = next(iter(arrays.items()))
        n = len(first)
        require(n >= 2, f"there are {n} rows, needs at least 2", where="samples", remedy="give more, better thousands")
        beside = {f"input {name!r}": array for name, array in arrays.items()}
        for what in ("labels", "groups"):
            if getattr(self, what) is not None:
                array = _sample_array(what, getattr(self, what))
                one_each = f"{what} have shape {array.shape}, needs one value per row"
                require(
                    array.ndim == 1, one_each, where="samples", remedy=f"give a one-dimensional array; {ONE_TARGET}"
                )
                object.__setattr__(self, what, array)
                beside[what] = array
        for what, array in beside.items():
            unequal = f"{what} has {len(array)} rows, but input {name!r} has {n}"
            require(len(array) == n, unequal, where="samples", remedy="give one row of each per sample")

    def __len__(self) -> int:
        return len(next(iter(self.arrays.values())))

    @property
    def arrays(self) -> Arrays:
        return self.inputs if isinstance(self.inputs, Mapping) else {DEFAULT_INPUT: self.inputs}

    def batch(self, rows: NDArray[np.integer[Any]] | slice) -> dict[str, NDArray[Any]]:
        return {name: array[rows] for name, array in self.arrays.items()}


@dataclass(frozen=True, slots=True)
class RunnableModel:
    """A user's model behind one call, whatever type its loader returned.

    `model` is an estimator (`predict_proba`), an object with `predict`, or a function; see
    `gearshift.model.Model`. `certainty` is used where the model returns scores only; with
    `softmax`, scores are made probabilities first. Answers are converted to the `declared`
    outputs. `names` maps the model's output names to the names used here, and other outputs are
    left out; without it, outputs keep their names.
    """

    name: str
    model: Any
    certainty: CertaintyFunction
    softmax: bool = False
    declared: DeclaredOutputs = EVERY_OUTPUT
    names: Mapping[str, str] = field(default_factory=dict)

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names by column of the scores; empty where the model has none."""
        if hasattr(self.model, "encode") or not hasattr(self.model, "classes_"):
            return ()
        try:
            known = np.asarray(self.model.classes_)
        except ValueError:  # classes of several targets
            return ()
        return tuple(class_names(known).tolist()) if known.ndim == 1 else ()

    def run(self, inputs: Arrays) -> Predicted:
        """Run the model on n rows; a row's certainty may be NaN.

        Raises `ModelFailed` where the user's code raises, or does not return n rows of outputs and
        a certainty (n,).
        """
        batch = self._decoded(inputs)
        try:
            answer = self._call(_method_of(self.model), _function_of(self.model), batch)
        except ModelFailed as error:
            if not (isinstance(batch, dict) and hasattr(self.model, "predict_proba")):
                raise
            remedy = (
                f"the estimator was given the inputs {', '.join(map(repr, batch))} by name: fit it on a data frame of "
                "these columns, give the samples as one array, or give it a `decode` that makes of them what it takes"
            )
            raise ModelFailed(f"{error}; {remedy}") from error.__cause__
        return self._predicted(answer, len(next(iter(inputs.values()))))

    def _predicted(self, answer: Any, n: int) -> Predicted:
        if isinstance(answer, Predicted):
            checked = self._checked(answer.outputs, answer.certainty, n)
            exits = self._exits(answer.exit_segment, n)
            return replace(checked, failure=answer.failure, exit_segment=exits, unusable=self._unusable(answer, n))
        if isinstance(answer, tuple):
            if len(answer) != 2:
                raise self._refused(f"answered a tuple of {len(answer)}", "answer (outputs, certainty)")
            outputs, certainty = answer
            return self._checked(self._outputs(outputs, n), certainty, n)
        if isinstance(answer, Mapping):
            outputs = self._named(answer)
            exits = self._exits(outputs.pop(EXIT_SEGMENT, None), n)
            return replace(self._checked(*self._judged(outputs, n), n), exit_segment=exits)
        scores = self._scores(answer, n)
        return self._checked(self._encoded(scores), self._certainty_of(scores), n)

    def _decoded(self, inputs: Arrays) -> Any:
        if hasattr(self.model, "decode"):
            return self._call("decode", self.model.decode, dict(inputs))
        columns = getattr(self.model, "feature_names_in_", None)
        if columns is not None and any(str(column) in inputs for column in columns):
            return self._frame([str(column) for column in columns], inputs)
        return next(iter(inputs.values())) if len(inputs) == 1 else dict(inputs)

    def _frame(self, columns: list[str], inputs: Arrays) -> Any:
        missing = [column for column in columns if column not in inputs]
        if missing:
            raise self._refused(
                f"was fitted on a column {missing[0]!r}, but the inputs are {', '.join(map(repr, inputs))}",
                "name the samples' inputs as the columns are",
            )
        try:
            import pandas
        except ImportError:
            raise self._refused("was fitted on a data frame, and pandas is not installed", "install it") from None
        return self._call("its columns", pandas.DataFrame, {column: inputs[column] for column in columns})

    def _judged(self, outputs: dict[str, Any], n: int) -> tuple[Arrays, Any]:
        if CERTAINTY in outputs:
            certainty = outputs.pop(CERTAINTY)
            return outputs, certainty
        name = next((name for name in NAMES_OF_SCORES if name in outputs), None)
        if name is None:
            raise self._refused(
                f"answered outputs {', '.join(map(repr, outputs))} without a certainty",
                "answer (outputs, certainty), or one of them as 'certainty' or 'scores', or say what each is in "
                f"[models.{self.name}.outputs]",
            )
        scores = self._scores(outputs.pop(name), n)
        made = {SCORES: scores} if LABEL in outputs else self._encoded(scores)
        return {**made, **outputs}, self._certainty_of(scores)

    def _named(self, answer: Mapping[Any, Any]) -> dict[str, Any]:
        if self.names:
            missing = [name for name in self.names if name not in answer]
            if missing:
                raise self._refused(
                    f"answered outputs {', '.join(map(repr, answer))}, and no {missing[0]!r}",
                    f"name its outputs in [models.{self.name}.outputs]",
                )
            kept = {here: answer[there] for there, here in self.names.items()}
            return kept | {EXIT_SEGMENT: answer[EXIT_SEGMENT]} if EXIT_SEGMENT in answer else kept
        label = next((name for name in NAMES_OF_LABELS if name in answer), LABEL)
        return {LABEL if name == label else name: value for name, value in answer.items()}

    def _exits(self, exits: Any, n: int) -> NDArray[np.int64] | None:
        if exits is None:
            return None
        array = self._array("an exit_segment", exits)
        if array.shape != (n,) or array.dtype.kind not in "iu" or (array < 0).any():
            raise self._refused(
                f"answered an exit_segment of shape {array.shape} and type {array.dtype} for a batch of {n}",
                "give the number of a segment per row, from 0",
            )
        return array.astype(np.int64)

    def _unusable(self, answer: Predicted, n: int) -> NDArray[np.bool_] | None:
        if answer.unusable is None:
            return None
        array = self._array("unusable", answer.unusable)
        if array.shape != (n,) or array.dtype.kind != "b":
            raise self._refused(
                f"answered unusable of shape {array.shape} and type {array.dtype} for a batch of {n}",
                "give true or false per row",
            )
        return array

    def _certainty_of(self, scores: NDArray[Any]) -> Any:
        if scores.shape[1] == 1 and self.certainty in OF_CLASSES:
            raise self._refused(
                "answered scores of one column, which is low where it is sure of the other class",
                "answer a column per class, such as np.stack([1 - p, p], axis=1) of a sigmoid's p, or the certainty "
                "beside the label, such as np.maximum(p, 1 - p)",
            )
        return self._call("its certainty", self.certainty, scores)

    def _outputs(self, outputs: Any, n: int) -> Arrays:
        if isinstance(outputs, Mapping):
            return outputs
        array = self._array("an answer", outputs)
        return {LABEL: array} if array.ndim == 1 else self._encoded(self._scores(array, n))

    def _scores(self, answer: Any, n: int) -> NDArray[Any]:
        if _of_several_targets(answer) or getattr(self.model, "multilabel_", False):
            raise self._refused("answered several labels per row", ONE_TARGET)
        scores = self._array("an answer", answer)
        if scores.ndim == 1:
            raise self._refused(
                f"answered one value per row (shape {scores.shape}), which says nothing of its certainty",
                "answer scores (n, classes), or (answers, certainty), or bring an estimator with predict_proba; "
                f"{REGRESSION}",
            )
        if scores.ndim != 2 or scores.shape[1] == 0:
            raise self._refused(f"answered an array of shape {scores.shape}", "answer scores (n, classes)")
        self._require_rows("", scores, n)
        return softmax(scores) if self.softmax and scores.dtype.kind in "fiu" else scores

    def _encoded(self, scores: NDArray[Any]) -> Arrays:
        if hasattr(self.model, "encode"):
            outputs = self._call("encode", self.model.encode, scores)
            return outputs if isinstance(outputs, Mapping) else {LABEL: outputs}
        if scores.dtype.kind not in "fiub" or scores.shape[1] == 1:
            raise self._refused(
                f"answered scores of type {scores.dtype} and shape {scores.shape}, from which no class can be chosen",
                "answer a number for each of two or more classes (n, classes), or give the model an `encode`; "
                f"{REGRESSION}",
            )
        best = np.argmax(scores, axis=1)
        classes = self._classes(scores.shape[1])
        return {LABEL: best if classes is None else classes[best], SCORES: scores}

    def _classes(self, count: int) -> NDArray[Any] | None:
        if not hasattr(self.model, "classes_"):
            return None
        classes = self._array("attribute classes_", self.model.classes_)
        if classes.shape != (count,):
            raise self._refused(
                f"answered scores of {count} classes, but its classes_ has shape {classes.shape}",
                "bring an estimator of one target",
            )
        return classes.astype(np.str_) if classes.dtype.kind in "OS" else classes

    def _checked(self, outputs: Any, certainty: Any, n: int) -> Predicted:
        if not isinstance(outputs, Mapping) or not outputs:
            raise self._refused(f"answered outputs of type {type(outputs).__name__}", "answer arrays by name")
        arrays = {str(name): self._output(str(name), value, n) for name, value in outputs.items()}
        sure = self._array("a certainty", certainty)
        if sure.shape != (n,) or sure.dtype.kind not in "fiub":
            raise self._refused(
                f"answered a certainty of shape {sure.shape} and type {sure.dtype} for a batch of {n}",
                f"give one number per row, shape ({n},)",
            )
        try:
            return Predicted(self.declared.of(arrays), sure.astype(np.float64))
        except ValueError as error:
            raise self._refused(str(error), "answer as when it was profiled, or profile it again") from None

    def _output(self, name: str, value: Any, n: int) -> NDArray[Any]:
        array = self._array(f"output {name!r}", value)
        self._require_rows(f" in output {name!r}", array, n)
        if printable(name) != name:
            raise self._refused(f"answered an output of name {name!a}", "name it by UTF-8 text")
        problem = _unusable(array)
        if problem:
            raise self._refused(f"answered output {name!r} with {problem}", "answer numbers or text")
        return array

    def _require_rows(self, place: str, array: NDArray[Any], n: int) -> None:
        if array.ndim == 0 or len(array) != n:
            rows = f"{len(array)} rows" if array.ndim else "a single value"
            raise self._refused(f"answered {rows}{place} for a batch of {n}", "answer one row per row of the batch")

    def _array(self, what: str, value: Any) -> NDArray[Any]:
        try:
            array = np.asarray(value)
        except Exception as error:
            raise self._refused(f"gave {what} that is no array ({_told(error)})", "give a NumPy array") from error
        if array.dtype.kind == "O" and array.ndim == 0:
            raise self._refused(f"gave {what} of type {type(value).__name__}", "give a NumPy array")
        return in_own_order(array)

    def _call(self, what: str, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except ModelFailed:
            raise
        except (Exception, SystemExit) as error:
            raise ModelFailed(f"model {self.name!r} raised {_told(error)} in {what}") from error

    def _refused(self, what: str, remedy: str) -> ModelFailed:
        return ModelFailed(f"model {self.name!r} {what}; {remedy}")


def load_samples(project: Project, directory: Path) -> Samples:
    """Call the project's `samples` function; `directory` is the folder of `gearshift.toml`.

    Raises `InvalidInput` for a missing file or function and for unusable samples, `ModelFailed`
    where the function raises or returns another type.
    """
    samples = _call_reference(project.samples, directory, field="samples")
    if not isinstance(samples, Samples):
        raise ModelFailed(
            f"{project.samples} answered {type(samples).__name__}; answer gearshift.Samples(inputs, labels)"
        )
    _require_classes(samples.labels, project.samples)
    return samples


def _require_classes(labels: NDArray[Any] | None, where: str) -> None:
    if labels is None or labels.dtype.kind != "f" or bool((labels == np.floor(labels)).all()):
        return
    distinct = len(np.unique(labels))
    require(
        distinct <= max(MOST_FRACTIONS, len(labels) // 2),
        f"labels hold {distinct} different fractions in {len(labels)} rows, which are no classes",
        where=where,
        remedy=REGRESSION,
    )


def _of_several_targets(answer: Any) -> bool:
    return isinstance(answer, list) and bool(answer) and all(np.ndim(part) == 2 for part in answer)


def load_model(
    project: Project, directory: Path, name: str, *, device_kind: str = "cpu", lookups: str | None = None
) -> RunnableModel:
    """Load and set up model `name` of the project; `directory` is the folder of `gearshift.toml`.

    PyTorch modules and ONNX files go onto a device of `device_kind`. `lookups` overrides how
    learned caches are looked up. Raises `InvalidInput` for an unknown model and a missing file,
    function, library or device, `ModelFailed` where loading raises or its result cannot be run.
    """
    where = f"{PROJECT_FILE}, field models"
    require(
        name in project.models,
        f"there is no model {name!r}",
        where=where,
        remedy=f"use one of {', '.join(project.models)}",
    )
    certainty = load_certainty(project, directory)
    settings = project.models[name]
    if settings.is_onnx_file:
        field = f"{where}.{name}.load"
        session = open_onnx_file(name, directory / settings.load, device_kind=device_kind, where=field)
        return RunnableModel(name, session, certainty, settings.softmax, names=settings.outputs)
    reference = settings.load
    model = _call_reference(reference, directory, field=f"models.{name}.load")
    if is_module(model):
        module = placed(name, model, device_kind)
        return RunnableModel(name, module, certainty, settings.softmax, names=settings.outputs)
    runnable = any(hasattr(model, method) for method in ("predict_proba", "predict")) or callable(model)
    if isinstance(model, type) or not runnable:
        kind = f"the class {model.__name__}" if isinstance(model, type) else type(model).__name__
        remedy = "answer an object with predict or predict_proba, or a function"
        raise ModelFailed(f"{reference} answered {kind}, which cannot be run; {remedy}")
    if lookups is not None and hasattr(model, "lookups"):
        model.lookups = lookups
    if hasattr(model, "setup"):
        try:
            model.setup()
        except (Exception, SystemExit) as error:
            raise ModelFailed(f"model {name!r} raised {_told(error)} in setup") from error
    if all(hasattr(model, attribute) for attribute in ("segments", "exits", "through")):
        from gearshift.models.segmented_model import SegmentedModel

        return SegmentedModel(name, model, certainty, settings.softmax, names=settings.outputs)
    return RunnableModel(name, model, certainty, settings.softmax, names=settings.outputs)


def load_certainty(project: Project, directory: Path) -> CertaintyFunction:
    if ":" in project.certainty:
        where = f"{PROJECT_FILE}, field certainty"
        return _function(project.certainty, directory, field="certainty", where=where)
    return BUILT_IN[project.certainty]


def call_reference(reference: str, *, where: str) -> Any:
    """Call the function named by `file.py:function`; `where` says where that name was written.

    Raises `InvalidInput` where the function is missing or raises it, `ModelFailed` where it raises
    anything else.
    """
    file, colon, name = reference.rpartition(":")
    usable = bool(colon) and file.endswith(".py") and name.isidentifier()
    require(usable, f"is {reference!r}", where=where, remedy="write it as file.py:function")
    path = Path(file)
    return _call_reference(f"{path.name}:{name}", path.parent, field=where, where=where)


def _call_reference(reference: str, directory: Path, *, field: str, where: str = "") -> Any:
    function = _function(reference, directory, field=field, where=where or f"{PROJECT_FILE}, field {field}")
    try:
        return function()
    except InvalidInput as error:
        where = ", ".join(filter(None, (reference, error.where)))
        raise InvalidInput(error.what, where=where, remedy=error.remedy) from error
    except GearshiftError:
        raise
    except (Exception, SystemExit) as error:
        raise ModelFailed(f"{reference} raised {_told(error)}") from error


def _function(reference: str, directory: Path, *, field: str, where: str) -> Callable[..., Any]:
    file, _, name = reference.rpartition(":")
    path = directory / file
    require(path.is_file(), f"there is no file {path}", where=where, remedy="write it as file.py:function")
    try:
        module = _module(path.resolve(), directory.resolve())
    except (Exception, SystemExit) as error:
        raise ModelFailed(f"{path} raised {_told(error)} when it was imported for {field}") from error
    function = getattr(module, name, None)
    if not callable(function):
        raise InvalidInput(
            f"{path} has no function {name!r}", where=where, remedy="write the function or mend the name"
        )
    return function  # type: ignore[no-any-return]


def _module(path: Path, directory: Path) -> ModuleType:
    """Import a file once, under a unique module name; its folder joins `sys.path`."""
    name = f"{_USER_MODULE}{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    if str(directory) not in sys.path:
        sys.path.insert(0, str(directory))
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _method_of(model: Any) -> str:
    return next((name for name in ("predict_proba", "predict") if hasattr(model, name)), "its function")


def _function_of(model: Any) -> Callable[[Any], Any]:
    method = _method_of(model)
    return getattr(model, method, model)  # type: ignore[no-any-return]


def _by_name(inputs: Any) -> Mapping[Any, Any]:
    if isinstance(inputs, Mapping):
        return inputs
    if hasattr(inputs, "columns") and hasattr(inputs, "__getitem__"):
        return {column: inputs[column].to_numpy() for column in inputs.columns}
    return {DEFAULT_INPUT: inputs}


def _sample_array(what: str, value: Any, *, missing: bool = False) -> NDArray[Any]:
    """Convert to an array that can be sent; NaN is refused unless `missing` values are allowed."""
    remedy = "give a NumPy array of numbers or text"
    try:
        array = np.asarray(value)
    except Exception as error:
        raise InvalidInput(f"{what} is no array ({_told(error)})", where="samples", remedy=remedy) from error
    require(array.ndim >= 1, f"{what} is {type(value).__name__}, no array of rows", where="samples", remedy=remedy)
    require(0 not in array.shape[1:], f"{what} has shape {array.shape}", where="samples", remedy=remedy)
    array = in_own_order(array)
    problem = _unusable(array)
    require(not problem, f"{what} holds {problem}", where="samples", remedy=remedy)
    if array.dtype.kind == "f":
        usable = ~np.isinf(array) if missing else np.isfinite(array)
        bad = np.flatnonzero(~usable.all(axis=tuple(range(1, array.ndim))))
        kind = "infinity" if missing else "NaN or infinity"
        rows = f"{what} holds {kind} in {len(bad)} rows, the first is row {bad[0] if len(bad) else 0}"
        require(len(bad) == 0, rows, where="samples", remedy="fill it in or leave those rows out")
    return array


def _unusable(array: NDArray[Any]) -> str:
    if array.dtype.kind == "O":
        others = {type(value).__name__ for value in array.flat if not isinstance(value, str | bytes)}
        return f"objects of type {min(others)}" if others else ""
    try:
        datatype_of(array)
    except ValueError as error:
        return str(error)
    return ""


def _told(error: BaseException) -> str:
    """One line about an exception: type, message, and the line in the user's file."""
    text = " ".join(str(error).split())
    if len(text) > _LONGEST_MESSAGE:
        text = text[:_LONGEST_MESSAGE] + "..."
    place, step = "", error.__traceback__
    while step is not None:
        if str(step.tb_frame.f_globals.get("__name__", "")).startswith(_USER_MODULE):
            place = f" ({Path(step.tb_frame.f_code.co_filename).name}, line {step.tb_lineno})"
        step = step.tb_next
    return f"{type(error).__name__}{': ' if text else ''}{text}{place}"
