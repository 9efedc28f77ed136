"""Describe one operator's server in OpenAPI, from the structs that decode and encode bodies."""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from gearshift import __version__
from gearshift.model import DATATYPES, TensorSpec
from gearshift.runtime.router.status import Status
from gearshift.serving.door.keys import Keys
from gearshift.serving.door.metadata import IndexEntry, ModelConfiguration, ModelMetadata, ServerMetadata, Statistics
from gearshift.serving.operate.control import DRAIN_PATH, GEAR_PATH, STATUS_PATH, SWAP_PATH, DrainBody, GearBody
from gearshift.serving.operate.swap import SwapBody, SwapResult
from gearshift.v2.bodies import IndexBody, InferBody
from gearshift.v2.tensors import MODEL_VERSION, ROW_FACTS

OPENAPI_VERSION = "3.1.0"
COMPONENTS = "#/components/schemas/"
CLOSED = "Closed, as there are no keys of administration"
FOREIGN = "From a page of another site, or, without keys of users, by a name that is not the server's"
EITHER: list[dict[str, list[str]]] = [{"bearer": []}, {"header": []}]

Schema = dict[str, Any]


# Answers -----------------------------------------------------------------------------------------


class Error(msgspec.Struct):
    """Why a request was refused or failed."""

    error: str


class Live(msgspec.Struct):
    """The process is alive."""

    live: bool


class Ready(msgspec.Struct):
    """Requests are accepted, and every model has a replica."""

    ready: bool
    name: str | UnsetType = UNSET


class BinarySize(msgspec.Struct):
    """Bytes of the tensor after the JSON."""

    binary_data_size: int


class AnsweredTensor(msgspec.Struct):
    """An output: its data as a flat list, or as bytes after the JSON."""

    name: str
    datatype: Literal[tuple(DATATYPES)]  # type: ignore[valid-type]
    shape: list[int]
    data: list[bool | int | float | str | None] | UnsetType = UNSET
    parameters: BinarySize | UnsetType = UNSET


class HowAnswered(msgspec.Struct):
    """The gear at the end, the longest queueing and run time of any row, and the outcome.

    `degraded` answers lack a later model of the cascade, `late` ones came after the deadline.
    """

    gear: int
    queue_s: float
    run_s: float
    outcome: Literal["answered", "degraded", "late"]
    reason: str | UnsetType = UNSET
    remaining_s: float | UnsetType = UNSET


class InferAnswer(msgspec.Struct):
    """The answer to an inference."""

    model_name: str
    model_version: str
    parameters: HowAnswered
    outputs: list[AnsweredTensor]
    id: str | UnsetType = UNSET


BODIES = (
    InferBody, InferAnswer, IndexBody, IndexEntry, Error, Live, Ready, ServerMetadata, ModelMetadata,
    ModelConfiguration, Statistics, Status, GearBody, DrainBody, SwapBody, SwapResult,
)  # fmt: skip


# The description ---------------------------------------------------------------------------------


def describe(
    operator: str, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], *, keys: Keys | None
) -> Schema:
    """Return the OpenAPI description of a server of `operator` that requires these keys."""
    components: Schema = {"schemas": _schemas(inputs, outputs)}
    if keys is not None:
        components["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer"},
            "header": {"type": "apiKey", "in": "header", "name": "x-api-key"},
        }
    described: Schema = {
        "openapi": OPENAPI_VERSION,
        "info": {
            "title": f"Gearshift: {operator}",
            "version": __version__,
            "description": "The Open Inference Protocol V2. What can be read by GET can be asked for by HEAD too.",
        },
        "paths": _paths(operator, keys),
        "components": components,
    }
    if keys is not None and keys.of_users:
        described["security"] = EITHER
    return described


