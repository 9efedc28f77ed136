"""Describe a server in OpenAPI, from the table of routes and the structs of bodies."""

from collections.abc import Sequence

import msgspec

from gearshift import __version__
from gearshift.model import TensorSpec
from gearshift.serving.door.keys import Keys
from gearshift.serving.door.signature import Signature
from gearshift.serving.http.routes import Error, Route, Schema, Struct, routes_of
from gearshift.v2.tensors import FLOATS, ROW_FACTS

OPENAPI_VERSION = "3.1.0"
COMPONENTS = "#/components/schemas/"
CLOSED = "Closed, as there are no keys of administration"
FOREIGN = "From a page of another site, or, without keys of users, by a name that is not the server's"
EITHER: list[dict[str, list[str]]] = [{"bearer": []}, {"header": []}]
JSON, BINARY = "application/json", "application/octet-stream"
BINARY_BODY = "The JSON, then the binary tensors it names, in its order."
ASK_AGAIN = frozenset({429, 503})
OF_REQUEST = "InferBody", "InputTensor", "AskedOutput"
"""Schemas that name a pipeline's tensors."""
RETRY_AFTER = {"Retry-After": {"schema": {"type": "integer"}, "description": "Seconds to wait."}}
HEADER_BYTES = {
    "Inference-Header-Content-Length": {
        "schema": {"type": "integer", "minimum": 0},
        "description": "Where binary tensors follow the JSON.",
    }
}


def describe(
    served: Sequence[Signature], *, keys: Keys | None, others: Sequence[Route] = (), has_dashboard: bool = True
) -> Schema:
    """Return the OpenAPI description of a server of these pipelines, and `others`, that requires these keys."""
    routes = (*routes_of([each.name for each in served], has_dashboard=has_dashboard), *others)
    names = dict.fromkeys([*(each.name for each in served), *(route.model for route in others if route.model)])
    components: Schema = {"schemas": _schemas(routes, served)}
    if keys is not None:
        components["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer"},
            "header": {"type": "apiKey", "in": "header", "name": "x-api-key"},
        }
    described: Schema = {
        "openapi": OPENAPI_VERSION,
        "info": {
            "title": f"Gearshift: {', '.join(names)}",
            "version": __version__,
            "description": "The Open Inference Protocol V2. What can be read by GET can be asked for by HEAD too.",
        },
        "paths": {
            route.path: {
                route.methods[0].lower(): _of_records(_operation(route, keys, alone=len(served) <= 1), route, served)
            }
            for route in routes
        },
        "components": components,
    }
    if keys is not None and keys.of_users:
        described["security"] = EITHER
    return described


def _schemas(routes: Sequence[Route], served: Sequence[Signature]) -> Schema:
    """Return the schemas of all bodies; those of requests are restricted to a pipeline's tensors.

    Where there are several pipelines, these have the pipeline's name before their own.
    """
    bodies: dict[Struct, None] = {Error: None}
    for route in routes:
        bodies |= dict.fromkeys(filter(None, (route.body, route.answer, route.array_of, route.unready)))
    _, schemas = msgspec.json.schema_components(bodies, ref_template=COMPONENTS + "{name}")
    of_request = {name: schemas.pop(name) for name in OF_REQUEST if name in schemas}
    for each in served:
        own = of_request if len(served) == 1 else _named(each.name, of_request)
        prefix = "" if len(served) == 1 else f"{each.name}."
        _restrict(own[f"{prefix}InputTensor"], own[f"{prefix}AskedOutput"], each)
        schemas |= own
    return schemas


def _named(pipeline: str, schemas: Schema) -> Schema:
    """Return copies under names, and with references, that begin with the name of the pipeline."""
    text = msgspec.json.encode(schemas)
    for name in schemas:
        text = text.replace(f'"{COMPONENTS}{name}"'.encode(), f'"{COMPONENTS}{pipeline}.{name}"'.encode())
    copied: Schema = msgspec.json.decode(text)
    return {f"{pipeline}.{name}": schema for name, schema in copied.items()}


def _restrict(input_tensor: Schema, asked_output: Schema, served: Signature) -> None:
    tensor = input_tensor["properties"]
    tensor["name"]["enum"] = [spec.name for spec in served.inputs]
    tensor["datatype"]["enum"] = sorted({spec.datatype for spec in served.inputs})
    tensor["data"]["type"] = "array"
    if served.outputs:
        asked_output["properties"]["name"]["enum"] = [*(spec.name for spec in served.outputs), *ROW_FACTS]


