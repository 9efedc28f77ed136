"""A batch's samples as messages to a worker and back."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gearshift.model import Arrays
from gearshift.request import Sample
from gearshift.runtime.wire.messages import Done, DonePart, RunPart, TensorHeader
from gearshift.runtime.wire.transport import FrameError, pack_tensors, unpack_tensors
from gearshift.v2.packing import Buffer, bytes_of, datatype_named

LARGE_ROW_BYTES = 16 << 10
"""From this size on, copying a row costs more than sending it from where it lies."""


def assemble(samples: Sequence[Sample]) -> tuple[tuple[RunPart, ...], list[Buffer]]:
    """A batch's rows as parts of equal shapes, one if possible, and the tensors' buffers."""
    payloads: list[dict[str, NDArray[Any]]] = [sample.payload for sample in samples]  # type: ignore[misc]
    try:
        headers, buffers = pack_rows(payloads)
    except ValueError:  # rows differ in a variable dimension, or lack an input
        return _assemble_by_shape(payloads)
    return (RunPart(rows=tuple(range(len(samples))), tensors=headers),), buffers


def _assemble_by_shape(payloads: Sequence[Arrays]) -> tuple[tuple[RunPart, ...], list[Buffer]]:
    by_shape: dict[tuple[tuple[str, tuple[int, ...]], ...], list[int]] = {}
    for row, payload in enumerate(payloads):
        by_shape.setdefault(tuple((name, array.shape) for name, array in payload.items()), []).append(row)
    parts: list[RunPart] = []
    buffers: list[Buffer] = []
    for rows in by_shape.values():
        headers, part_buffers = pack_rows([payloads[row] for row in rows])
        parts.append(RunPart(rows=tuple(rows), tensors=headers))
        buffers += part_buffers
    return tuple(parts), buffers


def pack_rows(payloads: Sequence[Arrays]) -> tuple[tuple[TensorHeader, ...], list[Buffer]]:
    """Concatenate small rows, send large ones uncopied; raises `ValueError` if shapes or names differ."""
    headers: list[TensorHeader] = []
    buffers: list[Buffer] = []
    if sum(map(len, payloads)) != len(payloads) * len(payloads[0]):
        raise ValueError("rows have different inputs")
    for name, first in payloads[0].items():
        try:
            rows = [payload[name] for payload in payloads]
        except KeyError:
            raise ValueError("rows have different inputs") from None
        if len(rows) == 1 or first.nbytes < LARGE_ROW_BYTES or first.dtype == object or _differ(rows):
            one_headers, one_buffers = pack_tensors({name: first if len(rows) == 1 else np.concatenate(rows)})
            headers += one_headers
            buffers += one_buffers
        else:
            datatype, shape = datatype_named(first.dtype), (len(rows), *first.shape[1:])
            headers.append(TensorHeader(name=name, datatype=datatype, shape=shape, size_bytes=len(rows) * first.nbytes))
            buffers += [bytes_of(row) for row in rows]
    return tuple(headers), buffers


def _differ(rows: Sequence[NDArray[Any]]) -> bool:
    first = rows[0]
    return any(row.shape != first.shape or row.dtype != first.dtype for row in rows)


def settle(samples: Sequence[Sample], done: Done, body: memoryview, model: str) -> list[Sample]:
    """Give samples the result and certainty, or error, that `done` has for them; return these.

    Those that are `over` keep the answer that was given.
    Raises `FrameError` for malformed tensors, before any sample is changed.
    """
    offset, rows = 0, list(done.failed)
    unpacked: list[tuple[NDArray[np.float64], Arrays]] = []
    for part in done.parts:
        first, others = part.tensors[:1], part.tensors[1:]
        (certainty,) = unpack_tensors(first, body, offset).values()
        unpacked.append((certainty, unpack_tensors(others, body, offset + first[0].size_bytes)))
        offset += part_bytes(part)
        if any(value != value for value in certainty.tolist()):  # noqa: PLR0124  NaN, faster than NumPy for few values
            raise FrameError("a certainty that is not a number")
    for part, (certainty, outputs) in zip(done.parts, unpacked, strict=True):
        rows += part.rows
        for i, (row, value) in enumerate(zip(part.rows, certainty.tolist(), strict=True)):
            sample = samples[row]
            if sample.over:
                continue
            sample.certainty = value
            sample.exit_segment = part.exits[i] if part.exits else 0
            sample.result = {name: array[i : i + 1] for name, array in outputs.items()}
    for row in done.failed:
        if row in done.unanswered:
            samples[row].unanswered = True
            samples[row].unreached = row not in done.unusable
        elif not samples[row].over:
            samples[row].error = samples[row].error or f"model {model!r} failed on this sample"
            samples[row].raised = row not in done.unusable
    return [samples[row] for row in sorted(rows)]


def part_bytes(part: RunPart | DonePart) -> int:
    return sum(tensor.size_bytes for tensor in part.tensors)
