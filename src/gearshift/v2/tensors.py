"""The Open Inference Protocol V2 apart from its encodings: what REST and gRPC check and answer alike, as plain Python.

Both turn tensors into arrays in their own way, check them here, and put what this module answers into their own words.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from gearshift import __version__
from gearshift.clock import NS_PER_S
from gearshift.errors import InvalidInput
from gearshift.model import Arrays, TensorSpec
from gearshift.observability.metrics import Totals
from gearshift.request import LEAST_URGENT, Answer, RowFacts
from gearshift.serving.door.settings import ServerSettings
from gearshift.v2.bodies import LONGEST_TIMEOUT_US, InferRequest

SERVER_NAME = "gearshift"
MODEL_VERSION = "1"
MOST_STRINGS = 1 << 17
"""Elements of a BYTES tensor, each of which costs as much as hundreds of numbers."""
MOST_DIMENSIONS_TOLD = 16
MOST_TOLD = 1 << 63
FLOATS = frozenset({"FP16", "FP32", "FP64"})
EXTENSIONS = (
    "binary_tensor_data",
    "model_configuration",
    "model_repository",
    "parameters",
    "schedule_policy",
    "statistics",
)
"""In Triton's words; of the repository there is the index alone."""

_PLAIN_NUMBER = re.compile(r"[0-9]{1,15}(\.[0-9]{1,15})?", re.ASCII)
ROW_FACTS = ("gearshift_model", "gearshift_stage", "gearshift_certainty", "gearshift_exit_segment")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Rows of a request, tensors that it has or asks for, elements of each, and how much of its body is JSON."""

    most_rows: int | None = None
    """None for as many as may wait."""
    most_tensors: int = 1024
    most_elements: int = 1 << 24
    most_text_bytes: int = 48 << 20


def limits_of(settings: ServerSettings) -> Limits:
    """The bounds of a server's requests."""
    return Limits(
        most_rows=settings.most_rows,
        most_tensors=settings.most_tensors,
        most_elements=settings.most_elements,
        most_text_bytes=settings.largest_body_bytes * 3 // 4,
    )


@lru_cache(maxsize=16)
def limits_beside(limits: Limits, most_waiting: int) -> Limits:
    """`limits` while `most_waiting` rows may wait, which no request has more of."""
    return replace(limits, most_rows=min(most_waiting, limits.most_rows or most_waiting))


# Requests ------------------------------------------------------------------------------------------------------------


def require_few_tensors(inputs: int, outputs: int, limits: Limits) -> None:
    """Raise `InvalidInput` where more tensors are given or asked for than may be."""
    for count, noun in ((inputs, "inputs"), (outputs, "outputs")):
        if count > limits.most_tensors:
            raise InvalidInput(f"there are {count} {noun}, at most {limits.most_tensors} are taken")


def declared_input(
    name: str, datatype: str, shape: Sequence[int], specs: Mapping[str, TensorSpec], limits: Limits
) -> TensorSpec:
    """The operator's input that a tensor declares itself to be; raises `InvalidInput` where it does not fit."""
    spec = specs.get(name)
    if spec is None:
        raise InvalidInput("there is no such input", where=f"input {name!r}", remedy=f"the inputs are {sorted(specs)}")
    if datatype != spec.datatype:
        raise InvalidInput(f"datatype is {datatype!r}, needs {spec.datatype!r}", where=f"input {name!r}")
    if not _fits(shape, spec.shape):
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
        count = elements if elements < MOST_TOLD else f"over {MOST_TOLD}"  # Python writes no number of any length
        raise InvalidInput(
            f"has {count} elements by its shape, at most {most_elements} are taken", where=f"input {name!r}"
        )
    return spec


def _fits(shape: Sequence[int], wanted: Sequence[int]) -> bool:
    if len(shape) != len(wanted):
        return False
    for given, needed in zip(shape, wanted, strict=True):
        if given < 1 or needed not in (given, -1):
            return False
    return True


def refuse_shared_memory(where: str) -> NoReturn:
    """Raise `InvalidInput` for a tensor that is to come or go through shared memory."""
    raise InvalidInput("shared memory is not taken", where=where, remedy="send the tensor in the request")


def refuse_classification(where: str) -> NoReturn:
    """Raise `InvalidInput` for an output of which classes are asked."""
    raise InvalidInput("classification is not done here", where=where, remedy="ask for the output itself")


