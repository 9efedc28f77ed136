"""A user's model behind one call, its answer checked and put into named arrays.

A model that stops early runs from exit to exit, or through, with segment times.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gearshift.errors import InvalidInput, ModelFailed, printable
from gearshift.model import LABEL, SCORES, Arrays, Predicted, in_own_order
from gearshift.models.certainty import OF_CLASSES, CertaintyFunction, softmax
from gearshift.models.classes import class_names
from gearshift.models.declared_outputs import EVERY_OUTPUT, DeclaredOutputs
from gearshift.models.samples import ONE_TARGET, REGRESSION, unusable_values
from gearshift.models.user_code import said_in_one_line
from gearshift.support.frames import FrameKind, columns_of, frame_of

CERTAINTY = "certainty"
LABELS_ALONE = (
    "a model that gives labels alone can only be the last of a cascade: let it, or a function around it, answer the "
    "same certainty for all rows, such as (labels, np.ones(len(labels)))"
)
EXIT_SEGMENT = "exit_segment"
NAMES_OF_SCORES = (SCORES, "probabilities", "probability", "output_probability", "logits")
NAMES_OF_LABELS = (LABEL, "output_label")
"""Names that exporters use for the outputs called scores and label here."""


@dataclass(frozen=True, slots=True)
class UserModel:
    """A user's model behind one call, whatever type its loader returned.

    `model` is an estimator (`predict_proba`), an object with `predict`, or a function; see
    `gearshift.model.Model`. `certainty` is used where the model returns scores only; with
    `softmax`, scores are made probabilities first. Answers are converted to the `declared`
    outputs. `names` maps the model's output names to the names used here, and other outputs are
    left out; without it, outputs keep their names. With `frame` the model gets a data frame, in
    which columns of `categories` are of pandas' type `category` with these values.
    """

    name: str
    model: Any
    certainty: CertaintyFunction
    softmax: bool = False
    declared: DeclaredOutputs = EVERY_OUTPUT
    names: Mapping[str, str] = field(default_factory=dict)
    frame: FrameKind | None = None
    categories: Mapping[str, Sequence[str | int]] = field(default_factory=dict)

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
            if not (isinstance(batch, dict) and self.frame is None and hasattr(self.model, "predict_proba")):
                if texts := self._texts_of_frame(batch, inputs):
                    raise ModelFailed(f"{error}; {texts}") from error.__cause__
                raise
            remedy = (
                f"the estimator was given the inputs {', '.join(map(repr, batch))} by name: fit it on a data frame of "
                f'these columns, say frame = "pandas" in [models.{self.name}], give the samples as one array, or give '
                "it a `decode` that makes of them what it takes"
            )
            raise ModelFailed(f"{error}; {remedy}") from error.__cause__
        return self._predicted(answer, len(next(iter(inputs.values()))))

    def _texts_of_frame(self, batch: Any, inputs: Arrays) -> str:
        texts = [name for name, array in inputs.items() if array.dtype.kind in "OUS" and name not in self.categories]
        if not texts or columns_of(batch) is None:
            return ""
        return (
            f"the input {texts[0]!r} has texts: where the model was fitted on a column of pandas' type category, give "
            f"its values, categories.{texts[0]} = [...] in [models.{self.name}]"
        )

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
        if (columns := columns_of(answer)) is not None:
            answer = columns
        if isinstance(answer, Mapping):
            outputs = self._named(answer)
            exits = self._exits(outputs.pop(EXIT_SEGMENT, None), n)
            return replace(self._checked(*self._judged(outputs, n), n), exit_segment=exits)
        scores = self._scores(answer, n)
        return self._checked(self._encoded(scores), self._certainty_of(scores), n)

    def _decoded(self, inputs: Arrays) -> Any:
        if hasattr(self.model, "decode"):
            return self._call("decode", self.model.decode, dict(inputs))
        columns = fitted_columns(self.model)
        if self.frame is None and columns is not None and any(column in inputs for column in columns):
            missing = [column for column in columns if column not in inputs]
            if missing:
                raise self._refused(
                    f"was fitted on a column {missing[0]!r}, but the inputs are {', '.join(map(repr, inputs))}",
                    "name the samples' inputs as the columns are",
                )
            return self._frame({column: inputs[column] for column in columns})
        if self.frame is not None or self.categories:
            return self._frame(inputs)
        return next(iter(inputs.values())) if len(inputs) == 1 else dict(inputs)

    def _frame(self, inputs: Arrays) -> Any:
        unknown = next((column for column in self.categories if column not in inputs), None)
        if unknown is not None:
            raise self._refused(f"has categories of {unknown!r}, which is no input", "name an input of the samples")
        for column, values in self.categories.items():
            if inputs[column].ndim != 1:
                raise self._refused(
                    f"has categories of {column!r}, which has rows of shape {inputs[column].shape[1:]}",
                    "name an input of one value per row",
                )
            if (inputs[column].dtype.kind in "fiub") == isinstance(values[0], str):
                raise self._refused(
                    f"has categories of {column!r} such as {values[0]!r}, and values of type {inputs[column].dtype}",
                    "write them as the values are, as texts or as numbers",
                )
        where = f"model {self.name!r}, which takes a data frame"
        try:
            return frame_of(self.frame or "pandas", inputs, where=where, categories=self.categories)
        except InvalidInput as error:
            raise ModelFailed(str(error)) from None

    def _judged(self, outputs: dict[str, Any], n: int) -> tuple[Arrays, Any]:
        if CERTAINTY in outputs:
            certainty = outputs.pop(CERTAINTY)
            return outputs, certainty
        name = next((name for name in NAMES_OF_SCORES if name in outputs), None)
        if name is None:
            raise self._refused(
                f"answered outputs {', '.join(map(repr, outputs))} without a certainty",
                "answer (outputs, certainty), or one of them as 'certainty' or 'scores', or say what each is in "
                f"[models.{self.name}.outputs]; {LABELS_ALONE}",
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
                f"{_without_scores(scores)}",
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
                f"{_without_scores(scores)}",
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
        problem = unusable_values(array)
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
            no_array = f"gave {what} that is no array ({said_in_one_line(error)})"
            raise self._refused(no_array, "give a NumPy array") from error
        if array.dtype.kind == "O" and array.ndim == 0:
            raise self._refused(f"gave {what} of type {type(value).__name__}", "give a NumPy array")
        return in_own_order(array)

    def _call(self, what: str, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except ModelFailed:
            raise
        except (Exception, SystemExit) as error:
            raise ModelFailed(f"model {self.name!r} raised {said_in_one_line(error)} in {what}") from error

    def _refused(self, what: str, remedy: str) -> ModelFailed:
        return ModelFailed(f"model {self.name!r} {what}; {remedy}")


def fitted_columns(model: Any) -> list[str] | None:
    """The columns of the data frame that an estimator was fitted on; None where that was no data frame."""
    columns = getattr(model, "feature_names_in_", None)
    if columns is not None:
        return [str(column) for column in columns]
    columns = [str(column) for column in getattr(model, "feature_names_", ())]  # CatBoost; numbers, if of an array
    return None if columns == [str(i) for i in range(len(columns))] else columns


def _of_several_targets(answer: Any) -> bool:
    return isinstance(answer, list) and bool(answer) and all(np.ndim(part) == 2 for part in answer)


def _without_scores(answer: NDArray[Any]) -> str:
    """The remedy for one value per row: a label, or a fraction, which is a regression."""
    return REGRESSION if answer.dtype.kind == "f" else LABELS_ALONE


def _method_of(model: Any) -> str:
    return next((name for name in ("predict_proba", "predict") if hasattr(model, name)), "its function")


def _function_of(model: Any) -> Callable[[Any], Any]:
    method = _method_of(model)
    return getattr(model, method, model)  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class EarlyExitModel(UserModel):
    """A model whose rows leave after one of several segments."""

    @property
    def segments(self) -> int:
        return int(self.model.segments)

    def exits(self, inputs: Arrays) -> Iterator[tuple[NDArray[np.int64], Predicted]]:
        """Yield row numbers and the model's answer for them as they leave; each of n rows once.

        Raises `ModelFailed` where the user's code raises or yields anything else.
        """
        left = np.ones(len(next(iter(inputs.values()))), dtype=bool)
        leaving = self._call("exits", iter, self._call("exits", self.model.exits, self._decoded(inputs)))
        while (given := self._call("exits", next, leaving, None)) is not None:
            rows, answer = self._pair("exits", given)
            rows = self._array("rows that leave", rows)
            if rows.ndim != 1 or rows.dtype.kind not in "iu" or len(np.unique(rows)) < len(rows):
                raise self._refused(f"gave rows {rows.tolist()} that leave", "give the numbers of rows, each once")
            if len(rows) == 0 or rows.min() < 0 or rows.max() >= len(left) or not left[rows].all():
                raise self._refused(f"gave rows {rows.tolist()} that leave", "let every row of the batch leave once")
            left[rows] = False
            yield rows, self._predicted(answer, len(rows))
        if left.any():
            raise self._refused(f"let {int(left.sum())} rows never leave", "let every row of the batch leave once")

    def through(self, inputs: Arrays) -> tuple[Predicted, Sequence[float]]:
        """Run n rows through all segments; returns the answer and the seconds of each segment."""
        n = len(next(iter(inputs.values())))
        answer, given = self._pair("through", self._call("through", self.model.through, self._decoded(inputs)))
        seconds = self._array("seconds of segments", given)
        if seconds.shape != (self.segments,) or seconds.dtype.kind != "f" or not (seconds >= 0).all():
            raise self._refused(
                f"gave seconds of shape {seconds.shape} for {self.segments} segments", "give one time per segment"
            )
        return self._predicted(answer, n), seconds.tolist()

    def _pair(self, method: str, given: Any) -> tuple[Any, Any]:
        if not isinstance(given, tuple) or len(given) != 2:
            raise self._refused(f"answered {type(given).__name__} in {method}", "answer a pair")
        return given
