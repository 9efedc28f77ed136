"""Runs a batch on a loaded model, and sends its answers as they come."""

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gearshift.errors import GearshiftError, ModelFailed, RowsRefused
from gearshift.model import Arrays, Predicted
from gearshift.models.function_model import FunctionModel
from gearshift.models.user_model import EarlyExitModel, UserModel
from gearshift.observability.logs import SELDOM
from gearshift.runtime.wire.batch_messages import part_bytes
from gearshift.runtime.wire.messages import Done, DonePart, Run, TensorHeader
from gearshift.runtime.wire.transport import pack_tensors, shortened, unpack_tensors
from gearshift.v2.packing import Buffer

Send = Callable[[Done, Sequence[Buffer]], None]
FAILED = "model {!r} failed on %d of %d samples of a batch; the first failure: %s"
"""The model's name is part of the format, not an argument, so that log limits apply per model."""

log = logging.getLogger(__name__)


def run_batch(name: str, model: UserModel, message: Run, body: memoryview, send: Send) -> None:
    """Run the batch and send its `Done`, after partial ones for rows that leave early."""
    attempt = Attempt(name, model, message, send)
    offset = 0
    for part in message.parts:
        attempt.run(unpack_tensors(part.tensors, body, offset), part.rows)
        offset += part_bytes(part)
    if attempt.first_failure:
        samples = sum(len(part.rows) for part in message.parts)
        silent = len(set(attempt.unanswered) - set(attempt.unusable)) == samples  # so will later batches
        told, failed = FAILED.format(name.replace("%", "%%")), len(attempt.failed)
        log.warning(told, failed, samples, attempt.first_failure, extra=SELDOM if silent else None)
    attempt.tell()


class Attempt:
    """The results of a batch: answers, failed rows, and the time in the model.

    A model may write into its input arrays and may reuse its output arrays: rows that run again
    get their original values, and earlier answers do not change.
    """

    def __init__(self, name: str, model: UserModel, message: Run, send: Send) -> None:
        self._name, self._model, self._send = name, model, send
        self._batch, self._through = message.batch, message.through
        self._left = sum(len(part.rows) for part in message.parts)
        self._not_finite_before, self._waited_before_s = not_finite(model), waited_s(model)
        self.parts: list[DonePart] = []
        self.buffers: list[Buffer] = []
        self.failed: list[int] = []
        self.unanswered: list[int] = []
        self.unusable: list[int] = []
        self.first_failure = ""
        self.run_s = 0.0
        self.segment_s: tuple[float, ...] = ()

    def tell(self, *, more: bool = False) -> None:
        waited = waited_s(self._model) - self._waited_before_s
        done = Done(
            batch=self._batch,
            run_s=self.run_s - waited,
            parts=tuple(self.parts),
            failed=() if more else tuple(self.failed),
            unanswered=() if more else tuple(self.unanswered),
            unusable=() if more else tuple(self.unusable),
            waited_s=waited,
            first_failure="" if more else self.first_failure,
            more=more,
            segment_s=self.segment_s,
            not_finite=0 if more else not_finite(self._model) - self._not_finite_before,
        )
        self._send(done, self.buffers)
        self.parts, self.buffers = [], []

    def run(self, inputs: Arrays, rows: Sequence[int]) -> None:
        """Run `rows`; a failing batch is split in halves until each failing sample is alone."""
        self.buffers = [bytes(buffer) for buffer in self.buffers]
        as_they_came = copied(inputs) if len(rows) > 1 else inputs  # a single row never runs again
        if isinstance(self._model, EarlyExitModel) and not self._through:
            self._run_by_exit(self._model, inputs, as_they_came, rows)
            return
        try:
            if isinstance(self._model, FunctionModel):
                self._run_function(self._model, inputs, rows)
            else:
                self._take(self._timed(inputs, len(rows)), rows)
        except Exception as error:  # noqa: BLE001  user code may raise anything
            self._fail(error, as_they_came, rows)

    def _run_function(self, function: FunctionModel, inputs: Arrays, rows: Sequence[int]) -> None:
        begun = time.perf_counter()
        try:
            pieces = function.pieces(inputs)
        finally:
            self.run_s += time.perf_counter() - begun
        for taken, predicted in pieces:
            self._take(predicted, [rows[i] for i in taken])

    def _run_by_exit(self, model: EarlyExitModel, inputs: Arrays, as_they_came: Arrays, rows: Sequence[int]) -> None:
        """Run `rows`; send those that leave early at once. After a failure, the rest run again."""
        stay = np.ones(len(rows), dtype=bool)
        begun = time.perf_counter()
        try:
            for leaving, predicted in model.exits(inputs):
                self.run_s += time.perf_counter() - begun
                self._take(predicted, [rows[i] for i in leaving])
                stay[leaving] = False
                if self._left > 0 and self.parts:
                    self.tell(more=True)
                begun = time.perf_counter()
        except Exception as error:  # noqa: BLE001  user code may raise anything
            rest = np.flatnonzero(stay).tolist()
            self._fail(error, {name: array[rest] for name, array in as_they_came.items()}, [rows[i] for i in rest])

    def _take(self, predicted: Predicted, rows: Sequence[int]) -> None:
        """Keep the answers to `rows`; rows without a certainty have failed."""
        certainty, headers, buffers = packed(predicted)
        unknown = np.isnan(certainty)
        if unknown.any():
            why = shortened(predicted.failure) or "the certainty is not a number"
            self.first_failure = self.first_failure or why
            self._keep_known(predicted, rows, unknown)
        else:
            self._keep(rows, headers, buffers, predicted.exit_segment)
        self._left -= len(rows)

    def _fail(self, error: Exception, inputs: Arrays, rows: Sequence[int]) -> None:
        self.first_failure = self.first_failure or describe(self._name, error)
        if len(rows) == 1 and isinstance(error, RowsRefused):
            self.unusable.append(rows[0])
        self._split(inputs, rows)

    def _timed(self, inputs: Arrays, rows: int) -> Predicted:
        begun = time.perf_counter()
        try:
            if self._through and isinstance(self._model, EarlyExitModel):
                predicted, seconds = self._model.through(inputs)
                self.segment_s = tuple(seconds)
            else:
                predicted = self._model.run(inputs)
        finally:
            self.run_s += time.perf_counter() - begun
        check_rows(self._name, predicted, rows)
        return predicted

    def _split(self, inputs: Arrays, rows: Sequence[int]) -> None:
        if len(rows) == 1:
            self.failed.append(rows[0])
            self._left -= 1
            return
        middle = len(rows) // 2
        for half in (slice(0, middle), slice(middle, len(rows))):
            self.run({name: array[half] for name, array in inputs.items()}, rows[half])

    def _keep_known(self, predicted: Predicted, rows: Sequence[int], unknown: NDArray[Any]) -> None:
        without_certainty = [row for row, without in zip(rows, unknown.tolist(), strict=True) if without]
        self.failed += without_certainty
        if predicted.failure:
            self.unanswered += without_certainty
        if predicted.unusable is not None:
            marked = np.asarray(predicted.unusable) & unknown
            self.unusable += [row for row, one in zip(rows, marked.tolist(), strict=True) if one]
        if unknown.all():
            return
        outputs = {name: np.asarray(array)[~unknown] for name, array in predicted.outputs.items()}
        exits = None if predicted.exit_segment is None else predicted.exit_segment[~unknown]
        _, headers, buffers = packed(Predicted(outputs, np.asarray(predicted.certainty)[~unknown]))
        known = [row for row, without in zip(rows, unknown.tolist(), strict=True) if not without]
        self._keep(known, headers, buffers, exits)

    def _keep(
        self,
        rows: Sequence[int],
        headers: tuple[TensorHeader, ...],
        buffers: list[Buffer],
        exits: NDArray[np.int64] | None,
    ) -> None:
        left = () if exits is None else tuple(exits.tolist())
        self.parts.append(DonePart(rows=tuple(rows), tensors=headers, exits=left))
        self.buffers += buffers