def require_finite(array: NDArray[Any], spec: TensorSpec) -> None:
    """Raise `InvalidInput` for a number that is not finite, where it is no missing value that may be."""
    if spec.datatype in FLOATS and not (np.isfinite(array).all() or (spec.missing and not np.isinf(array).any())):
        raise InvalidInput(f"data has a number that is not finite in {spec.datatype}", where=f"input {spec.name!r}")


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
) -> InferRequest:
    """The request of checked `arrays`, all of them among `specs`.

    Raises `InvalidInput` where one is missing, or what is asked makes no sense.
    Without any `known_outputs` every name of an output is let through.
    """
    if len(arrays) < len(specs):
        raise InvalidInput(f"inputs {sorted(specs.keys() - arrays.keys())} are missing")
    inputs = {name: arrays[name] for name in specs}
    rows = len(next(iter(inputs.values())))
    for name, array in inputs.items():
        if len(array) != rows:
            raise InvalidInput(f"has {len(array)} rows, other inputs have {rows}", where=f"input {name!r}")
    if not 0 <= priority <= LEAST_URGENT:
        raise InvalidInput(f"priority is {priority}, needs 0 to {LEAST_URGENT}", where="parameters")
    if not 0 <= timeout_us <= LONGEST_TIMEOUT_US:
        raise InvalidInput(f"timeout is {timeout_us} microseconds, needs 0 to {LONGEST_TIMEOUT_US}", where="parameters")
    asked = None if outputs is None else _known(outputs, known_outputs)
    return InferRequest(id, inputs, rows, priority, timeout_us, asked, binary_output, binary_outputs)


def timeout_us_of_slo(slo_ms: str) -> int:
    """Microseconds of what `x-slo-ms` says, at least 1; raises `InvalidInput` unless it is a plain positive number."""
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


# Answers -------------------------------------------------------------------------------------------------------------


def answered_arrays(request: InferRequest, answer: Answer) -> Arrays:
    """The arrays that were asked for; raises `InvalidInput` when one was not answered."""
    outputs: Any = answer.outputs
    if request.outputs is None:
        return outputs  # type: ignore[no-any-return]
    selected = {}
    for name in request.outputs:
        if name in ROW_FACTS:
            selected[name] = _row_facts(name, answer.rows)
        elif name in outputs:
            selected[name] = outputs[name]
        else:
            raise _no_such_output(name, list(outputs))
    return selected


def answer_parameters(answer: Answer) -> dict[str, Any]:
    """How the answer was made; `reason` only where it is degraded, `remaining_s` where the client gave a deadline."""
    parameters: dict[str, Any] = {
        "gear": answer.gear,
        "queue_s": answer.queue_s,
        "run_s": answer.run_s,
        "outcome": answer.outcome,
    }
    if answer.outcome == "degraded":
        parameters["reason"] = answer.reason
    if answer.remaining_s is not None:
        parameters["remaining_s"] = answer.remaining_s
    return parameters


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


# Metadata ------------------------------------------------------------------------------------------------------------


def server_metadata() -> dict[str, Any]:
    """What the server is."""
    return {"name": SERVER_NAME, "version": __version__, "extensions": list(EXTENSIONS)}


def model_metadata(operator: str, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> dict[str, Any]:
    """What the operator takes and answers."""
    return {
        "name": operator,
        "versions": [MODEL_VERSION],
        "platform": SERVER_NAME,
        "inputs": inputs,
        "outputs": outputs,
    }


def model_config(
    operator: str, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], most_rows: int | None
) -> dict[str, Any]:
    """The operator as a model configuration of Triton: dimensions without the rows, which `max_batch_size` bounds."""
    return {
        "name": operator,
        "platform": SERVER_NAME,
        "backend": SERVER_NAME,
        "max_batch_size": most_rows,
        "input": [_configured(spec) for spec in inputs],
        "output": [_configured(spec) for spec in outputs],
    }


def _configured(spec: TensorSpec) -> dict[str, Any]:
    datatype = "STRING" if spec.datatype == "BYTES" else spec.datatype
    return {"name": spec.name, "data_type": f"TYPE_{datatype}", "dims": list(spec.shape[1:])}


def repository_index(operator: str, ready: bool, *, ready_only: bool = False) -> list[dict[str, str]]:
    """The operators that are served, or those of them that are ready."""
    if ready_only and not ready:
        return []
    state, reason = ("READY", "") if ready else ("UNAVAILABLE", "some model has no worker, or the server is ending")
    return [{"name": operator, "version": MODEL_VERSION, "state": state, "reason": reason}]


def refuse_loading(verb: str) -> NoReturn:
    """Raise `InvalidInput`: a plan's models come and go with it."""
    raise InvalidInput(
        f"a model cannot be {verb}ed on its own, a plan needs all of its models", remedy="serve another plan"
    )


def model_statistics(operator: str, totals: Totals) -> dict[str, Any]:
    """All that the operator has answered, in Triton's form; times are of whole batches, and sizes are not kept."""
    none = _took(0, 0.0)
    return {
        "name": operator,
        "version": MODEL_VERSION,
        "last_inference": round(totals.last_answer_s * 1000),
        "inference_count": totals.rows,
        "execution_count": totals.batches,
        "inference_stats": {
            "success": _took(totals.succeeded, totals.succeeded_s),
            "fail": _took(totals.failed, totals.failed_s),
            "queue": _took(totals.queued, totals.queued_s),
            "compute_input": none,
            "compute_infer": _took(totals.batches, totals.run_s),
            "compute_output": none,
            "cache_hit": none,
            "cache_miss": none,
        },
        "batch_stats": [],
    }


def _took(count: int, seconds: float) -> dict[str, int]:
    return {"count": count, "ns": round(seconds * NS_PER_S)}
