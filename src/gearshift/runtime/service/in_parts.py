"""A request of more rows than may wait: its rows run as bulk work, a part at a time, and are one answer."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gearshift.model import Arrays
from gearshift.request import Answer, Outcome
from gearshift.runtime.service.answers import MISFIT, Done, OpenRequest, Withdraw, no_room, unfit
from gearshift.runtime.service.room import bytes_of, has_room

PART_ROWS, PARTS = 256, 8
"""Rows of a part, and parts at work at once: enough for whole batches, and little work on one turn of the loop."""
GRAPH_PART_ROWS, GRAPH_PARTS = 32, 4
"""The same for pipelines of several nodes, of which each row may become many items."""

OpenPart = Callable[[Arrays, int, int, Done], Withdraw]
"""Opens bulk work of these inputs, the first row and the number of rows of the request that they are."""


class InParts:
    """The parts of request `whole`; `open_part` runs one, and `ended` takes the answer of all.

    Outputs of parts that are done are held with the request, until all are.
    """

    def __init__(self, whole: OpenRequest, inputs: Arrays, open_part: OpenPart, ended: Done) -> None:
        self.whole, self._inputs, self._open_part, self._ended = whole, inputs, open_part, ended
        self._rows, self._part_rows, self._begun = whole.request.rows, PART_ROWS, 0
        self._open: dict[int, Withdraw] = {}
        self._answers: dict[int, Answer] = {}
        self._over = False

    def begin(self, *, graph: bool) -> None:
        """Begin the first parts, each on a turn of the event loop."""
        self._part_rows = GRAPH_PART_ROWS if graph else PART_ROWS
        loop = asyncio.get_running_loop()
        for _ in range(GRAPH_PARTS if graph else PARTS):
            loop.call_soon(self._begin_next)

    def _begin_next(self) -> None:
        first = self._begun
        if self._over or first >= self._rows:
            return
        self._begun = end = min(self._rows, first + self._part_rows)
        part = {name: array[first:end] for name, array in self._inputs.items()}
        self._open[first] = self._open_part(part, first, end - first, partial(self._part_ended, first, end))

    def withdraw(self) -> None:
        self._over = True
        withdraws = list(self._open.values())
        self._open.clear()
        for withdraw in withdraws:
            withdraw()

    def _part_ended(self, first: int, end: int, answer: Answer) -> None:
        if self._over:
            return
        self._open.pop(first, None)
        whole, held = self.whole, self.whole.room.held
        outputs: Mapping[str, NDArray[Any]] = answer.outputs or {}  # type: ignore[assignment]
        size_bytes = bytes_of(outputs)
        if not has_room(held, size_bytes) or any(map(unfit, answer.errors)):
            self._end(unfit(no_room(whole.held_bytes + size_bytes, held)) or answer)
            return
        if answer.outcome in ("refused", "failed"):
            self._end(answer)
            return
        self._answers[first] = answer
        whole.hold(size_bytes)
        if len(self._answers) * self._part_rows >= self._rows:
            self._end(joined([self._answers[at] for at in sorted(self._answers)]))
            return
        whole.held_rows -= end - first
        whole.room.give_back(end - first, 0, whole.client)
        self._begin_next()

    def _end(self, answer: Answer) -> None:
        self.withdraw()
        self._answers.clear()
        self._ended(answer)


def joined(parts: Sequence[Answer]) -> Answer:
    """The answer of a request, from those of its parts in order, all of which have one."""
    degraded = next((part for part in parts if part.outcome == "degraded"), None)
    outcome: Outcome = "answered" if degraded is None else "degraded"
    reason = degraded.reason if degraded is not None else next((part.reason for part in parts if part.reason), "")
    queue_s, run_s = max(part.queue_s for part in parts), max(part.run_s for part in parts)
    try:
        outputs = _joined_outputs(parts)
    except (KeyError, ValueError):
        return Answer(
            outcome="failed", reason=MISFIT, errors=(MISFIT,), gear=parts[0].gear, queue_s=queue_s, run_s=run_s
        )
    return Answer(
        outcome=outcome,
        reason=reason,
        rows=tuple(chain.from_iterable(part.rows for part in parts)),
        outputs=outputs,
        gear=parts[0].gear,
        queue_s=queue_s,
        run_s=run_s,
        items=tuple(chain.from_iterable(part.items for part in parts)),
        missing=tuple(chain.from_iterable(part.missing for part in parts)),
        cut=tuple(chain.from_iterable(part.cut for part in parts)),
    )


def _joined_outputs(parts: Sequence[Answer]) -> Mapping[str, NDArray[Any]]:
    """Outputs of all parts; of a graph, rows of a part without any are empty. Raises `KeyError`, `ValueError`."""
    given: list[dict[str, NDArray[Any]]] = [part.outputs or {} for part in parts]  # type: ignore[misc]
    full = next((outputs for outputs in given if outputs), {})
    if any(outputs and outputs.keys() != full.keys() for outputs in given):
        raise KeyError("outputs of different names")
    each = [(outputs, len(part.rows)) for outputs, part in zip(given, parts, strict=True)]
    return {
        name: np.concatenate([outputs[name] if outputs else _empty(array, rows) for outputs, rows in each])
        for name, array in full.items()
    }


def _empty(like: NDArray[Any], rows: int) -> NDArray[Any]:
    array = np.zeros((rows, *like.shape[1:]), like.dtype)
    if like.dtype.kind == "O":
        array[...] = ""
    return array