def copied(arrays: Arrays) -> Arrays:
    """Copies of the arrays, at about 50 us per MB."""
    return {name: array.copy() for name, array in arrays.items()}


def not_finite(model: UserModel) -> int:
    return max(0, int(getattr(getattr(model, "model", None), "not_finite", 0)))


def waited_s(model: UserModel) -> float:
    """Seconds that a remote model has spent waiting to ask again, while profiling."""
    return float(getattr(getattr(model, "model", None), "waited_s", 0.0))


def check_rows(name: str, predicted: Predicted, rows: int) -> None:
    arrays = {**predicted.outputs, "the certainty": predicted.certainty}
    for output, array in arrays.items():
        shape = np.shape(array)
        if len(shape) == 0 or shape[0] != rows:
            raise ModelFailed(f"model {name!r} answered shape {list(shape)} as {output} for {rows} samples")
    if np.ndim(predicted.certainty) != 1:
        raise ModelFailed(f"model {name!r} answered a certainty of {np.ndim(predicted.certainty)} dimensions, needs 1")


def packed(predicted: Predicted) -> tuple[NDArray[Any], tuple[TensorHeader, ...], list[Buffer]]:
    """The certainty, and headers and buffers of certainty and outputs, certainty first."""
    certainty = np.asarray(predicted.certainty, dtype=np.float64)
    outputs = {name: np.asarray(array) for name, array in predicted.outputs.items()}
    first_headers, first_buffers = pack_tensors({"certainty": certainty})
    headers, buffers = pack_tensors(outputs)
    return certainty, first_headers + headers, first_buffers + buffers


def describe(name: str, error: BaseException) -> str:
    if isinstance(error, GearshiftError):
        return shortened(str(error).removeprefix(f"model {name!r} "))
    return shortened(f"raised {type(error).__name__}: {error}")