def _schemas(inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> Schema:
    """Return the schemas of all bodies, restricted to the names of the operator's tensors."""
    _, schemas = msgspec.json.schema_components(BODIES, ref_template=COMPONENTS + "{name}")
    tensor = schemas["InputTensor"]["properties"]
    tensor["name"]["enum"] = [spec.name for spec in inputs]
    tensor["datatype"]["enum"] = sorted({spec.datatype for spec in inputs})
    tensor["data"]["type"] = "array"
    if outputs:
        schemas["AskedOutput"]["properties"]["name"]["enum"] = [*(spec.name for spec in outputs), *ROW_FACTS]
    return schemas


def _paths(operator: str, keys: Keys | None) -> Schema:
    live, ready = _get("Whether the process is alive", Live), _get("Whether requests are let in", Ready, unready=Ready)
    statistics = _get("What was answered, in Triton's form", Statistics)
    paths = {
        "/v2": _get("The server", ServerMetadata),
        "/metrics": _get("Metrics in Prometheus format", None),
        "/openapi.json": _get("This description", None, content_type="application/json"),
        "/v2/models/stats": statistics,
        "/v2/repository/index": _post("The operators and their state", IndexBody, array_of=IndexEntry),
        STATUS_PATH: _get("What the server is doing", Status),
        GEAR_PATH: _administration("Keep a gear, or let the load choose again", GearBody, keys=keys),
        DRAIN_PATH: _drain(keys),
        SWAP_PATH: _swap(keys),
    }
    model = f"/v2/models/{operator}"
    for path in (model, f"{model}/versions/{MODEL_VERSION}"):
        paths |= {
            path: _get("The operator", ModelMetadata),
            f"{path}/config": _get("The operator as Triton would configure it", ModelConfiguration),
            f"{path}/ready": _get("Whether the operator is ready", Ready, unready=Ready),
            f"{path}/stats": statistics,
            f"{path}/infer": _infer(),
        }
    for verb in ("load", "unload"):
        paths[f"/v2/repository/models/{{model}}/{verb}"] = _refused(f"No model can be {verb}ed on its own", keys)
    locked = keys is not None and keys.of_users
    if locked:
        for methods in paths.values():
            for operation in methods.values():
                operation["responses"].setdefault("401", _response("No key, or none that is known", Error))
                operation["responses"].setdefault("400", _response("Several keys are sent", Error))
    for methods in paths.values():
        for method, operation in methods.items():
            if method == "post" or not locked:
                operation["responses"].setdefault("403", _response(FOREIGN, Error))
            if "413" in operation["responses"]:  # the server reads its body
                operation["responses"]["408"] = {"description": "The request was not complete in time"}
    unlocked = {"/livez": live, "/v2/health/live": live, "/readyz": ready, "/v2/health/ready": ready}
    for path, methods in unlocked.items():
        paths[path] = {"get": {**methods["get"], "security": []}} if locked else methods
    for methods in paths.values():
        for operation in methods.values():
            operation["responses"]["431"] = {"description": "The head is too large"}
    return paths


def _get(
    summary: str,
    answer: type[msgspec.Struct] | None,
    *,
    unready: type[msgspec.Struct] | None = None,
    content_type: str = "text/plain",
) -> Schema:
    responses = {"200": _response(summary, answer, content_type)}
    if unready is not None:
        responses["503"] = _response("Not ready", unready, headers=RETRY_AFTER)
    return {"get": {"summary": summary, "responses": responses}}


def _post(summary: str, body: type[msgspec.Struct], *, array_of: type[msgspec.Struct]) -> Schema:
    schema = {"type": "array", "items": _reference(array_of)}
    responses = {
        "200": {"description": summary, "content": {"application/json": {"schema": schema}}},
        "400": _response("The body makes no sense", Error),
        "413": _response("The body is too large", Error),
    }
    content = {"application/json": {"schema": _reference(body)}}
    return {"post": {"summary": summary, "requestBody": {"content": content}, "responses": responses}}


def _drain(keys: Keys | None) -> Schema:
    summary = "Refuse new requests and answer those accepted, or let new ones in again"
    drain = _administration(summary, DrainBody, required=False, keys=keys)
    drain["post"]["responses"]["503"] = _response("The server is ending", Error, headers=RETRY_AFTER)
    return drain


def _swap(keys: Keys | None) -> Schema:
    swap = _administration("Put another plan in force", SwapBody, answer=SwapResult, keys=keys)
    swap["post"]["responses"] |= {
        "409": _response("The plan before goes on, or another swap is under way", Error),
        "503": _response("The server is starting or ending", Error, headers=RETRY_AFTER),
    }
    return swap


def _administration(
    summary: str,
    body: type[msgspec.Struct],
    *,
    answer: type[msgspec.Struct] = Status,
    required: bool = True,
    keys: Keys | None,
) -> Schema:
    operation: Schema = {
        "summary": summary,
        "requestBody": {"required": required, "content": {"application/json": {"schema": _reference(body)}}},
        "responses": {
            "200": _response(summary, answer),
            "400": _response("The body makes no sense", Error),
            "413": _response("The body is too large", Error),
        },
    }
    if keys is None:
        operation["responses"]["403"] = _response("Without keys, only from the server's own machine", Error)
    elif not keys.of_admins:
        operation["responses"]["403"] = _response(CLOSED, Error)
    return {"post": _with_key(operation, keys)}


def _refused(summary: str, keys: Keys | None) -> Schema:
    model = {"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}
    operation: Schema = {"summary": summary, "parameters": [model], "responses": {"400": _response(summary, Error)}}
    if keys is not None and not keys.of_admins:
        operation["responses"]["403"] = _response(CLOSED, Error)
    return {"post": _with_key(operation, keys)}


def _with_key(operation: Schema, keys: Keys | None) -> Schema:
    if keys is not None:
        kind = "key of administration" if keys.of_admins else "key"
        operation["responses"].setdefault("400", _response("Several keys are sent", Error))
        operation["responses"]["401"] = _response(f"No {kind}, or none that is known", Error)
        operation["security"] = EITHER
    return operation


def _infer() -> Schema:
    answered = _response("Answered", InferAnswer, headers=HEADER_BYTES)
    answered["content"][BINARY] = {"schema": {"description": "The JSON, then the binary tensors it names."}}
    binary = {"schema": {"description": "The JSON, then the binary tensors it names, in its order."}}
    return {
        "post": {
            "summary": "Inference",
            "parameters": [
                _header("x-slo-ms", "A deadline in ms, up to 4503599627370, where the body has no timeout.", SLO),
                _header("x-request-start", "When it was sent: `t=` and Unix time in s, ms or us.", {"type": "string"}),
                _header("inference-header-content-length", "How much of the body is JSON.", BYTES),
                _header("content-encoding", "How the body is compressed.", ENCODINGS),
                _header("accept-encoding", "How a large answer may be compressed.", {"type": "string"}),
                _header("x-request-id", "The request's id in the log, given back.", {"type": "string"}),
            ],
            "requestBody": {
                "required": True,
                "content": {"application/json": {"schema": _reference(InferBody)}, BINARY: binary},
            },
            "responses": {
                "200": answered,
                "400": _response("A field, tensor, parameter or header does not fit", Error),
                "406": _response("JSON cannot carry an output; ask for it in binary", Error),
                "413": _response("The body is too large", Error),
                "429": _response("Queues or held bytes are at their bound", Error, headers=RETRY_AFTER),
                "500": _response("A row has failed, or a fault of the server", Error),
                "503": _response("Starting, ending, or without a worker", Error, headers=RETRY_AFTER),
                "504": _response("The deadline cannot be kept; the text begins with why", Error),
            },
        }
    }


BINARY = "application/octet-stream"
SLO = {"type": "string", "pattern": r"^[0-9]{1,15}(\.[0-9]{1,15})?$"}
BYTES = {"type": "integer", "minimum": 0}
ENCODINGS = {"type": "string", "enum": ["gzip", "deflate", "identity"]}
RETRY_AFTER = {"Retry-After": {"schema": {"type": "integer"}, "description": "Seconds to wait."}}
HEADER_BYTES = {
    "Inference-Header-Content-Length": {"schema": BYTES, "description": "Where binary tensors follow the JSON."}
}


def _header(name: str, description: str, schema: Schema) -> Schema:
    return {"name": name, "in": "header", "description": description, "schema": schema}


def _response(
    description: str,
    answer: type[msgspec.Struct] | None,
    content_type: str = "application/json",
    *,
    headers: Schema | None = None,
) -> Schema:
    schema = {} if answer is None else _reference(answer)
    content_type = content_type if answer is None else "application/json"
    response: Schema = {"description": description, "content": {content_type: {"schema": schema}}}
    return response if headers is None else response | {"headers": headers}


def _reference(body: type[msgspec.Struct]) -> Schema:
    return {"$ref": COMPONENTS + body.__name__}