def _operation(route: Route, keys: Keys | None, *, alone: bool) -> Schema:
    operation: Schema = {"summary": route.summary, "responses": _responses(route, keys)}
    if parameters := _parameters(route):
        operation["parameters"] = parameters
    if route.body is not None:
        own = "" if alone or not route.model else f"{route.model}."
        content: Schema = {JSON: {"schema": _reference(route.body, own)}}
        if route.binary:
            content[BINARY] = {"schema": {"description": BINARY_BODY}}
        operation["requestBody"] = {"required": route.body_required, "content": content}
    if keys is not None and route.who in ("admin", "operator"):
        operation["security"] = EITHER
    elif keys is not None and keys.of_users and route.who == "anybody":
        operation["security"] = []
    return operation


def _of_records(operation: Schema, route: Route, served: Sequence[Signature]) -> Schema:
    """Add the bodies of a route that takes and gives plain records."""
    if route.records:
        signature = next(each for each in served if each.name == route.model)
        taken, given = _record(signature.inputs), _record(signature.outputs)
        operation["requestBody"] = {"required": True, "content": {JSON: {"schema": taken}}}
        operation["responses"]["200"] = _response("The outputs of each record", given)
    return operation


def _record(specs: Sequence[TensorSpec]) -> Schema:
    """The schema of a record of these tensors, or of a list of such records."""
    record: Schema = {"type": "object"}
    if specs:
        record |= {"properties": {spec.name: _cell(spec) for spec in specs}, "required": [spec.name for spec in specs]}
    return {"oneOf": [record, {"type": "array", "minItems": 1, "items": record}]}


def _cell(spec: TensorSpec) -> Schema:
    kind = {"BYTES": "string", "BOOL": "boolean"}.get(spec.datatype, "number" if spec.datatype in FLOATS else "integer")
    schema: Schema = {"type": [kind, "null"] if spec.missing else kind}
    for size in reversed(spec.shape[1:]):
        fixed = {} if size == -1 else {"minItems": size, "maxItems": size}
        schema = {"type": "array", "items": schema, **fixed}
    return schema


def _parameters(route: Route) -> list[Schema]:
    parts = [part[1:-1] for part in route.path.split("/") if part.startswith("{")]
    in_path = [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in parts]
    in_head = [
        {"name": header.name, "in": "header", "description": header.description, "schema": header.schema}
        for header in route.headers
    ]
    return [*in_path, *in_head]


def _responses(route: Route, keys: Keys | None) -> Schema:
    errors = _access_errors(route, keys) | dict(route.errors)
    responses = {str(status): _error(status, text) for status, text in errors.items()}
    if not route.refused:
        responses["200"] = _answer(route)
    if route.unready is not None:
        responses["503"] = _response("Not ready", _reference(route.unready)) | {"headers": RETRY_AFTER}
    if 413 in errors:  # the server reads its body
        responses["408"] = {"description": "The request was not complete in time"}
    responses["431"] = {"description": "The head is too large"}
    return responses


def _access_errors(route: Route, keys: Keys | None) -> dict[int, str]:
    """Return the errors of those who may not ask, by status."""
    if route.who == "anybody":
        return {}
    locked, errors = keys is not None and keys.of_users, dict[int, str]()
    administers = route.who in ("admin", "operator")
    if locked or (keys is not None and administers):
        kind = "key of administration" if administers and keys is not None and keys.of_admins else "key"
        errors |= {400: "Several keys are sent", 401: f"No {kind}, or none that is known"}
    if "POST" in route.methods or not locked:
        errors[403] = FOREIGN
    if route.who == "operator" and keys is None:
        errors[403] = "Without keys, only from the server's own machine"
    elif administers and keys is not None and not keys.of_admins:
        errors[403] = CLOSED
    return errors


def _answer(route: Route) -> Schema:
    if route.array_of is not None:
        return _response(route.summary, {"type": "array", "items": _reference(route.array_of)})
    if route.answer is None:
        return _response(route.summary, {}, route.content_type)
    answer = _response(route.summary, _reference(route.answer))
    if route.binary:
        answer["headers"] = HEADER_BYTES
        answer["content"][BINARY] = {"schema": {"description": BINARY_BODY}}
    return answer


def _error(status: int, text: str) -> Schema:
    response = _response(text, _reference(Error))
    return response | {"headers": RETRY_AFTER} if status in ASK_AGAIN else response


def _response(description: str, schema: Schema, content_type: str = JSON) -> Schema:
    return {"description": description, "content": {content_type: {"schema": schema}}}


def _reference(body: Struct, own: str = "") -> Schema:
    return {"$ref": COMPONENTS + own + body.__name__}
