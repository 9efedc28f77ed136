"""The Open Inference Protocol V2 without its encodings: checks and answers of REST and gRPC.

Both decode tensors in their own way, check them here, and encode the plain Python values returned.
"""

import math
import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import msgspec
import numpy as np
from numpy.typing import NDArray

from gearshift.errors import InvalidInput
from gearshift.model import DATATYPES, Arrays, TensorSpec
from gearshift.request import LEAST_URGENT, Answer, BulkWork, RowFacts
from gearshift.v2.bodies import LONGEST_TIMEOUT_US, HowAnswered, InferRequest

SERVER_NAME = "gearshift"
MODEL_VERSION = "1"
MOST_STRINGS = 1 << 17
"""Elements of a BYTES tensor; each costs as much memory as hundreds of numbers."""
MOST_DIMENSIONS_TOLD = 16
MOST_TOLD = 1 << 63
MOST_GEARS = 1 << 15
FLOATS = frozenset({"FP16", "FP32", "FP64"})

_PLAIN_NUMBER = re.compile(r"[0-9]{1,15}(\.[0-9]{1,15})?", re.ASCII)
MODEL_FACTS = ("gearshift_model", "gearshift_stage", "gearshift_certainty", "gearshift_exit_segment")
NODE_FACTS = ("gearshift_items", "gearshift_missing", "gearshift_cut")
"""Of a pipeline of several nodes: one list in JSON for each row."""
ROW_FACTS = (*MODEL_FACTS, *NODE_FACTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds on a request: rows, tensors given or asked for, elements of each, bytes of JSON."""

    most_rows: int | None = None
    """None: as many as the bytes that may be held."""
    most_tensors: int = 1024
    most_elements: int = 1 << 24
    most_text_bytes: int = 48 << 20


# Requests ----------------------------------------------------------------------------------------


def require_few_tensors(inputs: int, outputs: int, limits: Limits) -> None:
    for count, noun in ((inputs, "inputs"), (outputs, "outputs")):
        if count > limits.most_tensors:
            raise InvalidInput(f"there are {count} {noun}, at most {limits.most_tensors} are taken")


def declared_input(
    name: str,
    datatype: str,
    shape: Sequence[int],
    specs: Mapping[str, TensorSpec],
    limits: Limits,
    before: Container[str] = (),
) -> TensorSpec:
    """Return the operator's input by name; raises `InvalidInput` if type or shape do not fit, or it came `before`.

    One value for each row may have shape (n,) or, as the codecs of MLServer write it, (n, 1).
    """
    spec = specs.get(name)
    if spec is None:
        raise InvalidInput("there is no such input", where=f"input {name!r}", remedy=f"the inputs are {sorted(specs)}")
    if datatype != spec.datatype:
        raise InvalidInput(f"datatype is {datatype!r}, needs {spec.datatype!r}", where=f"input {name!r}")
    if not _fits(shape[:1] if is_column(shape, spec) else shape, spec.shape):
        given = list(shape) if len(shape) <= MOST_DIMENSIONS_TOLD else f"of {len(shape)} dimensions"
        raise InvalidInput(
            f"shape is {given}, needs {list(spec.shape)}, -1 being any number from 1", where=f"input {name!r}"
        )
    if limits.most_rows is not None and shape[0] > limits.most_rows:
        raise InvalidInput(
            f"shape has {shape[0]} rows, at most {limits.most_rows} are taken",
            where=f"input {name!r}",
            remedy="send fewer rows at once, or serve with --most-rows",
        )
    most_elements = min(limits.most_elements, MOST_STRINGS) if datatype == "BYTES" else limits.most_elements
    if (elements := math.prod(shape)) > most_elements:
        count = elements if elements < MOST_TOLD else f"over {MOST_TOLD}"  # Python prints no very long ones
        raise InvalidInput(
            f"has {count} elements by its shape, at most {most_elements} are taken", where=f"input {name!r}"
        )
    if name in before:
        raise InvalidInput("is given twice", where=f"input {name!r}")
    return spec


def is_column(shape: Sequence[int], spec: TensorSpec) -> bool:
    """Whether `shape` is (n, 1), and the input has one value for each row."""
    return len(spec.shape) == 1 and len(shape) == 2 and shape[1] == 1


def _fits(shape: Sequence[int], wanted: Sequence[int]) -> bool:
    if len(shape) != len(wanted):
        return False
    for given, needed in zip(shape, wanted, strict=True):
        if given < 1 or needed not in (given, -1):
            return False
    return True


def refuse_shared_memory(where: str) -> NoReturn:
    raise InvalidInput("shared memory is not taken", where=where, remedy="send the tensor in the request")


def refuse_classification(where: str) -> NoReturn:
    raise InvalidInput("classification is not done here", where=where, remedy="ask for the output itself")


def require_finite(array: NDArray[Any], spec: TensorSpec) -> None:
    """Raise `InvalidInput` for an infinity, or a NaN unless the input may have missing values."""
    if spec.datatype in FLOATS and not (np.isfinite(array).all() or (spec.missing and not np.isinf(array).any())):
        raise InvalidInput(f"data has a number that is not finite in {spec.datatype}", where=f"input {spec.name!r}")


def may_be_left_out(spec: TensorSpec) -> bool:
    return spec.missing and len(spec.shape) == 1 and (spec.datatype == "BYTES" or spec.datatype in FLOATS)


def none_of(spec: TensorSpec, rows: int) -> NDArray[Any]:
    """An input (rows,) whose values are all missing."""
    return np.full(rows, None if spec.datatype == "BYTES" else np.nan, DATATYPES[spec.datatype])


def as_rows(array: NDArray[Any], spec: TensorSpec) -> NDArray[Any]:
    return array.reshape(-1) if is_column(array.shape, spec) else array


def whole_request(
    arrays: Mapping[str, NDArray[Any]],
    specs: Mapping[str, TensorSpec],
    *,
    id: str = "",
    priority: int = 0,
    timeout_us: int = 0,
    outputs: Sequence[str] | None = None,
    known_outputs: Sequence[str] = (),
    binary_output: bool = False,
    binary_outputs: Mapping[str, bool] | None = None,
    bulk: BulkWork | None = None,
) -> InferRequest:
    """Return the request of checked `arrays`, all of them among `specs`.

    An input that is not sent has no value in any row, where one value of each may be missing.
    Raises `InvalidInput` if another is missing or a parameter is invalid.  Without
    `known_outputs` every output name is accepted.
    """
    if len(arrays) < len(specs):
        needed = sorted(name for name in specs.keys() - arrays.keys() if not arrays or not may_be_left_out(specs[name]))
        if needed:
            raise InvalidInput(f"inputs {needed} are missing")
        rows = len(next(iter(arrays.values())))
        arrays = {name: arrays[name] if name in arrays else none_of(spec, rows) for name, spec in specs.items()}
    columns = any(is_column(arrays[name].shape, spec) for name, spec in specs.items())
    inputs = {name: arrays[name] for name in specs}
    if columns:
        inputs = {name: as_rows(array, specs[name]) for name, array in inputs.items()}
    rows = len(next(iter(inputs.values())))
    for name, array in inputs.items():
        if len(array) != rows:
            raise InvalidInput(f"has {len(array)} rows, other inputs have {rows}", where=f"input {name!r}")
    if not 0 <= priority <= LEAST_URGENT:
        raise InvalidInput(f"priority is {priority}, needs 0 to {LEAST_URGENT}", where="parameters")
    if not 0 <= timeout_us <= LONGEST_TIMEOUT_US:
        raise InvalidInput(f"timeout is {timeout_us} microseconds, needs 0 to {LONGEST_TIMEOUT_US}", where="parameters")
    asked = None if outputs is None else _known(outputs, known_outputs)
    return InferRequest(id, inputs, rows, priority, timeout_us, asked, binary_output, binary_outputs, bulk, columns)


def bulk_work(bulk: bool, gear: int | None, accuracy: float | None) -> BulkWork | None:
    """The bulk work that these parameters ask for; raises `InvalidInput` where they do not fit together."""
    if not bulk:
        for name, value in (("gear", gear), ("accuracy", accuracy)):
            if value is not None:
                raise InvalidInput(
                    f"{name} is given, and the request is no bulk work, so its gear follows from the load",
                    where="parameters",
                    remedy="leave it out, or give bulk: true",
                )
        return None
    if gear is not None and accuracy is not None:
        raise InvalidInput(
            f"gear {gear} and accuracy {accuracy:g} are both given, and a gear has an accuracy of its own",
            where="parameters",
            remedy="give one of them",
        )
    if gear is not None and not 0 <= gear < MOST_GEARS:
        raise InvalidInput(f"gear is {gear}, needs a number from 0 up", where="parameters")
    if accuracy is not None and not 0 < accuracy <= 1:
        raise InvalidInput(f"accuracy is {accuracy:g}, needs a share above 0 and up to 1", where="parameters")
    return BulkWork(gear=gear, accuracy=accuracy)


def timeout_us_of_slo(slo_ms: str) -> int:
    """Parse `x-slo-ms` into microseconds, at least 1; raises `InvalidInput`."""
    milliseconds = float(slo_ms) if _PLAIN_NUMBER.fullmatch(slo_ms) else 0.0
    if not 0 < milliseconds <= LONGEST_TIMEOUT_US / 1000:
        raise InvalidInput(
            f"is {slo_ms[:40]!r}",
            where="header x-slo-ms",
            remedy=f"give milliseconds as a plain number above 0 and up to {LONGEST_TIMEOUT_US // 1000}",
        )
    return max(1, round(milliseconds * 1000))


def _known(asked: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    for name in asked:
        if known and name not in known and name not in ROW_FACTS:
            raise _no_such_output(name, known)
    return tuple(dict.fromkeys(asked))


def _no_such_output(name: str, known: Sequence[str]) -> InvalidInput:
    return InvalidInput("there is no such output", where=f"output {name!r}", remedy=f"the outputs are {sorted(known)}")


# Answers -----------------------------------------------------------------------------------------


def answered_arrays(request: InferRequest, answer: Answer) -> Arrays:
    arrays = _asked_arrays(request, answer)
    if request.columns:
        return {name: array[:, None] if array.ndim == 1 else array for name, array in arrays.items()}
    return arrays


def _asked_arrays(request: InferRequest, answer: Answer) -> Arrays:
    outputs: Any = answer.outputs
    if request.outputs is None:
        return outputs  # type: ignore[no-any-return]
    selected = {}
    for name in request.outputs:
        if name in MODEL_FACTS:
            selected[name] = _row_facts(name, answer.rows)
        elif name in NODE_FACTS:
            selected[name] = _node_facts(name, answer)
        elif name in outputs:
            selected[name] = outputs[name]
        else:
            raise _no_such_output(name, list(outputs))
    return selected


def answer_parameters(answer: Answer) -> HowAnswered:
    """`reason` if degraded or answered by time, `remaining_s` with a deadline."""
    how = HowAnswered(answer.gear, answer.queue_s, answer.run_s, answer.outcome)  # type: ignore[arg-type]
    if answer.reason and answer.outcome in ("answered", "degraded"):
        how.reason = answer.reason
    if answer.remaining_s is not None:
        how.remaining_s = answer.remaining_s
    if answer.missing:
        how.gearshift_missing = _in_json(answer.missing)
    if answer.cut:
        how.gearshift_cut = _in_json(answer.cut)
    return how


def _row_facts(name: str, rows: Sequence[RowFacts]) -> NDArray[Any]:
    match name:
        case "gearshift_model":
            return np.array([row.model for row in rows], dtype=object)
        case "gearshift_stage":
            return np.array([row.stage for row in rows], dtype=np.int64)
        case "gearshift_certainty":
            return np.array([row.certainty for row in rows], dtype=np.float64)
        case _:
            return np.array([row.exit_segment for row in rows], dtype=np.int64)


def _node_facts(name: str, answer: Answer) -> NDArray[Any]:
    """A text for each row: its items, nodes without an answer, or fan-outs that were cut."""
    facts: Sequence[Any] = {"gearshift_items": answer.items, "gearshift_missing": answer.missing}.get(name, answer.cut)
    of_rows: list[list[Any]] = [[] for _ in answer.rows]
    for fact in facts:
        of_rows[fact.row].append(fact)
    texts = np.empty(len(of_rows), dtype=object)
    texts[:] = [_in_json(of_row) for of_row in of_rows]
    return texts


def _in_json(facts: Sequence[Any]) -> str:
    return msgspec.json.encode(facts).decode()
